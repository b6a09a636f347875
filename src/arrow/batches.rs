//! Conversion between record batches of the `arrow` crate and the C structs, for Rust callers.
//!
//! Both directions share the buffers without a copy. The result keeps its source alive.

use std::mem;
use std::sync::Arc;

use arrow::array::{Array as _, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};
use arrow::record_batch::RecordBatchReader;

use crate::arrow::abi::{ArrowArray, ArrowSchema};
use crate::arrow::columns::ensure_columns;
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};

// Both crates define the structs of Arrow's C data interface; only the Rust types differ.
const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<ArrowArray>());
const _: () = assert!(align_of::<FFI_ArrowArray>() == align_of::<ArrowArray>());
const _: () = assert!(size_of::<FFI_ArrowSchema>() == size_of::<ArrowSchema>());
const _: () = assert!(align_of::<FFI_ArrowSchema>() == align_of::<ArrowSchema>());

/// The C schema of a table with this schema.
///
/// # Errors
///
/// `InvalidData` if Arrow's C data interface lacks a type.
pub fn schema_to_c(schema: &Schema) -> Result<OwnedSchema> {
    let exported = FFI_ArrowSchema::try_from(schema).map_err(|error| invalid(&error))?;
    // SAFETY: both types are the `repr(C)` struct ArrowSchema of the C data interface, with the
    // same fields; sizes and alignments are compared above. `transmute` moves the value, so it
    // keeps one owner.
    let raw = unsafe { mem::transmute::<FFI_ArrowSchema, ArrowSchema>(exported) };
    // SAFETY: arrow-rs exports schemas that follow the C data interface, and `raw` is the only
    // owner.
    Ok(unsafe { OwnedSchema::from_raw(raw) })
}

/// The Rust schema of a C schema.
///
/// # Errors
///
/// `InvalidData` if it is released, not of a table, or has a type that the `arrow` crate lacks.
pub fn schema_from_c(schema: &OwnedSchema) -> Result<Schema> {
    if schema.is_released() {
        return Err(Error::invalid_data(
            "the schema was released before it was read",
        ));
    }
    let raw = std::ptr::from_ref(schema.raw()).cast::<FFI_ArrowSchema>();
    // SAFETY: the pointer comes from a reference to an ArrowSchema that is not released and is
    // borrowed during the call. The types have one layout, as in `schema_to_c`.
    let imported = unsafe { &*raw };
    Schema::try_from(imported).map_err(|error| invalid(&error))
}

/// The C array of a batch, in host memory. The array shares the batch's buffers.
pub fn batch_to_c(batch: RecordBatch) -> OwnedDeviceArray {
    let exported = FFI_ArrowArray::new(&StructArray::from(batch).to_data());
    // SAFETY: both types are the `repr(C)` struct ArrowArray of the C data interface, with the same
    // fields; sizes and alignments are compared above. `transmute` moves the value, so it keeps one
    // owner.
    let array = unsafe { mem::transmute::<FFI_ArrowArray, ArrowArray>(exported) };
    // SAFETY: arrow-rs exports host arrays that follow the C data interface, and `array` is the
    // only owner.
    unsafe { OwnedDeviceArray::on_host(array) }
}

/// The batch of a C array. It shares the array's buffers. The last dropped buffer releases the
/// array.
///
/// # Safety
///
/// The array has the columns of `schema` and follows the C data interface: its buffers have the
/// lengths that types and lengths require, and hold valid values of their types.
///
/// # Errors
///
/// `Unsupported` if the array is not in host memory; `InvalidData` if rows of the table itself are
/// null, which a batch cannot express.
pub unsafe fn batch_from_c(array: OwnedDeviceArray, schema: &SchemaRef) -> Result<RecordBatch> {
    let kind = DeviceKind(array.raw().device_type);
    if matches!(
        kind,
        DeviceKind::CUDA | DeviceKind::CUDA_HOST | DeviceKind::CUDA_MANAGED
    ) {
        return Err(Error::unsupported(format!(
            "record batches lie in host memory, and the array in that of Arrow device type {}: \
             move its stream to the host first (transfer::move_to)",
            kind.0
        )));
    }
    kind.ensure_readable()?;
    let raw = array.into_raw().array;
    // SAFETY: both types are the `repr(C)` struct ArrowArray of the C data interface, with the same
    // fields; sizes and alignments are compared above. `transmute` moves the value, so it keeps one
    // owner.
    let imported = unsafe { mem::transmute::<ArrowArray, FFI_ArrowArray>(raw) };
    let columns = DataType::Struct(schema.fields().clone());
    // SAFETY: the caller promises the columns, and an array that follows the interface.
    let data =
        unsafe { from_ffi_and_data_type(imported, columns) }.map_err(|error| invalid(&error))?;
    if data.null_count() > 0 {
        return Err(Error::invalid_data("rows of the table itself are null"));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(data.len()));
    let columns = StructArray::from(data).into_parts().1;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| invalid(&error))
}

fn invalid(error: &ArrowError) -> Error {
    Error::invalid_data(error.to_string())
}

/// Reads a device stream as record batches.
pub struct BatchReader {
    stream: DeviceStreamReader,
    schema: SchemaRef,
    ended: bool,
}

impl BatchReader {
    /// Reads the schema of `stream`.
    ///
    /// # Safety
    ///
    /// The stream follows Arrow's C device stream interface. Its arrays follow the C data interface
    /// and have the stream's schema.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the stream is released; `Provider`, with the stream's own text, if it
    /// fails; `InvalidData` if its schema is not of a table.
    pub unsafe fn new(stream: OwnedDeviceStream) -> Result<Self> {
        let mut stream = DeviceStreamReader::new(stream);
        let schema = Arc::new(schema_from_c(&stream.schema()?)?);
        Ok(Self {
            stream,
            schema,
            ended: false,
        })
    }

    /// The next batch; `None` at the end, and after an error.
    ///
    /// # Errors
    ///
    /// `Provider`, with the stream's own text, if the stream fails; else as [`batch_from_c`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.ended {
            return Ok(None);
        }
        let batch = self.stream.next().and_then(|array| {
            // SAFETY: the caller of `new` promised that arrays follow the interface and the schema.
            array
                .map(|array| unsafe { batch_from_c(array, &self.schema) })
                .transpose()
        });
        self.ended = !matches!(batch, Ok(Some(_)));
        batch
    }
}

impl Iterator for BatchReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch()
            .map_err(|error| ArrowError::ExternalError(Box::new(error)))
            .transpose()
    }
}

impl RecordBatchReader for BatchReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// Exports record batches as a device stream of host memory. The stream reads a batch when the
/// consumer calls `get_next`, and returns the errors of `reader`.
pub fn export_batches(reader: Box<dyn RecordBatchReader + Send>) -> OwnedDeviceStream {
    export_device_stream(Box::new(Batches(reader)))
}

/// A source of record batches as a source of C arrays.
struct Batches(Box<dyn RecordBatchReader + Send>);

impl ArrayReader for Batches {
    fn schema(&mut self) -> Result<OwnedSchema> {
        schema_to_c(&self.0.schema())
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        match self.0.next() {
            Some(Ok(batch)) => {
                // Nothing else ensures that the batches have the reader's schema. A consumer would
                // read an array of another type past its end, and other columns by wrong names.
                ensure_columns(&self.0.schema(), &batch)?;
                Ok(Some(batch_to_c(batch)))
            }
            Some(Err(error)) => Err(provider_error(error)),
            None => Ok(None),
        }
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }

    fn keeps_status(&self) -> bool {
        true
    }
}

/// Converts an error of a reader. An [`Error`] of this crate inside stays as it is.
pub(crate) fn provider_error(error: ArrowError) -> Error {
    match error {
        ArrowError::ExternalError(inner) => match inner.downcast::<Error>() {
            Ok(ours) => *ours,
            Err(theirs) => Error::new(Status::Provider, theirs.to_string()),
        },
        other => Error::new(Status::Provider, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, StringViewArray};

    use super::*;

    fn batch() -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
        let words: ArrayRef = Arc::new(StringViewArray::from(vec![
            "short",
            "",
            "longer than twelve bytes",
        ]));
        RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap()
    }

    /// A batch comes back equal, also a slice, and with its own buffers.
    #[test]
    fn batches_cross_the_c_structs_without_a_copy() {
        let batch = batch();
        let address = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr();
        for sent in [batch.clone(), batch.slice(1, 2), batch.slice(0, 0)] {
            // SAFETY: the array is that of a valid batch.
            let back = unsafe { batch_from_c(batch_to_c(sent.clone()), &sent.schema()) }.unwrap();
            assert_eq!(back, sent);
            if sent.num_rows() > 0 {
                assert_eq!(address(&back), address(&sent));
            }
        }
    }

    /// Rule A5: a table without columns keeps its number of rows.
    #[test]
    fn batches_without_columns_keep_their_rows() {
        let options = RecordBatchOptions::new().with_row_count(Some(5));
        let empty = Arc::new(Schema::empty());
        let sent = RecordBatch::try_new_with_options(Arc::clone(&empty), vec![], &options).unwrap();
        // SAFETY: the array is that of a valid batch.
        let back = unsafe { batch_from_c(batch_to_c(sent), &empty) }.unwrap();
        assert_eq!(back.num_rows(), 5);
    }

    /// Names, types and metadata of a schema come back.
    #[test]
    fn schemas_cross_the_c_structs() {
        let schema = batch().schema().as_ref().clone();
        let entry = ("key".to_owned(), "value".to_owned());
        let schema = schema.with_metadata(std::collections::HashMap::from([entry]));
        assert_eq!(
            schema_from_c(&schema_to_c(&schema).unwrap()).unwrap(),
            schema
        );
    }

    /// A device stream of batches yields equal batches. An error of the reader keeps its text and
    /// ends the stream.
    #[test]
    fn streams_of_batches_cross_the_c_structs() {
        let cause = ArrowError::ExternalError("the disk is gone".into());
        let items = [
            Ok(batch()),
            Ok(batch().slice(1, 1)),
            Err(cause),
            Ok(batch()),
        ];
        let reader = arrow::record_batch::RecordBatchIterator::new(items, batch().schema());
        // SAFETY: the stream is that of valid batches.
        let mut back = unsafe { BatchReader::new(export_batches(Box::new(reader))) }.unwrap();
        assert_eq!(back.schema(), batch().schema());
        assert_eq!(back.next_batch().unwrap(), Some(batch()));
        assert_eq!(back.next_batch().unwrap(), Some(batch().slice(1, 1)));
        let error = back.next_batch().unwrap_err();
        assert_eq!(error.status(), Status::Provider);
        assert!(error.text().contains("the disk is gone"));
        assert_eq!(back.next_batch().unwrap(), None);
    }

    /// Promise of `Owned`: a stream's arrays have its schema, even if a reader breaks the rule.
    #[test]
    fn batches_of_other_columns_are_refused() {
        let other: ArrayRef = Arc::new(arrow::array::Int64Array::from(vec![1]));
        let word: ArrayRef = Arc::new(StringViewArray::from(vec!["a"]));
        let items = [
            RecordBatch::try_from_iter([("number", other), ("word", Arc::clone(&word))]).unwrap(),
            RecordBatch::try_from_iter([("word", word)]).unwrap(),
            batch().project(&[1, 0]).unwrap(),
        ];
        for item in items {
            let reader =
                arrow::record_batch::RecordBatchIterator::new([Ok(item)], batch().schema());
            let error = Batches(Box::new(reader)).next().unwrap_err();
            assert_eq!(error.status(), Status::InvalidData);
            assert!(error.text().contains("columns"), "{error}");
        }
    }

    /// An array on a device is refused and released.
    #[test]
    fn device_memory_is_refused() {
        let batch = batch();
        let mut array = batch_to_c(batch.clone());
        // SAFETY: a wrong device type changes no pointer and no release function.
        unsafe { array.raw_mut() }.device_type = 2;
        // SAFETY: the array is that of a valid batch.
        let refused = unsafe { batch_from_c(array, &batch.schema()) }.unwrap_err();
        assert_eq!(refused.status(), crate::error::Status::Unsupported);
    }
}
