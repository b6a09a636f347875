//! Where a server listens, its certificates, and the other servers to which it sends clients while
//! it drains.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use rustix::io::Errno;

use super::core::Listening;
use super::handle::ServerHandle;
use crate::driver::acceptor::Acceptor;
use crate::error::{Error, Result};
use crate::proto::{Role, RoleTags, Tags, Uri};
use crate::transport::{self, TlsOptions};

/// Most URIs that a draining server can name, and most bytes of one URI. Clients read no more.
const MOST_URIS: usize = 16;
const MOST_URI_BYTES: usize = 1024;

impl ServerHandle {
    /// Listens at `uri` (`shm:/path`, `shm:@name`, `tls://host:port`, `tcp://host:port`,
    /// `ucx://host:port`) and returns the URI to give to clients.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` scheme, `AddressInUse`, `Permission`, `Stopped`; for tls,
    /// `InvalidArgument` and other errors if its files are not given or cannot be used.
    pub fn listen(&self, uri: &str) -> Result<String> {
        self.core.ensure_running()?;
        let uri = Uri::parse(uri)?;
        let transport = transport::by_scheme(&uri.scheme)?;
        let listener = transport.listen(&uri, &self.core.link_options)?;
        self.listen_with(uri, listener)
    }

    /// The same, by a socket of a service manager or of the host's that listens already: a Unix
    /// stream socket for the scheme `shm`, a TCP socket for `tcp` and `tls`. The server makes its
    /// own descriptor for it. It neither shuts the socket down nor removes it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if it is not such a socket, `Unsupported` for another scheme;
    /// `Permission`, `Stopped` and the errors of tls as for [`listen`](Self::listen).
    pub fn listen_fd(&self, scheme: &str, socket: BorrowedFd<'_>) -> Result<String> {
        self.core.ensure_running()?;
        let transport = transport::by_scheme(scheme)?;
        let own = rustix::io::fcntl_dupfd_cloexec(socket, 3).map_err(|errno| match errno {
            Errno::BADF => Error::invalid_argument("the descriptor is not open"),
            _ => Error::os("cannot take a descriptor", errno),
        })?;
        let listener = transport.listen_by(own, &self.core.link_options)?;
        let uri = Uri::parse(&listener.address())?;
        self.listen_with(uri, listener)
    }

    fn listen_with(&self, mut uri: Uri, listener: Box<dyn transport::Listener>) -> Result<String> {
        uri.address = Uri::parse(&listener.address())?.address;
        uri.extension = true;
        // Rule U2: without this tag the server cannot lend.
        uri.tags
            .free_data
            .get_or_insert(Tags::DEFAULT.free_data.unwrap_or_default());
        listener.complete(&mut uri);
        // The URI's tags are for both streams on one connection. Each single role has its default
        // tags.
        let tags = RoleTags::DEFAULT.with(Role::Both, uri.tags);
        tags.validate()?;
        let me = Weak::clone(&self.core.me);
        let acceptor = Acceptor::start(
            listener,
            &self.core.io,
            tags,
            Box::new(move |connection| match me.upgrade() {
                Some(core) => core.accepted(connection, tags),
                None => Ok(()),
            }),
        )?;
        let text = uri.to_string();
        tracing::info!("a server listens at {text}");
        self.core.listeners.lock().push(Listening { acceptor, uri });
        Ok(text)
    }

    /// Reads the certificates again. New connections use them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` and other errors if a file cannot be used: the server then keeps the
    /// certificates that it had. `Stopped`.
    pub fn reload_tls(&self) -> Result<()> {
        self.core.ensure_running()?;
        self.core.link_options.tls.reload()
    }

    /// The certificates, which [`reload_tls`](Self::reload_tls) reads again.
    pub fn tls(&self) -> Arc<TlsOptions> {
        Arc::clone(&self.core.link_options.tls)
    }

    /// The URI of the first listener, for one role (rule U3).
    pub fn location(&self, role: Role) -> Option<String> {
        self.locations(role).into_iter().next()
    }

    /// The URIs of all listeners, oldest first, for one role.
    pub fn locations(&self, role: Role) -> Vec<String> {
        let listeners = self.core.listeners.lock();
        let of_role = |listening: &Listening| {
            let mut uri = listening.uri.clone();
            if role != Role::Both {
                uri.role = Some(role);
                let free_data = uri.tags.free_data;
                uri.tags = Tags::default_for(role);
                // Rule U2: each role's URI names free_data, or no role's.
                uri.tags.free_data = uri.tags.free_data.filter(|_| free_data.is_some());
            }
            uri.to_string()
        };
        listeners.iter().map(of_role).collect()
    }

    /// Refuses new requests from now on with `Busy`. Streams under way go on. The server still
    /// listens, so that clients learn where else they may ask: at `elsewhere`, best first.
    /// [`stop`](Self::stop) ends what is left. A later call replaces the URIs.
    ///
    /// Everyone who can connect is told the URIs.
    ///
    /// # Errors
    ///
    /// `InvalidUri`; `InvalidArgument` for more than 16 URIs, or one of more than 1024 bytes;
    /// `Stopped`.
    pub fn drain(&self, elsewhere: &[&str]) -> Result<()> {
        self.core.ensure_running()?;
        if elsewhere.len() > MOST_URIS {
            let text = format!("a server that drains names at most {MOST_URIS} other servers");
            return Err(Error::invalid_argument(text));
        }
        for uri in elsewhere {
            if uri.len() > MOST_URI_BYTES {
                let text =
                    format!("the URI of another server has more than {MOST_URI_BYTES} bytes");
                return Err(Error::invalid_argument(text));
            }
            Uri::parse_all(&[uri])?;
        }
        tracing::info!("a server drains; {} others are named", elsewhere.len());
        let elsewhere = elsewhere.iter().map(|uri| (*uri).to_owned());
        self.core.draining.begin(elsewhere.collect());
        Ok(())
    }

    /// Whether the server accepts requests: it listens, and neither drains nor was stopped.
    pub fn is_ready(&self) -> bool {
        self.core.ensure_running().is_ok()
            && !self.core.draining.is_on()
            && !self.core.listeners.lock().is_empty()
    }
}
