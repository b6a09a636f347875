//! The end of a connection, which is given to the thread that closes it.

use std::mem::ManuallyDrop;

use super::{UcxConnection, enter};
use crate::device::outlive;
use crate::transport::rdma::Pulls;
use crate::transport::ucx::closing::{Closing, Remains};

impl UcxConnection {
    /// Whether all sent messages have left. A close before that drops the rest, and the peer gets
    /// the error of a time-out.
    pub(super) fn has_left(&mut self) -> bool {
        if self.ensure_usable().is_err() {
            return true;
        }
        let Some(link) = &self.link else {
            return true;
        };
        // At most one flush at a time, because this is called again and again while a peer reads
        // nothing.
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

    /// Makes another thread release everything in UCX. That thread drops `lent`, the memory that
    /// the peer was lent, when the peer can no longer reach it; or `lent` is returned here.
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
        // A thread that sleeps on the descriptor must notice the end.
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
