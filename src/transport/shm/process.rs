//! The end of the process at the other end of a socket.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::transport::closing::Socket;
use crate::transport::rights::get_option;
use crate::transport::wait::wait;

/// A descriptor that becomes readable when the peer's process ends, if the system can report that.
/// The end of the socket does not show it, because a forked child may keep the socket open. `pid`
/// is the number of the process, or 0 if it has none here.
pub fn watch(socket: &Socket, pid: i32) -> Option<Arc<OwnedFd>> {
    let open = || pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok();
    peer_pidfd(socket).or_else(open).map(Arc::new)
}

/// Whether the process of [`watch`] has ended already.
pub fn has_ended(death: &OwnedFd) -> bool {
    wait(death, PollFlags::IN, Duration::ZERO, None) == Ok(true)
}

/// The process that made the socket, even if its number now belongs to another process: from Linux
/// 6.5 on.
fn peer_pidfd(socket: &Socket) -> Option<OwnedFd> {
    let none: libc::c_int = -1;
    // SAFETY: the system writes an integer for this option.
    let fd = unsafe { get_option(socket, (libc::SOL_SOCKET, libc::SO_PEERPIDFD), none) };
    let fd = fd.ok().filter(|fd| *fd >= 0)?;
    // SAFETY: the call has made the descriptor, and nobody else knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}
