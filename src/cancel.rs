//! A token that ends waiting calls from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// Cancels every call that has the token. Clones are the same token. Cancelling is final.
#[derive(Debug, Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    cancelled: AtomicBool,
    /// Readable after cancelling. Nobody drains the descriptor, so every waiter sees it.
    event: OwnedFd,
}

impl AsFd for Cancel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
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
            // The write can fail only on overflow or on a closed descriptor. The counter is at most
            // 1, and `event` is open.
            let _ = rustix::io::write(&self.inner.event, &1_u64.to_ne_bytes());
        }
    }

    /// True after [`cancel`](Self::cancel).
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::Acquire)
    }

    /// A descriptor that is readable after [`cancel`](Self::cancel).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.event.as_fd()
    }

    /// Returns an error after [`cancel`](Self::cancel).
    ///
    /// # Errors
    ///
    /// `Cancelled`.
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::cancelled("cancelled by the caller's token"));
        }
        Ok(())
    }
}
