//! What an I/O thread's epoll watches.

use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Reactor;
use crate::transport::Watched;

/// Descriptors watched for one source. Dropping it stops the watching; the source is not called
/// again afterwards, except by a call already under way.
pub struct Registration {
    pub(super) reactor: Arc<Reactor>,
    pub(super) key: u64,
    pub(super) fds: Vec<Arc<dyn Watched>>,
    pub(super) interest: EventFlags,
}

impl Registration {
    /// What the first descriptor is watched for. Epoll tells of its end too.
    pub fn interest(&self) -> EventFlags {
        self.interest
    }

    /// Changes what the first descriptor is watched for.
    pub fn set_interest(&mut self, interest: EventFlags) {
        if self.interest == interest {
            return;
        }
        let Some(fd) = self.fds.first() else { return };
        let data = EventData::new_u64(self.key);
        match epoll::modify(&self.reactor.epoll, fd, data, interest) {
            Ok(()) => self.interest = interest,
            Err(errno) => tracing::error!("cannot change what is watched: {errno}"),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A forked child shares the epoll instance with its parent.
        if !self.reactor.generation.is_same_process() {
            return;
        }
        for fd in &self.fds {
            // A forked child may keep the description open: epoll would go on reporting it.
            let _ = epoll::delete(&self.reactor.epoll, fd);
        }
        let gone = self.reactor.sources.lock().remove(&self.key);
        // What drops with it may take the lock.
        drop(gone);
    }
}
