//! The end of the process at the other end of a socket.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::transport::closing::Socket;
use crate::transport::wait::wait;

/// A descriptor that becomes readable when the peer's process ends, where the system can tell: a
/// forked child may keep the socket open. `pid` is its number, 0 where it has none here.
pub fn watch(socket: &Socket, pid: i32) -> Option<Arc<OwnedFd>> {
    let open = || pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok();
    peer_pidfd(socket).or_else(open).map(Arc::new)
}

/// Whether the process of [`watch`] has ended already.
pub fn has_ended(death: &OwnedFd) -> bool {
    wait(death, PollFlags::IN, Duration::ZERO, None) == Ok(true)
}

/// The process that made the socket, whichever has its number now: from Linux 6.5 on.
fn peer_pidfd(socket: &Socket) -> Option<OwnedFd> {
    let mut fd: libc::c_int = -1;
    let mut len = libc::socklen_t::try_from(size_of::<libc::c_int>()).ok()?;
    // SAFETY: `fd` is writable for `len` bytes, its size, and `len` is writable.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if result != 0 || fd < 0 {
        return None;
    }
    // SAFETY: the call has made the descriptor, and nobody else knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
