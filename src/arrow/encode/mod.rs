//! Arrow in: from the C structs to IPC headers and lists of buffers, without touching the buffers.
//!
//! An [`Encoder`] serves one stream. Its layout is a pure function of the array (rule A2), so that
//! two servers that are given the same arrays write the same headers. Buffers are described where
//! the producer has them; only bitmaps that do not begin at a byte, run ends of slices, offsets of
//! dictionary deltas and compressed buffers are written to memory of ours.

mod column;
mod compare;
mod compression;
mod dictionaries;
mod fault;
mod header;
mod memory;
mod plan;
mod scratch;
#[cfg(test)]
mod tests;

pub use compression::Compression;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use column::Column;
use dictionaries::{Change, Dictionaries, Found};
use fault::{Checked, Fault};
use header::{Headers, Packing, Subject};
use memory::Memory;
use plan::Plan;
use scratch::Scratch;

use crate::arrow::abi::ArrowDeviceArray;
use crate::arrow::format::{Metadata, Schema, parse_metadata};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::{BufferRef, DeviceKind};
use crate::error::{Error, Result};
use crate::proto::{BodySpan, HeaderKind};

// Rule A6: headers say that the data is little-endian, and buffers are sent as they are.
const _: () = assert!(cfg!(target_endian = "little"));

/// What the encoder may do with bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Compress bodies. They are then copied, and can be sent packed only (rule A4).
    pub compression: Option<Compression>,
}

/// A message ready to be sent.
#[derive(Debug, Clone)]
pub struct EncodedMessage {
    /// Dictionary or record batch.
    pub kind: HeaderKind,
    /// Flatbuffer bytes of the IPC `Message`.
    pub header: Vec<u8>,
    /// Length of the packed body, padding included.
    pub body_len: u64,
    /// The buffers, one for each entry of the header (rule A1).
    pub buffers: Vec<BufferRef>,
    /// Keeps the memory of the buffers alive.
    pub owner: Arc<EncodedOwner>,
    /// Whether the body is compressed, and so must be sent packed (rule A4).
    pub compressed: bool,
}

impl EncodedMessage {
    /// Where each of the buffers lies in the packed body; what is between is padding, to be sent as
    /// zeros.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = BodySpan> + '_ {
        let mut packing = Packing::default();
        self.buffers
            .iter()
            .map(move |buffer| packing.place(*buffer))
    }
}

/// The messages of one batch: in most streams one, for which this takes no memory of its own.
pub type EncodedMessages = SmallVec<[EncodedMessage; 1]>;

/// The memory behind the buffers of a message: the producer's array, released when the last message
/// of its batch is dropped (and, where the stream has dictionaries, the encoder has seen another
/// batch or is gone), and scratch of ours.
#[derive(Debug)]
pub struct EncodedOwner {
    array: Arc<OwnedDeviceArray>,
    /// Held, not used: buffers point into it.
    _scratch: Scratch,
}

impl EncodedOwner {
    /// The kind of memory that the buffers lie in, and the device's number.
    pub fn device(&self) -> (DeviceKind, i64) {
        let array = self.array.raw();
        (DeviceKind(array.device_type), array.device_id)
    }
}

/// Turns the arrays of one stream into messages.
///
/// It holds the dictionaries last sent, to see whether the next ones differ: with them, the last
/// batch encoded stays alive until the next one comes or the encoder is dropped. Streams without
/// dictionaries hold nothing.
#[derive(Debug)]
pub struct Encoder {
    schema: Schema,
    options: EncodeOptions,
    schema_header: Vec<u8>,
    headers: Headers,
    plan: Plan,
    dictionaries: Dictionaries,
}

impl Encoder {
    /// An encoder for streams of this schema, which is read and not kept. The arrays given to
    /// [`encode`](Self::encode) later are of this schema.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the schema is released, not valid or no struct; `Unsupported` when the
    /// IPC format cannot say it.
    pub fn new(schema: &OwnedSchema, options: EncodeOptions) -> Result<Self> {
        // SAFETY: an owned schema is released or follows the C data interface, and nobody else
        // writes to it ("What it promises"); the borrow keeps it from being released meanwhile.
        let schema = unsafe { Schema::from_c(schema.raw()) }?;
        let mut headers = Headers::default();
        let schema_header = headers.schema(&schema);
        let dictionaries = Dictionaries::of(&schema);
        Ok(Self {
            schema,
            options,
            schema_header,
            headers,
            plan: Plan::default(),
            dictionaries,
        })
    }

    /// Flatbuffer bytes of the schema's header.
    pub fn schema_header(&self) -> &[u8] {
        &self.schema_header
    }

    /// The schema, as a tree of fields.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Encodes a record batch: first the dictionaries that have changed, then the batch.
    /// `custom_metadata` is the batch's own, in the C data interface's encoding. The array was made
    /// with the schema that the encoder was made for.
    ///
    /// # Errors
    ///
    /// `InvalidData` names the field and what is wrong with it; `Unsupported` for memory that this
    /// build cannot read; `OutOfMemory`. The array has been released and the encoder is as before:
    /// the next array may be encoded.
    pub fn encode(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
    ) -> Result<EncodedMessages> {
        self.try_encode(array, custom_metadata)
            .map_err(|refused| refused.0)
    }

    /// As [`encode`](Self::encode); on failure the array comes back.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode).
    pub fn try_encode(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
    ) -> Result<EncodedMessages, Box<(Error, OwnedDeviceArray)>> {
        let array = Arc::new(array);
        self.encode_shared(&array, custom_metadata)
            .map_err(|error| {
                // Messages made before the failure are dropped by now, so that this is the only owner.
                let array = Arc::into_inner(array);
                let released = || {
                    // SAFETY: `empty` is a released structure.
                    unsafe { OwnedDeviceArray::from_raw(ArrowDeviceArray::empty()) }
                };
                Box::new((error, array.unwrap_or_else(released)))
            })
    }

    fn encode_shared(
        &mut self,
        owner: &Arc<OwnedDeviceArray>,
        custom_metadata: Option<&[u8]>,
    ) -> Result<EncodedMessages> {
        let metadata = match custom_metadata {
            Some(bytes) => parse_metadata(bytes)
                .map_err(|text| Error::invalid_data(format!("the batch's metadata: {text}")))?,
            None => Metadata::new(),
        };
        let Self {
            schema,
            options,
            headers,
            plan,
            dictionaries,
            ..
        } = self;
        let device = DeviceKind(owner.raw().device_type);
        let memory = Memory::of(device)?;
        // SAFETY: an owned array is released (checked there) or follows the C data interface, and
        // nobody else writes to it ("What it promises"); it is of this schema, as whoever brings
        // the two together answers for; `owner` lives for the whole call, and afterwards in the
        // messages.
        let batch = unsafe { Column::of_batch(&schema.fields, &owner.raw().array, memory) }?;
        let start = batch.start(0, batch.len)?;
        if batch.null_count(start, batch.len)? > 0 {
            return Err(Error::invalid_data(
                "the record batch has nulls of its own, which a struct may and a batch may not",
            ));
        }

        let mut found = dictionaries.find(&batch)?;
        dictionaries.compare(&mut found, memory)?;
        let mut message = |kind, subject: Subject<'_>, rows, plan: &mut Plan| -> Checked<_> {
            if let Some(compression) = options.compression {
                // SAFETY: `memory` admits only arrays on the host; the buffers belong to `owner`,
                // which is alive, or to the plan's scratch, and nobody writes to them.
                unsafe { compression.compress(plan) }?;
            }
            let codec = options.compression.map(Compression::codec);
            let (header, body_len) = headers.body(subject, rows, plan, codec)?;
            let owner = EncodedOwner {
                array: Arc::clone(owner),
                _scratch: std::mem::take(&mut plan.scratch),
            };
            Ok(EncodedMessage {
                kind,
                header,
                body_len,
                buffers: plan.buffers.clone(),
                owner: Arc::new(owner),
                compressed: codec.is_some(),
            })
        };

        let mut messages: EncodedMessages = smallvec![];
        for this in found.iter().filter(|this| this.change != Change::Same) {
            let here = |fault: Box<Fault>| fault.inside("(dictionary)").inside(this.name());
            plan.clear();
            let first = plan_dictionary(plan, this).map_err(here)?;
            let rows = this.values.len - first;
            let subject = Subject::Dictionary {
                id: this.id(),
                delta: first > 0,
            };
            messages.push(message(HeaderKind::Dictionary, subject, rows, plan)?);
        }
        plan.clear();
        plan.children(&batch, start, batch.len)?;
        let subject = Subject::Batch(&metadata);
        messages.push(message(HeaderKind::RecordBatch, subject, batch.len, plan)?);
        dictionaries.remember(found, owner);
        Ok(messages)
    }
}

/// Plans a dictionary's message and gives the first row that it carries.
fn plan_dictionary(plan: &mut Plan, this: &Found<'_>) -> Checked<usize> {
    match this.change {
        Change::Grown(first) => plan.add_tail(&this.values, first).map(|()| first),
        _ => plan.add(&this.values, 0, this.values.len).map(|()| 0),
    }
}
