//! The end of one connection: sent messages leave, the endpoint is closed, and UCX lets go of the
//! memory.
//!
//! Nothing here waits: a thread of [`outlive`](crate::device::outlive) calls it until the end. A
//! peer that still exists may take as long as it likes to fetch the messages announced to it, or to
//! answer; until then the memory of these messages stays.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::cuda::Device;
use crate::device::outlive::Lingering;
use crate::transport::rdma::{Pulls, RemoteReads as _};
use crate::transport::ucx::connection::ROUNDS_AT_ONCE;
use crate::transport::ucx::ending;
use crate::transport::ucx::key::RemoteKey;
use crate::transport::ucx::link::UcxLink;
use crate::transport::ucx::operations::UcxRequest;

/// How long the end of a connection waits until everything has left. If UCX has reported that the
/// peer is gone, also how long it waits for operations to end. After that the worker is destroyed
/// with these operations.
const FLUSH_WAIT: Duration = Duration::from_millis(50);
/// How long the end waits for the peer's answers to reads, because UCX ends the process of a peer
/// that answers a read after the connection is gone. Also how long other threads wait for UCX to
/// let go of the connection; the end goes on after that.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// What a connection leaves behind.
pub(super) struct Remains {
    pub link: UcxLink,
    /// A flush that has not ended.
    pub flush: Option<UcxRequest>,
    pub pulls: Option<Pulls<RemoteKey>>,
    /// The GPU whose memory UCX was given on this connection.
    pub gpu: Option<Arc<Device>>,
    pub peer: String,
    /// The peer may read memory of this process by itself: messages that were announced to it, or
    /// memory that it was lent.
    pub is_fetched_from: bool,
    /// Memory that the peer was lent, and what keeps it alive.
    pub lent: Option<Box<dyn Send>>,
}

/// The end of one connection: see the module.
pub(super) struct Closing {
    /// `None` after the end.
    remains: Option<Remains>,
    step: ClosingStep,
    /// Flushes that have not ended: an earlier one, and the one of the first step if its time is
    /// over.
    flushes: Vec<UcxRequest>,
    /// When other threads stop waiting for the end.
    prompt_until: Instant,
    is_late: bool,
}

/// The current step, and what it waits for.
enum ClosingStep {
    /// Waits until sent messages have left, or the time for that is over.
    Flush { pending: UcxRequest, until: Instant },
    /// Waits until the peer has fetched what was announced to it, or is gone.
    Fetch { gone_until: Option<Instant> },
    /// Waits until UCX is done with the endpoint and with the operations on it.
    Close {
        pending: UcxRequest,
        gone_until: Option<Instant>,
    },
}

impl Closing {
    /// Begins. `is_there`: the peer still exists as far as is known, so messages sent before the
    /// end must arrive.
    pub(super) fn begin(mut remains: Remains, is_there: bool) -> Self {
        let reads = remains.pulls.as_ref().is_some_and(Pulls::is_reading);
        let now = Instant::now();
        let step = if is_there {
            let wait = if reads { CLOSE_WAIT } else { FLUSH_WAIT };
            ClosingStep::Flush {
                pending: remains.link.endpoint.begin_flush(&remains.link.worker),
                until: now + wait,
            }
        } else {
            ClosingStep::Fetch { gone_until: None }
        };
        Self {
            prompt_until: now + if reads { CLOSE_WAIT } else { FLUSH_WAIT } + CLOSE_WAIT,
            is_late: false,
            flushes: remains.flush.take().into_iter().collect(),
            remains: Some(remains),
            step,
        }
    }

    fn step(&mut self, remains: &mut Remains) -> Stepped {
        let is_gone = remains.link.has_failed();
        let idle = remains.link.operations.count() == 0;
        let now = Instant::now();
        let gone_since =
            |until: &mut Option<Instant>| is_gone && now >= *until.get_or_insert(now + FLUSH_WAIT);
        let Remains {
            link,
            is_fetched_from,
            lent,
            ..
        } = remains;
        let UcxLink {
            worker, endpoint, ..
        } = link;
        match &mut self.step {
            ClosingStep::Flush { pending, until } => {
                if !is_gone && pending.check().is_none() && now < *until {
                    return Stepped::Waits;
                }
                let fetch = ClosingStep::Fetch { gone_until: None };
                if let ClosingStep::Flush { pending, .. } = std::mem::replace(&mut self.step, fetch)
                {
                    self.flushes.push(pending);
                }
            }
            ClosingStep::Fetch { gone_until } => {
                // Rule F4: a close by force would make UCX let go of memory that the peer may still
                // fetch.
                let may_wait = *is_fetched_from && !idle;
                if may_wait && !is_gone {
                    return Stepped::Waits;
                }
                let by_force = is_gone || lent.is_none() || !*is_fetched_from;
                let forced = by_force
                    .then(|| endpoint.begin_close(worker, true))
                    .flatten();
                let pending = match forced {
                    // The endpoint is still connecting. UCX may have freed it, and progress would
                    // continue a flush that uses it. So the worker is destroyed, which ends the
                    // flush, before it makes progress again.
                    Some(_) if worker.is_flushing() => return Stepped::Over,
                    Some(pending) => pending,
                    // The endpoint has no error mode. Then UCX forgets the endpoint but not the
                    // operations on it. An answer to one of them would be looked up at the freed
                    // endpoint, and end the process.
                    None if !idle && !gone_since(gone_until) => return Stepped::Waits,
                    None => match endpoint.begin_close(worker, false) {
                        Some(pending) => pending,
                        None => return Stepped::Waits,
                    },
                };
                self.step = ClosingStep::Close {
                    pending,
                    gone_until: None,
                };
            }
            ClosingStep::Close {
                pending,
                gone_until,
            } => {
                let closed = pending.check().is_some();
                // UCX ends the flush of a closed endpoint, sooner or later. If the worker were
                // destroyed before that, memory would be freed twice.
                self.flushes.retain_mut(|flush| flush.check().is_none());
                let is_flushed = self.flushes.is_empty() || self.is_late;
                let done = closed && is_flushed && (idle || gone_since(gone_until));
                return if done { Stepped::Over } else { Stepped::Waits };
            }
        }
        Stepped::On
    }
}

impl Lingering for Closing {
    fn turn(&mut self) -> bool {
        // At the end of the process, everything stays as it is.
        let Some(_held_off) = ending::hold_off() else {
            return false;
        };
        let Some(mut remains) = self.remains.take() else {
            return true;
        };
        let gpu = remains.gpu.clone();
        // If a GPU was reset, its memory is gone, so it need not be current.
        let _current = gpu.as_ref().and_then(|gpu| gpu.enter().ok());
        for _ in 0..ROUNDS_AT_ONCE {
            let moved = remains.progress();
            match self.step(&mut remains) {
                Stepped::Over => {
                    // The requests of the worker must go before the worker.
                    self.step = ClosingStep::Fetch { gone_until: None };
                    self.flushes.clear();
                    remains.end();
                    return true;
                }
                Stepped::On => {}
                Stepped::Waits if moved => {}
                Stepped::Waits => break,
            }
        }
        if !self.is_late && Instant::now() >= self.prompt_until {
            self.is_late = true;
            tracing::debug!(
                "UCX does not let go of the connection to {} yet: its memory is kept until the \
                 peer has ended it, too",
                remains.peer
            );
        }
        self.remains = Some(remains);
        false
    }

    fn is_prompt(&self) -> bool {
        !self.is_late
    }
}

impl Remains {
    /// Makes progress, and drops what UCX is done with. Returns whether anything advanced.
    fn progress(&mut self) -> bool {
        let link = &mut self.link;
        let moved = link.worker.progress();
        let finished = link.operations.take_finished();
        let announced = link.shared.with(|reports| {
            reports.arrived.clear();
            std::mem::take(&mut reports.announced)
        });
        for message in &announced {
            let (api, worker) = (link.worker.api(), link.worker.handle);
            // SAFETY: a description that was kept, given back only here.
            unsafe { api.ucp_am_data_release(worker, message.description) };
        }
        moved || !finished.is_empty() || !announced.is_empty()
    }

    /// Releases everything.
    fn end(self) {
        // The keys must go before the worker.
        drop(self.pulls);
        if self.link.worker.destroy() {
            // SAFETY: the worker is destroyed, so UCX is done with the operations that were under
            // way. The peer fetches none of their memory: it is gone, or never did.
            unsafe { self.link.operations.forget() };
        }
        drop(self.lent);
    }
}

/// The result of a step.
enum Stepped {
    /// The next step can be taken.
    On,
    Waits,
    Over,
}
