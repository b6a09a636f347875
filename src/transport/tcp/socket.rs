//! Sockets: making them, connecting them, and keeping them from waiting for ever.

use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt;

use crate::error::{Error, Result, Status};
use crate::transport::Attempt;
use crate::transport::address::{Address, is_loopback, share};
use crate::transport::connection::ConnectionEnd;
use crate::transport::listening::new_socket;
use crate::transport::patience::{Patience, keep_alive};

/// Sets options of a connected socket: messages leave at once, and it is noticed if the peer's
/// machine is gone.
pub fn set_up(socket: &OwnedFd, end: ConnectionEnd, patience: Patience) -> Result<()> {
    let set = || {
        sockopt::set_tcp_nodelay(socket, true)?;
        keep_alive(socket, patience)?;
        if end == ConnectionEnd::Client {
            // Keep-alive does not probe while sent data is not acknowledged; this option ends the
            // connection then. At a server it would also cut a slow consumer, so there
            // `has_fallen_silent` checks instead.
            let limit = u32::try_from(patience.duration().as_millis()).unwrap_or(u32::MAX);
            sockopt::set_tcp_user_timeout(socket, limit)?;
        }
        Ok(())
    };
    set().map_err(|errno| Error::os("cannot set a socket up", errno))
}

/// The congestion control for a peer on this machine: every Linux has it, and lets every user
/// choose it.
const UNPACED: &str = "reno";

/// Sends to a peer on this machine as fast as it reads. A congestion control that paces, such as
/// BBR, would slow a connection that no network limits. For other peers the system's choice stays.
pub fn spare_pacing(socket: &OwnedFd, peer: &SocketAddr) {
    let own = rustix::net::getsockname(socket).and_then(SocketAddr::try_from);
    let is_here = is_loopback(peer) || own.is_ok_and(|own| own.ip() == peer.ip());
    if is_here && let Err(errno) = sockopt::set_tcp_congestion(socket, UNPACED) {
        tracing::debug!("the system's congestion control stays for {peer}: {errno}");
    }
}

/// Whether the peer's system has acknowledged everything that was sent, including an end.
pub fn has_arrived(socket: impl AsFd) -> bool {
    let mut unacknowledged: libc::c_int = 0;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the call writes one integer to the given address, and `unacknowledged` is one.
    let result = unsafe { libc::ioctl(socket, libc::TIOCOUTQ, &raw mut unacknowledged) };
    // If the system cannot be asked, there is nothing to wait for.
    result != 0 || unacknowledged == 0
}

/// Connects to one of `candidates`, in their order, within `timeout` after `start`.
pub async fn connect(
    address: &Address,
    candidates: &[SocketAddr],
    (start, timeout): (Instant, Duration),
    attempt: &Attempt,
) -> Result<(Arc<OwnedFd>, SocketAddr)> {
    let mut failure: Option<Error> = None;
    for (index, candidate) in candidates.iter().enumerate() {
        let left = timeout.saturating_sub(start.elapsed());
        let share = share(left, candidates.len() - index);
        match connect_one(candidate, share, attempt).await? {
            Ok(socket) => return Ok((socket, *candidate)),
            Err(errno) => {
                let error = connect_error(address, candidate, errno, timeout);
                // A refusal explains more than an address that does not answer.
                if failure
                    .as_ref()
                    .is_none_or(|known| known.os_error() != Some(libc::ECONNREFUSED))
                {
                    failure = Some(error);
                }
            }
        }
    }
    Err(failure.unwrap_or_else(|| address.nobody()))
}

/// Errors: `Cancelled`. The result is the socket, or the reason why there is none.
async fn connect_one(
    candidate: &SocketAddr,
    timeout: Duration,
    attempt: &Attempt,
) -> Result<Result<Arc<OwnedFd>, Errno>> {
    let until = Instant::now() + timeout;
    let socket = match begin(candidate) {
        Ok(socket) => Arc::new(socket),
        Err(errno) => return Ok(Err(errno)),
    };
    let is_known = attempt.ready(Arc::clone(&socket) as _, PollFlags::OUT, until);
    if !is_known.await? {
        return Ok(Err(Errno::TIMEDOUT));
    }
    Ok(ensure_connected(&socket).map(|()| socket))
}

/// A socket that begins to connect to `candidate`.
fn begin(candidate: &SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = new_socket(candidate).map_err(|error| {
        let errno = error.os_error().map(Errno::from_raw_os_error);
        errno.unwrap_or(Errno::AFNOSUPPORT)
    })?;
    match rustix::net::connect(&socket, candidate) {
        // The connect goes on by itself, even after a signal.
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn ensure_connected(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::socket_error(socket)??;
    let own = rustix::net::getsockname(socket)?;
    if rustix::net::getpeername(socket)? == Some(own) {
        // The system may give a client the very port at which nobody listens: then it is connected
        // to itself.
        return Err(Errno::CONNREFUSED);
    }
    Ok(())
}

fn connect_error(
    address: &Address,
    candidate: &SocketAddr,
    errno: Errno,
    timeout: Duration,
) -> Error {
    let place = format!("{address} ({candidate})");
    let text = match errno {
        Errno::CONNREFUSED => format!(
            "no server listens at {place}; is it started, and is the port the one it printed?"
        ),
        Errno::TIMEDOUT => {
            return Error::timeout(format!(
                "nothing at {place} answered within {timeout:?}: the machine is down, a firewall \
                 drops the connection, or the server accepts none"
            ));
        }
        Errno::HOSTUNREACH | Errno::HOSTDOWN => {
            format!("the machine of {place} cannot be reached; is it on, and is the address right?")
        }
        Errno::NETUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT => {
            format!("no network of this machine leads to {place}; is the network up?")
        }
        _ => return Error::os(format_args!("cannot connect to {place}"), errno),
    };
    Error::os_as(Status::Unreachable, text, errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `spare_pacing`: a pacing congestion control is replaced for a peer on this machine only.
    #[test]
    fn only_peers_of_this_machine_are_sent_to_unpaced() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = client.local_addr().unwrap();
        let socket = OwnedFd::from(listener.accept().unwrap().0);
        let usual = sockopt::tcp_congestion(&socket).unwrap();
        spare_pacing(&socket, &"192.0.2.1:4000".parse().unwrap());
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), usual);
        spare_pacing(&socket, &here);
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), UNPACED);
    }
}
