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
    let raw = source.raw();
    let holder = Box::into_raw(Box::new(Arc::clone(source)));
    let view = ArrowDeviceArray {
        array: ArrowArray {
            length: raw.array.length,
            null_count: raw.array.null_count,
            offset: raw.array.offset,
            n_buffers: raw.array.n_buffers,
            n_children: raw.array.n_children,
            buffers: raw.array.buffers,
            children: raw.array.children,
            dictionary: raw.array.dictionary,
            release: Some(release_view),
            private_data: holder.cast(),
        },
        device_id: raw.device_id,
        device_type: raw.device_type,
        sync_event: raw.sync_event,
        reserved: [0; 3],
    };
    // SAFETY: `source` keeps the promise of an owned array, and the view has the same parts. The
    // `Arc` in `private_data` keeps them alive. `source` is shared and views are only read, so
    // nobody writes to them.
    unsafe { OwnedDeviceArray::from_raw(view) }
}

unsafe extern "C" fn release_view(view: *mut ArrowArray) {
    // SAFETY: the C data interface calls this with the live struct that `share` made.
    let view = unsafe { &mut *view };
    view.release = None;
    let holder: *mut c_void = std::mem::replace(&mut view.private_data, ptr::null_mut());
    // SAFETY: `share` made `private_data` from a box of this type. The NULL written above prevents
    // a second use.
    drop(unsafe { Box::from_raw(holder.cast::<Arc<OwnedDeviceArray>>()) });
}
