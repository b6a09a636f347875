//! Waits for file descriptors in the reactor of an async runtime.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::{Context, Poll};

#[cfg(feature = "tokio")]
use tokio::io::unix::AsyncFd;

/// A wait for a descriptor to become readable.
///
/// Each wait makes a new registration. The reactors report changes, and a descriptor that is
/// readable at its registration counts as changed. So no event is missed, whatever the descriptor
/// did before.
pub(super) enum Readiness {
    /// Inside a runtime of tokio.
    #[cfg(feature = "tokio")]
    Tokio(AsyncFd<OwnedFd>),
    /// Under any other executor: async-io has a thread of its own that sleeps for all.
    #[cfg(feature = "async-io")]
    AsyncIo(async_io::Async<OwnedFd>),
}

impl Readiness {
    /// Registers a copy of `fd` with the runtime of this task.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let own = fd.try_clone_to_owned()?;
        #[cfg(feature = "tokio")]
        if cfg!(not(feature = "async-io")) || tokio::runtime::Handle::try_current().is_ok() {
            let interest = tokio::io::Interest::READABLE;
            // SAFETY: an `OwnedFd` has one descriptor, which is open until the drop of the
            // `AsyncFd`.
            let watched = unsafe { AsyncFd::register_with_interest(own, interest) };
            return watched.map(Self::Tokio).map_err(Into::into);
        }
        #[cfg(feature = "async-io")]
        return async_io::Async::new_nonblocking(own).map(Self::AsyncIo);
        #[cfg(not(feature = "async-io"))]
        Err(io::Error::other("no runtime of tokio"))
    }

    /// Ready once the descriptor has been readable.
    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            #[cfg(feature = "tokio")]
            Self::Tokio(watched) => watched.poll_read_ready(context).map_ok(drop),
            #[cfg(feature = "async-io")]
            Self::AsyncIo(watched) => watched.poll_readable(context),
        }
    }
}
