//! A get, a list or a describe.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Look, Request};
use crate::arrow::description::{Description, MAX_ENDPOINTS};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::client::asking::ClientCore;
use crate::client::getting::{AskedStream, Wanted};
use crate::client::uris::KnownUri;
use crate::client::{Answer, GetOptions, NextBatch, Stream};
use crate::device::DeviceKind;
use crate::driver::polling::Poller;
use crate::error::{Error, Result};
use crate::proto::{Timestamp, Verb};

/// A request for a stream, or for a description.
pub(in crate::client) struct GetRequest {
    pub(in crate::client) client: Arc<ClientCore>,
    pub(in crate::client) uris: Arc<[KnownUri]>,
    pub(in crate::client) verb: Verb,
    pub(in crate::client) descriptor: Vec<u8>,
    pub(in crate::client) options: GetOptions,
    pub(in crate::client) due: Option<Timestamp>,
    /// The token of the request, and that of what comes of it.
    pub(in crate::client) cancel: (Cancel, Option<Cancel>),
    pub(in crate::client) state: GetState,
}

/// How far a request is.
#[derive(Default)]
pub(in crate::client) enum GetState {
    #[default]
    New,
    Asked(Box<AskedStream>, Box<Poller>),
    /// A description is read.
    Reading(Box<Stream>, Rows),
    Here(Box<Stream>),
    Read(Box<Stream>, Rows),
}

impl GetRequest {
    fn wanted(&self) -> Result<Wanted<'_>> {
        let asked_for = (self.verb, self.descriptor.as_slice());
        Wanted::new(
            &self.client,
            &self.uris,
            asked_for,
            &self.options,
            true,
            self.due,
        )
    }

    /// Whether the schema has come.
    fn look_for_schema(&mut self) -> Result<Look> {
        let GetState::Asked(asked, poller) = &mut self.state else {
            return Ok(Look::Answer);
        };
        let found = match asked.fetch.try_schema(Some(&self.cancel.0), poller) {
            Ok(false) => return Ok(Look::NotYet),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let GetState::Asked(asked, poller) = std::mem::take(&mut self.state) else {
            return Ok(Look::Answer);
        };
        let wanted = self.wanted()?;
        let ended = asked.end(&self.client, &wanted, found, Some(&self.cancel.0));
        let ended = ended.map_err(|error| self.client.not_got(&self.descriptor, error))?;
        let Some(mut stream) = ended else {
            return Ok(Look::Again);
        };
        self.client.note(&self.descriptor, &mut stream);
        if self.verb == Verb::Describe {
            let rows = Rows::of(&mut stream)?;
            // Before the descriptor in whose place it comes is closed.
            stream.fd()?;
            drop(poller);
            self.state = GetState::Reading(Box::new(stream), rows);
            return self.read();
        }
        stream.set_cancel(self.cancel.1.as_ref());
        self.state = GetState::Here(Box::new(stream));
        Ok(Look::Answer)
    }

    /// Whether the whole description has come.
    fn read(&mut self) -> Result<Look> {
        let GetState::Reading(stream, rows) = &mut self.state else {
            return Ok(Look::Answer);
        };
        loop {
            match stream.try_next()? {
                NextBatch::NotYet => return Ok(Look::NotYet),
                NextBatch::Batch(array) => rows.add(array)?,
                NextBatch::End => break,
            }
        }
        if let GetState::Reading(stream, rows) = std::mem::take(&mut self.state) {
            self.state = GetState::Read(stream, rows);
        }
        Ok(Look::Answer)
    }
}

impl Request for GetRequest {
    fn begin(&mut self) -> Result<()> {
        self.cancel.0.check()?;
        let begun = (self.wanted()).and_then(|it| self.client.begin(&it, Some(&self.cancel.0)));
        let asked = begun.map_err(|error| self.client.not_got(&self.descriptor, error))?;
        let poller = Poller::new([Arc::new(self.cancel.0.clone()) as _])?;
        self.state = GetState::Asked(Box::new(asked), Box::new(poller));
        Ok(())
    }

    fn look(&mut self) -> Result<Look> {
        match &self.state {
            GetState::Asked(..) => self.look_for_schema(),
            GetState::Reading(..) => self.read(),
            GetState::New | GetState::Here(_) | GetState::Read(..) => Ok(Look::Answer),
        }
    }

    fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        match &mut self.state {
            GetState::Asked(_, poller) => Ok(poller.fd()),
            GetState::Reading(stream, _) => stream.fd(),
            // What was watched is closed.
            _ => Err(Error::invalid_argument("the request waits for nothing")),
        }
    }

    fn take(self: Box<Self>) -> Result<Answer> {
        match self.state {
            GetState::Here(stream) => Ok(Answer::Stream(stream)),
            GetState::Read(stream, rows) => {
                let headers = stream.headers();
                let description = Description::read(Box::new(rows))?;
                Ok(Answer::Description(description, headers))
            }
            _ => Err(Error::protocol("the server has not answered")),
        }
    }
}

/// The arrays of a description, which a stream of this crate has given and checked.
pub(in crate::client) struct Rows {
    schema: OwnedSchema,
    arrays: VecDeque<OwnedDeviceArray>,
    count: usize,
}

impl Rows {
    fn of(stream: &mut Stream) -> Result<Self> {
        Ok(Self {
            schema: stream.schema()?,
            arrays: VecDeque::new(),
            count: 0,
        })
    }

    fn add(&mut self, array: OwnedDeviceArray) -> Result<()> {
        let rows = usize::try_from(array.raw().array.length).unwrap_or(usize::MAX);
        // An array without rows counts too: they must have an end.
        self.count = self.count.saturating_add(rows.max(1));
        if self.count > MAX_ENDPOINTS {
            return Err(Error::invalid_data(format!(
                "the server's description has more than {MAX_ENDPOINTS} endpoints"
            )));
        }
        self.arrays.push_back(array);
        Ok(())
    }
}

impl ArrayReader for Rows {
    fn schema(&mut self) -> Result<OwnedSchema> {
        crate::arrow::copy_schema(&self.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        Ok(self.arrays.pop_front())
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}
