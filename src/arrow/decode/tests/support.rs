//! Splits streams into messages, decodes them, and reads the result with arrow-rs.

use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, RecordBatch, StructArray};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

use crate::arrow::abi;
pub(in crate::arrow::decode) use crate::arrow::decode::fuzzing::messages;
use crate::arrow::decode::fuzzing::walk;
use crate::arrow::decode::{DecodeOptions, DecodedBatch, Decoder, Level, ReceivedBody};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind, HeaderParser};

const _: () = assert!(size_of::<abi::ArrowArray>() == size_of::<FFI_ArrowArray>());
const _: () = assert!(size_of::<abi::ArrowSchema>() == size_of::<FFI_ArrowSchema>());

/// The place of a body in a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Received as bytes.
    Packed,
    /// Lent by the peer.
    Shared,
    /// Received as bytes, one byte after an aligned address.
    Misaligned,
}

pub const PLACES: [Place; 3] = [Place::Packed, Place::Shared, Place::Misaligned];
pub const LEVELS: [Level; 2] = [Level::Structure, Level::Full];

/// Memory of a body that counts its drops.
struct Counted {
    memory: HostBuffer,
    drops: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // A later reader sees these bytes, or AddressSanitizer reports the read.
        self.memory.as_mut_slice().fill(0xdd);
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// A body in new memory.
pub fn place(header: &Header, body: &[u8], place: Place, drops: &Arc<AtomicUsize>) -> ReceivedBody {
    let shift = usize::from(place == Place::Misaligned);
    let mut memory = HostBuffer::new(body.len() + shift).unwrap();
    memory.as_mut_slice()[shift..].copy_from_slice(body);
    let bytes = &memory.as_slice()[shift..];
    let buffers = header
        .buffers()
        .map(|span| {
            let start = usize::try_from(span.offset).unwrap();
            let buffer = bytes
                .get(start..)
                .and_then(|rest| rest.get(..usize::try_from(span.length).ok()?));
            // A stream may be cut off, and its last buffers are then empty.
            BufferRef::of(buffer.unwrap_or_default())
        })
        .collect();
    let owner = Arc::new(Counted {
        memory,
        drops: Arc::clone(drops),
    });
    // SAFETY: the buffers are slices of the owner's memory. A move of the owner does not move the
    // bytes, and only its drop writes them.
    unsafe { ReceivedBody::new(buffers, owner, place == Place::Shared) }
}

/// A decoded stream.
pub struct Decoded {
    pub schema: OwnedSchema,
    pub batches: Vec<DecodedBatch>,
    /// The number of dropped bodies.
    pub drops: Arc<AtomicUsize>,
    /// The number of bodies.
    pub bodies: usize,
    /// The bytes that dictionaries copied.
    pub copied: u64,
}

/// Decodes all messages of a stream.
pub fn decode(bytes: &[u8], level: Level, at: Place) -> Result<Decoded> {
    decode_messages(&messages(bytes), level, at)
}

pub fn decode_messages(
    messages: &[(Vec<u8>, Vec<u8>)],
    level: Level,
    at: Place,
) -> Result<Decoded> {
    let (first, rest) = messages
        .split_first()
        .ok_or_else(|| Error::invalid_data("no message at all"))?;
    let options = DecodeOptions {
        level,
        ..DecodeOptions::default()
    };
    let mut parser = HeaderParser::default();
    let mut decoder = Decoder::new(&parser.parse(&first.0)?, options)?;
    let mut decoded = Decoded {
        schema: decoder.schema(),
        batches: Vec::new(),
        drops: Arc::default(),
        bodies: 0,
        copied: 0,
    };
    for (header, body) in rest {
        let header = parser.parse(header)?;
        let body = place(&header, body, at, &decoded.drops);
        decoded.bodies += 1;
        match header.kind() {
            HeaderKind::Dictionary => decoded.copied += decoder.add_dictionary(&header, &body)?,
            _ => decoded.batches.push(decoder.batch(&header, &body)?),
        }
    }
    Ok(decoded)
}

/// Imports a schema with arrow-rs.
pub fn import_schema(schema: OwnedSchema) -> FFI_ArrowSchema {
    let mut raw = schema.into_raw();
    // SAFETY: both types are the struct of the C data interface, with sizes compared above.
    // `from_raw` moves the schema out of `raw`.
    unsafe { FFI_ArrowSchema::from_raw((&raw mut raw).cast()) }
}

/// Imports a schema with the nullable flags that arrow-rs requires: set for all fields except
/// entries and keys of maps, and run ends. The decoder keeps the producer's flags (`check_children`
/// of the format), and arrow-rs would check them before the values.
pub fn import_nullable(mut schema: OwnedSchema) -> FFI_ArrowSchema {
    fn set(schema: &mut abi::ArrowSchema, nullable: bool, entries: bool) {
        schema.flags &= !abi::FLAG_NULLABLE;
        schema.flags |= if nullable { abi::FLAG_NULLABLE } else { 0 };
        // SAFETY: the decoder's schemas follow the C data interface: the format is a C string.
        let format = unsafe { CStr::from_ptr(schema.format) };
        let (map, run_ends) = (format == c"+m", format == c"+r");
        for index in 0..usize::try_from(schema.n_children).unwrap() {
            // SAFETY: as above; the schema has `n_children` children.
            let child = unsafe { schema.children.wrapping_add(index).read() };
            // SAFETY: children live as long as their parent, which is borrowed exclusively.
            let child = unsafe { &mut *child };
            let never = map || (index == 0 && (run_ends || entries));
            set(child, !never, map);
        }
        // SAFETY: NULL, or live as long as its parent.
        if let Some(values) = unsafe { schema.dictionary.as_mut() } {
            set(values, true, false);
        }
    }
    // SAFETY: only flags change, to other valid flags.
    set(unsafe { schema.raw_mut() }, false, false);
    import_schema(schema)
}

/// Imports a batch with arrow-rs, which checks it fully.
pub fn import(schema: &FFI_ArrowSchema, array: OwnedDeviceArray) -> RecordBatch {
    let batch = try_import(schema, array).unwrap();
    batch.to_data().validate_full().unwrap();
    RecordBatch::from(batch)
}

pub fn try_import(
    schema: &FFI_ArrowSchema,
    array: OwnedDeviceArray,
) -> Result<StructArray, arrow::error::ArrowError> {
    let mut raw = array.into_raw();
    assert_eq!(raw.device_type, crate::device::DeviceKind::CPU.0);
    assert_eq!(raw.device_id, -1);
    assert!(raw.sync_event.is_null());
    // SAFETY: as in `import_schema`.
    let array = unsafe { FFI_ArrowArray::from_raw((&raw mut raw.array).cast()) };
    // SAFETY: the array has the type of the schema.
    unsafe { from_ffi(array, schema) }.map(StructArray::from)
}

/// Reads all data that a consumer without own checks would read.
pub fn touch(decoded: &Decoded) {
    for batch in &decoded.batches {
        walk(decoded.schema.raw(), &batch.array.raw().array, 0);
    }
}

/// The decoded schema and batches, imported by arrow-rs.
pub fn read_back(decoded: Decoded) -> (Schema, Vec<RecordBatch>) {
    let ffi = import_schema(decoded.schema);
    let schema = Schema::try_from(&ffi).unwrap();
    let fields = Arc::new(schema.clone());
    let batches = decoded
        .batches
        .into_iter()
        // A struct array has no schema metadata.
        .map(|batch| {
            import(&ffi, batch.array)
                .with_schema(Arc::clone(&fields))
                .unwrap()
        })
        .collect();
    (schema, batches)
}

/// The stream that arrow-rs writes for the batches.
pub fn write(schema: &SchemaRef, batches: &[RecordBatch], options: IpcWriteOptions) -> Vec<u8> {
    let mut writer = StreamWriter::try_new_with_options(Vec::new(), schema, options).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The parts of the header of a record batch or dictionary.
pub struct Parts {
    pub delta: bool,
    pub length: i64,
    /// Length and null count.
    pub nodes: Vec<(i64, i64)>,
    /// Offset and length.
    pub buffers: Vec<(i64, i64)>,
    pub counts: Option<Vec<i64>>,
    pub body_len: i64,
}

/// The same header with changed parts.
pub fn edit(header: &[u8], change: impl FnOnce(&mut Parts)) -> Vec<u8> {
    edit_compressed(header, None, change)
}

/// The same, with a compressed body.
pub fn edit_compressed(
    header: &[u8],
    codec: Option<arrow::ipc::CompressionType>,
    change: impl FnOnce(&mut Parts),
) -> Vec<u8> {
    use arrow::ipc;
    let old = ipc::root_as_message(header).unwrap();
    let dictionary = old.header_as_dictionary_batch();
    let data = dictionary
        .map_or_else(
            || old.header_as_record_batch(),
            |dictionary| dictionary.data(),
        )
        .unwrap();
    let mut parts = Parts {
        delta: dictionary.is_some_and(|dictionary| dictionary.isDelta()),
        length: data.length(),
        nodes: data
            .nodes()
            .unwrap()
            .iter()
            .map(|node| (node.length(), node.null_count()))
            .collect(),
        buffers: data
            .buffers()
            .unwrap()
            .iter()
            .map(|span| (span.offset(), span.length()))
            .collect(),
        counts: data
            .variadicBufferCounts()
            .map(|counts| counts.iter().collect()),
        body_len: old.bodyLength(),
    };
    change(&mut parts);
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let nodes: Vec<_> = parts
        .nodes
        .iter()
        .map(|(length, nulls)| ipc::FieldNode::new(*length, *nulls))
        .collect();
    let nodes = Some(builder.create_vector(&nodes));
    let buffers: Vec<_> = parts
        .buffers
        .iter()
        .map(|(offset, length)| ipc::Buffer::new(*offset, *length))
        .collect();
    let buffers = Some(builder.create_vector(&buffers));
    let counts = parts.counts.map(|counts| builder.create_vector(&counts));
    let compression = codec.map(|codec| {
        let args = ipc::BodyCompressionArgs {
            codec,
            method: ipc::BodyCompressionMethod::BUFFER,
        };
        ipc::BodyCompression::create(&mut builder, &args)
    });
    let batch = ipc::RecordBatchArgs {
        length: parts.length,
        nodes,
        buffers,
        compression,
        variadicBufferCounts: counts,
    };
    let batch = ipc::RecordBatch::create(&mut builder, &batch);
    let header = match dictionary {
        None => batch.as_union_value(),
        Some(dictionary) => {
            let args = ipc::DictionaryBatchArgs {
                id: dictionary.id(),
                data: Some(batch),
                isDelta: parts.delta,
            };
            ipc::DictionaryBatch::create(&mut builder, &args).as_union_value()
        }
    };
    let message = ipc::MessageArgs {
        version: old.version(),
        header_type: old.header_type(),
        header: Some(header),
        bodyLength: parts.body_len,
        custom_metadata: None,
    };
    let message = ipc::Message::create(&mut builder, &message);
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

/// The golden files. Prints a message if they are missing.
pub fn golden(folder: &str) -> Vec<PathBuf> {
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        PathBuf::from,
    );
    let folder = root.join(folder);
    match std::fs::read_dir(&folder) {
        Ok(entries) => {
            let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            files.sort();
            files
        }
        Err(error) => {
            eprintln!("skipped: {}: {error} (set DIPC_GOLDEN)", folder.display());
            Vec::new()
        }
    }
}
