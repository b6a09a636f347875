//! The end of a connection: it is handed to the thread that closes it.

use std::mem::ManuallyDrop;

use super::{UcxConnection, enter};
use crate::device::outlive;
use crate::transport::rdma::Pulls;
use crate::transport::ucx::closing::{Closing, Remains};

impl UcxConnection {
    /// Whether what was sent has left. A close soon after takes the rest back, and the peer is told
    /// of a time-out.
    pub(super) fn has_left(&mut self) -> bool {
        if self.ensure_usable().is_err() {
            return true;
        }
        let Some(link) = &self.link else {
            return true;
        };
        // One flush at a time: a peer that reads nothing is asked about again and again.
        let begin = || link.endpoint.begin_flush(&link.worker);
        let mut flush = self.flush.take().unwrap_or_else(begin);
        let gpu = self.gpu.clone();
        let _current = enter(gpu.as_ref());
        self.progress();
        self.wake_for_inbox();
        if flush.check().is_some() {
            return true;
        }
        self.flush = Some(flush);
        self.over.is_some()
    }

    /// Has UCX let go of everything, on another thread. What the peer was `lent` is dropped there
    /// when the peer can reach it no more, or given back.
    pub(super) fn shut_down(&mut self, lent: Option<Box<dyn Send>>) -> Option<Box<dyn Send>> {
        let Some(link) = self.link.take() else {
            return lent;
        };
        let pulls = self.pulls.as_mut().map(Pulls::detach);
        if !self.generation.is_same_process() {
            // A forked child must not touch what it shares with its parent.
            let _left = ManuallyDrop::new((link, self.flush.take(), pulls, lent));
            return None;
        }
        let is_fetched_from = !link.worker.context.goes_over_tcp();
        // Whoever sleeps on the descriptor shall see that it is over.
        link.worker.wake_for_ever();
        let remains = Remains {
            link,
            flush: self.flush.take(),
            pulls,
            gpu: self.gpu.clone(),
            peer: self.identity.peer.clone(),
            is_fetched_from,
            lent,
        };
        outlive::keep(Box::new(Closing::begin(remains, self.over.is_none())));
        None
    }
}
