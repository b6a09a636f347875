//! Arrays wherever they lie: in memory of the host, or of a GPU.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::arrays::Arrays;
use crate::arrow::abi::ArrowDeviceArray;
use crate::arrow::batches::{batch_from_c, batch_to_c};
use crate::arrow::format::{Metadata, parse_metadata};
use crate::arrow::transfer::move_to;
use crate::arrow::{OwnedDeviceArray, annotation};
use crate::device::{DeviceKind, Target, cuda};
use crate::error::Result;

/// One batch of a table as an `ArrowDeviceArray`, in memory of the host or of a GPU.
///
/// The array keeps its memory alive by itself: it may outlive its reader and the client.
#[derive(Debug)]
pub struct DeviceArray {
    pub(super) array: OwnedDeviceArray,
    pub(super) schema: SchemaRef,
}

impl DeviceArray {
    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        usize::try_from(self.array.raw().array.length).unwrap_or_default()
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The kind of memory.
    pub fn device(&self) -> DeviceKind {
        DeviceKind(self.array.raw().device_type)
    }

    /// The number of the device, counting from 0; -1 for the host.
    pub fn device_id(&self) -> i64 {
        self.array.raw().device_id
    }

    /// The batch's custom metadata: key and value.
    pub fn metadata(&self) -> Metadata {
        metadata_of(&self.array)
    }

    /// Waits until the values are there. An array on a GPU may be given out before its copies are
    /// complete. Its event (`sync_event`) says when they are, for CUDA streams that read it.
    ///
    /// # Errors
    ///
    /// The error of CUDA's driver.
    pub fn wait(&self) -> Result<()> {
        let raw = self.array.raw();
        if raw.sync_event.is_null() {
            return Ok(());
        }
        let stream = cuda::Stream::new(&cuda::Device::get(raw.device_id)?)?;
        // SAFETY: by Arrow's interface the array keeps its event until its release, and `self`
        // owns the array.
        unsafe { stream.wait_for_producer(raw.sync_event) }?;
        stream.synchronize()
    }

    /// The array as a record batch. An array on the host is shared, not copied; an array on a GPU
    /// is copied to the host.
    ///
    /// # Errors
    ///
    /// `Unsupported` for memory that this process cannot read; the error of CUDA's driver;
    /// `InvalidData` if rows of the table itself are null.
    pub fn into_batch(self) -> Result<RecordBatch> {
        let Self { array, schema } = self;
        let array = match DeviceKind(array.raw().device_type) {
            DeviceKind::CUDA | DeviceKind::CUDA_HOST | DeviceKind::CUDA_MANAGED => {
                let device = DeviceKind(array.raw().device_type);
                let one = Arrays(device, schema.clone(), std::iter::once(Ok(array)));
                match move_to(Box::new(one), Target::Host)?.next()? {
                    Some(moved) => moved,
                    None => return Ok(RecordBatch::new_empty(schema)),
                }
            }
            _ => array,
        };
        // SAFETY: `array` has the columns of `schema` and valid values: the decoder has checked
        // both as the options say, or the caller of `from_c` has promised them. What is not checked
        // of a peer of the same user is trusted (crate docs, "Soundness").
        unsafe { batch_from_c(array, &schema) }
    }

    /// The C struct, for reading.
    pub fn as_c(&self) -> &ArrowDeviceArray {
        self.array.raw()
    }

    /// Gives the C struct away; the caller releases it.
    pub fn into_c(self) -> ArrowDeviceArray {
        self.array.into_raw()
    }

    /// Takes a C struct, which the drop releases.
    ///
    /// # Safety
    ///
    /// `array` is not released, has no other owner, and follows Arrow's C Device interface. It has
    /// the columns of `schema`, and valid values of their types.
    pub unsafe fn from_c(array: ArrowDeviceArray, schema: SchemaRef) -> Self {
        // SAFETY: the caller promises an array that follows the interface and has no other owner.
        let array = unsafe { OwnedDeviceArray::from_raw(array) };
        Self { array, schema }
    }
}

/// Shares the batch's buffers.
impl From<RecordBatch> for DeviceArray {
    fn from(batch: RecordBatch) -> Self {
        let schema = batch.schema();
        let array = batch_to_c(batch);
        Self { array, schema }
    }
}

/// The custom metadata of an array; none if they are not valid text.
pub(super) fn metadata_of(array: &OwnedDeviceArray) -> Metadata {
    match annotation(array.raw()) {
        [] => Metadata::new(),
        encoded => parse_metadata(encoded).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array as _, ArrayRef, Int32Array};

    use super::*;
    use crate::api::Batches;
    use crate::arrow::stream::into_reader;

    /// Promise of `into_c` and `from_c`: the structs go through other hands without a copy.
    #[test]
    fn structs_go_and_come_back() {
        let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..9));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let array = DeviceArray::from(batch.clone());
        assert_eq!(array.as_c().array.length, 9);
        // SAFETY: `into_c` gave the struct of a batch of this schema to this test alone.
        let array = unsafe { DeviceArray::from_c(array.into_c(), batch.schema()) };
        let again = array.into_batch().unwrap();
        assert_eq!(again, batch);
        let address = |batch: &RecordBatch| batch.column(0).to_data().buffers()[0].as_ptr();
        assert_eq!(address(&again), address(&batch));

        let table = Batches::of(batch.schema(), [batch]);
        // SAFETY: `into_c` gave the stream to this test alone.
        let table = unsafe { Batches::from_c(table.into_c()) };
        let mut reader = into_reader(table.export());
        assert_eq!(reader.next().unwrap().unwrap().raw().array.length, 9);
        assert!(reader.next().unwrap().is_none());
    }
}
