//! A descriptor that wakes the one thread that sleeps on it.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// Wakes the holder of a connection, which sleeps on this descriptor beside those of the connection.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl Bell {
    /// A bell that is silent.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|errno| Error::os("cannot make a descriptor to wake a thread", errno))
    }

    /// Wakes the sleeper, or keeps the next one from sleeping.
    pub fn ring(&self) {
        // A full counter rings already.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the bell silent again.
    pub fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Readable once the bell has rung.
    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }
}
