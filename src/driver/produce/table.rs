//! Published tables: arrays of the host's, and their messages.

use std::sync::Arc;

use super::body::is_lendable;
use crate::arrow::description::{Description, schema_message};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{
    EncodedMessage, Encoder, OwnedDeviceArray, OwnedSchema, annotate, annotation, copy_schema,
    share,
};
use crate::device::DeviceKind;
use crate::driver::callbacks::Deferred;
use crate::error::{Error, Result};
use crate::transport::BodyPolicy;

/// A body of up to this many bytes may be copied or written by a thread that also serves other
/// connections.
const LIGHT_BODY_BYTES: u64 = 64 << 10;

/// A table that can be fetched any number of times, by many clients at once.
pub struct Published {
    schema: OwnedSchema,
    batches: Vec<Arc<OwnedDeviceArray>>,
    /// The messages, which are the same for each stream.
    messages: Messages,
}

/// A schema, and its arrays.
pub type TableParts = (OwnedSchema, Vec<OwnedDeviceArray>);

struct Messages {
    schema: Arc<[u8]>,
    messages: Vec<EncodedMessage>,
    /// The largest body, and the largest of those that do not lie in lendable memory.
    largest: u64,
    largest_to_copy: u64,
}

impl Published {
    /// A table of `batches`, which `encoder` encodes, and compresses, once.
    ///
    /// # Errors
    ///
    /// The parts come back with the encoder's error.
    pub fn new(
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
        encoder: Encoder,
    ) -> Result<Self, (Error, TableParts)> {
        let batches: Vec<_> = batches.into_iter().map(Arc::new).collect();
        match Messages::encode(encoder, &batches) {
            Ok(messages) => Ok(Self {
                schema,
                batches,
                messages,
            }),
            Err(error) => Err((error, parts(schema, batches))),
        }
    }

    /// The schema and the arrays, for a host that keeps them in the end.
    pub fn into_parts(self) -> TableParts {
        // The messages share the arrays.
        drop(self.messages);
        parts(self.schema, self.batches)
    }

    /// What a client may learn without fetching the table.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: a schema of 4 GiB.
    pub fn describe(&self) -> Result<Description> {
        let rows = |batch: &Arc<OwnedDeviceArray>| batch.raw().array.length.max(0).unsigned_abs();
        let bytes = |message: &EncodedMessage| message.body_len;
        Ok(Description {
            rows: Some(self.batches.iter().map(rows).sum()),
            bytes: Some(self.messages.messages.iter().map(bytes).sum()),
            batches: Some(self.batches.len() as u64),
            schema_message: Some(schema_message(&self.messages.schema)?),
            endpoints: Vec::new(),
            is_ordered: false,
        })
    }

    /// The arrays, one after the other, for a stream that does not send the table's messages. The
    /// arrays share the table's memory, so only this crate may read them.
    pub fn read(table: Arc<Deferred<Self>>) -> Box<dyn ArrayReader> {
        Box::new(TableReader { table, next: 0 })
    }

    /// The device of the arrays, as Arrow numbers devices.
    pub fn device_type(&self) -> i32 {
        let first = self.batches.first();
        first.map_or(DeviceKind::CPU.0, |batch| batch.raw().device_type)
    }

    pub(super) fn schema(&self) -> Arc<[u8]> {
        Arc::clone(&self.messages.schema)
    }

    /// A message; `None` after the last one.
    pub(super) fn message(&self, number: usize) -> Option<&EncodedMessage> {
        self.messages.messages.get(number)
    }

    /// Whether a thread that also serves other connections may send the table. `lends`: bodies are
    /// lent. `extension`: the peer speaks our extension.
    pub fn is_light(&self, policy: BodyPolicy, lends: bool, extension: bool) -> bool {
        let lends_in_place = policy != BodyPolicy::Packed && lends && extension;
        let work = match lends_in_place {
            true => self.messages.largest_to_copy,
            false => self.messages.largest,
        };
        work <= LIGHT_BODY_BYTES
    }
}

/// Reads a published table.
struct TableReader {
    table: Arc<Deferred<Published>>,
    next: usize,
}

impl ArrayReader for TableReader {
    fn schema(&mut self) -> Result<OwnedSchema> {
        copy_schema(&self.table.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let batch = self.table.batches.get(self.next);
        self.next += 1;
        Ok(batch.map(shared))
    }

    fn device_type(&self) -> i32 {
        self.table.device_type()
    }

    fn keeps_status(&self) -> bool {
        true
    }
}

/// A share of a batch, with the batch's metadata.
fn shared(batch: &Arc<OwnedDeviceArray>) -> OwnedDeviceArray {
    annotate(share(batch), annotation(batch.raw()))
}

/// The parts of a table whose messages are gone.
fn parts(schema: OwnedSchema, batches: Vec<Arc<OwnedDeviceArray>>) -> TableParts {
    (
        schema,
        batches.into_iter().filter_map(Arc::into_inner).collect(),
    )
}

impl Messages {
    fn encode(mut encoder: Encoder, batches: &[Arc<OwnedDeviceArray>]) -> Result<Self> {
        let mut table = Self {
            schema: Arc::clone(encoder.schema_header()),
            messages: Vec::with_capacity(batches.len()),
            largest: 0,
            largest_to_copy: 0,
        };
        for batch in batches {
            for message in encoder.encode(shared(batch), None)? {
                // The I/O thread must not wait for a GPU.
                let on_gpu = message.owner.gpu().is_some();
                let work = if on_gpu { u64::MAX } else { message.body_len };
                table.largest = table.largest.max(work);
                if on_gpu || !is_lendable(&message) {
                    table.largest_to_copy = table.largest_to_copy.max(work);
                }
                table.messages.push(message);
            }
        }
        Ok(table)
    }
}
