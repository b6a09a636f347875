//! A token that ends waiting calls from another thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// So many children are kept before those that have died are looked for.
const MANY: usize = 16;

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
    /// Tokens that end with this one.
    children: Mutex<Vec<Weak<Self>>>,
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
                children: Mutex::default(),
            }),
        })
    }

    /// A token that is cancelled with this one, and can be cancelled alone.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn child(&self) -> Result<Self> {
        let child = Self::new()?;
        {
            let mut children = self.inner.children.lock();
            if children.len() == children.capacity() {
                children.retain(|child| child.strong_count() > 0);
                // Room, so that the next look is far.
                let more = children.len().max(MANY);
                children.reserve(more);
            }
            children.push(Arc::downgrade(&child.inner));
        }
        // After the push: either this thread sees the cancel, or the canceller sees the child.
        if self.is_cancelled() {
            child.cancel();
        }
        Ok(child)
    }

    /// Cancels. Safe from any thread; a second call does nothing.
    pub fn cancel(&self) {
        if !self.inner.cancelled.swap(true, Ordering::AcqRel) {
            // The write can fail only on overflow or on a closed descriptor. The counter is at most
            // 1, and `event` is open.
            let _ = rustix::io::write(&self.inner.event, &1_u64.to_ne_bytes());
            let children = std::mem::take(&mut *self.inner.children.lock());
            for inner in children.iter().filter_map(Weak::upgrade) {
                Self { inner }.cancel();
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_with_its_parent_and_alone() {
        let parent = Cancel::new().unwrap();
        let alone = parent.child().unwrap();
        let children: Vec<Cancel> = (0..100).map(|_| parent.child().unwrap()).collect();
        alone.cancel();
        assert!(alone.is_cancelled() && !parent.is_cancelled());
        assert!(children.iter().all(|child| !child.is_cancelled()));
        parent.cancel();
        assert!(children.iter().all(Cancel::is_cancelled));
        assert!(parent.child().unwrap().is_cancelled());
    }

    #[test]
    fn children_that_died_are_not_kept() {
        let parent = Cancel::new().unwrap();
        let _kept = parent.child().unwrap();
        for _ in 0..10_000 {
            drop(parent.child().unwrap());
        }
        assert!(parent.inner.children.lock().len() <= 4 * MANY);
    }
}
