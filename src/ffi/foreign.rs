//! What a host gives along with a callback: its data, and the function that ends its use.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Called exactly once, when the library will not use `userdata` again; never during a callback
/// that uses it, and never on an I/O thread.
pub type dipc_finalizer = Option<unsafe extern "C" fn(userdata: *mut c_void)>;

/// Data of the host; dropping it runs the finalizer.
///
/// A function that is given one takes it over only when it succeeds (`DIPC_OK`). So it keeps a
/// clone of the `Arc` while it works, which keeps the finalizer from running, and
/// [`relinquish`](Self::relinquish)es the data when the work failed.
pub(super) struct ForeignData {
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    owned: AtomicBool,
}

// SAFETY: the header's rule for callbacks: data of the host may be used and finalized by any
// thread.
unsafe impl Send for ForeignData {}
// SAFETY: as above; this side only copies the pointer.
unsafe impl Sync for ForeignData {}

impl ForeignData {
    pub(super) fn new(userdata: *mut c_void, finalizer: dipc_finalizer) -> Self {
        Self {
            userdata,
            finalizer,
            owned: AtomicBool::new(true),
        }
    }

    /// The pointer to give to the callback.
    pub(super) fn pointer(&self) -> *mut c_void {
        self.userdata
    }

    /// Leaves the data to the caller, who still owns it: the finalizer will not run.
    pub(super) fn relinquish(&self) {
        self.owned.store(false, Ordering::Release);
    }
}

impl Drop for ForeignData {
    fn drop(&mut self) {
        if let (true, Some(finalizer)) = (*self.owned.get_mut(), self.finalizer) {
            // SAFETY: the host gave the two together, for one call; nothing here uses the data any
            // more, since this is its drop.
            unsafe { finalizer(self.userdata) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn count(userdata: *mut c_void) {
        // SAFETY: the test below passes a counter that lives longer.
        let counter = unsafe { &mut *userdata.cast::<u32>() };
        *counter += 1;
    }

    /// Promise: a finalizer runs once, and not at all where the call failed.
    #[test]
    fn finalizers_run_once_and_only_after_success() {
        let mut counter = 0u32;
        let mut data = || ForeignData::new((&raw mut counter).cast(), Some(count));
        let (kept, failed) = (data(), data());
        drop(kept);
        failed.relinquish();
        drop(failed);
        assert_eq!(counter, 1);
    }
}
