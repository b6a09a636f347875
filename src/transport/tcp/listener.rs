//! Listening, on the loopback interface unless told otherwise.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::AddressFamily;

use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{Role, Uri};
use crate::transport::address::Address;
use crate::transport::connection::ConnectionEnd;
use crate::transport::listening::{accept, bind, given};
use crate::transport::patience::Patience;
use crate::transport::tcp::connection::{JoinTarget, TcpConnection};
use crate::transport::tcp::group::Groups;
use crate::transport::tcp::scheme::Tcp;
use crate::transport::tcp::socket::{set_up, spare_pacing};
#[cfg(feature = "tls")]
use crate::transport::tcp::tls::handshakes::Handshakes;
use crate::transport::tcp::watched::{Connected, WatchedSocket};
use crate::transport::{Connection, LinkOptions, Listener, MemoryBudget, Trust, Watched};

/// [`Listener`] over TCP.
pub struct TcpListener {
    socket: OwnedFd,
    groups: Arc<Groups>,
    /// At a listener of tls: the sockets whose handshake is under way.
    #[cfg(feature = "tls")]
    handshakes: Option<Handshakes>,
    /// Readable when the socket is readable, or when the groups or the handshakes have something to
    /// do.
    epoll: Arc<OwnedFd>,
    /// The URI without its query.
    address: String,
    unexpected_bytes: u64,
    partial: Arc<MemoryBudget>,
    patience: Patience,
    generation: Generation,
    /// A connection that the system had no room for, until [`refused`](Listener::refused) takes it.
    refused: Option<(Box<dyn Connection>, Error)>,
}

impl TcpListener {
    /// Starts to listen at the first of the host's addresses that allows it.
    /// Errors: `Permission` if other machines could connect, nothing is encrypted, and the options
    /// do not allow it; `AddressInUse`; `Unreachable` if the address is not one of this machine's;
    /// `Io`; for tls, errors of its files.
    pub fn new(address: &Address, trust: Trust, options: &LinkOptions) -> Result<Self> {
        let candidates = address.resolve_now(options.connect.time())?;
        let mut bound = Err(address.nobody());
        for candidate in &candidates {
            bound = ensure_allowed(address, candidate, trust, options)
                .and_then(|()| bind(address, candidate));
            if bound.is_ok() {
                break;
            }
        }
        let (socket, port) = bound?;
        Self::listening(socket, &address.with_port(port), trust, options)
    }

    /// Takes over a socket that listens already.
    /// Errors: `InvalidArgument` if it does not listen; `Permission`, `Io` and for tls as
    /// [`Self::new`].
    pub fn by(socket: OwnedFd, transport: Tcp, options: &LinkOptions) -> Result<Self> {
        let families = [AddressFamily::INET, AddressFamily::INET6];
        let socket = given(socket, &families, transport.scheme)?;
        let found = rustix::net::getsockname(&socket)
            .and_then(SocketAddr::try_from)
            .map_err(|errno| Error::os("cannot ask where a socket listens", errno))?;
        let address = Address::of(&Uri::new(transport.scheme, &found.to_string(), Role::Both))?;
        ensure_allowed(&address, &found, transport.trust, options)?;
        Self::listening(socket, &address, transport.trust, options)
    }

    fn listening(
        socket: OwnedFd,
        address: &Address,
        trust: Trust,
        options: &LinkOptions,
    ) -> Result<Self> {
        let failed = |errno| Error::os(format_args!("cannot listen at {address}"), errno);
        let groups = Groups::new(options.receiving.handshake_time())?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(failed)?;
        let data = EventData::new_u64(0);
        epoll::add(&epoll, &socket, data, EventFlags::IN).map_err(failed)?;
        epoll::add(&epoll, &groups.timer, data, EventFlags::IN).map_err(failed)?;
        let receiving = &options.receiving;
        #[cfg(not(feature = "tls"))]
        let _ = trust;
        #[cfg(feature = "tls")]
        let handshakes = match trust.is_encrypted {
            true => Some(Handshakes::new(&options.tls, receiving.handshake_time())?),
            false => None,
        };
        #[cfg(feature = "tls")]
        if let Some(handshakes) = &handshakes {
            epoll::add(&epoll, &handshakes.epoll, data, EventFlags::IN).map_err(failed)?;
        }
        Ok(Self {
            socket,
            groups: Arc::new(groups),
            #[cfg(feature = "tls")]
            handshakes,
            epoll: Arc::new(epoll),
            address: address.to_string(),
            unexpected_bytes: receiving.unexpected_bytes,
            partial: Arc::clone(&receiving.partial),
            patience: Patience::of(&options.settings, "tcp")?,
            generation: Generation::now(),
            refused: None,
        })
    }

    /// The next peer that waits. With TLS, a peer is returned only after its handshake.
    fn next_peer(&mut self) -> Result<Option<Connected>> {
        #[cfg(feature = "tls")]
        if let Some(handshakes) = &mut self.handshakes
            && let Some(secured) = handshakes.next()?
        {
            return Ok(Some(secured));
        }
        let Some(socket) = accept(&self.socket, &self.address)? else {
            return Ok(None);
        };
        set_up(&socket, ConnectionEnd::Server, self.patience)?;
        let peer = rustix::net::getpeername(&socket)
            .and_then(|peer| peer.map_or(Err(Errno::NOTCONN), SocketAddr::try_from))
            .map_err(|errno| Error::os("a peer has gone before it was accepted", errno))?;
        spare_pacing(&socket, &peer);
        #[cfg(feature = "tls")]
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.begin(socket, peer)?;
            return Ok(None);
        }
        Ok(Some(Connected::plainly(Arc::new(socket), peer)))
    }

    fn take(&self, connected: Connected) -> Box<dyn Connection> {
        let joins = JoinTarget {
            groups: Arc::downgrade(&self.groups),
            from: connected.peer.ip(),
        };
        let mut socket = WatchedSocket::new(connected, self.unexpected_bytes, self.patience);
        socket.channel.reader.expect_requests(&self.partial);
        Box::new(TcpConnection::new(socket, Some(joins)))
    }
}

impl Listener for TcpListener {
    fn fd(&self) -> Arc<dyn Watched> {
        Arc::clone(&self.epoll) as _
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    fn refused(&mut self) -> Option<(Box<dyn Connection>, Error)> {
        self.refused.take()
    }

    fn accept(&mut self) -> Result<Option<Box<dyn Connection>>> {
        self.generation.ensure_same_process()?;
        self.refused = None;
        let Some(sockets) = self.groups.next() else {
            let peer = self.next_peer()?;
            return Ok(peer.map(|connected| self.take(connected)));
        };
        match TcpConnection::joined(sockets) {
            Ok(joined) => Ok(Some(Box::new(joined))),
            Err((error, sockets)) => {
                // The request comes on the first socket.
                self.refused = sockets.into_iter().next().map(|socket| {
                    let first: Box<dyn Connection> = Box::new(TcpConnection::new(socket, None));
                    (first, error.clone())
                });
                Err(error)
            }
        }
    }
}

/// Refuses an address that other machines can reach, if nothing is encrypted.
fn ensure_allowed(
    address: &Address,
    candidate: &SocketAddr,
    trust: Trust,
    options: &LinkOptions,
) -> Result<()> {
    if trust.is_private(Some(candidate)) || options.access.allow_remote {
        return Ok(());
    }
    let text = format!(
        "other machines could connect to {address} ({candidate}), and tcp neither encrypts nor \
         asks who they are; listen by tls:// (--tls-cert, --tls-key), at 127.0.0.1 or [::1], or \
         allow it (allow_remote, --allow-remote) where the network is trusted"
    );
    Err(Error::new(Status::Permission, text))
}
