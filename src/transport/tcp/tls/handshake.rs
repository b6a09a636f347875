//! One handshake over a non-blocking socket, on either side.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::{Errno, retry_on_intr};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ExtractedSecrets, HandshakeKind, ServerConfig};

use crate::error::{Error, Result, Status};
use crate::transport::address::Address;
use crate::transport::peer::PeerCertificate;
use crate::transport::tcp::tls::config::ALPN;
use crate::transport::tcp::tls::records::{HandshakeBytes, Keys, Records};
use crate::transport::tcp::tls::refusal;
use crate::transport::tcp::watched::Connected;
use crate::transport::{Attempt, LinkOptions, TlsOptions};

/// Most bytes of a peer's that wait to be looked at: one message of a handshake, as rustls bounds
/// it, in its records.
const MAX_INCOMING: usize = 96 << 10;
/// As much is read at once.
const READ_BYTES: usize = 16 << 10;

/// What rustls has for one side of a handshake.
pub trait TlsSide: Sized {
    /// rustls' name for it.
    type Data;
    /// The option with the authorities that it trusts, as most languages have it.
    const AUTHORITIES: &str;

    /// Looks at what came.
    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// What both sides know.
    fn common(&self) -> &CommonState;

    /// What records are sealed and opened with, from now on.
    fn into_keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error>;
}

macro_rules! side {
    ($connection:ty, $data:ty, $authorities:literal, $keys:path) => {
        impl TlsSide for $connection {
            type Data = $data;
            const AUTHORITIES: &str = $authorities;

            fn process<'c, 'i>(
                &'c mut self,
                incoming: &'i mut [u8],
            ) -> UnbufferedStatus<'c, 'i, Self::Data> {
                self.process_tls_records(incoming)
            }

            fn common(&self) -> &CommonState {
                self
            }

            fn into_keys(self) -> Result<(ExtractedSecrets, Keys), rustls::Error> {
                let (secrets, kernel) = self.dangerous_into_kernel_connection()?;
                Ok((secrets, $keys(kernel)))
            }
        }
    };
}

side!(
    UnbufferedClientConnection,
    ClientConnectionData,
    "tls_ca",
    Keys::Client
);
side!(
    UnbufferedServerConnection,
    ServerConnectionData,
    "tls_client_ca",
    Keys::Server
);

/// A handshake that is under way.
pub struct Handshake<S> {
    tls: S,
    /// To wait for.
    pub socket: Arc<OwnedFd>,
    bytes: HandshakeBytes,
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

/// What one look at the peer's bytes comes to.
enum HandshakeStep {
    Again,
    Read,
    Done,
}

impl Handshake<UnbufferedServerConnection> {
    /// A server's with a peer that has just been accepted.
    pub fn answer(config: Arc<ServerConfig>, socket: Arc<OwnedFd>) -> Result<Self, rustls::Error> {
        UnbufferedServerConnection::new(config).map(|tls| Self::new(tls, socket))
    }
}

impl Handshake<UnbufferedClientConnection> {
    /// A client's with a server whose certificate is for `name`.
    pub fn ask(config: Arc<ClientConfig>, name: &str, socket: Arc<OwnedFd>) -> Result<Self> {
        let server = ServerName::try_from(name.to_owned()).map_err(|_| {
            Error::invalid_argument(format!(
                "`{name}` cannot be the name in a certificate: it is a DNS name or an address"
            ))
        })?;
        let tls = UnbufferedClientConnection::new(config, server);
        Ok(Self::new(
            tls.map_err(|error| refusal::explain(&error))?,
            socket,
        ))
    }
}

impl<S: TlsSide> Handshake<S> {
    fn new(tls: S, socket: Arc<OwnedFd>) -> Self {
        Self {
            tls,
            socket,
            bytes: HandshakeBytes::default(),
        }
    }

    /// Goes on as far as that is possible without blocking.
    /// Errors: With a text that goes behind the peer's name. The peer was told as far as TLS has a
    /// word for it.
    pub fn turn(&mut self) -> Result<HandshakeProgress> {
        loop {
            let is_done = match self.step() {
                // All messages of a turn are written together, because each write would wake the
                // peer.
                Ok(HandshakeStep::Again) => continue,
                Ok(HandshakeStep::Read) => false,
                Ok(HandshakeStep::Done) => true,
                Err(error) => {
                    // The peer is told, if there is room. rustls must not see the same bytes again,
                    // and does not look at them while it has something to say.
                    while self.tls.common().wants_write() && self.step().is_ok() {}
                    let _ = self.write();
                    return Err(refusal::of_handshake(&error, S::AUTHORITIES));
                }
            };
            if !self.write()? {
                return Ok(HandshakeProgress::Writing);
            }
            if is_done {
                return Ok(HandshakeProgress::Done);
            }
            if !self.read()? {
                return Ok(HandshakeProgress::Reading);
            }
        }
    }

    fn step(&mut self) -> Result<HandshakeStep, rustls::Error> {
        let status = self.tls.process(&mut self.bytes.incoming);
        let mut discard = status.discard;
        let step = match status.state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => {
                encode(&mut self.bytes.outgoing, |room| data.encode(room))?;
                Ok(HandshakeStep::Again)
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                // Written before anything more is read.
                data.done();
                Ok(HandshakeStep::Again)
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    let record = record?;
                    self.bytes.early.extend_from_slice(record.payload);
                    discard += record.discard;
                }
                Ok(HandshakeStep::Again)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(HandshakeStep::Read),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(HandshakeStep::Done),
            // States that our configuration never asks for, or the peer has ended the connection.
            Ok(_) => Err(rustls::Error::HandshakeNotComplete),
            Err(error) => Err(error),
        };
        self.bytes
            .incoming
            .drain(..discard.min(self.bytes.incoming.len()));
        step
    }

    /// Returns whether all was written.
    fn write(&mut self) -> Result<bool> {
        while !self.bytes.outgoing.is_empty() {
            let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
            let send = || rustix::net::send(&self.socket, &self.bytes.outgoing, flags);
            match retry_on_intr(send) {
                Ok(sent) => drop(self.bytes.outgoing.drain(..sent)),
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(gone(errno)),
            }
        }
        Ok(true)
    }

    /// Returns whether something came.
    fn read(&mut self) -> Result<bool> {
        let len = self.bytes.incoming.len();
        if len >= MAX_INCOMING {
            return Err(Error::disconnected(format!(
                "sent {len} bytes that are no handshake of TLS"
            )));
        }
        self.bytes.incoming.resize(len + READ_BYTES, 0);
        let room = &mut self.bytes.incoming[len..];
        let read = retry_on_intr(|| rustix::io::read(&self.socket, &mut *room));
        self.bytes.incoming.truncate(len + read.unwrap_or(0));
        match read {
            Ok(0) => Err(Error::disconnected(
                "closed the connection before TLS was agreed on: does it speak TLS (tls://)?",
            )),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(gone(errno)),
        }
    }

    /// Whether a session was resumed, once that is known.
    pub fn kind(&self) -> Option<HandshakeKind> {
        self.tls.common().handshake_kind()
    }

    /// What the connection goes on with.
    /// Errors: The peer did not agree on our protocol. With a text that goes behind its name.
    pub fn finish(self, peer: &str) -> Result<Agreed> {
        let kind = self.kind();
        let common = self.tls.common();
        if let (Some(suite), Some(kind)) = (common.negotiated_cipher_suite(), kind) {
            tracing::debug!("TLS with {peer}: {:?}, {kind:?} handshake", suite.suite());
        }
        let speaks_ours = common.alpn_protocol() == Some(ALPN);
        let chain = common.peer_certificates().unwrap_or_default();
        let certificate = chain.first();
        let certificate = certificate
            .map(|der| PeerCertificate::from_der(der))
            .transpose()?;
        let keys = self.tls.into_keys();
        let (secrets, keys) = keys.map_err(|error| refusal::explain(&error))?;
        let mut records = Records::new(secrets, keys, self.bytes, peer)?;
        if !speaks_ours {
            records.refuse_protocol(&self.socket);
            return Err(Error::new(
                Status::Disconnected,
                "speaks TLS, but did not offer libdipc's protocol (ALPN `dipc/1`)",
            ));
        }
        Ok((records, certificate.map(Arc::new)))
    }
}

/// Appends what `encode` writes.
fn encode(
    outgoing: &mut Vec<u8>,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, EncodeError>,
) -> Result<(), rustls::Error> {
    let len = outgoing.len();
    loop {
        match encode(&mut outgoing[len..]) {
            Ok(written) => {
                outgoing.truncate(len + written);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(size)) => {
                outgoing.resize(len + size.required_size, 0);
            }
            Err(EncodeError::AlreadyEncoded) => {
                outgoing.truncate(len);
                return Ok(());
            }
        }
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
