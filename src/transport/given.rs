//! Listening sockets that this process did not make: a service manager did, or the host.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::error::{Error, Result};

/// A stream socket that listens, of one of `families`. Nothing of it is changed but, in the end,
/// that accepting does not wait.
///
/// # Errors
///
/// `InvalidArgument`, with what it is.
pub(super) fn listening(
    socket: OwnedFd,
    families: &[AddressFamily],
    scheme: &str,
) -> Result<OwnedFd> {
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
