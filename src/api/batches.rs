//! Tables that a server or a client sends.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatchIterator, RecordBatchReader};

use super::arrays::Arrays;
#[cfg(any(feature = "tokio", feature = "async-io"))]
use super::blocking::Blocking;
use super::{DeviceArray, Reader};
use crate::arena::Arena;
use crate::arrow::abi::ArrowDeviceArrayStream;
use crate::arrow::batches::{
    batch_from_c, batch_to_c, export_batches, provider_error, schema_from_c,
};
use crate::arrow::columns::{ensure_columns, ensure_same_columns};
use crate::arrow::format::{Metadata, write_metadata};
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream, into_reader};
use crate::arrow::transfer::{move_into, to_target};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, annotate, annotation};
use crate::device::{DeviceKind, Target};
use crate::error::{Error, Result};

/// A table on its way out, batch by batch. A batch is made when the other side wants it.
pub struct Batches(OwnedDeviceStream);

impl Batches {
    /// The batches of an iterator.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use dipc::Batches;
    /// use arrow::array::{Int64Array, RecordBatch};
    /// # use arrow::datatypes::{DataType, Field, Schema};
    ///
    /// let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    /// let batches = (0..3).map({
    ///     let schema = Arc::clone(&schema);
    ///     move |n| {
    ///         let column = Arc::new(Int64Array::from(vec![n; 10]));
    ///         RecordBatch::try_new(Arc::clone(&schema), vec![column])
    ///     }
    /// });
    /// let table = Batches::new(schema, batches);
    /// # let _ = table;
    /// ```
    pub fn new<I, E>(schema: SchemaRef, batches: I) -> Self
    where
        I: IntoIterator<Item = Result<RecordBatch, E>>,
        I::IntoIter: Send + 'static,
        E: Into<ArrowError> + 'static,
    {
        let batches = batches.into_iter().map(|batch| batch.map_err(Into::into));
        Self::from_reader(RecordBatchIterator::new(batches, schema))
    }

    /// Batches that exist already.
    pub fn of<I>(schema: SchemaRef, batches: I) -> Self
    where
        I: IntoIterator<Item = RecordBatch>,
        I::IntoIter: Send + 'static,
    {
        Self::new(schema, batches.into_iter().map(Ok::<_, ArrowError>))
    }

    /// The batches of a reader: of a file, or of another server.
    pub fn from_reader(reader: impl RecordBatchReader + Send + 'static) -> Self {
        Self(export_batches(Box::new(reader)))
    }

    /// Batches with custom metadata: keys and values, which the reader of each batch gets.
    pub fn with_metadata<I, E>(schema: SchemaRef, batches: I) -> Self
    where
        I: IntoIterator<Item = Result<(RecordBatch, Metadata), E>>,
        I::IntoIter: Send + 'static,
        E: Into<ArrowError> + 'static,
    {
        let arrays = batches.into_iter().map({
            let schema = SchemaRef::clone(&schema);
            move |next| {
                let (batch, metadata) = next.map_err(|error| provider_error(error.into()))?;
                ensure_columns(&schema, &batch)?;
                annotated(batch, &metadata)
            }
        });
        Self::of_source(schema, DeviceKind::CPU, arrays)
    }

    /// Arrays in memory of the kind `device`: of the host, or of a GPU. An array of other columns,
    /// or in other memory, fails the table with `InvalidData`.
    pub fn of_arrays<I, E>(schema: SchemaRef, device: DeviceKind, arrays: I) -> Self
    where
        I: IntoIterator<Item = Result<DeviceArray, E>>,
        I::IntoIter: Send + 'static,
        E: Into<ArrowError> + 'static,
    {
        let arrays = arrays.into_iter().map({
            let schema = SchemaRef::clone(&schema);
            move |next| {
                let array = next.map_err(|error| provider_error(error.into()))?;
                fitting(array, &schema, device)
            }
        });
        Self::of_source(schema, device, arrays)
    }

    /// A C stream of arrays in memory of the host or of a GPU, as another library gives it.
    ///
    /// # Safety
    ///
    /// `stream` has no other owner and follows Arrow's C Device Stream interface, and any thread
    /// may call its functions.
    pub unsafe fn from_c(stream: ArrowDeviceArrayStream) -> Self {
        // SAFETY: the caller promises a stream that follows the interface and has no other owner.
        Self(unsafe { OwnedDeviceStream::from_raw(stream) })
    }

    /// The table as a C stream; the caller releases it.
    pub fn into_c(self) -> ArrowDeviceArrayStream {
        self.0.into_raw()
    }

    /// The same table at `target`: each batch is copied when it is wanted, unless it lies at
    /// `target` already.
    ///
    /// # Errors
    ///
    /// `Unsupported` without a driver of CUDA, or for memory that this process cannot read;
    /// `InvalidArgument` if there is no such GPU.
    pub fn moved_to(self, target: Target) -> Result<Self> {
        to_target(self.0, target).map(Self)
    }

    /// The same table in memory of `arena`, which can be lent without another copy.
    ///
    /// # Errors
    ///
    /// As [`moved_to`](Self::moved_to). A batch fails as [`Arena::buffer`] does.
    pub fn moved_into(self, arena: &Arena) -> Result<Self> {
        let mut reader = into_reader(self.0);
        let moved: Box<dyn ArrayReader> = match arena.room() {
            Some(room) => move_into(reader, room)?,
            None => {
                let schema = SchemaRef::new(schema_from_c(&reader.schema()?)?);
                let (arena, columns) = (arena.clone(), SchemaRef::clone(&schema));
                let arrays = std::iter::from_fn(move || reader.next().transpose());
                let arrays = arrays.map(move |array| {
                    let array = array?;
                    let metadata = annotation(array.raw()).to_vec();
                    // SAFETY: the stream's arrays have its schema, as whoever made it promised.
                    let batch = arena.copy_batch(&unsafe { batch_from_c(array, &columns) }?)?;
                    Ok(annotate(batch_to_c(batch), &metadata))
                });
                Box::new(Arrays(DeviceKind::CPU, schema, arrays))
            }
        };
        Ok(Self(export_device_stream(moved)))
    }

    /// The batches of a [`Stream`](futures_core::Stream). The thread that sends them waits for
    /// each. The stream may need a runtime of `tokio` if this call is made inside that runtime.
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    pub fn from_stream<S, E>(schema: SchemaRef, stream: S) -> Self
    where
        S: futures_core::Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        E: Into<ArrowError> + 'static,
    {
        Self::new(schema, Blocking::new(stream))
    }

    /// Reads the table in this process. For a table that was [moved to a GPU](Self::moved_to),
    /// [`Reader::next_array`] gives the arrays on the GPU.
    ///
    /// # Errors
    ///
    /// The errors of the table's source; `InvalidData` if its schema has a type that the `arrow`
    /// crate lacks.
    pub fn into_reader(self) -> Result<Reader> {
        Reader::of_host(DeviceStreamReader::new(self.0))
    }

    fn of_source<I>(schema: SchemaRef, device: DeviceKind, arrays: I) -> Self
    where
        I: Iterator<Item = Result<OwnedDeviceArray>> + Send + 'static,
    {
        Self(export_device_stream(Box::new(Arrays(
            device, schema, arrays,
        ))))
    }

    /// A stream of the core.
    pub(super) fn of_stream(stream: OwnedDeviceStream) -> Self {
        Self(stream)
    }

    /// The table in the form that the core of the server takes.
    pub(super) fn export(self) -> OwnedDeviceStream {
        self.0
    }
}

/// A batch of the host as an array with custom metadata.
pub(super) fn annotated(
    batch: RecordBatch,
    metadata: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)],
) -> Result<OwnedDeviceArray> {
    let array = batch_to_c(batch);
    if metadata.is_empty() {
        return Ok(array);
    }
    let metadata = write_metadata(metadata)
        .ok_or_else(|| Error::invalid_argument("custom metadata of more than 2 GiB"))?;
    Ok(annotate(array, &metadata))
}

/// The array for a stream of this schema, in memory of the kind `device`.
pub(super) fn fitting(
    array: DeviceArray,
    schema: &SchemaRef,
    device: DeviceKind,
) -> Result<OwnedDeviceArray> {
    if !SchemaRef::ptr_eq(&array.schema, schema) {
        ensure_same_columns(schema, &array.schema)?;
    }
    if array.device() != device {
        return Err(Error::invalid_data(format!(
            "the array lies on Arrow device type {}, and the stream's arrays on {}",
            array.device().0,
            device.0
        )));
    }
    Ok(array.array)
}

impl Reader {
    /// The rest of the table, to send it on: batches stay where they lie, with their metadata.
    pub fn into_batches(self) -> Batches {
        Batches::of_stream(self.into_stream())
    }
}

impl<R: RecordBatchReader + Send + 'static> From<R> for Batches {
    fn from(reader: R) -> Self {
        Self::from_reader(reader)
    }
}

/// An error of this crate keeps its status on the way through a reader.
impl From<Error> for ArrowError {
    fn from(error: Error) -> Self {
        Self::ExternalError(Box::new(error))
    }
}
