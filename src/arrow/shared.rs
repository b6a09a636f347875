//! One array lent to many readers: what a published ticket hands to each of its streams.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use crate::arrow::OwnedDeviceArray;
use crate::arrow::abi::{ArrowArray, ArrowDeviceArray};

/// A view of `source`: the same buffers and children, and a release that only lets go of `source`.
///
/// The view is for reading. Its children belong to `source`, so they cannot be moved out of it as
/// the C data interface would allow: it must not be handed to the host.
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
    // SAFETY: `source` keeps the promise of an owned array, and the view has the same parts; the
    // `Arc` behind its release keeps them alive. Nobody writes to them: `source` is shared, so that
    // only references to it are left, and views are only read.
    unsafe { OwnedDeviceArray::from_raw(view) }
}

unsafe extern "C" fn release_view(view: *mut ArrowArray) {
    // SAFETY: the C data interface calls this with the live structure that `share` made.
    let view = unsafe { &mut *view };
    view.release = None;
    let holder: *mut c_void = std::mem::replace(&mut view.private_data, ptr::null_mut());
    // SAFETY: `share` made `private_data` from a box of this type, and the NULL written above
    // makes this the only time that it is taken back.
    drop(unsafe { Box::from_raw(holder.cast::<Arc<OwnedDeviceArray>>()) });
}
