//! Views of one array for many readers, for the streams of a published ticket.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::arrow::OwnedDeviceArray;
use crate::arrow::abi::{ArrowArray, ArrowDeviceArray};

/// A view of `source` with the same buffers and children. Its release only drops the reference to
/// `source`.
///
/// Only this crate may read the view. A host program could move children out of it, as the C data
/// interface allows, but the children belong to `source`.
pub(crate) fn share(source: &Arc<OwnedDeviceArray>) -> OwnedDeviceArray {
    // SAFETY: the `Arc` owns the array. It is shared and views are only read, so nobody writes to
    // them.
    unsafe { view(source.raw(), Arc::clone(source)) }
}

/// A view of `source` with the same buffers and children. Its release drops `holder`.
///
/// # Safety
///
/// `holder` owns an array with the parts of `source`, which keeps the promise of an owned one, and
/// does not change or release it before its own drop.
pub(crate) unsafe fn view<H: Send + Sync + 'static>(
    source: &ArrowDeviceArray,
    holder: Arc<H>,
) -> OwnedDeviceArray {
    // SAFETY: `source` is initialised. The copy gets a release of its own before it has an owner.
    let mut view = unsafe { ptr::read(source) };
    view.array.release = Some(release_view::<H>);
    view.array.private_data = Box::into_raw(Box::new(holder)).cast();
    view.reserved = [0; 3];
    // SAFETY: the view has the parts of an array that keeps the promise of an owned one, as the
    // caller promises. The `Arc` in `private_data` keeps them alive.
    unsafe { OwnedDeviceArray::from_raw(view) }
}

unsafe extern "C" fn release_view<H>(view: *mut ArrowArray) {
    // SAFETY: the C data interface calls this with the live struct that `view` made.
    let view = unsafe { &mut *view };
    view.release = None;
    let holder: *mut c_void = std::mem::replace(&mut view.private_data, ptr::null_mut());
    // SAFETY: `view` made `private_data` from a box of this type. The NULL written above prevents
    // a second use.
    drop(unsafe { Box::from_raw(holder.cast::<Arc<H>>()) });
}
