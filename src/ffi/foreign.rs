//! The data of a host's callback, and its finalizer.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

/// Called exactly once, after the library's last use of userdata. Never runs during a callback that
/// has the same userdata, and never on an I/O thread.
pub type dipc_finalizer = Option<unsafe extern "C" fn(userdata: *mut c_void)>;

/// Data of the host. Its drop runs the finalizer.
///
/// An export owns the data only when it succeeds (`DIPC_OK`). While it works it keeps a clone of
/// the `Arc`, so that the finalizer cannot run. If the work fails it
/// [`relinquish`](Self::relinquish)es the data.
pub(super) struct ForeignData {
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    owned: AtomicBool,
}

// SAFETY: the host lets any thread use and finalize its data, by the header's rule for callbacks.
unsafe impl Send for ForeignData {}
// SAFETY: the host lets any thread use its data, by the header's rule for callbacks; this side only
// copies the pointer.
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

    /// Leaves the data to the host, which still owns it: the finalizer will not run.
    pub(super) fn relinquish(&self) {
        self.owned.store(false, Ordering::Release);
    }
}

impl Drop for ForeignData {
    fn drop(&mut self) {
        if let (true, Some(finalizer)) = (*self.owned.get_mut(), self.finalizer) {
            // SAFETY: the host gave the two together, for one call of the finalizer; this drop is
            // the last use of the data.
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

    /// Promise: a finalizer runs once, and never if the call failed.
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
