//! The end of a connection: it is handed to the thread that closes it.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Link, UcxConnection};
use crate::transport::ucx::closer;
use crate::transport::ucx::closing::{Closing, Remains};
use crate::transport::ucx::pull::Pulls;
use crate::transport::ucx::tagged::Tagged;

/// How long one look takes at most at whether everything has left.
const LEAVE_WAIT: Duration = Duration::from_millis(10);

impl UcxConnection {
    /// Whether what was sent has left. A close soon after takes the rest back, and the peer is told
    /// of a time-out.
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
        let Link { worker, endpoint } = link;
        let is_fetched_from = !worker.context().goes_over_tcp();
        // Whoever sleeps on the descriptor shall see that it is over.
        worker.wake_for_ever();
        let remains = Remains {
            worker,
            endpoint,
            shared: Arc::clone(&self.shared),
            tagged: std::mem::replace(&mut self.tagged, Tagged::new(false, false)),
            pulls,
            gpu: self.gpu.clone(),
            peer: self.identity.peer.clone(),
            is_fetched_from,
            lent,
        };
        closer::close(Closing::begin(remains, self.over.is_none()));
        None
    }
}
