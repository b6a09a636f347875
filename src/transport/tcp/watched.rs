//! One socket of a connection, with its peer and the time for which the peer may be silent.

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use crate::transport::patience::Patience;
use crate::transport::stream::{Channel, Wire};
use crate::transport::tcp::scheme::Tcp;
use crate::transport::tcp::socket::has_arrived;
#[cfg(feature = "tls")]
use crate::transport::tcp::tls::records::Records;
use crate::transport::{PeerCertificate, PeerOrigin, Trust};

/// A connected socket, and who is at its other end.
pub struct Connected {
    pub socket: Arc<OwnedFd>,
    pub peer: SocketAddr,
    transport: Tcp,
    wire: Box<dyn Wire>,
    certificate: Option<Arc<PeerCertificate>>,
}

impl Connected {
    /// A socket without encryption.
    pub fn plainly(socket: Arc<OwnedFd>, peer: SocketAddr) -> Self {
        Self {
            socket,
            peer,
            transport: Tcp::PLAIN,
            wire: Box::new(PlainWire),
            certificate: None,
        }
    }

    /// A socket with the result of its handshake.
    #[cfg(feature = "tls")]
    pub fn securely(
        socket: Arc<OwnedFd>,
        peer: SocketAddr,
        (records, certificate): (Records, Option<Arc<PeerCertificate>>),
    ) -> Self {
        Self {
            socket,
            peer,
            transport: Tcp::TLS,
            wire: Box::new(records),
            certificate,
        }
    }
}

/// Sends and receives the bytes unchanged; nothing comes beside them.
struct PlainWire;

impl Wire for PlainWire {
    fn read(
        &mut self,
        socket: BorrowedFd<'_>,
        runs: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Errno> {
        rustix::io::readv(socket, runs)
    }
}

/// A connected socket, and the time for which its peer may be silent.
pub struct WatchedSocket {
    pub channel: Channel<dyn Wire>,
    pub origin: PeerOrigin,
    pub trust: Trust,
    pub patience: Patience,
    /// The events for which the epoll instance of several sockets watches this one; empty if it
    /// does not.
    pub watched: EventFlags,
}

impl WatchedSocket {
    /// Takes over a connected, non-blocking socket.
    pub fn new(connected: Connected, unexpected: u64, patience: Patience) -> Self {
        let Connected {
            socket,
            peer,
            transport,
            wire,
            certificate,
        } = connected;
        let name = match &certificate {
            Some(certificate) => format!("{peer}, {}", certificate.subject),
            None => peer.to_string(),
        };
        Self {
            channel: Channel::new(socket, name, unexpected, wire),
            origin: PeerOrigin {
                scheme: transport.scheme,
                process: None,
                address: Some(peer),
                certificate,
            },
            trust: transport.trust,
            patience,
            watched: EventFlags::IN,
        }
    }

    /// Whether the peer's system has acknowledged everything that was written.
    pub fn has_arrived(&self) -> bool {
        has_arrived(&self.channel.socket)
    }
}
