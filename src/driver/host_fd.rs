//! Descriptors that the host has too.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use crate::error::{Error, Result};

/// A descriptor that is given to the host for its event loop, and that the library closes.
///
/// The library never reads or writes it. If the host wrongly closes it, its number may stand for
/// another file, which the library does not write to. The library ignores the error of its own
/// later close; an [`OwnedFd`] would end the process in a debug build.
#[derive(Debug)]
pub struct HostFd(ManuallyDrop<OwnedFd>);

impl HostFd {
    /// A duplicate of the descriptor `fd`, for the host alone.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn twin(fd: impl AsFd) -> Result<Self> {
        rustix::io::fcntl_dupfd_cloexec(fd, 0)
            .map(Self::from)
            .map_err(|errno| Error::os("cannot make a descriptor for an event loop", errno))
    }
}

impl From<OwnedFd> for HostFd {
    fn from(fd: OwnedFd) -> Self {
        Self(ManuallyDrop::new(fd))
    }
}

impl AsFd for HostFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for HostFd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own, and nothing uses it after this. If the host
        // has closed it, this is an error that is ignored, or closes what the host has opened in
        // its place: no memory of this process depends on that.
        unsafe { libc::close(self.0.as_raw_fd()) };
    }
}
