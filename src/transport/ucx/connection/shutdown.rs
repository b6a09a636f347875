//! The end of a connection: what was sent leaves, and UCX lets go of the memory.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ucx1_sys::UCP_ERR_HANDLING_MODE_PEER;

use super::{Link, UcxConnection};
use crate::transport::ucx::ending;
use crate::transport::ucx::pull::Pulls;
use crate::transport::ucx::shared::Told;
use crate::transport::ucx::worker::Worker;

/// How long the end of a connection waits for what was sent to leave.
const FLUSH_WAIT: Duration = Duration::from_millis(50);
/// How long it waits for the peer's answers to reads of its memory. UCX ends the process of a peer that is
/// answering a read when the connection goes (seen with 1.13, over tcp).
const READ_WAIT: Duration = Duration::from_secs(1);
/// How long it waits for UCX to let go of the connection. Then UCX keeps it, and its memory.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// The same where UCX has said that the peer is gone, and for what is under way where UCX would not notice that. A queue in
/// shared memory that is full stays so then, and UCX waits for it (seen with 1.22): the worker is destroyed with what is
/// still under way.
const GONE_WAIT: Duration = Duration::from_millis(50);

/// UCX has not let go of some connection: it has memory of producers', and what keeps that alive.
static KEEPS: AtomicBool = AtomicBool::new(false);

/// Whether UCX keeps memory for good that was on its way to a peer, or from one.
pub(in crate::transport) fn is_keeping() -> bool {
    KEEPS.load(Ordering::Acquire)
}

/// How long one look takes at most at whether everything has left.
const LEAVE_WAIT: Duration = Duration::from_millis(10);

impl UcxConnection {
    /// Whether what was sent has left. A close soon after takes the rest back, and the peer is told of a
    /// time-out.
    pub(super) fn has_left(&mut self) -> bool {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return true;
        };
        if self.over.is_some() || !self.generation.is_same_process() {
            return true;
        }
        let flushed = endpoint.flush(worker, &self.shared, Instant::now() + LEAVE_WAIT, None);
        !matches!(flushed, Ok(None))
    }

    /// Lets go of everything UCX has.
    pub(super) fn shut_down(&mut self) {
        let Some(mut link) = self.link.take() else {
            return;
        };
        let reads = self.pulls.as_ref().is_some_and(Pulls::is_reading);
        let pulls = self.pulls.as_mut().map(Pulls::detach);
        if !self.generation.is_same_process() {
            // A forked child must not touch what it shares with its parent.
            let _left = ManuallyDrop::new((link, pulls));
            return;
        }
        let Some(_held_off) = ending::hold_off() else {
            KEEPS.store(true, Ordering::Release);
            let _left = ManuallyDrop::new((link, Arc::clone(&self.shared), pulls));
            return;
        };
        let Link { worker, endpoint } = &mut link;
        if self.over.is_none() {
            // The peer is there: what was sent before the end is to arrive.
            let wait = if reads { READ_WAIT } else { FLUSH_WAIT };
            let flushed = endpoint.flush(worker, &self.shared, Instant::now() + wait, None);
            drop(flushed);
        }
        let is_gone = || self.shared.with(|state| state.failed).is_some();
        let deadline = Instant::now() + if is_gone() { GONE_WAIT } else { CLOSE_WAIT };
        let (shared, api) = (&self.shared, self.api);
        let mut end = |worker: &mut Worker, deadline| {
            self.tagged.clear(worker);
            let ended = worker.drive(deadline, None, || shared.under_way() == 0);
            ended.unwrap_or(false)
        };
        let (closed, idle);
        if worker.context().error_mode() == UCP_ERR_HANDLING_MODE_PEER {
            closed = endpoint.close(worker, deadline).unwrap_or(false);
            idle = end(worker, deadline);
        } else {
            // UCX then forgets the endpoint and not what is under way on it: an answer to that would be looked up at the endpoint
            // that is gone, and end the process (seen with 1.13).
            end(worker, Instant::now() + GONE_WAIT);
            closed = endpoint.close(worker, deadline).unwrap_or(false);
            idle = shared.under_way() == 0;
        }
        let mut told = Told::default();
        shared.take(&mut told);
        for message in told.announced {
            // SAFETY: a description that was kept, given back only here.
            unsafe { api.ucp_am_data_release(worker.handle(), message.description) };
        }
        for done in told.finished.iter().filter(|done| !done.request.is_null()) {
            // SAFETY: the request of an operation that is over, freed only here.
            unsafe { api.ucp_request_free(done.request) };
        }
        worker.wake_for_ever();
        if closed && (idle || is_gone()) {
            // The keys go before the worker.
            drop(pulls);
            if link.worker.destroy() {
                // SAFETY: the worker is destroyed, and the peer is gone where anything was under way.
                unsafe { self.shared.forget_under_way() };
            }
            return;
        }
        KEEPS.store(true, Ordering::Release);
        // UCX may still write to the memory of the operations, or the peer read it; they own it and stay.
        tracing::error!(
            "UCX does not let go of the connection to {}: its memory is not freed",
            self.peer
        );
        let _left = ManuallyDrop::new((link, Arc::clone(&self.shared), pulls));
    }
}
