//! A descriptor that wakes the one thread that sleeps on it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::driver::signal::{Reason, Signal};
use crate::error::{Error, Result};

/// Wakes the holder of a connection, which sleeps on this descriptor and on the connection's.
#[derive(Debug)]
pub struct Bell {
    clapper: Clapper,
    /// For a thread that is awake.
    has_rung: AtomicBool,
}

/// What becomes readable.
#[derive(Debug)]
enum Clapper {
    Counter(OwnedFd),
    /// The descriptor of a host with an event loop.
    Signal(Arc<Signal>),
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.clapper {
            Clapper::Counter(fd) => fd.as_fd(),
            Clapper::Signal(signal) => signal.as_fd(),
        }
    }
}

impl Bell {
    /// A bell that is silent. Fails if the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self::of(Clapper::Counter(fd)))
            .map_err(|errno| Error::os("cannot make a descriptor to wake a thread", errno))
    }

    /// A silent bell that takes no descriptor: it makes that of `signal` readable, which may be
    /// readable for other reasons too.
    pub fn by(signal: Arc<Signal>) -> Self {
        Self::of(Clapper::Signal(signal))
    }

    fn of(clapper: Clapper) -> Self {
        Self {
            clapper,
            has_rung: AtomicBool::new(false),
        }
    }

    /// Wakes the sleeper, or keeps the next one from sleeping. One ring after the other, without a
    /// silence between, is one.
    pub fn ring(&self) {
        if self.has_rung.swap(true, Ordering::SeqCst) {
            return;
        }
        match &self.clapper {
            // A full counter rings already.
            Clapper::Counter(fd) => drop(rustix::io::write(fd, &1_u64.to_ne_bytes())),
            Clapper::Signal(signal) => signal.set(Reason::Bell, true),
        }
    }

    /// Makes the bell silent again. The caller looks for what it rang for afterwards.
    pub fn silence(&self) {
        match &self.clapper {
            Clapper::Counter(fd) => drop(rustix::io::read(fd, &mut [0; 8])),
            Clapper::Signal(signal) => signal.set(Reason::Bell, false),
        }
        // Last: a ring before this is seen by the look, and one behind it makes the descriptor
        // readable. The look must not come before this store.
        self.has_rung.store(false, Ordering::SeqCst);
    }

    /// Whether the bell has rung since it was [silenced](Self::silence).
    pub fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }
}
