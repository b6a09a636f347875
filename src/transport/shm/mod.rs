//! Shared memory on one host: a Unix stream socket for messages, sealed memfds for bodies, and a
//! ring (`ring.rs`) for the messages to a client that is awake. `docs/wire.md` has the bytes.
//!
//! Nothing here waits.

mod connection;
mod descriptors;
mod host;
mod listener;
mod process;
mod ring;
mod socket;
mod users;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::error::{Error, Result, Status};
use crate::proto::Uri;
use crate::transport::closing::Socket;
use crate::transport::connection::ConnectionEnd;
use crate::transport::shm::connection::ShmConnection;
use crate::transport::shm::listener::ShmListener;
use crate::transport::shm::socket::{SocketAddress, new_socket};
use crate::transport::{Attempt, Connecting, LinkOptions, Listener, Transport, Trust};

/// How long a client waits before it tries again if the queue of a listener is full: the first
/// pause, and the longest.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LAST_PAUSE: Duration = Duration::from_millis(10);

/// [`Transport`] for `shm:/path` and `shm:@name`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shm;

impl Transport for Shm {
    fn scheme(&self) -> &'static str {
        "shm"
    }

    fn trust(&self) -> Trust {
        Trust::HOST
    }

    fn available(&self) -> Result<()> {
        // FUTURE_WRITE is the newest feature of the system that shm needs (Linux 5.1); making a
        // small region tests it.
        crate::device::region::Region::create(1, "dipc-probe")
            .map(drop)
            .map_err(|error| {
                Error::unsupported(format!(
                    "sealed memfds do not work here (Linux 5.1 is needed): {error}"
                ))
            })
    }

    fn listen(&self, uri: &Uri, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        Ok(Box::new(ShmListener::new(
            SocketAddress::of(uri)?,
            uri.bare(),
            options,
        )?))
    }

    fn listen_by(&self, socket: OwnedFd, options: &LinkOptions) -> Result<Box<dyn Listener>> {
        Ok(Box::new(ShmListener::by(socket, options)?))
    }

    fn connecting<'a>(
        &'a self,
        uri: &'a Uri,
        options: &'a LinkOptions,
        attempt: &'a Attempt,
    ) -> Connecting<'a> {
        Box::pin(async move {
            let address = SocketAddress::of(uri)?;
            host::ensure_here(uri, &address)?;
            let socket = connect(&address, options.connect.time(), attempt).await?;
            let connection = ShmConnection::new(socket, options, ConnectionEnd::Client);
            let mut connection = connection.map_err(|error| {
                error.context(format_args!("cannot use the server at {address}"))
            })?;
            // Rule E1: a baseline server sees no control message, and sends none.
            if uri.extension {
                connection.speak_extension();
            }
            Ok(Box::new(connection) as _)
        })
    }
}

/// Connects, waiting while the listener's queue is full.
async fn connect(address: &SocketAddress, timeout: Duration, attempt: &Attempt) -> Result<Socket> {
    let target = address.to_socket_address()?;
    let socket = new_socket(SocketFlags::NONBLOCK)?;
    let deadline = Instant::now() + timeout;
    let mut pause = FIRST_PAUSE;
    loop {
        attempt.check()?;
        let now = Instant::now();
        match rustix::net::connect(&socket, &target) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR | Errno::AGAIN) if now < deadline => {}
            Err(errno) => return Err(connect_error(address, errno, timeout)),
        }
        // The system does not announce room in the queue.
        attempt.pause(deadline.min(now + pause)).await?;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

fn connect_error(address: &SocketAddress, errno: Errno, timeout: Duration) -> Error {
    let is_socket = address.path().is_none_or(listener::is_socket);
    match (errno, address) {
        (Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT, _) => Error::timeout(format!(
            "the server at {address} did not accept the connection within {timeout:?}: it is busy \
             or stopped"
        )),
        (Errno::NOENT, _) | (Errno::CONNREFUSED, SocketAddress::Name(_)) => Error::new(
            Status::Unreachable,
            format!("no server listens at {address}; is it started, on this machine?"),
        ),
        (Errno::CONNREFUSED, SocketAddress::Path(_)) if is_socket => Error::new(
            Status::Unreachable,
            format!(
                "no server listens at {address}: the socket there is stale, the server that made \
                 it has ended"
            ),
        ),
        (Errno::CONNREFUSED | Errno::NOTSOCK, SocketAddress::Path(_)) => Error::new(
            Status::Unreachable,
            format!("no server listens at {address}: the file there is not a socket"),
        ),
        (Errno::ACCESS, SocketAddress::Path(_)) => Error::os(
            format_args!(
                "this user may not connect to {address}: unless it was started with any_user \
                 (dipc_server_options_set_any_user, --any-user), a server admits its own user \
                 alone; or a folder on the way there is closed to this user"
            ),
            errno,
        ),
        (Errno::PROTOTYPE, _) => Error::new(
            Status::Unreachable,
            format!("the socket at {address} is not a libdipc server's"),
        ),
        _ => Error::os(format_args!("cannot connect to {address}"), errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cancel::Cancel;
    use crate::proto::Control;
    use crate::transport::shm::descriptors::REGION_KIND;

    /// Rule E3: the byte by which a message that brings a descriptor is known.
    #[test]
    fn the_kind_of_a_region_message_is_the_protocols() {
        let message = Control::Region {
            id: 1,
            handle: vec![0; 8],
        };
        assert_eq!(message.encode().first(), Some(&REGION_KIND));
    }

    /// `Transport::available`: every kernel that the tests run on has what shm needs.
    #[test]
    fn it_is_available() {
        Shm.available().unwrap();
    }

    /// `ConnectOptions::timeout`: a server that accepts nobody makes a client wait that long,
    /// and no longer.
    #[test]
    fn connecting_to_a_full_listener_times_out() {
        let name = format!("dipc-full-{}", std::process::id());
        let address = SocketAddress::Name(name);
        let socket = new_socket(SocketFlags::empty()).unwrap();
        rustix::net::bind(&socket, &address.to_socket_address().unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let connect = |timeout, cancel: Option<&Cancel>| {
            let attempt = Attempt::new(cancel.cloned());
            attempt.block_on(connect(&address, timeout, &attempt))
        };
        let first = connect(Duration::from_secs(5), None).unwrap();
        let start = Instant::now();
        let error = connect(Duration::from_millis(50), None).unwrap_err();
        assert_eq!(error.status(), Status::Timeout, "{error}");
        assert!(start.elapsed() >= Duration::from_millis(50));
        // The token of the attempt ends the wait.
        let cancel = Cancel::new().unwrap();
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                cancel.cancel();
            });
            connect(Duration::from_secs(60), Some(&cancel)).unwrap_err()
        });
        assert_eq!(error.status(), Status::Cancelled, "{error}");
        drop(first);
    }
}
