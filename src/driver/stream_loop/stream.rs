//! A stream on the thread of many streams.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};

use crate::error::{Error, Result};

/// A stream on the thread. Its drop, on the thread, calls the host.
pub trait LoopStream: Send + Sized + 'static {
    /// What other threads bring for the stream.
    type Word: Send;

    /// Takes what another thread brought.
    fn hear(&mut self, word: Self::Word);

    /// Does what can be done now.
    ///
    /// # Errors
    ///
    /// The error that ends the stream.
    fn advance(&mut self) -> Result<Next>;

    /// Tells the host or the peer of an error. The stream is over.
    fn fail(&mut self, error: &Error);

    /// Makes the thread wake for the stream. Called after [`Next::Sleep`] or [`Next::Idle`].
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    fn watch(&mut self, next: Next, watcher: Watcher<'_>) -> Result<()>;

    /// Makes the thread no longer wake for the stream.
    fn unwatch(&mut self, watcher: Watcher<'_>);
}

/// How to go on with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Go on at once, after the others.
    More,
    /// Wait for the peer.
    Sleep,
    /// Wait for the host.
    Idle,
    /// The stream is to be dropped.
    Over,
}

/// Wakes the thread for one stream.
#[derive(Clone, Copy)]
pub struct Watcher<'a> {
    epoll: &'a OwnedFd,
    id: u64,
}

impl<'a> Watcher<'a> {
    pub(super) fn new(epoll: &'a OwnedFd, id: u64) -> Self {
        Self { epoll, id }
    }

    /// Wakes the thread when `fd` is readable.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the system can watch no more descriptors.
    pub fn add_fd(self, fd: impl AsFd) -> Result<()> {
        epoll::add(self.epoll, fd, EventData::new_u64(self.id), EventFlags::IN)
            .map_err(|errno| Error::os("cannot watch an asynchronous stream", errno))
    }

    /// No longer wakes the thread for `fd`.
    pub fn remove_fd(self, fd: impl AsFd) {
        let _ = epoll::delete(self.epoll, fd);
    }
}
