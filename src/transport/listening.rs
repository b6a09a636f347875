//! Sockets that listen: made here or by others, and what they accept.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::error::{Error, Result, Status};
use crate::transport::address::Address;
use crate::transport::wait::wait;

/// Connections that wait to be accepted; the system may allow fewer.
pub const BACKLOG: i32 = 1024;

/// The next socket that waits at `listener`, if any; `address` is the listener's.
/// Errors: `OutOfResources` if the process or the system can have no more sockets; the error of the
/// system for a peer that has gone meanwhile.
pub fn accept(listener: &impl AsFd, address: &str) -> Result<Option<OwnedFd>> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    match retry_on_intr(|| rustix::net::accept_with(listener, flags)) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN) => Ok(None),
        Err(Errno::MFILE | Errno::NFILE) if nobody_waits(listener) => Ok(None),
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
            Err(Error::os_as(
                Status::OutOfResources,
                format_args!(
                    "cannot accept a connection at {address}; raise the limit of open files \
                     (ulimit -n) or let connections end"
                ),
                errno,
            ))
        }
        Err(errno) => {
            let doing = format_args!("cannot accept a connection at {address}");
            Err(Error::os(doing, errno))
        }
    }
}

/// Whether no connection waits to be accepted. `accept` cannot tell if there is no free descriptor,
/// because the system looks for one first.
fn nobody_waits(listener: &impl AsFd) -> bool {
    wait(listener, PollFlags::IN, Duration::ZERO, None) == Ok(false)
}

/// A stream socket that already listens, of one of `families`. Only one property is changed, as the
/// last step: accepting does not wait.
/// Errors: `InvalidArgument`, with a text that says what the socket is.
pub fn given(socket: OwnedFd, families: &[AddressFamily], scheme: &str) -> Result<OwnedFd> {
    let wrong = |what: &str| {
        let text = format!("{scheme} cannot listen by the descriptor: it is {what}");
        Err(Error::invalid_argument(text))
    };
    let failed = |errno| Error::os("cannot ask what a descriptor is", errno);
    match sockopt::socket_type(&socket) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return wrong("no stream socket"),
        Err(Errno::NOTSOCK) => return wrong("no socket"),
        Err(errno) => return Err(failed(errno)),
    }
    if !families.contains(&sockopt::socket_domain(&socket).map_err(failed)?) {
        return wrong("a socket of another family");
    }
    if !sockopt::socket_acceptconn(&socket).map_err(failed)? {
        return wrong("a socket that does not listen");
    }
    let flags = rustix::fs::fcntl_getfl(&socket).map_err(failed)?;
    rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(failed)?;
    Ok(socket)
}

/// A stream socket for an address of `address`'s family, non-blocking and closed on exec.
pub fn new_socket(address: &SocketAddr) -> Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
        .map_err(|errno| Error::os("cannot make a socket", errno))
}

/// Listens at one address; also returns the port.
pub fn bind(address: &Address, candidate: &SocketAddr) -> Result<(OwnedFd, u16)> {
    let failed = |errno| {
        let place = format!("{address} ({candidate})");
        let (status, text) = match errno {
            Errno::ADDRINUSE => (
                Status::AddressInUse,
                format!("{place} is taken already; port 0 takes a free one"),
            ),
            Errno::ADDRNOTAVAIL => (
                Status::Unreachable,
                format!("{place} is no address of this machine"),
            ),
            Errno::ACCESS => (
                Status::Permission,
                format!("this user may not listen at {place}; ports below 1024 are the system's"),
            ),
            _ => return Error::os(format_args!("cannot listen at {place}"), errno),
        };
        Error::os_as(status, text, errno)
    };
    let socket = new_socket(candidate)?;
    // Otherwise connections of a server that has just ended would keep the port for a minute.
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    rustix::net::bind(&socket, candidate).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    let bound = rustix::net::getsockname(&socket)
        .and_then(SocketAddr::try_from)
        .map_err(failed)?;
    Ok((socket, bound.port()))
}
