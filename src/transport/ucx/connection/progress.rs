//! What UCX goes on with, and what it told of that.

use std::borrow::Cow;

use ucx1_sys::{Api, UCS_ERR_CANCELED, UCS_OK};

use super::{Link, ROUNDS_AT_ONCE, UcxConnection};
use crate::error::{Error, Result};
use crate::transport::Incoming;
use crate::transport::features::{Feature, Scheme};
use crate::transport::ucx::active;
use crate::transport::ucx::bundle::Bundle;
use crate::transport::ucx::callbacks::{CallbackInbox, Finished, Peer, Work};
use crate::transport::ucx::error::{error, lost};
use crate::transport::ucx::pull::{Pulls, ReadLane};
use crate::transport::ucx::tagged::{self, Received, Tagged};

impl UcxConnection {
    /// Goes on: with what UCX has, or else by giving it one body more to receive. Returns whether
    /// anything moved.
    pub(super) fn go_on(&mut self) -> bool {
        self.progress() || self.post_another()
    }

    fn post_another(&mut self) -> bool {
        let Some(link) = self.link.as_mut().filter(|_| self.over.is_none()) else {
            return false;
        };
        match self.tagged.post(&mut link.worker, &self.shared, true) {
            Ok(false) => return false,
            posted => note(&mut self.over, posted.map(drop)),
        }
        self.settle();
        true
    }

    /// Lets UCX go on, and deals with what it told. Returns whether anything moved.
    pub(super) fn progress(&mut self) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let mut moved = link.worker.progress();
        if self.over.is_none()
            && self.shared.has_news()
            && self.shared.with(|state| state.failed.is_some())
        {
            // What came before the end may still lie in shared memory.
            for _ in 0..ROUNDS_AT_ONCE {
                if !link.worker.progress() {
                    break;
                }
            }
            moved = true;
        }
        self.settle() || moved
    }

    /// Deals with what callbacks told, until there is nothing more. Returns whether there was
    /// something. No call of UCX's is on the stack here, so that every function may be called.
    pub(super) fn settle(&mut self) -> bool {
        let Some(Link { worker, endpoint }) = &mut self.link else {
            return false;
        };
        let (tagged, shared, pulls) = (&mut self.tagged, &self.shared, &mut self.pulls);
        let (told, bundle) = (&mut self.told, &mut self.bundle);
        let (mut moved, mut is_proven) = (false, false);
        loop {
            let mut failed = Ok(());
            if self.over.is_none() {
                failed = match tagged.fetch_arrived(worker, shared) {
                    Ok(()) => tagged.post(worker, shared, false).map(drop),
                    failed => failed,
                };
            }
            if !shared.take(told) {
                note(&mut self.over, failed);
                break;
            }
            moved = true;
            // The reason, before what operations end with because of it.
            note_failure(&mut self.over, shared, self.api, &self.identity.peer);
            for message in told.arrived.drain(..) {
                is_proven |= matches!(message, Incoming::Control { .. });
                let mut line = ReadLane {
                    worker: &mut *worker,
                    endpoint: *endpoint,
                    shared,
                };
                match come(tagged, pulls.as_mut(), bundle, &mut line, message) {
                    Ok(message) => self.inbox.extend(message),
                    Err(error) => failed = failed.and(Err(error)),
                }
            }
            for announced in told.announced.drain(..) {
                failed = failed.and(active::fetch(worker, shared, announced));
            }
            for finished in told.finished.drain(..) {
                let request = finished.request;
                if let Work::Send(sending) = &finished.work {
                    self.queued_bytes -= sending.len() as u64;
                }
                let mut line = ReadLane {
                    worker: &mut *worker,
                    endpoint: *endpoint,
                    shared,
                };
                match finish(tagged, pulls.as_mut(), &mut line, finished) {
                    Ok(message) => self.inbox.extend(message),
                    Err(error) => failed = failed.and(Err(error)),
                }
                if !request.is_null() {
                    // SAFETY: the request of an operation that is over, freed only here.
                    unsafe { self.api.ucp_request_free(request) };
                }
            }
            note(&mut self.over, failed);
        }
        if is_proven && self.over.is_none() {
            self.prove();
        }
        moved
    }
}

/// Notes what callbacks told of the end of the connection.
fn note_failure(over: &mut Option<Error>, shared: &CallbackInbox, api: &Api, peer: &str) {
    if over.is_none() {
        let (refused, failed) = shared.with(|state| (state.refused.take(), state.failed));
        *over = refused.or_else(|| Some(lost(api, peer, failed?)));
    }
}

/// Keeps the first error.
pub(super) fn note(over: &mut Option<Error>, result: Result<()>) {
    if let Err(error) = result {
        over.get_or_insert(error);
    }
}

/// What a message that came whole is to the driver: nothing, where it was for this transport.
fn come(
    tagged: &mut Tagged,
    pulls: Option<&mut Pulls>,
    bundle: &mut Option<Bundle>,
    line: &mut ReadLane<'_>,
    message: Incoming,
) -> Result<Option<Incoming>> {
    match &message {
        Incoming::Metadata(_) => return Ok(Some(message)),
        Incoming::Control { bytes, .. } => {
            let from_client = line.shared.peer == Peer::Client;
            if from_client && Feature::decode(Scheme::Ucx, bytes)? == Some(Feature::Bundles) {
                bundle.get_or_insert_default();
                return Ok(None);
            }
            return Ok(Some(message));
        }
        Incoming::Body { seq, memory } => tagged.came(line.worker, *seq, memory.len())?,
        Incoming::Tagged { .. } | Incoming::GpuBody { .. } => {}
    }
    match pulls {
        Some(pulls) => pulls.take_in(line, message),
        None => Ok(Some(message)),
    }
}

/// What an operation that is over brought.
fn finish(
    tagged: &mut Tagged,
    pulls: Option<&mut Pulls>,
    line: &mut ReadLane<'_>,
    finished: Finished,
) -> Result<Option<Incoming>> {
    let Finished {
        work, status, info, ..
    } = finished;
    let worker = &mut *line.worker;
    let brought = match work {
        Work::Read { list, memory } => {
            // Its list has it, too.
            drop(memory);
            return pulls.map_or(Ok(None), |pulls| pulls.finish(line, list, status));
        }
        // Why a send failed is told by the endpoint's error handler, where there is one.
        Work::Send(_) if status == UCS_OK || status == UCS_ERR_CANCELED => Ok(None),
        Work::Send(_) => Err(error(worker.api(), "a message was not sent", status)),
        Work::Body { id, seq, memory } => tagged.finish(
            worker,
            Received {
                id,
                seq,
                memory,
                status,
                info,
            },
        ),
        Work::Tagged { tag, memory } => tagged::arrived(worker, tag, memory, status).map(Some),
        Work::Active { class, bytes } if status == UCS_OK => {
            // Dealt with in the next round, as what came whole is.
            active::take_in(line.shared, class, Cow::Owned(bytes));
            Ok(None)
        }
        Work::Active { .. } => Err(error(worker.api(), "a message was not received", status)),
    }?;
    match (brought, pulls) {
        (Some(message), Some(pulls)) => pulls.take_in(line, message),
        (brought, _) => Ok(brought),
    }
}
