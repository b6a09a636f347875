//! Accepting a socket, as every transport over sockets does.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::error::{Error, Result, Status};
use crate::transport::wait::wait;

/// Connections that wait to be accepted; the system may allow fewer.
pub const BACKLOG: i32 = 1024;

/// The next socket that waits at `listener`, if one does; `address` is the listener's.
/// Errors: `OutOfResources` when the process or the system can have no more of them; what the
/// system says of a peer that has gone meanwhile.
pub fn accept(listener: &impl AsFd, address: &str) -> Result<Option<OwnedFd>> {
    loop {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        match rustix::net::accept_with(listener, flags) {
            Ok(socket) => return Ok(Some(socket)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(Errno::MFILE | Errno::NFILE) if nobody_waits(listener) => return Ok(None),
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                return Err(Error::os_as(
                    Status::OutOfResources,
                    format_args!(
                        "cannot accept a connection at {address}; raise the limit of open files \
                         (ulimit -n) or let connections end"
                    ),
                    errno,
                ));
            }
            Err(errno) => {
                let doing = format_args!("cannot accept a connection at {address}");
                return Err(Error::os(doing, errno));
            }
        }
    }
}

/// Whether nobody waits to be accepted. The system looks for a free descriptor first, and says
/// that none is left whether somebody waits or not.
fn nobody_waits(listener: &impl AsFd) -> bool {
    wait(listener, PollFlags::IN, Duration::ZERO, None) == Ok(false)
}
