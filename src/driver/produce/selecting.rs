//! The beginning and the batches of a stream on its way out, reduced to what its client has
//! selected.

use super::filtering::RowFilter;
use super::options::ensure_served;
use super::production::{Production, given_up};
use crate::arrow::select::{Part, into_whole};
use crate::arrow::{Encoder, OwnedDeviceArray, OwnedSchema};
use crate::driver::clock;
use crate::error::{Error, Result, Status};
use crate::proto::{Selection, Timestamp};
use crate::transport::MemoryOwner;

impl Production {
    /// Sends the schema, which comes before everything else. Fails if the schema is not valid, the
    /// device cannot be read here, or something has ended the stream.
    pub fn start(&mut self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        self.start_selected(schema, device_type, &Selection::new())
    }

    /// The same for a client that has selected columns or rows (rule Q12): from now on
    /// [`push`](Self::push) sends what the client wants of each batch.
    ///
    /// A selection that does not fit the schema is the client's fault. It fails the stream.
    pub fn start_selected(
        &mut self,
        schema: &OwnedSchema,
        device_type: i32,
        selection: &Selection,
    ) -> Result<()> {
        if self.finished || self.encoder.is_some() {
            return Err(Error::invalid_argument(
                "the stream has its schema already, or is over",
            ));
        }
        ensure_served(device_type)?;
        if selection.is_all() {
            let encoder = Encoder::new(schema, self.options.encode)?;
            return self.begin(encoder, device_type);
        }
        let selecting = || {
            let (encoder, mut selector) =
                Encoder::selecting(schema, selection, self.options.encode)?;
            let filter = selection.filter().map(|message| {
                let wanted = selector.take_columns();
                RowFilter::new(message, schema, device_type, wanted)
            });
            Ok((encoder, selector, filter.transpose()?))
        };
        match selecting() {
            Ok((encoder, selector, filter)) => {
                (self.selector, self.filter) = (Some(selector), filter);
                self.begin(encoder, device_type)
            }
            Err(error) => Err(self.blame_client(error)),
        }
    }

    /// Fails the stream if `error` is the fault of what the client has selected.
    fn blame_client(&mut self, error: Error) -> Error {
        if matches!(
            error.status(),
            Status::InvalidArgument | Status::Unsupported
        ) {
            self.fail(error.status().code(), error.text());
        }
        error
    }

    /// The rows of an array that pass the client's filter; computed once there is room for them.
    fn filtered(
        &mut self,
        array: OwnedDeviceArray,
        deadline: Option<Timestamp>,
    ) -> Result<OwnedDeviceArray, (Error, OwnedDeviceArray)> {
        let Some(mut filter) = self.filter.take() else {
            return Ok(array);
        };
        let filtered = match self.ensure_room(deadline) {
            Ok(()) => filter
                .apply(array, &mut || self.ensure_streaming())
                .map_err(|(error, array)| (self.blame_client(error), array)),
            // The array is given back unchanged, and the client is not to blame.
            Err(error) => Err((error, array)),
        };
        self.filter = Some(filter);
        filtered
    }

    /// Sends what the client wants of one record batch, after its dictionaries. Once the batch is
    /// taken, a failure is returned by the next call, because the consumer may have a part of the
    /// batch.
    ///
    /// Gives the array back if there was no room in time, the array is not valid, or something has
    /// ended the stream. An array needs no room if the client wants nothing of it.
    pub fn push(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        deadline: Option<Timestamp>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        let rows = match self.is_complete() {
            true => 0,
            false => u64::try_from(array.raw().array.length).unwrap_or(0),
        };
        self.push_selected(array, custom_metadata, deadline)?;
        self.options.counting.counters().read(rows);
        Ok(())
    }

    /// [`push`](Self::push), without its figures.
    fn push_selected(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        deadline: Option<Timestamp>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        let array = match self.is_complete() {
            true => array,
            false => self.filtered(array, deadline)?,
        };
        let Some(selector) = &self.selector else {
            return self.send(array, custom_metadata, deadline);
        };
        let len = array.raw().array.length;
        let part = match selector.part(array.raw()) {
            // No row has passed.
            Ok(_) if len == 0 && self.filter.is_some() => Part::None,
            Ok(part) => part,
            Err(error) => return Err((error, array)),
        };
        match part {
            Part::None => {
                if let Err(error) = self.ensure_streaming() {
                    return Err((error, array));
                }
                let array = MemoryOwner::One(Box::new(array));
                self.options.callbacks.drop_later(array);
            }
            Part::Rows { first, rows } => {
                let selected = selector.select(array, first, rows)?;
                self.send(selected, custom_metadata, deadline)
                    .map_err(|(error, refused)| (error, into_whole(refused)))?;
            }
        }
        if let Some(selector) = &mut self.selector {
            selector.pass(len);
        }
        Ok(())
    }

    /// Fails if the consumer has gone or has cancelled, or if the host has given up. Needed if no
    /// batch is sent; otherwise the failed send reports it.
    fn ensure_streaming(&mut self) -> Result<()> {
        if self.stream.is_given_up() {
            return Err(given_up());
        }
        if let Some(cancel) = &self.cancel {
            cancel.check()?;
        }
        let present = self.outlets.iter_mut().filter(|it| it.turner.is_some());
        for outlet in present {
            outlet.refresh_room();
            outlet.room.ensure_streaming()?;
        }
        Ok(())
    }

    /// Whether the client wants nothing of later batches. Then the stream may be finished.
    pub fn is_complete(&self) -> bool {
        let selector = self.selector.as_ref();
        selector.is_some_and(|selector| selector.is_complete())
    }

    /// If the stream [is complete](Self::is_complete), ends it and lets go of its connections, as
    /// far as that needs no wait. The next call returns a failure.
    pub fn end_if_complete(&mut self) {
        if self.is_complete() && self.finish(Some(clock::now())).is_ok() {
            self.let_go();
        }
    }
}
