//! A worker of UCX, and a descriptor to wait for its work.

use std::mem::ManuallyDrop;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use once_cell::sync::Lazy;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use ucx1_sys::{
    Api, UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCS_ERR_BUSY, UCS_OK, UCS_THREAD_MODE_SERIALIZED,
    ucp_worker_h, ucp_worker_params_t,
};

use crate::error::{Error, Result};
use crate::transport::Attempt;
use crate::transport::ucx::context::Context;
use crate::transport::ucx::ending;
use crate::transport::ucx::error::{ensure, error};
use crate::transport::ucx::operations::UcxRequest;
use crate::transport::ucx::room;

/// A worker. The owner's lock admits one thread at a time.
///
/// The descriptor to sleep on is our epoll instance around UCX's descriptor. Our descriptor
/// outlives the worker, so that a sleeper wakes when the connection is closed.
pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    /// Valid until [`destroy`](Self::destroy).
    pub(super) handle: ucp_worker_h,
    /// Readable if the worker may have work. It outlives the worker.
    pub(super) ready: Arc<OwnedFd>,
    /// Whether a thread may sleep on the descriptor and has not been woken since. If false, the
    /// descriptor is readable.
    asleep: bool,
    /// Flushes that no caller waits for, and that were under way at the last look.
    flushes: Vec<UcxRequest>,
}

/// A descriptor that is always readable. A finished connection adds it to its own descriptor.
static OVER: Lazy<Result<OwnedFd, Errno>> =
    Lazy::new(|| eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK));

// SAFETY: UCX knows that calls come from any thread, but one at a time (SERIALIZED).
unsafe impl Send for Worker {}

impl Worker {
    /// Makes a worker.
    ///
    /// # Errors
    ///
    /// `OutOfResources` or `OutOfMemory` if the system or UCX refuses.
    pub(super) fn new(context: Arc<Context>) -> Result<Self> {
        room::ensure(context.worker_descriptors())?;
        let failed = |errno| Error::os("cannot make a connection over UCX", errno);
        let ready = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        // Made now, because `wake_for_ever` cannot report an error.
        OVER.as_ref().map_err(|errno| failed(*errno))?;
        let api = context.api;
        let params = ucp_worker_params_t {
            field_mask: u64::from(UCP_WORKER_PARAM_FIELD_THREAD_MODE),
            thread_mode: UCS_THREAD_MODE_SERIALIZED,
            ..ucp_worker_params_t::default()
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context lives as long as `context`; the masked field is set; `handle` is
        // writable.
        let status =
            unsafe { api.ucp_worker_create(context.handle, &raw const params, &raw mut handle) };
        ensure(api, "cannot make a worker of UCX", status)?;
        let worker = Self {
            context,
            handle,
            ready: Arc::new(ready),
            asleep: true,
            flushes: Vec::new(),
        };
        let mut descriptor = -1;
        // SAFETY: the worker lives; the descriptor is writable.
        let status = unsafe { api.ucp_worker_get_efd(handle, &raw mut descriptor) };
        if status != UCS_OK {
            let failed = error(api, "cannot sleep on a worker of UCX", status);
            worker.destroy();
            return Err(failed);
        }
        // SAFETY: UCX keeps this descriptor open as long as the worker, which outlives the borrow.
        let ucx = unsafe { BorrowedFd::borrow_raw(descriptor) };
        if let Err(errno) = epoll::add(&worker.ready, ucx, EventData::new_u64(0), EventFlags::IN) {
            worker.destroy();
            return Err(failed(errno));
        }
        Ok(worker)
    }

    /// The library.
    pub(super) fn api(&self) -> &'static Api {
        self.context.api
    }

    /// Advances all operations; callbacks run inside. Returns whether anything advanced.
    pub(super) fn progress(&mut self) -> bool {
        // SAFETY: the worker lives, and `&mut self` keeps other threads out.
        unsafe { self.api().ucp_worker_progress(self.handle) != 0 }
    }

    /// Asks UCX to make the descriptor readable for later events. False: the worker has work
    /// already.
    ///
    /// # Errors
    ///
    /// UCX fails: the worker is of no further use.
    fn arm(&mut self) -> Result<bool> {
        // SAFETY: the worker lives, and `&mut self` keeps other threads out.
        match unsafe { self.api().ucp_worker_arm(self.handle) } {
            UCS_OK => Ok(true),
            UCS_ERR_BUSY => Ok(false),
            status => Err(error(self.api(), "cannot sleep on a worker of UCX", status)),
        }
    }

    /// Prepares for sleep. True: the caller may sleep on the descriptor now. False: the worker has
    /// work, and the caller looks again before it sleeps.
    ///
    /// # Errors
    ///
    /// As [`arm`](Self::arm).
    pub(super) fn rest(&mut self) -> Result<bool> {
        // `arm` clears earlier signals.
        self.asleep = true;
        if self.arm()? {
            return Ok(true);
        }
        self.progress();
        Ok(false)
    }

    /// Makes sure that a sleeping thread wakes when an operation under way advances, or at once if
    /// UCX cannot arm the descriptor now.
    ///
    /// # Errors
    ///
    /// As [`arm`](Self::arm).
    pub(super) fn see_to(&mut self) -> Result<()> {
        if self.asleep && !self.arm()? {
            self.signal();
        }
        Ok(())
    }

    /// Makes the descriptor readable now, for a sleeping thread, until the next
    /// [`rest`](Self::rest). So one system call is enough for all events before that.
    pub(super) fn signal(&mut self) {
        if !std::mem::take(&mut self.asleep) {
            return;
        }
        // SAFETY: the worker lives; this call may come from any thread.
        let status = unsafe { self.api().ucp_worker_signal(self.handle) };
        if status != UCS_OK {
            tracing::error!("UCX cannot be woken: {}", self.api().status_text(status));
        }
    }

    /// Advances operations until `done`, and sleeps while nothing happens. Returns true if `done`,
    /// and false if the deadline has passed.
    ///
    /// # Errors
    ///
    /// As [`arm`](Self::arm), and `Cancelled` if the token is cancelled.
    pub(super) async fn drive(
        &mut self,
        deadline: Instant,
        attempt: &Attempt,
        mut done: impl FnMut() -> bool,
    ) -> Result<bool> {
        loop {
            let moved = self.progress();
            if done() {
                return Ok(true);
            }
            attempt.check()?;
            if Instant::now() >= deadline {
                return Ok(false);
            }
            if moved || !self.rest()? {
                continue;
            }
            let ready = Arc::clone(&self.ready) as _;
            attempt.ready(ready, PollFlags::IN, deadline).await?;
        }
    }

    /// Makes the descriptor readable for ever, so that each sleeper sees the end of the connection.
    pub(super) fn wake_for_ever(&self) {
        if let Ok(over) = &*OVER {
            // `add` fails only if the descriptor is there already.
            let _ = epoll::add(&self.ready, over, EventData::new_u64(2), EventFlags::IN);
        }
    }

    /// Keeps a flush that no caller waits for, until it ends.
    pub(super) fn leave_flush(&mut self, flush: UcxRequest) {
        self.flushes.push(flush);
        self.is_flushing();
    }

    /// Whether a flush is under way that no caller waits for.
    pub(super) fn is_flushing(&mut self) -> bool {
        self.flushes.retain_mut(|flush| flush.check().is_none());
        !self.flushes.is_empty()
    }

    /// Destroys the worker and drops its operations under way. All endpoints are closed before.
    /// Returns false, and destroys nothing, at the end of the process.
    pub(super) fn destroy(self) -> bool {
        self.wake_for_ever();
        let Some(_held_off) = ending::hold_off() else {
            let _left = ManuallyDrop::new(self.flushes);
            return false;
        };
        drop(self.flushes);
        // SAFETY: `self` is consumed, so nothing uses the handle after this call.
        unsafe { self.context.api.ucp_worker_destroy(self.handle) };
        true
    }
}
