//! Networks that are cut.
//!
//! UCX's own keep-alive over tcp is not enough: only one end probes, and not while sent data is not
//! acknowledged. UCX keeps the socket open by which it has connected, and sends nothing more over
//! it. So this module turns on the system's keep-alive for that socket at both ends, and UCX takes
//! the end of that socket for the end of the peer.
//!
//! UCX has options for the keep-alive of its tcp transport (UCX_TCP_KEEPIDLE), but none for the
//! socket by which it connects, and no call that returns this socket. So this module finds the
//! socket by the addresses of its ends.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;

use crate::transport::patience::{Patience, keep_alive};
use crate::transport::ucx::sockaddr::from_raw;

/// Has one entry for each descriptor of this process.
const OPEN: &str = "/proc/self/fd";

/// Makes the system watch the connection of UCX's between these two addresses. Returns whether
/// there is such a connection: UCX may have connected without a socket.
pub(super) fn watch(local: SocketAddr, remote: SocketAddr, patience: Patience) -> bool {
    let Ok(entries) = std::fs::read_dir(OPEN) else {
        return false;
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| is_between(*fd, local, remote))
        .any(|fd: RawFd| match own(fd) {
            // Meanwhile another thread may have closed it, and the number may belong to another
            // file.
            Ok(socket) if is_between(raw(&socket), local, remote) => {
                keep_alive(&socket, patience).is_ok()
            }
            _ => false,
        })
}

fn raw(socket: &OwnedFd) -> RawFd {
    std::os::fd::AsRawFd::as_raw_fd(socket)
}

/// A descriptor of our own for the file that UCX has as `fd`.
fn own(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the number was open a moment ago, and the borrow ends with this call, which fails for
    // one that is closed and otherwise gives a descriptor of its own, whatever it is for.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::fcntl_dupfd_cloexec(borrowed, 0)
}

/// Whether `fd` is a socket between these addresses.
fn is_between(fd: RawFd, local: SocketAddr, remote: SocketAddr) -> bool {
    end(fd, libc::getpeername) == Some(remote) && end(fd, libc::getsockname) == Some(local)
}

type Ask = unsafe extern "C" fn(RawFd, *mut libc::sockaddr, *mut libc::socklen_t) -> libc::c_int;

fn end(fd: RawFd, ask: Ask) -> Option<SocketAddr> {
    // SAFETY: integers all over, for which zeros are valid.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&storage)).ok()?;
    // SAFETY: the storage is writable for `length` bytes, its size, and `length` is writable; a
    // number that is no socket's is an error.
    let asked = unsafe { ask(fd, (&raw mut storage).cast(), &raw mut length) };
    (asked == 0).then(|| from_raw(&storage)).flatten()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use rustix::net::sockopt;

    use super::*;

    /// Among all sockets, the one with both addresses is found, and no other socket is changed.
    #[test]
    fn the_connection_is_found_by_its_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (local, remote) = (ours.local_addr().unwrap(), ours.peer_addr().unwrap());
        assert!(watch(local, remote, Patience::DEFAULT));
        assert!(sockopt::socket_keepalive(&ours).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&ours).unwrap().as_secs(), 20);
        assert!(!sockopt::socket_keepalive(&other).unwrap());
        assert!(!watch(remote, remote, Patience::DEFAULT));
    }
}
