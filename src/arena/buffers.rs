//! Memory that servers and puts lend where it lies.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow_data::transform::MutableArrayData;
use arrow_data::{ArrayData, ArrayDataBuilder};

use crate::arena::bytes::ArenaBlock;
use crate::arena::{Arena, ArenaOptions};
use crate::device::DeviceKind;
use crate::error::{Error, Result};

/// Memory of an arena that nobody else has yet: write it, then
/// [freeze](ArenaBuffer::freeze) it into a buffer of the `arrow` crate.
///
/// ```
/// use dipc::Arena;
/// use arrow::array::Int32Array;
/// use arrow::buffer::ScalarBuffer;
///
/// let arena = Arena::host()?;
/// let mut bytes = arena.buffer(12)?;
/// for (n, value) in (0i32..).zip(bytes.chunks_exact_mut(4)) {
///     value.copy_from_slice(&n.to_ne_bytes());
/// }
/// let array = Int32Array::new(ScalarBuffer::new(bytes.freeze(), 0, 3), None);
/// assert_eq!(array.values(), &[0, 1, 2]);
/// # Ok::<(), dipc::Error>(())
/// ```
pub struct ArenaBuffer {
    block: ArenaBlock,
    len: usize,
}

impl Arena {
    /// An arena in host memory, with the default options.
    ///
    /// # Errors
    ///
    /// `OutOfResources`.
    pub fn host() -> Result<Self> {
        Self::new(DeviceKind::CPU, ArenaOptions::default())
    }

    /// `len` bytes of the arena, all zero and aligned to 64.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if `max_bytes` is reached or the system has no memory left; `OutOfResources`;
    /// `Unsupported` for an arena on a GPU.
    pub fn buffer(&self, len: usize) -> Result<ArenaBuffer> {
        if self.device() != DeviceKind::CPU {
            return Err(Error::unsupported(
                "the processor writes such a buffer, and this arena lies on a GPU",
            ));
        }
        let block = ArenaBlock::new(self, len)?;
        // SAFETY: the block has `len` bytes of the host, and nobody else knows it.
        unsafe { block.data().write_bytes(0, len) };
        Ok(ArenaBuffer { block, len })
    }

    /// A copy of `batch` in the arena, which can be lent without another copy. Only the rows of a
    /// slice are copied.
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer).
    pub fn copy_batch(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = (batch.columns().iter())
            .map(|column| self.copy_array(column))
            .collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(batch.schema(), columns, &options)
            .map_err(|error| Error::invalid_data(error.to_string()))
    }

    /// A copy of `array` in the arena; as [`copy_batch`](Self::copy_batch).
    ///
    /// # Errors
    ///
    /// As [`buffer`](Self::buffer).
    pub fn copy_array(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let data = array.to_data();
        // Buffers of a slice are the whole array's.
        let rows = rows_of(&data)?;
        Ok(make_array(self.copy_data(&rows)?))
    }

    fn copy_data(&self, data: &ArrayData) -> Result<ArrayData> {
        let buffers = (data.buffers().iter())
            .map(|buffer| self.buffer_from(buffer))
            .collect::<Result<_>>()?;
        let children = (data.child_data().iter())
            .map(|child| self.copy_data(child))
            .collect::<Result<_>>()?;
        let nulls = (data.nulls())
            .map(|nulls| {
                let bits = self.buffer_from(nulls.buffer())?;
                let bits = arrow::buffer::BooleanBuffer::new(bits, nulls.offset(), nulls.len());
                // SAFETY: a copy of the bits, with their own count.
                Ok::<_, Error>(unsafe { NullBuffer::new_unchecked(bits, nulls.null_count()) })
            })
            .transpose()?;
        let copy = ArrayDataBuilder::new(data.data_type().clone())
            .len(data.len())
            .offset(data.offset())
            .nulls(nulls)
            .buffers(buffers)
            .child_data(children);
        // SAFETY: each part is a copy of a part of a valid array.
        Ok(unsafe { copy.build_unchecked() })
    }
}

/// A copy of the rows of an array, which may be a slice, in buffers without other rows.
fn rows_of(slice: &ArrayData) -> Result<ArrayData> {
    let mut rows = MutableArrayData::new(vec![slice], false, slice.len());
    rows.try_extend(0, 0, slice.len())
        .map_err(|error| Error::invalid_data(error.to_string()))?;
    Ok(rows.freeze())
}

impl ArenaBuffer {
    /// The buffer, which may be shared from now on. The last clone or slice frees the memory.
    pub fn freeze(self) -> Buffer {
        let data = self.block.data();
        // SAFETY: the block has `len` initialised bytes, and nobody writes them any more. The
        // buffer drops the block last.
        unsafe { Buffer::from_custom_allocation(data, self.len, Arc::new(self.block)) }
    }
}

impl Deref for ArenaBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let data: NonNull<u8> = self.block.data();
        // SAFETY: the block has `len` initialised bytes, which only this value's owner writes.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), self.len) }
    }
}

impl DerefMut for ArenaBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let data = self.block.data();
        // SAFETY: the block has `len` initialised bytes, and the exclusive borrow of this value,
        // the block's owner, makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), self.len) }
    }
}

impl fmt::Debug for ArenaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArenaBuffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
