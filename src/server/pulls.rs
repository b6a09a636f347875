//! The pull form of serving: queues of requests and of releases for the host.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::cancel::Cancel;
use crate::driver::callbacks::{Callbacks, PullQueue};
use crate::driver::clock;
use crate::driver::host_fd::HostFd;
use crate::error::{Error, Result, Status};
use crate::proto::Timestamp;
use crate::server::request::ServerRequest;

/// The queues of a host that serves in the pull form.
pub(super) struct PullQueues {
    queue: Mutex<RequestQueue>,
    /// Counts the queued requests. A descriptor, so that one `poll` also waits for a cancel token.
    arrivals: OwnedFd,
    for_host: HostFd,
    pub(super) callbacks: Callbacks,
    pub(super) releases: PullQueue,
}

#[derive(Default)]
struct RequestQueue {
    requests: VecDeque<ServerRequest>,
    stopped: bool,
}

impl PullQueues {
    pub(super) fn new() -> Result<Self> {
        let (callbacks, releases) = Callbacks::pulled();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let arrivals =
            eventfd(0, flags).map_err(|errno| Error::os("cannot make a request queue", errno))?;
        Ok(Self {
            queue: Mutex::default(),
            for_host: HostFd::twin(&arrivals)?,
            arrivals,
            callbacks,
            releases,
        })
    }

    /// Queues a request. After a stop the request fails.
    pub(super) fn put(&self, request: ServerRequest) {
        let mut queue = self.queue.lock();
        if queue.stopped {
            drop(queue);
            return refuse(&request);
        }
        queue.requests.push_back(request);
        // Done under the lock, as the read is, so that the count never exceeds the length of the
        // queue.
        self.count();
    }

    pub(super) fn next(&self) -> Option<ServerRequest> {
        let mut queue = self.queue.lock();
        let request = queue.requests.pop_front()?;
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.arrivals, &mut count);
        Some(request)
    }

    /// Readable while a request waits, and after the server was stopped.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.for_host.as_fd()
    }

    fn count(&self) {
        let _ = rustix::io::write(&self.arrivals, &1_u64.to_ne_bytes());
    }

    pub(super) fn wait(&self, deadline: Option<Timestamp>, cancel: Option<&Cancel>) -> Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.arrivals.as_fd(),
            PollFlags::IN,
        )];
        if let Some(cancel) = cancel {
            fds.push(PollFd::from_borrowed_fd(cancel.fd()?, PollFlags::IN));
        }
        let timeout = deadline.and_then(|at| Timespec::try_from(clock::until(at)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::os("cannot wait for a request", errno)),
        }
    }

    /// Refuses the queued requests, and wakes the threads that wait for one.
    pub(super) fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.stopped = true;
        let requests = std::mem::take(&mut queue.requests);
        self.count();
        drop(queue);
        // Done without the lock, because a refusal tells the client and locks its connection.
        requests.iter().for_each(refuse);
    }
}

fn refuse(request: &ServerRequest) {
    request.fail(Status::Stopped.code(), "the server was stopped");
}
