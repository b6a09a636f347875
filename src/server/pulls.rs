//! The pull form of serving: requests that wait for the host, and releases that do.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::cancel::Cancel;
use crate::driver::callbacks::{Callbacks, Pulled};
use crate::driver::clock;
use crate::error::{Error, Result};
use crate::proto::Timestamp;
use crate::server::Request;

/// What waits for a host that serves in the pull form.
pub(super) struct Pulls {
    requests: Mutex<VecDeque<Request>>,
    /// Counts the requests, so that waiting for one can also wait for a cancel token.
    arrivals: OwnedFd,
    pub(super) callbacks: Callbacks,
    pub(super) releases: Pulled,
}

impl Pulls {
    pub(super) fn new() -> Result<Self> {
        let (callbacks, releases) = Callbacks::pulled();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let arrivals =
            eventfd(0, flags).map_err(|errno| Error::os("cannot make a request queue", errno))?;
        Ok(Self {
            requests: Mutex::default(),
            arrivals,
            callbacks,
            releases,
        })
    }

    pub(super) fn put(&self, request: Request) {
        self.requests.lock().push_back(request);
        self.wake();
    }

    pub(super) fn take(&self) -> Option<Request> {
        let request = self.requests.lock().pop_front()?;
        let mut count = [0; 8];
        // The count may be ahead of the queue after a stop, never behind it.
        let _ = rustix::io::read(&self.arrivals, &mut count);
        Some(request)
    }

    pub(super) fn wake(&self) {
        let _ = rustix::io::write(&self.arrivals, &1_u64.to_ne_bytes());
    }

    pub(super) fn wait(&self, deadline: Option<Timestamp>, cancel: Option<&Cancel>) -> Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.arrivals.as_fd(),
            PollFlags::IN,
        )];
        if let Some(cancel) = cancel {
            fds.push(PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN));
        }
        let timeout = deadline.and_then(|at| Timespec::try_from(clock::until(at)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::os("cannot wait for a request", errno)),
        }
    }

    /// Lets go of requests that nobody took, and wakes whoever waits for one.
    pub(super) fn stop(&self) {
        self.wake();
        let requests = std::mem::take(&mut *self.requests.lock());
        drop(requests);
    }
}
