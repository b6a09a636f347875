//! One handshake over a non-blocking socket, on either side.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, ClientConnection, Connection, HandshakeKind, ServerConfig, ServerConnection,
};

use crate::error::{Error, Result, Status};
use crate::transport::address::Address;
use crate::transport::peer::PeerCertificate;
use crate::transport::stream::Wire;
use crate::transport::tcp::tls::config::ALPN;
use crate::transport::tcp::tls::records::{Records, Socket, push};
use crate::transport::tcp::tls::refusal;
use crate::transport::tcp::watched::Connected;
use crate::transport::{Attempt, LinkOptions, TlsOptions};

/// A handshake that is under way.
pub struct Handshake {
    tls: Connection,
    /// To wait for.
    pub socket: Arc<OwnedFd>,
    /// The option with the authorities that this side trusts, as most languages have it.
    authorities: &'static str,
}

/// What a handshake comes to: the records that the connection goes on with, and the peer's
/// certificate.
pub type Agreed = (Records, Option<Arc<PeerCertificate>>);

/// Where a handshake stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeProgress {
    /// The peer's next bytes have to come.
    Reading,
    /// The socket takes no more.
    Writing,
    /// [`Handshake::finish`] comes next.
    Done,
}

impl Handshake {
    /// A server's with a peer that has just been accepted.
    pub fn answer(config: Arc<ServerConfig>, socket: Arc<OwnedFd>) -> Result<Self, rustls::Error> {
        let tls = ServerConnection::new(config)?;
        Ok(Self {
            tls: tls.into(),
            socket,
            authorities: "tls_client_ca",
        })
    }

    /// A client's with a server whose certificate is for `name`.
    pub fn ask(config: Arc<ClientConfig>, name: &str, socket: Arc<OwnedFd>) -> Result<Self> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            Error::invalid_argument(format!(
                "`{name}` cannot be the name in a certificate: it is a DNS name or an address"
            ))
        })?;
        let tls = ClientConnection::new(config, server);
        Ok(Self {
            tls: tls.map_err(|error| refusal::explain(&error))?.into(),
            socket,
            authorities: "tls_ca",
        })
    }

    /// Goes on as far as that is possible without blocking.
    /// Errors: With a text that goes behind the peer's name. The peer was told as far as TLS has a
    /// word for it.
    pub fn turn(&mut self) -> Result<HandshakeProgress> {
        loop {
            // All messages of a turn are written together, because each write would wake the peer.
            let (_, all) = push(&mut self.tls, self.socket.as_fd()).map_err(gone)?;
            if !all {
                return Ok(HandshakeProgress::Writing);
            }
            if !self.tls.is_handshaking() {
                return Ok(HandshakeProgress::Done);
            }
            if !self.read()? {
                return Ok(HandshakeProgress::Reading);
            }
            if let Err(error) = self.tls.process_new_packets() {
                // The peer is told, if there is room.
                let _ = push(&mut self.tls, self.socket.as_fd());
                return Err(refusal::of_handshake(&error, self.authorities));
            }
        }
    }

    /// Returns whether something came.
    fn read(&mut self) -> Result<bool> {
        loop {
            match self.tls.read_tls(&mut Socket(self.socket.as_fd())) {
                Ok(0) => {
                    return Err(Error::disconnected(
                        "closed the connection before TLS was agreed on: does it speak TLS \
                         (tls://)?",
                    ));
                }
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => {
                    return Err(Errno::from_io_error(&error).map_or_else(
                        || {
                            Error::disconnected(format!(
                                "sent bytes that are no handshake of TLS: {error}"
                            ))
                        },
                        gone,
                    ));
                }
            }
        }
    }

    /// Whether a session was resumed, once that is known.
    pub fn kind(&self) -> Option<HandshakeKind> {
        self.tls.handshake_kind()
    }

    /// What the connection goes on with.
    /// Errors: The peer did not agree on our protocol. With a text that goes behind its name.
    pub fn finish(self, peer: &str) -> Result<Agreed> {
        let kind = self.kind();
        let tls = &self.tls;
        if let (Some(suite), Some(kind)) = (tls.negotiated_cipher_suite(), kind) {
            tracing::debug!("TLS with {peer}: {:?}, {kind:?} handshake", suite.suite());
        }
        let speaks_ours = tls.alpn_protocol() == Some(ALPN);
        let chain = tls.peer_certificates().unwrap_or_default();
        let certificate = chain.first();
        let certificate = certificate
            .map(|der| PeerCertificate::from_der(der))
            .transpose()?;
        let mut records = Records::new(self.tls, peer);
        if !speaks_ours {
            records.end(self.socket.as_fd());
            return Err(Error::new(
                Status::Disconnected,
                "speaks TLS, but did not offer libdipc's protocol (ALPN `dipc/1`)",
            ));
        }
        Ok((records, certificate.map(Arc::new)))
    }
}

fn gone(errno: Errno) -> Error {
    Error::os_as(
        Status::Disconnected,
        "cut the connection before TLS was agreed on",
        errno,
    )
}

/// A client's handshake with the server at `address`, for as long as the options have it, from
/// `start` on.
/// Errors: `Permission` where one side does not trust the other; `Disconnected`, `Timeout`,
/// `Cancelled`.
pub async fn connect(
    (socket, peer): (Arc<OwnedFd>, SocketAddr),
    address: &Address,
    start: Instant,
    options: &LinkOptions,
    attempt: &Attempt,
) -> Result<Connected> {
    let tls = &options.tls;
    let name = server_name(tls, address.host());
    let of_server = |error: &Error| {
        Error::new(
            error.status(),
            format!("the server at {address} {}", error.text()),
        )
    };
    let mut handshake = Handshake::ask(tls.client()?, name, Arc::clone(&socket))?;
    let timeout = options.connect.time();
    loop {
        let events = match handshake.turn().map_err(|error| of_server(&error))? {
            HandshakeProgress::Done => break,
            HandshakeProgress::Reading => PollFlags::IN,
            HandshakeProgress::Writing => PollFlags::OUT,
        };
        let is_ready = attempt.ready(Arc::clone(&socket) as _, events, start + timeout);
        if !is_ready.await? {
            return Err(Error::timeout(format!(
                "the server at {address} did not agree on TLS within {timeout:?}: it is busy, or \
                 listens by tcp:// and not by tls://"
            )));
        }
    }
    let agreed = handshake.finish(&address.to_string());
    let agreed = agreed.map_err(|error| of_server(&error))?;
    Ok(Connected::securely(socket, peer, agreed))
}

/// The name that the server's certificate has to have.
fn server_name<'a>(tls: &'a TlsOptions, host: &'a str) -> &'a str {
    // An interface in an address has a meaning on this machine only.
    let bare = host.split_once('%').map_or(host, |(address, _)| address);
    tls.files().server_name.as_deref().unwrap_or(bare)
}
