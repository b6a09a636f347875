//! Export, encoding and reading for the tests.

use std::io::Cursor;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow::ipc::reader::StreamReader;

use super::super::*;
use crate::arrow::abi::ArrowArray;
use crate::arrow::{OwnedArray, OwnedSchema};

/// A schema, exported by arrow-rs.
pub(super) fn export_schema(schema: &Schema) -> OwnedSchema {
    let mut ffi = FFI_ArrowSchema::try_from(schema).unwrap();
    // SAFETY: the C data interface defines the struct of arrow-rs. `take` leaves `ffi` released.
    unsafe { OwnedSchema::take((&raw mut ffi).cast()) }
}

/// A batch, exported by arrow-rs as a struct on the host.
pub(super) fn export(batch: &RecordBatch) -> OwnedDeviceArray {
    export_struct(&StructArray::from(batch.clone()))
}

pub(super) fn export_struct(array: &StructArray) -> OwnedDeviceArray {
    let mut ffi = FFI_ArrowArray::new(&array.to_data());
    // SAFETY: as in `export_schema`.
    let array = unsafe { OwnedArray::take((&raw mut ffi).cast()) };
    let mut device = ArrowDeviceArray::empty();
    device.array = array.into_raw();
    // SAFETY: the array was owned, and is in host memory, as `empty` declares.
    unsafe { OwnedDeviceArray::from_raw(device) }
}

pub(super) fn encoder(schema: &Schema, options: EncodeOptions) -> Encoder {
    Encoder::new(&export_schema(schema), options).unwrap()
}

/// The bytes of a buffer.
pub(super) fn bytes_of(buffer: BufferRef, _owner: &EncodedOwner) -> &[u8] {
    // SAFETY: the owner keeps the host memory alive, and no test writes to it.
    unsafe { buffer.as_slice() }
}

/// A packed body (rule D3).
pub(super) fn pack_body(message: &EncodedMessage) -> Vec<u8> {
    let mut body = vec![0; usize::try_from(message.body_len).unwrap()];
    for (buffer, span) in message.buffers.iter().zip(message.spans()) {
        let start = usize::try_from(span.offset).unwrap();
        assert_eq!(start % 64, 0, "rule A2: buffers begin at multiples of 64");
        assert_eq!(span.length, buffer.len as u64);
        body[start..start + buffer.len].copy_from_slice(bytes_of(*buffer, &message.owner));
    }
    body
}

fn frame(stream: &mut Vec<u8>, header: &[u8], body: &[u8]) {
    stream.extend([0xff; 4]);
    let padded = header.len().next_multiple_of(8);
    stream.extend(u32::try_from(padded).unwrap().to_le_bytes());
    stream.extend(header);
    stream.resize(stream.len() + padded - header.len(), 0);
    stream.extend(body);
}

/// An IPC stream of the messages.
pub(super) fn stream_of(encoder: &Encoder, messages: &[EncodedMessage]) -> Vec<u8> {
    let mut stream = Vec::new();
    frame(&mut stream, encoder.schema_header(), &[]);
    for message in messages {
        assert_eq!(message.buffers.len(), message.spans().len(), "rule A1");
        assert_eq!(message.body_len % 64, 0, "rule A2");
        frame(&mut stream, &message.header, &pack_body(message));
    }
    stream.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    stream
}

/// Reads an IPC stream with arrow-rs, with all its checks.
pub(super) fn read(stream: &[u8]) -> (SchemaRef, Vec<RecordBatch>) {
    let reader = StreamReader::try_new(Cursor::new(stream), None).unwrap();
    let schema = reader.schema();
    (schema, reader.map(|batch| batch.unwrap()).collect())
}

/// Encodes arrays and reads them back.
pub(super) fn cross_arrays(
    schema: &Schema,
    arrays: impl IntoIterator<Item = OwnedDeviceArray>,
    options: EncodeOptions,
) -> (SchemaRef, Vec<RecordBatch>) {
    let mut encoder = encoder(schema, options);
    let mut messages = Vec::new();
    for array in arrays {
        messages.extend(encoder.encode(array, None).unwrap());
    }
    read(&stream_of(&encoder, &messages))
}

/// Encodes batches, reads them back and compares.
pub(super) fn cross(schema: &Schema, batches: &[RecordBatch]) {
    let (read_schema, read) =
        cross_arrays(schema, batches.iter().map(export), EncodeOptions::default());
    assert_eq!(read_schema.as_ref(), schema);
    assert_same(&read, batches);
}

/// Compares column by column, so that a failure names the column.
pub(super) fn assert_same(read: &[RecordBatch], wanted: &[RecordBatch]) {
    assert_eq!(read.len(), wanted.len());
    for (read, wanted) in read.iter().zip(wanted) {
        assert_eq!(read.num_rows(), wanted.num_rows());
        assert_eq!(read.num_columns(), wanted.num_columns());
        for (index, field) in wanted.schema().fields().iter().enumerate() {
            let (read, wanted) = (read.column(index), wanted.column(index));
            assert_eq!(read.len(), wanted.len(), "{}", field.name());
            assert!(
                read.to_data() == wanted.to_data(),
                "column {} differs: {read:?} and {wanted:?}",
                field.name()
            );
        }
    }
}

/// A batch of named columns.
pub(super) fn batch_of(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let rows = columns.first().map_or(0, |(_, column)| column.len());
    let (fields, columns): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).unwrap()
}

/// A nullable field of the column's type.
pub(super) fn named(name: &str, column: ArrayRef) -> (Field, ArrayRef) {
    (Field::new(name, column.data_type().clone(), true), column)
}

/// Changes the C struct of an array and its parts. The result keeps the promise of an owned array,
/// or breaks it only in checked facts (numbers, missing parts).
pub(super) fn edit(
    array: OwnedDeviceArray,
    change: impl FnOnce(&mut ArrowArray),
) -> OwnedDeviceArray {
    let mut raw = array.into_raw();
    change(&mut raw.array);
    // SAFETY: as required above, the changes leave every pointer valid and the buffers large
    // enough. The release function is still that of arrow-rs.
    unsafe { OwnedDeviceArray::from_raw(raw) }
}

/// The child of an array, for changes.
pub(super) fn child(array: &mut ArrowArray, index: usize) -> &mut ArrowArray {
    assert!(i64::try_from(index).unwrap() < array.n_children);
    // SAFETY: arrow-rs exports `n_children` pointers, and the index is lower.
    let slot = unsafe { array.children.add(index) };
    // SAFETY: as above.
    let child = unsafe { slot.read() };
    // SAFETY: children live as long as their parent, which is borrowed exclusively.
    unsafe { &mut *child }
}
