//! A descriptor that wakes the one thread that sleeps on it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// Wakes the holder of a connection, which sleeps on this descriptor and on the connection's.
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    /// For a thread that is awake.
    has_rung: AtomicBool,
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Bell {
    /// A bell that is silent. Fails if the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self {
                fd,
                has_rung: AtomicBool::new(false),
            })
            .map_err(|errno| Error::os("cannot make a descriptor to wake a thread", errno))
    }

    /// Wakes the sleeper, or keeps the next one from sleeping.
    pub fn ring(&self) {
        self.has_rung.store(true, Ordering::Release);
        // A full counter rings already.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Makes the bell silent again.
    pub fn silence(&self) {
        self.has_rung.store(false, Ordering::Release);
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// Whether the bell has rung since it was [silenced](Self::silence).
    pub fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }

    /// Readable once the bell has rung.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }
}
