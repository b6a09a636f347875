//! Operations of UCX that are under way, and the memory that UCX reads or writes for them.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use ucx1_sys::{
    Api, UCS_INPROGRESS, UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucs_status_ptr_t, ucs_status_t,
};

use crate::device::HostBuffer;
use crate::device::cuda::GpuBody;
use crate::transport::ucx::callbacks::MessageClass;
use crate::transport::ucx::gather::Sending;

/// A request of UCX. If it is dropped while it is under way, it goes on.
pub(super) struct UcxRequest {
    api: &'static Api,
    /// `None` once it has ended.
    request: Option<NonNull<c_void>>,
    status: ucs_status_t,
}

// SAFETY: a request belongs to its worker and not to a thread; the owner of both uses them, one
// thread at a time.
unsafe impl Send for UcxRequest {}

impl UcxRequest {
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

    /// The status of the request if it has ended. The worker must not be destroyed before the end.
    pub(super) fn check(&mut self) -> Option<ucs_status_t> {
        if let Some(request) = self.request {
            // SAFETY: a request that is not freed yet.
            self.status = unsafe { self.api.ucp_request_check_status(request.as_ptr()) };
        }
        if self.status == UCS_INPROGRESS {
            return None;
        }
        self.free();
        Some(self.status)
    }

    fn free(&mut self) {
        if let Some(request) = self.request.take() {
            // SAFETY: not freed before; UCX keeps what is still under way to itself.
            unsafe { self.api.ucp_request_free(request.as_ptr()) };
        }
    }
}

impl Drop for UcxRequest {
    fn drop(&mut self) {
        self.free();
    }
}

/// The data that an operation moves, in memory that does not move with this value.
pub(super) enum Work {
    /// An outgoing message.
    Send(Sending),
    /// An incoming tagged message.
    Tagged {
        /// The whole tag.
        tag: u64,
        /// The memory that receives it.
        memory: BodyMemory,
    },
    /// A read of the peer's memory.
    Read {
        /// Number of its list on its connection.
        list: u64,
        /// The memory that receives it; other reads of the list write to other parts of it.
        memory: Arc<HostBuffer>,
    },
    /// An active message that was announced, while it is fetched.
    Active {
        /// Its class.
        class: MessageClass,
        /// Number of its stream.
        number: u32,
        /// The memory that receives it.
        bytes: Vec<u8>,
    },
}

/// The memory that receives a body.
pub(super) enum BodyMemory {
    /// Host memory.
    Host(HostBuffer),
    /// The memory of a GPU.
    Gpu(GpuBody),
    /// No memory, for a message that was refused.
    Nowhere,
}

/// The operations of one worker.
pub(super) struct Operations {
    api: &'static Api,
    /// Not dropped with this value, because UCX may still use their memory.
    under_way: ManuallyDrop<Vec<(UcxRequest, Work)>>,
    finished: Vec<(Work, ucs_status_t)>,
}

impl Operations {
    pub(super) fn new(api: &'static Api) -> Self {
        Self {
            api,
            under_way: ManuallyDrop::default(),
            finished: Vec::new(),
        }
    }

    /// Takes over an operation that was just begun, and the memory that UCX was given for it.
    /// Returns whether the operation is under way.
    pub(super) fn add(&mut self, work: Work, returned: ucs_status_ptr_t) -> bool {
        let mut pending = UcxRequest::new(self.api, returned);
        match pending.check() {
            Some(status) => self.finished.push((work, status)),
            None => {
                self.under_way.push((pending, work));
                return true;
            }
        }
        false
    }

    /// The operations that have ended since the last call, in the order of their beginning.
    pub(super) fn take_finished(&mut self) -> Vec<(Work, ucs_status_t)> {
        let mut finished = std::mem::take(&mut self.finished);
        let over = |(pending, _): &mut (UcxRequest, Work)| pending.check().is_some();
        for (mut pending, work) in self.under_way.extract_if(.., over) {
            finished.extend(pending.check().map(|status| (work, status)));
        }
        finished
    }

    /// How many operations are under way.
    pub(super) fn count(&self) -> usize {
        self.under_way.len()
    }

    /// Frees the memory of operations that UCX has forgotten.
    ///
    /// # Safety
    ///
    /// The worker is destroyed, and the peer does not read memory of this process any more.
    pub(super) unsafe fn forget(self) {
        for (pending, work) in ManuallyDrop::into_inner(self.under_way) {
            // The request went with the worker.
            let _gone = ManuallyDrop::new(pending);
            drop(work);
        }
    }
}
