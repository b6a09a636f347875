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
    let view = ArrowDeviceArray {
        array: ArrowArray {
            length: source.array.length,
            null_count: source.array.null_count,
            offset: source.array.offset,
            n_buffers: source.array.n_buffers,
            n_children: source.array.n_children,
            buffers: source.array.buffers,
            children: source.array.children,
            dictionary: source.array.dictionary,
            release: Some(release_view::<H>),
            private_data: Box::into_raw(Box::new(holder)).cast(),
        },
        device_id: source.device_id,
        device_type: source.device_type,
        sync_event: source.sync_event,
        reserved: [0; 3],
    };
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
