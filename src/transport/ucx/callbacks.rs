//! What UCX's callbacks tell, and the operations under way.
//!
//! Callbacks run inside `ucp_worker_progress`, or another call on the worker, on the thread that
//! makes it. They take what they are told into [`CallbackInbox`] and do nothing else: what follows
//! from it is done after the call, in [`settle`](super::connection::UcxConnection), where no part
//! of UCX is on the stack. What was sent before the call that sends it came back is told to none of
//! them: its caller sees to it ([`Started::Sent`]). The lock is never held during a call to UCX.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ucx1_sys::{
    UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_USER_DATA, UCP_OP_ATTR_FLAG_NO_IMM_CMPL, UCS_OK,
    UCS_PTR_IS_PTR, UCS_PTR_STATUS, ucp_ep_h, ucp_request_param_t, ucp_tag_recv_info_t,
    ucs_status_ptr_t, ucs_status_t,
};

use crate::device::HostBuffer;
use crate::device::cuda::GpuBody;
use crate::error::{Error, Status};
use crate::transport::Incoming;
use crate::transport::ucx::active::Class;
use crate::transport::ucx::gather::Sending;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// The end that connected.
    Client,
    /// The end that accepted.
    Server,
}

/// What the callbacks of one worker share with their connection.
pub(super) struct CallbackInbox {
    /// Whose messages come.
    pub peer: Peer,
    /// Something was told since it was last taken: most often nothing was, and the lock is left
    /// alone.
    news: AtomicBool,
    under_way: Mutex<UnderWay>,
    state: Mutex<InboxState>,
}

/// Messages and ends of operations that were told.
#[derive(Default)]
pub(super) struct Reports {
    /// Messages that came whole: active ones, and those in bundles.
    pub arrived: Vec<Incoming>,
    /// Active messages that are still to be fetched.
    pub announced: Vec<Announced>,
    /// Operations that are over.
    pub finished: Vec<Finished>,
}

/// What was told and not yet looked at.
#[derive(Default)]
pub(super) struct InboxState {
    told: Reports,
    /// The endpoint has failed.
    pub failed: Option<ucs_status_t>,
    /// The peer sent what no peer may, or a callback panicked.
    pub refused: Option<Error>,
}

/// A large active message: the data stays with the sender until it is fetched.
pub(super) struct Announced {
    /// UCX's description of it, to be given back exactly once.
    pub description: *mut c_void,
    /// Its length in bytes.
    pub length: usize,
    /// What it is.
    pub class: Class,
}

/// An operation of UCX, with the memory that it reads or writes.
pub(super) enum Work {
    /// A message on its way out.
    Send(Sending),
    /// A posted receive for the body of a header (rule D8).
    Body {
        /// Number of the receive on its connection.
        id: u64,
        /// Sequence number of the body.
        seq: u32,
        /// Where it goes.
        memory: BodyMemory,
    },
    /// A tagged message that has come and is fetched.
    Tagged {
        /// The whole tag.
        tag: u64,
        /// Where it goes.
        memory: HostBuffer,
    },
    /// A read of the peer's memory.
    Read {
        /// Number of its list on its connection.
        list: u64,
        /// Where it goes; other reads go beside it.
        memory: Arc<HostBuffer>,
    },
    /// An active message that was announced and is fetched.
    Active {
        /// What it is.
        class: Class,
        /// Where it goes.
        bytes: Vec<u8>,
    },
}

/// Where a posted body goes.
pub(super) enum BodyMemory {
    /// Host memory.
    Host(HostBuffer),
    /// The memory of a GPU.
    Gpu(GpuBody),
}

/// An operation that is over; UCX does not touch its memory any more.
pub(super) struct Finished {
    /// The operation.
    pub work: Work,
    /// UCX's request, still to be freed; NULL where the operation was over at once.
    pub request: *mut c_void,
    /// How it ended.
    pub status: ucs_status_t,
    /// Tag and length of what was received.
    pub info: ucp_tag_recv_info_t,
}

/// What UCX gets as the user data of an operation.
struct Operation {
    shared: Arc<CallbackInbox>,
    work: Work,
    /// Where it is in [`UnderWay`].
    index: usize,
}

/// Operations that are not over, each as [`CallbackInbox::start`] gave it to UCX.
#[derive(Default)]
struct UnderWay(Vec<NonNull<Operation>>);

// SAFETY: an operation belongs to a worker and not to a thread; who makes calls on the worker uses
// it, one thread at a time.
unsafe impl Send for UnderWay {}

impl UnderWay {
    fn add(&mut self, mut operation: NonNull<Operation>) {
        // SAFETY: made by `start`, and UCX has not got it yet.
        unsafe { operation.as_mut() }.index = self.0.len();
        self.0.push(operation);
    }

    /// Takes one out, whose memory is the caller's from then on.
    fn remove(&mut self, operation: NonNull<Operation>) -> Box<Operation> {
        // SAFETY: it was added and not removed before, so that nobody else has it.
        let operation = unsafe { Box::from_raw(operation.as_ptr()) };
        self.0.swap_remove(operation.index);
        if let Some(moved) = self.0.get_mut(operation.index) {
            // SAFETY: it is under way, and UCX only keeps its address.
            unsafe { moved.as_mut() }.index = operation.index;
        }
        operation
    }
}

/// How an operation has begun.
pub(super) enum Started {
    /// It is not over. Its request can be cancelled until its [`Finished`] has been taken.
    UnderWay(NonNull<c_void>),
    /// It is over, and among those finished.
    Over,
    /// It was a message, which has left.
    Sent(Sending),
}

/// Which of UCX's callbacks an operation ends with.
pub(super) enum Ends {
    /// A send.
    Send,
    /// A tagged receive.
    Tagged,
    /// The fetch of an active message.
    Active,
}

const NO_INFO: ucp_tag_recv_info_t = ucp_tag_recv_info_t {
    sender_tag: 0,
    length: 0,
};

// SAFETY: the raw pointers inside are descriptions of active messages and requests, which belong to
// the worker and not to a thread; the owner of the worker uses them, one thread at a time.
unsafe impl Send for Reports {}

impl InboxState {
    /// Where messages go that came whole.
    pub(super) fn arrived(&mut self) -> &mut Vec<Incoming> {
        &mut self.told.arrived
    }

    /// Takes note of one that is to be fetched.
    pub(super) fn announced(&mut self, message: Announced) {
        self.told.announced.push(message);
    }
}

impl CallbackInbox {
    /// For the connection to `peer`.
    pub(super) fn new(peer: Peer) -> Self {
        Self {
            peer,
            news: AtomicBool::new(false),
            under_way: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Looks at what was told of the connection. `look` must not call UCX.
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut InboxState) -> R) -> R {
        look(&mut self.state.lock())
    }

    /// Whether [`take`](Self::take) has not been called since something was told.
    pub(super) fn has_news(&self) -> bool {
        self.news.load(Ordering::Acquire)
    }

    /// Takes what was told into `told`, which is empty. Returns whether anything was, the end of
    /// the connection included.
    pub(super) fn take(&self, told: &mut Reports) -> bool {
        if !self.has_news() {
            return false;
        }
        let mut state = self.state.lock();
        self.news.store(false, Ordering::Release);
        std::mem::swap(&mut state.told, told);
        true
    }

    /// How many operations are not over.
    pub(super) fn under_way(&self) -> usize {
        self.under_way.lock().0.len()
    }

    /// Frees the operations that UCX has forgotten, with the memory that they own.
    ///
    /// # Safety
    ///
    /// The worker is destroyed, and the peer does not read memory of this process any more.
    pub(super) unsafe fn forget_under_way(&self) {
        let forgotten = std::mem::take(&mut *self.under_way.lock());
        for operation in forgotten.0 {
            // SAFETY: made by `start`; a worker that is destroyed calls no callback that would take
            // it.
            drop(unsafe { Box::from_raw(operation.as_ptr()) });
        }
    }

    /// Starts an operation: `call` makes the call with the parameters it is given, which keep
    /// `work` alive until the operation is over. The pointers that `call` passes point into memory
    /// that `work` owns on the heap, so that moving `work` does not move what they point to.
    ///
    /// A message that was sent at once is let go of; any other operation that is over at once is
    /// among those finished.
    pub(super) fn start(
        self: &Arc<Self>,
        work: Work,
        ends: Ends,
        mut params: ucp_request_param_t,
        call: impl FnOnce(*const ucp_request_param_t) -> ucs_status_ptr_t,
    ) -> Started {
        let operation = NonNull::from(Box::leak(Box::new(Operation {
            shared: Arc::clone(self),
            work,
            index: 0,
        })));
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        params.user_data = operation.as_ptr().cast();
        match ends {
            Ends::Send => params.cb.send = Some(on_sent),
            // What is received always ends with the callback, which is told what came: UCX 1.13
            // tells it nowhere else where a message had come before its receive.
            Ends::Tagged => {
                params.cb.recv = Some(on_received);
                params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
            }
            Ends::Active => {
                params.cb.recv_am = Some(on_fetched);
                params.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
            }
        }
        // Before: the callback of what gets a request may run inside this very call.
        self.under_way.lock().add(operation);
        let returned = call(&raw const params);
        if UCS_PTR_IS_PTR(returned)
            && let Some(request) = NonNull::new(returned)
        {
            return Started::UnderWay(request);
        }
        // UCX calls no callback for an operation that gets no request.
        let Operation { work, .. } = *self.under_way.lock().remove(operation);
        let status = UCS_PTR_STATUS(returned);
        match work {
            Work::Send(sending) if status == UCS_OK => return Started::Sent(sending),
            work => self.tell(&mut self.state.lock(), |state| {
                state.told.finished.push(Finished {
                    work,
                    request: std::ptr::null_mut(),
                    status,
                    info: NO_INFO,
                });
            }),
        }
        Started::Over
    }

    /// Runs a callback's part in Rust: a panic must not unwind into UCX.
    pub(super) fn guarded(&self, step: impl FnOnce(&mut InboxState)) {
        let step = AssertUnwindSafe(|| self.tell(&mut self.state.lock(), step));
        if catch_unwind(step).is_err() {
            self.tell(&mut self.state.lock(), |state| {
                state.refused.get_or_insert_with(|| {
                    Error::new(
                        Status::Panic,
                        "a callback of UCX's panicked: please report this bug",
                    )
                });
            });
        }
    }

    fn tell(&self, state: &mut InboxState, step: impl FnOnce(&mut InboxState)) {
        step(state);
        self.news.store(true, Ordering::Release);
    }

    /// Takes note of the end of an operation.
    ///
    /// # Safety
    ///
    /// UCX calls a callback for `request`, once, with the `user_data` that [`start`](Self::start)
    /// gave it, and its worker is not destroyed.
    unsafe fn finish(
        request: *mut c_void,
        status: ucs_status_t,
        info: ucp_tag_recv_info_t,
        user_data: *mut c_void,
    ) {
        let Some(operation) = NonNull::new(user_data.cast::<Operation>()) else {
            return;
        };
        // SAFETY: `start` made it and gave it up to UCX, which hands it back here and forgets it.
        let shared = Arc::clone(&unsafe { operation.as_ref() }.shared);
        let Operation { work, .. } = *shared.under_way.lock().remove(operation);
        shared.guarded(|state| {
            state.told.finished.push(Finished {
                work,
                request,
                status,
                info,
            });
        });
    }
}

unsafe extern "C" fn on_sent(request: *mut c_void, status: ucs_status_t, user_data: *mut c_void) {
    // SAFETY: UCX calls this for an operation of `start`.
    unsafe { CallbackInbox::finish(request, status, NO_INFO, user_data) };
}

unsafe extern "C" fn on_received(
    request: *mut c_void,
    status: ucs_status_t,
    info: *const ucp_tag_recv_info_t,
    user_data: *mut c_void,
) {
    let info = if info.is_null() {
        NO_INFO
    } else {
        // SAFETY: not NULL, and readable during the call.
        unsafe { *info }
    };
    // SAFETY: UCX calls this for an operation of `start`.
    unsafe { CallbackInbox::finish(request, status, info, user_data) };
}

unsafe extern "C" fn on_fetched(
    request: *mut c_void,
    status: ucs_status_t,
    length: usize,
    user_data: *mut c_void,
) {
    let info = ucp_tag_recv_info_t {
        sender_tag: 0,
        length,
    };
    // SAFETY: UCX calls this for an operation of `start`.
    unsafe { CallbackInbox::finish(request, status, info, user_data) };
}

/// The error handler of every endpoint.
///
/// # Safety
///
/// `arg` is the [`CallbackInbox`] of the endpoint's connection, which outlives its worker.
pub(super) unsafe extern "C" fn on_endpoint_failure(
    arg: *mut c_void,
    _endpoint: ucp_ep_h,
    status: ucs_status_t,
) {
    // SAFETY: as the contract says.
    let shared = unsafe { &*arg.cast_const().cast::<CallbackInbox>() };
    shared.guarded(|state| {
        state.failed.get_or_insert(status);
    });
}
