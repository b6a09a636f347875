//! Encoding of C structs into IPC headers and lists of buffers, without a copy of the buffers.
//!
//! An [`Encoder`] serves one stream. The layout depends on the array only (rule A2), so that two
//! servers write the same headers for the same arrays. Messages refer to the producer's buffers.
//! Only these are written to new memory: bitmaps that begin inside a byte, run ends of slices,
//! offsets and views of slices far into an array, offsets of dictionary deltas, and compressed
//! buffers.
//!
//! Arrays on a GPU (CUDA, and memory that CUDA manages) stay there: `remote` has the reads, and
//! `placed` the writes.

mod bits;
mod checks;
mod column;
mod compare;
mod compression;
mod declared;
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
use declared::DeclaredFull;
use dictionaries::{Change, FoundDictionary, SentDictionaries};
use fault::{Checked, Fault};
use header::{Headers, Packing, Subject};
use memory::ProducerMemory;
use placed::PlacedBuffers;
use plan::Plan;
use remote::Remote;

use crate::arrow::abi::ArrowDeviceArray;
use crate::arrow::format::{Metadata, Schema, parse_metadata};
use crate::arrow::select::Selector;
use crate::arrow::{OwnedDeviceArray, OwnedSchema, annotation};
use crate::device::gpu::{Gpu, GpuStream};
use crate::device::{BufferRef, DeviceKind};
use crate::error::{Error, Result};
use crate::proto::{BodySpan, HeaderKind, Selection};

// Rule A6: headers declare little-endian data, and buffers are sent unchanged.
const _: () = assert!(cfg!(target_endian = "little"));

/// Options for bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Compress bodies. They are then copied, and can be sent packed only (rule A4).
    pub compression: Option<Compression>,
}

/// An encoded message.
#[derive(Debug, Clone)]
pub struct EncodedMessage {
    /// Dictionary or record batch.
    pub kind: HeaderKind,
    /// Flatbuffer bytes of the IPC `Message`. Equal headers of successive messages often share
    /// memory.
    pub header: Arc<[u8]>,
    /// Rows of a record batch, values of a dictionary.
    pub rows: usize,
    /// Length of the packed body, with padding.
    pub body_len: u64,
    /// The buffers, one for each entry of the header (rule A1).
    pub buffers: Buffers,
    /// Keeps the memory of the buffers alive.
    pub owner: EncodedOwner,
    /// True if the body is compressed, and so must be sent packed (rule A4).
    pub compressed: bool,
}

impl EncodedMessage {
    /// The range of each buffer in the packed body. The gaps are padding, and must be sent as
    /// zeros.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = BodySpan> + '_ {
        let mut packing = Packing::default();
        self.buffers
            .iter()
            .map(move |buffer| packing.place(*buffer))
    }
}

/// The buffers of a message: two or three for each column.
pub type Buffers = SmallVec<[BufferRef; 3]>;

/// The messages of a batch. For most streams this is one, stored without an allocation.
pub type EncodedMessages = SmallVec<[EncodedMessage; 1]>;

/// Turns the arrays of one stream into messages.
///
/// It holds the last sent dictionaries to compare them with the next ones. They keep the last
/// encoded batch alive until the next batch or the drop of the encoder. A stream without
/// dictionaries holds nothing.
#[derive(Debug)]
pub struct Encoder {
    schema: Schema,
    options: EncodeOptions,
    schema_header: Arc<[u8]>,
    headers: Headers,
    declared_full: DeclaredFull,
    plan: Plan,
    dictionaries: SentDictionaries,
    /// For arrays on a GPU: a stream of the device of the last array.
    stream: Option<Arc<GpuStream>>,
    /// The GPU of the last array; `None` for memory that the processor reads.
    place: Option<i32>,
}

impl Encoder {
    /// An encoder for streams of this schema, which it reads and does not keep. All arrays for
    /// [`encode`](Self::encode) must have this schema.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the schema is released, invalid or no struct; `Unsupported` if the IPC
    /// format cannot express it.
    pub fn new(schema: &OwnedSchema, options: EncodeOptions) -> Result<Self> {
        Ok(Self::of(Self::read(schema)?, options))
    }

    /// The selector for the arrays of a stream with this schema, and the encoder for what it
    /// selects.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and as [`Selector::new`].
    pub fn selecting(
        schema: &OwnedSchema,
        selection: &Selection,
        options: EncodeOptions,
    ) -> Result<(Self, Selector)> {
        let (selector, selected) = Selector::new(selection, &Self::read(schema)?)?;
        Ok((Self::of(selected, options), selector))
    }

    fn read(schema: &OwnedSchema) -> Result<Schema> {
        // SAFETY: an owned schema is released or follows the C data interface, and nobody else
        // writes to it (`Owned`, "Promise"). The borrow prevents a release.
        unsafe { Schema::from_c(schema.raw()) }
    }

    fn of(schema: Schema, options: EncodeOptions) -> Self {
        let mut headers = Headers::default();
        let schema_header = headers.schema(&schema);
        let dictionaries = SentDictionaries::of(&schema);
        let declared_full = DeclaredFull::of(&schema.fields);
        Self {
            schema,
            options,
            schema_header,
            headers,
            declared_full,
            plan: Plan::default(),
            dictionaries,
            stream: None,
            place: None,
        }
    }

    /// Flatbuffer bytes of the schema's header.
    pub fn schema_header(&self) -> &Arc<[u8]> {
        &self.schema_header
    }

    /// The schema, as a tree of fields.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Encodes a record batch: first the changed dictionaries, then the batch. `custom_metadata` is
    /// the batch's own metadata, in the C data interface's encoding, in place of the array's
    /// [`annotation`]. The array must have the encoder's schema.
    ///
    /// # Errors
    ///
    /// `InvalidData` with the field and the fault, or if a column that the schema declares without
    /// nulls has some; `Unsupported` for memory that this build cannot
    /// read; `OutOfMemory`. The array is released then. The encoder is unchanged and can encode the
    /// next array.
    pub fn encode(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
    ) -> Result<EncodedMessages> {
        self.try_encode(array, custom_metadata)
            .map_err(|refused| refused.0)
    }

    /// As [`encode`](Self::encode); after an error the caller gets the array back.
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
        let own = annotation(array.raw());
        let custom_metadata = custom_metadata.or((!own.is_empty()).then_some(own));
        self.encode_anywhere(&array, custom_metadata)
            .map_err(|error| {
                // The messages made before the error are dropped by now.
                Box::new((error, sole(array)))
            })
    }

    /// The array, if [`encode`](Self::encode) would take it: its numbers fit the schema.
    ///
    /// # Errors
    ///
    /// As [`encode`](Self::encode), with the array.
    pub fn check(
        &mut self,
        array: OwnedDeviceArray,
    ) -> Result<OwnedDeviceArray, (Error, OwnedDeviceArray)> {
        let array = Arc::new(array);
        let checked = self.encode_anywhere(&array, None).map(drop);
        // The dictionaries hold the array, which goes back to the caller.
        self.dictionaries = SentDictionaries::of(&self.schema);
        let array = sole(array);
        match checked {
            Ok(()) => Ok(array),
            Err(error) => Err((error, array)),
        }
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
            // A reset of the device has freed the sent dictionaries, which later ones are compared
            // with.
            stream.device().ensure_alive()?;
        }
        let stream = self.stream_for(owner)?;
        let event = owner.raw().sync_event;
        // SAFETY: `owner` keeps the array, which is not released or has no event.
        unsafe { stream.wait_for_producer(event) }?;
        if !on_gpu {
            // The processor can read the memory once the producer's work is done.
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
                    // SAFETY: `owner` keeps the array. The stream waits for the array's event,
                    // after which nobody writes to it. Sent dictionaries hold the batch that they
                    // came with.
                    unsafe { remote.fetch(&stream) }?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Dictionaries are compared on the device of the last batch. If the next batch is on another
    /// device, they are forgotten and sent again.
    fn settle(&mut self, place: Option<i32>) {
        if self.place != place {
            self.place = place;
            self.dictionaries = SentDictionaries::of(&self.schema);
        }
    }

    /// The stream on the device of this array.
    fn stream_for(&mut self, owner: &OwnedDeviceArray) -> Result<Arc<GpuStream>> {
        let array = owner.raw();
        let (kind, id) = (DeviceKind(array.device_type), array.device_id);
        // The device number of host memory can be any number, or -1.
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
            declared_full,
            plan,
            dictionaries,
            ..
        } = self;
        // SAFETY: an owned array is released (checked by `of_batch`) or follows the C data
        // interface, and nobody else writes to it (`Owned`, "Promise"). The caller of `encode` is
        // responsible for the match of array and schema. `owner` lives during the call, and then in
        // the messages.
        let batch = unsafe { Column::of_batch(&schema.fields, &owner.raw().array, memory) }?;
        let start = batch.start(0, batch.len)?;
        let mut found = dictionaries.find(&batch)?;
        if memory.as_remote().is_some() {
            foresee::rows(&batch, 0, batch.len);
            for dictionary in &found {
                foresee::rows(&dictionary.values, 0, dictionary.values.len);
            }
            if memory.is_waiting() {
                return Err(Error::invalid_data("the batch is not fetched yet"));
            }
        }
        if batch.null_count(start, batch.len)? > 0 {
            return Err(Error::invalid_data(
                "the record batch has nulls of its own: a struct may have them, a batch may not",
            ));
        }

        dictionaries.compare(&mut found, memory)?;
        let mut message = |kind, subject: Subject<'_>, rows, plan: &mut Plan| -> Checked<_> {
            if let Some(compression) = options.compression {
                // SAFETY: arrays on a GPU are not compressed. The buffers belong to `owner`, which
                // is alive, or to the plan's scratch, and nobody writes to them.
                unsafe { compression.compress(plan) }?;
            }
            let codec = options.compression.map(Compression::codec);
            let (header, body_len) = headers.body(subject, rows, plan, codec)?;
            let placed = match stream {
                // SAFETY: `owner` keeps the array until `placed` is dropped, which waits for work
                // that reads the array. The plan has checked the bitmaps.
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
        for dictionary in found
            .iter()
            .filter(|dictionary| dictionary.change != Change::Same)
        {
            let in_dictionary =
                |fault: Box<Fault>| fault.inside("(dictionary)").inside(dictionary.name());
            plan.clear();
            let first = plan_dictionary(plan, dictionary).map_err(in_dictionary)?;
            let rows = dictionary.values.len - first;
            let subject = Subject::Dictionary {
                id: dictionary.id(),
                delta: first > 0,
            };
            messages.push(message(HeaderKind::Dictionary, subject, rows, plan)?);
        }
        plan.clear();
        plan.children(&batch, start, batch.len)?;
        declared_full.check(plan)?;
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

/// The array of its only owner.
fn sole(array: Arc<OwnedDeviceArray>) -> OwnedDeviceArray {
    // SAFETY: `empty` is a released struct.
    let released = || unsafe { OwnedDeviceArray::from_raw(ArrowDeviceArray::empty()) };
    Arc::into_inner(array).unwrap_or_else(released)
}

/// Plans a dictionary's message and returns the first row in it.
fn plan_dictionary(plan: &mut Plan, dictionary: &FoundDictionary<'_>) -> Checked<usize> {
    match dictionary.change {
        Change::Grown(first) => plan.add_tail(&dictionary.values, first).map(|()| first),
        _ => plan
            .add(&dictionary.values, 0, dictionary.values.len)
            .map(|()| 0),
    }
}
