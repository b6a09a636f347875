//! Input, which the server lends for the time of one call.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::ffi::{FFI_ArrowArray, from_ffi_and_data_type};
use arrow_array::{RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType, SchemaRef};

use crate::Result;

// The layout that the server writes and reads.
#[cfg(target_arch = "wasm32")]
const _: () = assert!(
    size_of::<FFI_ArrowArray>() == 64 && size_of::<arrow_schema::ffi::FFI_ArrowSchema>() == 48
);

/// Tells when nothing holds a part of a lent array any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loan(Arc<AtomicBool>);

impl Loan {
    /// True once the array and all that shares its buffers are dropped.
    pub(crate) fn is_returned(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The release of a lent array: frees nothing, and marks the loan.
unsafe extern "C" fn give_back(array: *mut FFI_ArrowArray) {
    // SAFETY: arrow-rs calls this once, when the array is dropped, with a pointer to it.
    let array = unsafe { &mut *array };
    // SAFETY: `borrow` put the pointer of an `Arc` there, and nothing else takes it.
    let returned = unsafe { Arc::from_raw(array.private_data().cast::<AtomicBool>()) };
    // SAFETY: an array without a release is one that was released.
    unsafe { array.set_release(None) };
    returned.store(true, Ordering::Release);
}

/// A batch over the memory of a lent array, of `schema`.
///
/// # Safety
///
/// `array` points to a struct array of the C data interface, of the type that `schema` says, which
/// is readable until the loan is returned. Its release is not called.
pub(crate) unsafe fn borrow(
    array: *const FFI_ArrowArray,
    schema: &SchemaRef,
    loan: &Loan,
) -> Result<RecordBatch> {
    // SAFETY: the caller promises that it is readable. The release is replaced before the copy can be
    // dropped, so it frees nothing of the lender's.
    let mut lent = unsafe { ptr::read(array) };
    let returned = Arc::into_raw(loan.0.clone()).cast_mut().cast::<c_void>();
    // SAFETY: the release below is what reads it.
    unsafe { lent.set_private_data(returned) };
    // SAFETY: it releases an array that owns nothing but the pointer above.
    unsafe { lent.set_release(Some(give_back)) };
    let fields = schema.fields().clone();
    // SAFETY: the caller promises an array of this type. What shares its buffers keeps `lent`, and
    // the loan open.
    let data = unsafe { from_ffi_and_data_type(lent, DataType::Struct(fields)) }?;
    let rows = data.len();
    let (_, columns, _) = StructArray::from(data).into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &options,
    )?)
}
