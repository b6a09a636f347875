//! An operation of UCX that moves no data: a flush, or a close.

use std::ffi::c_void;
use std::ptr::NonNull;

use ucx1_sys::{
    Api, UCS_INPROGRESS, UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucs_status_ptr_t, ucs_status_t,
};

/// A request of no data. Dropped while it is under way, it goes on.
pub(super) struct Pending {
    api: &'static Api,
    /// `None` once it has ended.
    request: Option<NonNull<c_void>>,
    status: ucs_status_t,
}

// SAFETY: a request belongs to its worker and not to a thread; the owner of both uses them, one
// thread at a time.
unsafe impl Send for Pending {}

impl Pending {
    pub(super) fn new(api: &'static Api, returned: ucs_status_ptr_t) -> Self {
        let is_pending = UCS_PTR_IS_PTR(returned);
        Self {
            api,
            request: NonNull::new(returned).filter(|_| is_pending),
            status: if is_pending {
                UCS_INPROGRESS
            } else {
                UCS_PTR_STATUS(returned)
            },
        }
    }

    /// How it has ended, if it has. Its worker must not be destroyed before.
    pub(super) fn check(&mut self) -> Option<ucs_status_t> {
        if let Some(request) = self.request {
            // SAFETY: a request that is not freed yet.
            self.status = unsafe { self.api.ucp_request_check_status(request.as_ptr()) };
        }
        if self.status == UCS_INPROGRESS {
            return None;
        }
        self.forget();
        Some(self.status)
    }

    /// Takes no more interest in it. As [`check`](Self::check).
    pub(super) fn forget(&mut self) {
        if let Some(request) = self.request.take() {
            // SAFETY: not freed before; UCX keeps what is still under way to itself.
            unsafe { self.api.ucp_request_free(request.as_ptr()) };
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.forget();
    }
}
