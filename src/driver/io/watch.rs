//! What an I/O thread's epoll watches.

use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::Reactor;
use crate::transport::Watched;

/// What a registration waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Something to read, or the end.
    Read,
    /// Also room to write.
    ReadWrite,
    /// Room to write alone.
    Write,
    /// Nothing for now.
    Nothing,
}

impl Interest {
    pub(super) fn flags(self) -> EventFlags {
        match self {
            Self::Read => EventFlags::IN,
            Self::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Self::Write => EventFlags::OUT,
            Self::Nothing => EventFlags::empty(),
        }
    }
}

/// Descriptors watched for one source. Dropping it stops the watching; the source is not called
/// again afterwards, except by a call already under way.
pub struct Registration {
    pub(super) reactor: Arc<Reactor>,
    pub(super) key: u64,
    pub(super) fds: Vec<Arc<dyn Watched>>,
    pub(super) interest: Interest,
}

impl Registration {
    /// What the first descriptor is watched for.
    pub fn interest(&self) -> Interest {
        self.interest
    }

    /// Changes what the first descriptor is watched for.
    pub fn set_interest(&mut self, interest: Interest) {
        if self.interest == interest {
            return;
        }
        let Some(fd) = self.fds.first() else { return };
        let data = EventData::new_u64(self.key);
        match epoll::modify(&self.reactor.epoll, fd, data, interest.flags()) {
            Ok(()) => self.interest = interest,
            Err(errno) => tracing::error!("cannot change what is watched: {errno}"),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.reactor.generation.ensure_same_process().is_err() {
            // A forked child shares the epoll instance itself: it must not take the parent's
            // descriptors out of it.
            return;
        }
        for fd in &self.fds {
            // Explicitly, since a forked child may keep the descriptor's description open, and
            // epoll would go on reporting it.
            let _ = epoll::delete(&self.reactor.epoll, fd);
        }
        let gone = self.reactor.sources.lock().remove(&self.key);
        // What drops with it may take the lock.
        drop(gone);
    }
}
