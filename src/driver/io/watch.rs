//! What an I/O thread's epoll watches.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::source::Source;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::transport::Watched;

/// An epoll instance, and the sources whose descriptors it watches.
pub(super) struct WatchSet {
    pub(super) generation: Generation,
    pub(super) epoll: OwnedFd,
    next_key: AtomicU64,
    sources: Mutex<HashMap<u64, Weak<dyn Source>>>,
}

impl WatchSet {
    /// The keys of sources count from `first_key`.
    pub(super) fn new(first_key: u64) -> rustix::io::Result<Self> {
        Ok(Self {
            generation: Generation::now(),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            next_key: AtomicU64::new(first_key),
            sources: Mutex::default(),
        })
    }

    /// Makes the events of `fds` lead to `source`, until the registration is dropped.
    pub(super) fn register(
        self: &Arc<Self>,
        source: Weak<dyn Source>,
        fds: impl IntoIterator<Item = Arc<dyn Watched>>,
        interest: EventFlags,
    ) -> Result<Registration> {
        let key = self.next_key.fetch_add(1, Ordering::Relaxed);
        self.sources.lock().insert(key, source);
        let mut registration = Registration {
            set: Arc::clone(self),
            key,
            fds: Vec::new(),
            interest,
        };
        for fd in fds {
            epoll::add(&self.epoll, &fd, EventData::new_u64(key), interest)
                .map_err(|errno| Error::os("cannot watch a connection", errno))?;
            registration.fds.push(fd);
        }
        Ok(registration)
    }

    /// The source of an event with this key.
    pub(super) fn find(&self, key: u64) -> Option<Arc<dyn Source>> {
        self.sources.lock().get(&key).and_then(Weak::upgrade)
    }
}

/// Descriptors watched for one source. Dropping it stops the watching; the source is not called
/// again afterwards, except by a call already under way.
pub struct Registration {
    set: Arc<WatchSet>,
    key: u64,
    fds: Vec<Arc<dyn Watched>>,
    interest: EventFlags,
}

impl Registration {
    /// What the first descriptor is watched for. Epoll reports its end in any case.
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
        match epoll::modify(&self.set.epoll, fd, data, interest) {
            Ok(()) => self.interest = interest,
            Err(errno) => tracing::error!("cannot change what is watched: {errno}"),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A forked child shares the epoll instance with its parent.
        if !self.set.generation.is_same_process() {
            return;
        }
        for fd in &self.fds {
            // A forked child may keep the file open, and epoll would go on reporting it.
            let _ = epoll::delete(&self.set.epoll, fd);
        }
        let gone = self.set.sources.lock().remove(&self.key);
        // Dropped after the lock, because the drop of a source may take the lock.
        drop(gone);
    }
}
