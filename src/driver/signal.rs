//! An epoll instance that can be made readable. It needs no further descriptor for that.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use crate::driver::host_fd::HostFd;
use crate::error::{Error, Result};

/// Why a [`Signal`] is readable, besides the descriptors that it watches.
#[derive(Debug, Clone, Copy)]
pub enum Reason {
    /// A bell has rung.
    Bell = 1,
    /// A time has come.
    Time = 2,
    /// A token was cancelled.
    Cancel = 4,
}

/// An epoll instance that is readable for a [`Reason`], or because of a descriptor that it watches.
#[derive(Debug)]
pub struct Signal {
    epoll: HostFd,
    /// Always readable. Watched while there is a reason.
    readable: Arc<OwnedFd>,
    reasons: Mutex<u8>,
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Signal {
    /// A signal that is not readable.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        let failed = |errno| Error::os("cannot make a descriptor for an event loop", errno);
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(failed)?.into(),
            readable: always_readable().map_err(failed)?,
            reasons: Mutex::new(0),
        })
    }

    /// Makes the signal readable for this reason, or not any more.
    pub fn set(&self, reason: Reason, holds: bool) {
        let mut reasons = self.reasons.lock();
        let before = *reasons;
        match holds {
            true => *reasons |= reason as u8,
            false => *reasons &= !(reason as u8),
        }
        let outcome = match (before, *reasons) {
            (0, 1..) => {
                let data = EventData::new_u64(0);
                epoll::add(&self.epoll, &self.readable, data, EventFlags::IN)
            }
            (1.., 0) => epoll::delete(&self.epoll, &self.readable),
            _ => Ok(()),
        };
        if let Err(errno) = outcome {
            tracing::error!("a descriptor for an event loop cannot be changed: {errno}");
        }
    }
}

/// Signals that share one always readable descriptor. The system limits how many nested epoll
/// instances may watch one descriptor: 500 at the second level, 50 at the fourth.
const SHARED_BY: usize = 50;

/// The descriptor that was made last, and how many signals have had it.
static LATEST: Mutex<(Weak<OwnedFd>, usize)> = Mutex::new((Weak::new(), 0));

fn always_readable() -> rustix::io::Result<Arc<OwnedFd>> {
    let mut latest = LATEST.lock();
    if latest.1 < SHARED_BY
        && let Some(fd) = latest.0.upgrade()
    {
        latest.1 += 1;
        return Ok(fd);
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let fd = Arc::new(eventfd(1, flags)?);
    *latest = (Arc::downgrade(&fd), 1);
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(signal: &impl AsFd) -> bool {
        let now = Timespec::try_from(Duration::ZERO).unwrap();
        poll(&mut [PollFd::new(signal, PollFlags::IN)], Some(&now)).unwrap() > 0
    }

    /// A signal is readable as long as one reason holds, however often the reason is set.
    #[test]
    fn each_reason_makes_it_readable() {
        let signal = Signal::new().unwrap();
        assert!(!is_readable(&signal));
        for _ in 0..2 {
            signal.set(Reason::Bell, true);
            signal.set(Reason::Time, true);
            signal.set(Reason::Bell, true);
            assert!(is_readable(&signal));
            signal.set(Reason::Bell, false);
            assert!(is_readable(&signal));
            signal.set(Reason::Time, false);
            assert!(!is_readable(&signal));
        }
    }

    /// An event loop within an event loop may watch any number of them.
    #[test]
    fn an_event_loop_watches_thousands() {
        let inner = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let outer = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let data = EventData::new_u64(0);
        epoll::add(&outer, &inner, data, EventFlags::IN).unwrap();
        // The usual limit of descriptors is 1,024.
        let signals: Vec<_> = (0..600).map(|_| Signal::new().unwrap()).collect();
        for signal in &signals {
            epoll::add(&inner, signal, data, EventFlags::IN).unwrap();
        }
        assert!(!is_readable(&outer));
        for signal in &signals {
            signal.set(Reason::Bell, true);
            assert!(is_readable(signal));
        }
        assert!(is_readable(&outer));
    }
}
