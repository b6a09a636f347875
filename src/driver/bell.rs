//! Wakes the one thread or task that waits for something.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use crate::cancel::Follower;
use crate::driver::io::source::Source;
use crate::driver::signal::{Reason, Signal};
use crate::error::{Error, Result};

/// Wakes a thread that sleeps on a descriptor, or a task.
#[derive(Debug, Default)]
pub struct Bell {
    has_rung: AtomicBool,
    /// Made when the first thread sleeps on the bell.
    clapper: OnceLock<Clapper>,
    task: Mutex<Option<Waker>>,
}

/// What becomes readable when the bell rings.
#[derive(Debug)]
enum Clapper {
    Counter(Arc<OwnedFd>),
    /// The descriptor of a host with an event loop.
    Signal(Arc<Signal>),
}

impl Clapper {
    fn counter() -> Result<Self> {
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(|fd| Self::Counter(Arc::new(fd)))
            .map_err(|errno| Error::os("cannot make a descriptor to wake a thread", errno))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Counter(fd) => fd.as_fd(),
            Self::Signal(signal) => signal.as_fd(),
        }
    }

    fn set(&self, is_readable: bool) {
        match self {
            // A full counter rings already.
            Self::Counter(fd) if is_readable => {
                let _ = rustix::io::write(fd, &1_u64.to_ne_bytes());
            }
            Self::Counter(fd) => {
                let _ = rustix::io::read(fd, &mut [0; 8]);
            }
            Self::Signal(signal) => signal.set(Reason::Bell, is_readable),
        }
    }
}

impl Follower for Bell {
    fn cancelled(&self) {
        self.ring();
    }
}

/// A bell that rings at a time.
impl Source for Bell {
    fn ready(&self) {}

    fn timer(&self) {
        self.ring();
    }
}

impl Bell {
    /// A silent bell with a descriptor. Fails if the process has no file descriptor left.
    pub fn new() -> Result<Self> {
        Ok(Self::of(Clapper::counter()?))
    }

    /// A silent bell that takes no descriptor: it makes the descriptor of `signal` readable. That
    /// descriptor may be readable for other reasons too.
    pub fn by(signal: Arc<Signal>) -> Self {
        Self::of(Clapper::Signal(signal))
    }

    fn of(clapper: Clapper) -> Self {
        Self {
            clapper: OnceLock::from(clapper),
            ..Self::default()
        }
    }

    /// A descriptor that is readable while the bell has rung. Fails if the process has no file
    /// descriptor left.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.clapper(Clapper::counter).map(Clapper::fd)
    }

    /// The same for an event loop of the host's, which may misuse the descriptor.
    pub fn host_fd(&self) -> Result<BorrowedFd<'_>> {
        let signal = || Signal::new().map(Arc::new).map(Clapper::Signal);
        self.clapper(signal).map(Clapper::fd)
    }

    /// The descriptor of a bell that was made with one, for callers that keep it longer than the
    /// bell.
    pub fn counter(&self) -> Option<Arc<OwnedFd>> {
        match self.clapper.get()? {
            Clapper::Counter(fd) => Some(Arc::clone(fd)),
            Clapper::Signal(_) => None,
        }
    }

    fn clapper(&self, make: impl FnOnce() -> Result<Clapper>) -> Result<&Clapper> {
        if let Some(clapper) = self.clapper.get() {
            return Ok(clapper);
        }
        let made = make()?;
        let clapper = self.clapper.get_or_init(|| made);
        // A ring before this line found no descriptor; a ring after it finds this one.
        if self.has_rung.load(Ordering::SeqCst) {
            clapper.set(true);
        }
        Ok(clapper)
    }

    /// Wakes this task from now on, and no other. The caller then looks for news, because the bell
    /// may have rung before.
    pub fn wake(&self, waker: &Waker) {
        let mut task = self.task.lock();
        match &mut *task {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    /// Wakes the sleeper, or keeps the next one from sleeping. Several rings without a silence
    /// between them count as one.
    pub fn ring(&self) {
        if self.has_rung.swap(true, Ordering::SeqCst) {
            return;
        }
        if let Some(clapper) = self.clapper.get() {
            clapper.set(true);
        }
        let task = self.task.lock().clone();
        if let Some(task) = task {
            task.wake();
        }
    }

    /// Makes the bell silent again. The caller looks for news afterwards.
    pub fn silence(&self) {
        if let Some(clapper) = self.clapper.get() {
            clapper.set(false);
        }
        // The store comes first. A ring before the store is seen by the caller's look, and a ring
        // after it makes the descriptor readable. The look must not come before this store.
        self.has_rung.store(false, Ordering::SeqCst);
    }

    /// Whether the bell has rung since it was [silenced](Self::silence).
    pub fn has_rung(&self) -> bool {
        self.has_rung.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn is_readable(fd: BorrowedFd<'_>) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
    }

    /// If a descriptor is made after the ring, it is readable until the silence.
    #[test]
    fn a_ring_is_not_missed() {
        for of_host in [false, true] {
            let bell = Bell::default();
            bell.ring();
            let fd = if of_host { bell.host_fd() } else { bell.fd() };
            let fd = fd.unwrap();
            assert!(is_readable(fd) && bell.has_rung());
            bell.silence();
            assert!(!is_readable(fd) && !bell.has_rung());
            bell.ring();
            assert!(is_readable(fd));
        }
    }

    /// The task that waits last is woken, once for each ring that follows a silence.
    #[test]
    fn a_task_is_woken() {
        let (first, last) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
        let bell = Bell::default();
        bell.wake(&Waker::from(Arc::clone(&first)));
        bell.wake(&Waker::from(Arc::clone(&last)));
        bell.ring();
        bell.ring();
        bell.silence();
        bell.ring();
        let count = |task: &Counting| task.0.load(Ordering::SeqCst);
        assert_eq!((count(&first), count(&last)), (0, 2));
    }
}
