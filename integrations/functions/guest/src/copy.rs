//! Copies for functions that keep data.

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;

use crate::Result;

/// A batch that shares no memory with `batch`.
///
/// # Errors
///
/// None, for a batch that arrow-rs has made.
pub fn copy_batch(batch: &RecordBatch) -> Result<RecordBatch> {
    let columns = batch.columns().iter().map(|c| copy_array(c)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        batch.schema(),
        columns,
        &options,
    )?)
}

/// An array that shares no memory with `array`. The buffers are copied as a whole: before a small
/// slice is copied, it is worth it to gather its values (`arrow_select::take`).
pub fn copy_array(array: &dyn Array) -> ArrayRef {
    make_array(copy_data(&array.to_data()))
}

fn copy_data(data: &ArrayData) -> ArrayData {
    let nulls = data.nulls().map(|nulls| {
        let bits = Buffer::from(nulls.validity());
        // SAFETY: the same bits, offset and length, so the count is the same.
        unsafe {
            NullBuffer::new_unchecked(
                BooleanBuffer::new(bits, nulls.offset(), nulls.len()),
                nulls.null_count(),
            )
        }
    });
    let buffers = data
        .buffers()
        .iter()
        .map(|b| Buffer::from(b.as_slice()))
        .collect();
    let children = data.child_data().iter().map(copy_data).collect();
    let copy = data
        .clone()
        .into_builder()
        .nulls(nulls)
        .buffers(buffers)
        .child_data(children);
    // SAFETY: type, length and offset are those of `data`, which is valid, and each buffer has its
    // bytes, in memory of arrow-rs, which aligns it for every type.
    unsafe { copy.build_unchecked() }
}
