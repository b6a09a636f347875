//! A token that ends waiting calls from another thread.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::error::{Error, Result};

/// The least number of followers to collect before the dead ones are removed.
const MANY: usize = 16;

/// Cancels every call that has the token. Clones are the same token. Cancelling is final.
#[derive(Debug, Clone)]
pub struct Cancel {
    inner: Arc<Inner>,
}

struct Inner {
    cancelled: AtomicBool,
    /// Readable after cancelling. Nobody drains the descriptor, so every waiter sees it. Made for
    /// the first waiter.
    event: OnceLock<Arc<OwnedFd>>,
    followers: Mutex<Vec<Weak<dyn Follower>>>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

/// Gets one call when the token is cancelled, on the thread that cancels.
pub(crate) trait Follower: Send + Sync {
    /// The token is cancelled.
    fn cancelled(&self);
}

/// A token that ends with another one.
impl Follower for Inner {
    fn cancelled(&self) {
        self.cancel();
    }
}

impl Inner {
    fn cancel(&self) {
        if self.cancelled.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(event) = self.event.get() {
            signal(event);
        }
        let followers = std::mem::take(&mut *self.followers.lock());
        for follower in followers.iter().filter_map(Weak::upgrade) {
            follower.cancelled();
        }
    }
}

/// Makes the descriptor of a cancelled token readable.
fn signal(event: &OwnedFd) {
    // The write can fail only on overflow or on a closed descriptor. The counter is at most 2, and
    // `event` is open.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

impl Cancel {
    /// A token that is not cancelled.
    ///
    /// # Errors
    ///
    /// None today: its descriptor is made for the first call that sleeps.
    pub fn new() -> Result<Self> {
        Ok(Self {
            inner: Arc::new(Inner {
                cancelled: AtomicBool::new(false),
                event: OnceLock::new(),
                followers: Mutex::default(),
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
        let inner: Weak<dyn Follower> = Arc::downgrade(&child.inner) as Weak<Inner>;
        self.tell(inner);
        Ok(child)
    }

    /// Tells `follower` of the cancel, as long as it lives. A cancelled token tells at once.
    pub(crate) fn tell(&self, follower: Weak<dyn Follower>) {
        let told = Weak::clone(&follower);
        {
            let mut followers = self.inner.followers.lock();
            if followers.len() == followers.capacity() {
                followers.retain(|follower| follower.strong_count() > 0);
                // Room for many more, so that dead followers are removed rarely.
                let more = followers.len().max(MANY);
                followers.reserve(more);
            }
            followers.push(follower);
        }
        // After the push: either this thread sees the cancel, or the canceller sees the follower.
        if self.is_cancelled()
            && let Some(told) = told.upgrade()
        {
            told.cancelled();
        }
    }

    /// Cancels. Safe from any thread; a second call does nothing.
    pub fn cancel(&self) {
        self.inner.cancel();
    }

    /// True after [`cancel`](Self::cancel).
    pub fn is_cancelled(&self) -> bool {
        self.inner.cancelled.load(Ordering::SeqCst)
    }

    /// A descriptor that is readable after [`cancel`](Self::cancel).
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.event().map(|event| event.as_fd())
    }

    /// The descriptor of [`fd`](Self::fd), to be kept.
    ///
    /// # Errors
    ///
    /// As [`fd`](Self::fd).
    pub(crate) fn event(&self) -> Result<&Arc<OwnedFd>> {
        let inner = &self.inner;
        if let Some(event) = inner.event.get() {
            return Ok(event);
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::os("cannot make a descriptor for a cancel token", errno))?;
        let event = inner.event.get_or_init(|| Arc::new(made));
        // A cancel before this line has found no descriptor, so it is signalled here. A later
        // cancel finds this descriptor.
        if self.is_cancelled() {
            signal(event);
        }
        Ok(event)
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
        assert!(parent.inner.followers.lock().len() <= 4 * MANY);
    }
}
