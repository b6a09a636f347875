//! Helpers of the integration tests: arrow-rs tables in and out of the C structs, and providers.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod asleep;
pub mod certificates;
pub mod child;
pub mod sample;

use std::sync::Arc;

use arrow::array::{Array, Int64Array, RecordBatch, StringArray, StructArray, make_array};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use dipc::arena::Arena;
use dipc::arrow::abi::{ArrowArray, ArrowDeviceArray, ArrowSchema};
use dipc::arrow::stream::{ArrayReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use dipc::error::{Error, Result};
use dipc::server::{HostProvider, ServerRequest};

/// A table of two columns, `n` and `text`, rows numbered from `first`.
pub fn batch(first: i64, rows: usize) -> RecordBatch {
    let numbers = Int64Array::from_iter_values((first..).take(rows));
    let texts = StringArray::from_iter(
        (first..)
            .take(rows)
            .map(|row| (row % 7 != 0).then(|| format!("row {row}"))),
    );
    RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

/// A copy of `batch` with every buffer in `arena`.
pub fn in_arena(arena: &Arena, batch: &RecordBatch) -> RecordBatch {
    let copy = |buffer: &Buffer| arena.buffer_from(buffer.as_slice()).unwrap();
    let columns = batch.columns().iter().map(|column| {
        let data = column.to_data();
        let nulls = data.nulls().map(|nulls| {
            let bits = BooleanBuffer::new(copy(nulls.buffer()), nulls.offset(), nulls.len());
            NullBuffer::new(bits)
        });
        let buffers = data.buffers().iter().map(copy).collect();
        let moved = data.into_builder().buffers(buffers).nulls(nulls).build();
        make_array(moved.unwrap())
    });
    RecordBatch::try_new(batch.schema(), columns.collect()).unwrap()
}

/// The schema of [`batch`].
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Moves an arrow-rs table into the C structs.
pub fn export(batch: &RecordBatch) -> OwnedDeviceArray {
    let data = StructArray::from(batch.clone()).into_data();
    let (array, _) = to_ffi(&data).unwrap();
    // SAFETY: both are Arrow's C structure, whose layout its document fixes.
    let array = unsafe { std::mem::transmute::<FFI_ArrowArray, ArrowArray>(array) };
    let device = ArrowDeviceArray {
        array,
        ..ArrowDeviceArray::empty()
    };
    // SAFETY: arrow-rs exported it to this owner alone, in host memory, as `empty` says.
    unsafe { OwnedDeviceArray::from_raw(device) }
}

/// Moves an arrow-rs schema into the C struct.
pub fn export_schema(schema: &Schema) -> OwnedSchema {
    let schema = FFI_ArrowSchema::try_from(schema).unwrap();
    // SAFETY: both are Arrow's C structure, whose layout its document fixes.
    let schema = unsafe { std::mem::transmute::<FFI_ArrowSchema, ArrowSchema>(schema) };
    // SAFETY: arrow-rs exported it to this owner alone.
    unsafe { OwnedSchema::from_raw(schema) }
}

/// Moves a received array into arrow-rs.
pub fn import(array: OwnedDeviceArray, schema: &OwnedSchema) -> RecordBatch {
    // SAFETY: both are Arrow's C structure, whose layout its document fixes.
    let array =
        unsafe { std::mem::transmute::<ArrowArray, FFI_ArrowArray>(array.into_raw().array) };
    // SAFETY: as above; the reference does not outlive the schema.
    let schema = unsafe { &*std::ptr::from_ref(schema.raw()).cast::<FFI_ArrowSchema>() };
    // SAFETY: the array is a received one, which follows the C data interface.
    let data = unsafe { from_ffi(array, schema) }.unwrap();
    let columns = StructArray::from(data);
    let schema = Schema::try_from(schema).unwrap();
    let rows = columns.len();
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(rows));
    let (_, arrays, _) = columns.into_parts();
    RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options).unwrap()
}

/// The names of a schema's columns.
pub fn names(schema: &OwnedSchema) -> Vec<String> {
    // SAFETY: both are Arrow's C structure, whose layout its document fixes; the reference does not
    // outlive the schema.
    let schema = unsafe { &*std::ptr::from_ref(schema.raw()).cast::<FFI_ArrowSchema>() };
    let schema = Schema::try_from(schema).unwrap();
    schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}

/// Reads a stream to its end.
pub fn read_all(reader: &mut dyn ArrayReader) -> Result<Vec<RecordBatch>> {
    let schema = reader.schema()?;
    let mut batches = Vec::new();
    while let Some(array) = reader.next()? {
        batches.push(import(array, &schema));
    }
    Ok(batches)
}

/// Reads from an iterator of batches.
pub struct IterReader<I> {
    pub schema: SchemaRef,
    pub batches: I,
}

impl<I: Iterator<Item = Result<RecordBatch>> + Send> ArrayReader for IterReader<I> {
    fn schema(&mut self) -> Result<OwnedSchema> {
        Ok(export_schema(&self.schema))
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        Ok(self.batches.next().transpose()?.map(|batch| export(&batch)))
    }

    fn device_type(&self) -> i32 {
        1
    }
}

/// A stream of these batches.
pub fn stream_of(
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch>> + Send + 'static,
) -> OwnedDeviceStream {
    export_device_stream(Box::new(IterReader { schema, batches }))
}

/// A provider made of a function.
pub struct FnProvider<F>(pub F);

impl<F> HostProvider for FnProvider<F>
where
    F: Fn(&ServerRequest) -> Result<OwnedDeviceStream> + Send + Sync + 'static,
{
    fn open(&self, request: &ServerRequest) -> Result<OwnedDeviceStream> {
        (self.0)(request)
    }
}

/// A handler made of a function, for streams that clients send.
pub struct FnTaker<F>(pub F);

impl<F> HostProvider for FnTaker<F>
where
    F: Fn(&ServerRequest) -> Result<()> + Send + Sync + 'static,
{
    fn open(&self, _: &ServerRequest) -> Result<OwnedDeviceStream> {
        Err(Error::unsupported("this handler only takes tables"))
    }

    fn take(&self, request: &ServerRequest) -> Result<()> {
        (self.0)(request)
    }
}

/// A provider of `count` batches of `rows` rows each.
pub fn counting(count: i64, rows: usize) -> Box<dyn HostProvider> {
    Box::new(FnProvider(move |_: &ServerRequest| {
        let batches = (0..count).map(move |index| Ok(batch(index * rows as i64, rows)));
        Ok(stream_of(schema(), batches))
    }))
}

/// The provider's own failure.
pub fn broken(text: &str) -> Error {
    Error::new(dipc::error::Status::Provider, text)
}
