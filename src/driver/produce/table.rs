//! Published tables: arrays of the host's, and their messages.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::arrow::{EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, OwnedSchema, share};
use crate::device::DeviceKind;
use crate::driver::callbacks::{Callbacks, Deferred, HostOwner};
use crate::driver::produce::LIGHT_BODY_BYTES;
use crate::driver::produce::body::is_lendable;
use crate::error::Result;
use crate::transport::{BodyPolicy, Owner};

/// A table whose headers take more than this is encoded anew for each stream.
const MOST_HEADER_BYTES: usize = 64 << 20;

/// A table that can be fetched any number of times, by many clients at once.
pub struct Published {
    schema: OwnedSchema,
    batches: Vec<Arc<OwnedDeviceArray>>,
    /// `None` where each stream encodes the table for itself.
    messages: Option<Messages>,
}

/// A table as messages: they are the same for every stream.
struct Messages {
    schema: Arc<[u8]>,
    messages: Vec<EncodedMessage>,
    /// The largest body, and the largest of those that do not lie in lendable memory.
    largest: u64,
    largest_to_copy: u64,
}

impl Published {
    /// A table of `batches`, whose messages `encoder` makes where compression is off.
    pub fn new(
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
        encoder: Encoder,
        options: EncodeOptions,
    ) -> Self {
        let batches: Vec<_> = batches.into_iter().map(Arc::new).collect();
        let messages = match options.compression {
            // The compressed bodies would be a second table.
            Some(_) => None,
            None => Messages::encode(encoder, &batches),
        };
        Self {
            schema,
            batches,
            messages,
        }
    }

    /// The schema and the arrays, for a host that keeps them after all.
    pub fn into_parts(self) -> (OwnedSchema, Vec<OwnedDeviceArray>) {
        // The messages share the arrays.
        drop(self.messages);
        let batches = self.batches.into_iter().filter_map(Arc::into_inner);
        (self.schema, batches.collect())
    }

    /// The device of the arrays, as Arrow numbers devices.
    pub fn device_type(&self) -> i32 {
        let first = self.batches.first();
        first.map_or(DeviceKind::CPU.0, |batch| batch.raw().device_type)
    }

    /// Whether to send it is little enough work for a thread that serves other connections too.
    /// `lends`: bodies are lent, to a peer that speaks our `extension` or to another one.
    pub fn is_light(&self, policy: BodyPolicy, lends: bool, extension: bool) -> bool {
        let Some(messages) = &self.messages else {
            return false;
        };
        // Baseline peers are lent copies alone.
        let largest = if policy != BodyPolicy::Packed && lends && extension {
            messages.largest_to_copy
        } else {
            messages.largest
        };
        largest <= LIGHT_BODY_BYTES
    }
}

impl Messages {
    /// Encodes a table, or gives `None` where each stream has to do that itself: the table is not
    /// valid, as its streams are told, or its headers would take much memory.
    fn encode(mut encoder: Encoder, batches: &[Arc<OwnedDeviceArray>]) -> Option<Self> {
        let device = batches.first().map(|batch| batch.raw().device_type);
        DeviceKind(device.unwrap_or(DeviceKind::CPU.0))
            .ensure_readable()
            .ok()?;
        let mut table = Self {
            schema: Arc::clone(encoder.schema_header()),
            messages: Vec::with_capacity(batches.len()),
            largest: 0,
            largest_to_copy: 0,
        };
        let mut header_bytes = 0;
        for batch in batches {
            for message in encoder.encode(share(batch), None).ok()? {
                let before = table.messages.last();
                if before.is_none_or(|before| !Arc::ptr_eq(&before.header, &message.header)) {
                    header_bytes += message.header.len();
                }
                if header_bytes > MOST_HEADER_BYTES {
                    return None;
                }
                table.largest = table.largest.max(message.body_len);
                if !is_lendable(&message) {
                    table.largest_to_copy = table.largest_to_copy.max(message.body_len);
                }
                table.messages.push(message);
            }
        }
        Some(table)
    }
}

/// The messages of a published table, one after the other, for one stream.
pub(super) struct Feed {
    table: Arc<Deferred<Published>>,
    /// Number of the next message, or of the next batch to be encoded.
    next: usize,
    /// Where the stream encodes the table for itself.
    encoder: Option<Encoder>,
    encoded: VecDeque<EncodedMessage>,
}

impl Feed {
    pub(super) fn new(table: Arc<Deferred<Published>>) -> Self {
        Self {
            table,
            next: 0,
            encoder: None,
            encoded: VecDeque::new(),
        }
    }

    /// The device of the arrays.
    pub(super) fn device_type(&self) -> i32 {
        let table = self.table.get();
        table.map_or(DeviceKind::CPU.0, Published::device_type)
    }

    /// The schema's header.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the schema is not valid.
    pub(super) fn schema(&mut self, options: EncodeOptions) -> Result<Arc<[u8]>> {
        let Some(table) = self.table.get() else {
            return Ok(Arc::default());
        };
        if let Some(messages) = &table.messages {
            return Ok(Arc::clone(&messages.schema));
        }
        let encoder = self.encoder.insert(Encoder::new(&table.schema, options)?);
        Ok(Arc::clone(encoder.schema_header()))
    }

    /// Encodes the next batch, where the stream does that and it is time.
    ///
    /// # Errors
    ///
    /// `InvalidData` when an array is not valid.
    pub(super) fn prepare(&mut self) -> Result<()> {
        let (Some(encoder), Some(table)) = (&mut self.encoder, self.table.get()) else {
            return Ok(());
        };
        while self.encoded.is_empty()
            && let Some(batch) = table.batches.get(self.next)
        {
            self.next += 1;
            self.encoded.extend(encoder.encode(share(batch), None)?);
        }
        Ok(())
    }

    /// The next message, once it is [prepared](Self::prepare); `None` behind the last one.
    pub(super) fn message(&self) -> Option<&EncodedMessage> {
        if self.encoder.is_some() {
            return self.encoded.front();
        }
        let messages = self.table.get()?.messages.as_ref()?;
        messages.messages.get(self.next)
    }

    /// Goes on behind the next message.
    pub(super) fn advance(&mut self) {
        if self.encoder.is_some() {
            self.encoded.pop_front();
        } else {
            self.next += 1;
        }
    }

    /// Keeps the memory of `message` alive.
    pub(super) fn owner(&self, message: &EncodedMessage, callbacks: &Callbacks) -> HostOwner {
        match &self.encoder {
            None => HostOwner::share(&self.table),
            Some(_) => {
                let owner = Owner::Shared(message.owner.clone().shared());
                HostOwner::new(owner, callbacks.clone())
            }
        }
    }
}
