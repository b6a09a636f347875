//! What UCX's callbacks report.
//!
//! Callbacks run inside `ucp_worker_progress` or another call on the worker, on the thread that
//! makes the call. They only put what UCX reports into [`CallbackInbox`]. The connection looks at
//! the inbox after the call, when no function of UCX is on the stack. The lock is never held during
//! a call to UCX.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use ucx1_sys::{ucp_ep_h, ucs_status_t};

use crate::error::{Error, Status};
use crate::proto::Bytes;
use crate::transport::Incoming;
use crate::transport::connection::ConnectionEnd;
use crate::transport::stream::{MAX_CONTROL_BYTES, MAX_METADATA_BYTES, MAX_TAGGED_BYTES};

/// The class of an active message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageClass {
    /// Prefix and header.
    Metadata,
    /// Rule E3.
    Control,
}

impl MessageClass {
    /// The id of the active message (rule R1, "Our transports").
    pub(super) const fn id(self) -> u32 {
        match self {
            Self::Metadata => 0,
            Self::Control => 1,
        }
    }

    /// The message, as the driver sees it.
    pub(super) fn incoming(self, bytes: Bytes) -> Incoming {
        match self {
            Self::Metadata => Incoming::Metadata(bytes),
            Self::Control => Incoming::Control { bytes, fd: None },
        }
    }

    /// Length of the longest message. Unless the sender sends a `stream`, no message is longer than
    /// a request.
    pub(super) const fn limit(self, stream: bool) -> u64 {
        match self {
            Self::Metadata if stream => MAX_METADATA_BYTES,
            Self::Metadata => MAX_TAGGED_BYTES,
            Self::Control => MAX_CONTROL_BYTES,
        }
    }
}

/// What the callbacks of one worker share with their connection.
pub(super) struct CallbackInbox {
    /// The end that sends the messages.
    pub peer: ConnectionEnd,
    /// A stream of the peer may come.
    takes_stream: AtomicBool,
    reports: Mutex<Reports>,
}

/// Reports that the connection has not looked at yet.
#[derive(Default)]
pub(super) struct Reports {
    /// Active messages that came whole, with the numbers of their streams.
    pub arrived: Vec<(u32, Incoming)>,
    /// Active messages that are still to be fetched.
    pub announced: Vec<Announced>,
    /// The endpoint has failed.
    pub failed: Option<ucs_status_t>,
    /// The peer sent something that is not allowed, or a callback panicked.
    pub refused: Option<Error>,
}

/// A large active message: the data stays with the sender until it is fetched.
pub(super) struct Announced {
    /// UCX's description of it, to be given back exactly once.
    pub description: *mut c_void,
    /// Its length in bytes.
    pub length: usize,
    /// Its class.
    pub class: MessageClass,
    /// Number of its stream.
    pub number: u32,
}

// SAFETY: a description belongs to the worker and not to a thread; the owner of the worker uses it,
// one thread at a time.
unsafe impl Send for Announced {}

impl CallbackInbox {
    /// The inbox of the connection to `peer`.
    pub(super) fn new(peer: ConnectionEnd) -> Self {
        Self {
            peer,
            takes_stream: AtomicBool::new(peer == ConnectionEnd::Server),
            reports: Mutex::default(),
        }
    }

    /// From now on a client sends a stream, or no longer.
    pub(super) fn take_stream(&self, comes: bool) {
        let takes = comes || self.peer == ConnectionEnd::Server;
        self.takes_stream.store(takes, Ordering::Relaxed);
    }

    /// Whether the peer may send a stream.
    pub(super) fn takes_stream(&self) -> bool {
        self.takes_stream.load(Ordering::Relaxed)
    }

    /// Looks at the reports. `look` must not call UCX.
    pub(super) fn with<R>(&self, look: impl FnOnce(&mut Reports) -> R) -> R {
        look(&mut self.reports.lock())
    }

    /// Runs the Rust part of a callback. A panic must not unwind into UCX.
    pub(super) fn guarded(&self, step: impl FnOnce(&mut Reports)) {
        let step = AssertUnwindSafe(|| self.with(step));
        if catch_unwind(step).is_err() {
            let text = "a callback of UCX's panicked: please report this bug";
            let refuse = || Error::new(Status::Panic, text);
            self.with(|reports| {
                reports.refused.get_or_insert_with(refuse);
            });
        }
    }
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
    // SAFETY: `arg` is the inbox of the endpoint's connection, by this function's contract, and
    // outlives the worker that calls.
    let shared = unsafe { &*arg.cast_const().cast::<CallbackInbox>() };
    shared.guarded(|reports| {
        reports.failed.get_or_insert(status);
    });
}
