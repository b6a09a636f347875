//! Arrow in: from the C structs to IPC headers and lists of buffers, without touching the buffers.
//!
//! An [`Encoder`] serves one stream. Its layout is a pure function of the array (rule A2), so that
//! two servers that are given the same arrays write the same headers. Buffers are described where
//! the producer has them; only bitmaps that do not begin at a byte, run ends of slices, offsets and
//! views of slices far into an array, offsets of dictionary deltas and compressed buffers are
//! written to memory of ours.
//!
//! Arrays on a GPU (CUDA, and memory that CUDA manages) stay there: see `remote` for what is read
//! of them, and `placed` for what is written.

mod bits;
mod checks;
mod column;
mod compare;
mod compression;
mod dictionaries;
mod fault;
mod foresee;
mod header;
mod memory;
mod numbers;
mod owner;
mod pair;
mod placed;
mod plan;
mod remote;
mod scattered;
mod scratch;
#[cfg(test)]
mod tests;
mod views;

pub use compression::Compression;
pub use owner::EncodedOwner;

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use column::Column;
use dictionaries::{Change, FoundDictionary, SentDictionaries};
use fault::{Checked, Fault};
use header::{Headers, Packing, Subject};
use memory::ProducerMemory;
use placed::PlacedBuffers;
use plan::Plan;
use remote::Remote;

use crate::arrow::abi::ArrowDeviceArray;
use crate::arrow::format::{Metadata, Schema, parse_metadata};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::gpu::{Gpu, GpuStream};
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
    /// Flatbuffer bytes of the IPC `Message`; often the same memory as the last message's, where
    /// the bytes are the same.
    pub header: Arc<[u8]>,
    /// Rows of a record batch, values of a dictionary.
    pub rows: usize,
    /// Length of the packed body, padding included.
    pub body_len: u64,
    /// The buffers, one for each entry of the header (rule A1).
    pub buffers: Buffers,
    /// Keeps the memory of the buffers alive.
    pub owner: EncodedOwner,
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

/// The buffers of a message: two or three of each column.
pub type Buffers = SmallVec<[BufferRef; 3]>;

/// The messages of one batch: in most streams one, for which this takes no memory of its own.
pub type EncodedMessages = SmallVec<[EncodedMessage; 1]>;

/// Turns the arrays of one stream into messages.
///
/// It holds the dictionaries last sent, to see whether the next ones differ: with them, the last
/// batch encoded stays alive until the next one comes or the encoder is dropped. Streams without
/// dictionaries hold nothing.
#[derive(Debug)]
pub struct Encoder {
    schema: Schema,
    options: EncodeOptions,
    schema_header: Arc<[u8]>,
    headers: Headers,
    plan: Plan,
    dictionaries: SentDictionaries,
    /// For arrays on a GPU: of the device that the last one lay on.
    stream: Option<Arc<GpuStream>>,
    /// The GPU that the last array lay on; `None`: memory that the processor reads.
    place: Option<i32>,
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
        let dictionaries = SentDictionaries::of(&schema);
        Ok(Self {
            schema,
            options,
            schema_header,
            headers,
            plan: Plan::default(),
            dictionaries,
            stream: None,
            place: None,
        })
    }

    /// The encoder for another stream of the same schema: it lets go of all that was sent.
    pub fn emptied(mut self) -> Self {
        self.plan.clear();
        self.dictionaries = SentDictionaries::of(&self.schema);
        self.stream = None;
        self.place = None;
        self
    }

    /// Whether it is [emptied](Self::emptied) what [`new`](Self::new) would make.
    pub fn fits(&self, schema: &OwnedSchema, options: EncodeOptions) -> bool {
        // SAFETY: as in `new`.
        let schema = unsafe { Schema::from_c(schema.raw()) };
        self.options == options && schema.is_ok_and(|schema| schema == self.schema)
    }

    /// Flatbuffer bytes of the schema's header.
    pub fn schema_header(&self) -> &Arc<[u8]> {
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
        self.encode_anywhere(&array, custom_metadata)
            .map_err(|error| {
                // Messages made before the failure are dropped by now, so that this is the only
                // owner.
                let array = Arc::into_inner(array);
                let released = || {
                    // SAFETY: `empty` is a released structure.
                    unsafe { OwnedDeviceArray::from_raw(ArrowDeviceArray::empty()) }
                };
                Box::new((error, array.unwrap_or_else(released)))
            })
    }

    fn encode_anywhere(
        &mut self,
        owner: &Arc<OwnedDeviceArray>,
        custom_metadata: Option<&[u8]>,
    ) -> Result<EncodedMessages> {
        let kind = DeviceKind(owner.raw().device_type);
        if kind == DeviceKind::CPU {
            self.settle(None);
            return self.encode_shared(owner, custom_metadata, ProducerMemory::HOST, None);
        }
        let on_gpu = match kind {
            DeviceKind::CUDA | DeviceKind::CUDA_MANAGED => true,
            DeviceKind::CUDA_HOST => false,
            _ => return Err(unreadable(kind)),
        };
        if on_gpu && self.options.compression.is_some() {
            return Err(Error::unsupported(
                "bodies in a GPU's memory cannot be compressed: serve them as they are, or copy \
                 the array to the host first",
            ));
        }
        if let Some(stream) = &self.stream {
            // What was sent before, with which dictionaries are compared, went with a device that
            // was reset.
            stream.device().ensure_alive()?;
        }
        let stream = self.stream_for(owner)?;
        let event = owner.raw().sync_event;
        // SAFETY: the array is not released (or has no event), and `owner` keeps it so.
        unsafe { stream.wait_for_producer(event) }?;
        if !on_gpu {
            // The processor reads it, once the producer's work is done.
            stream.synchronize()?;
            self.settle(None);
            return self.encode_shared(owner, custom_metadata, ProducerMemory::HOST, None);
        }
        self.settle(Some(stream.device().ordinal()));
        let mut remote = Remote::new(Arc::clone(stream.device()));
        loop {
            let memory = ProducerMemory::remote(&remote);
            match self.encode_shared(owner, custom_metadata, memory, Some(&stream)) {
                Err(_) if remote.is_waiting() => {
                    // SAFETY: `owner` keeps the array, which nobody writes to once its event has
                    // happened, for which the stream waits. Dictionaries that were sent before are
                    // held by the batch that they came with.
                    unsafe { remote.fetch(&stream) }?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Dictionaries are compared where the last batch lay. Where the next one lies elsewhere they
    /// are forgotten, and sent again.
    fn settle(&mut self, place: Option<i32>) {
        if self.place != place {
            self.place = place;
            self.dictionaries = SentDictionaries::of(&self.schema);
        }
    }

    /// The stream for arrays where this one lies.
    fn stream_for(&mut self, owner: &OwnedDeviceArray) -> Result<Arc<GpuStream>> {
        let array = owner.raw();
        let (kind, id) = (DeviceKind(array.device_type), array.device_id);
        // Memory that belongs to the host has any number, or none.
        let id = if kind == DeviceKind::CUDA {
            id
        } else {
            id.max(0)
        };
        let device = Gpu::get(id).map_err(|error| {
            error.context(format!(
                "memory of Arrow device type {} cannot be read here",
                kind.0
            ))
        })?;
        match &self.stream {
            Some(stream) if Arc::ptr_eq(stream.device(), &device) => Ok(Arc::clone(stream)),
            _ => {
                let stream = Arc::new(GpuStream::new(&device)?);
                self.stream = Some(Arc::clone(&stream));
                Ok(stream)
            }
        }
    }

    fn encode_shared(
        &mut self,
        owner: &Arc<OwnedDeviceArray>,
        custom_metadata: Option<&[u8]>,
        memory: ProducerMemory<'_>,
        stream: Option<&Arc<GpuStream>>,
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
        // SAFETY: an owned array is released (checked there) or follows the C data interface, and
        // nobody else writes to it ("What it promises"); it is of this schema, as whoever brings
        // the two together answers for; `owner` lives for the whole call, and afterwards in the
        // messages.
        let batch = unsafe { Column::of_batch(&schema.fields, &owner.raw().array, memory) }?;
        let start = batch.start(0, batch.len)?;
        let mut found = dictionaries.find(&batch)?;
        if memory.as_remote().is_some() {
            foresee::rows(&batch, 0, batch.len);
            for this in &found {
                foresee::rows(&this.values, 0, this.values.len);
            }
            if memory.is_waiting() {
                return Err(Error::invalid_data("the batch is not fetched yet"));
            }
        }
        if batch.null_count(start, batch.len)? > 0 {
            return Err(Error::invalid_data(
                "the record batch has nulls of its own, which a struct may and a batch may not",
            ));
        }

        dictionaries.compare(&mut found, memory)?;
        let mut message = |kind, subject: Subject<'_>, rows, plan: &mut Plan| -> Checked<_> {
            if let Some(compression) = options.compression {
                // SAFETY: only arrays on the host come here with compression; the buffers belong to
                // `owner`, which is alive, or to the plan's scratch, and nobody writes to them.
                unsafe { compression.compress(plan) }?;
            }
            let codec = options.compression.map(Compression::codec);
            let (header, body_len) = headers.body(subject, rows, plan, codec)?;
            let placed = match stream {
                // SAFETY: `owner` keeps the array until after what is placed is dropped, which
                // waits for work that reads it; bitmaps were checked when they were planned.
                Some(stream) => Some(unsafe { PlacedBuffers::of(plan, stream) }?),
                None => None,
            };
            let scratch = std::mem::take(&mut plan.scratch);
            Ok(EncodedMessage {
                kind,
                header,
                rows,
                body_len,
                buffers: Buffers::from_slice(&plan.buffers),
                owner: EncodedOwner::new(owner, scratch, placed),
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

fn unreadable(kind: DeviceKind) -> Error {
    match kind.ensure_readable() {
        Err(error) => error,
        Ok(()) => Error::unsupported(format!("Arrow device type {} is not encoded", kind.0)),
    }
}

/// Plans a dictionary's message and gives the first row that it carries.
fn plan_dictionary(plan: &mut Plan, this: &FoundDictionary<'_>) -> Checked<usize> {
    match this.change {
        Change::Grown(first) => plan.add_tail(&this.values, first).map(|()| first),
        _ => plan.add(&this.values, 0, this.values.len).map(|()| 0),
    }
}
