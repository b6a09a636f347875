//! The end of a connection: it is handed to the thread that closes it.

use std::mem::ManuallyDrop;
use std::time::Instant;

use super::UcxConnection;
use crate::device::outlive;
use crate::transport::ucx::closing::{Closing, FLUSH_WAIT, Remains};
use crate::transport::ucx::pull::Pulls;

impl UcxConnection {
    /// Whether what was sent has left. A close soon after takes the rest back, and the peer is told
    /// of a time-out.
    pub(super) fn has_left(&mut self) -> bool {
        let Some(link) = &mut self.link else {
            return true;
        };
        if self.over.is_some() || !self.generation.is_same_process() {
            return true;
        }
        let flushed = link.flush(Instant::now() + FLUSH_WAIT, None);
        !matches!(flushed, Ok(None))
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
            let _left = ManuallyDrop::new((link, pulls, lent));
            return None;
        }
        let is_fetched_from = !link.worker.context().goes_over_tcp();
        // Whoever sleeps on the descriptor shall see that it is over.
        link.worker.wake_for_ever();
        let remains = Remains {
            link,
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
