//! A token that ends waiting calls from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// Cancels every call that it was given to. Clones are the same token; once cancelled it stays so.
#[derive(Debug, Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cancelled: AtomicBool,
    /// Readable from the moment of cancelling on, and never drained: every waiter sees it.
    event: OwnedFd,
}

impl Cancel {
    /// A token that is not cancelled.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::os("cannot make a cancel token", errno))?;
        Ok(Self {
            inner: Arc::new(Inner {
                cancelled: AtomicBool::new(false),
                event,
            }),
        })
    }

    /// Cancels. Safe from any thread; a second call does nothing.
    pub fn cancel(&self) {
        if !self.inner.cancelled.swap(true, Ordering::AcqRel) {
            // A counter of 1 never overflows, so the only failure is a closed descriptor, which
            // ownership rules out.
            let _ = rustix::io::write(&self.inner.event, &1_u64.to_ne_bytes());
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Acquire)
    }

    /// Readable once cancelled.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }

    /// `Cancelled` once it was cancelled.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::cancelled("cancelled by the caller's token"));
        }
        Ok(())
    }
}
