//! Options of servers, as a builder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::provider::guarded;
use super::{Request, Server};
use crate::arrow::Compression;
use crate::arrow::decode::Level;
use crate::error::Result;
use crate::proto::Credit;
use crate::server::{self, Authorizer, ServerOptions, SharedAuthorizer};
use crate::transport::BodyPolicy;

/// Makes a [`Server`].
///
/// ```
/// use dipc::{Error, Server, Status};
///
/// let server = Server::builder()
///     .max_streams(256)
///     .authorizer(|request| match request.headers().get("authorization") {
///         Some(b"Bearer secret") => Ok(()),
///         _ => Err(Error::new(Status::Permission, "a token is missing or wrong")),
///     })
///     .build()?;
/// # let _ = server;
/// # Ok::<(), dipc::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ServerBuilder(ServerOptions);

impl ServerBuilder {
    /// Accepts clients of every user of this machine. Default: of this process's user only.
    pub fn any_user(mut self, any: bool) -> Self {
        self.0.link.access.any_user = any;
        self
    }

    /// Listens over `tcp` also where other machines can connect, without encryption or
    /// authentication. `tls` needs no such permission.
    pub fn allow_remote(mut self, allow: bool) -> Self {
        self.0.link.access.allow_remote = allow;
        self
    }

    /// Says that every process that can reach a listener of `ucx` may read and write this process's
    /// memory.
    pub fn trusted_network(mut self, trusted: bool) -> Self {
        self.0.link.access.trusted_network = trusted;
        self
    }

    /// The server's certificates, its own first, and its private key, as PEM files; for `tls`.
    pub fn tls(mut self, certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        let identity = Some((certificates.into(), key.into()));
        let tls = &mut self.0.link.tls;
        *tls = tls.with(|files| files.identity = identity);
        self
    }

    /// Asks clients for certificates of these authorities, as a PEM file.
    pub fn tls_client_ca(mut self, file: impl Into<PathBuf>) -> Self {
        let tls = &mut self.0.link.tls;
        *tls = tls.with(|files| files.ca = Some(file.into()));
        self
    }

    /// Decides about each request, before anything else is done for it. An error refuses the
    /// request; the client gets its status and text. Lists show a client only what it may get.
    /// Several threads may call it at once.
    pub fn authorizer(
        mut self,
        authorize: impl Fn(&Request<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.0.authorizer = Some(SharedAuthorizer(Arc::new(Deciding(authorize))));
        self
    }

    /// Most streams served at once; further requests are refused with `Busy`, and those with a
    /// deadline wait for a place. An eighth, 64 at most, is only for processes of the server's own
    /// user, over shm. Default: 64.
    pub fn max_streams(mut self, count: usize) -> Self {
        self.0.max_streams = count;
        self
    }

    /// Most streams of one machine, or of one other user. Default: half of
    /// [`max_streams`](Self::max_streams).
    pub fn max_streams_per_peer(mut self, count: usize) -> Self {
        self.0.max_streams_per_peer = Some(count);
        self
    }

    /// Most streams that one connection carries at once, of clients that have many on one. Default:
    /// [`max_streams`](Self::max_streams). With 1, each stream has a connection.
    pub fn max_streams_per_connection(mut self, count: u32) -> Self {
        self.0.max_streams_per_connection = Some(count.max(1));
        self
    }

    /// Most streams with providers, also of clients that have gone. Default: `max_streams` and 64
    /// more.
    pub fn max_providers(mut self, count: usize) -> Self {
        self.0.max_providers = Some(count);
        self
    }

    /// Most connections. Default: as many as take half of the files that the process may open. One
    /// over shm takes two, one over tcp one for each socket.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.0.max_connections = Some(count);
        self
    }

    /// Most connections of one machine, or of one other user. Default: half of
    /// [`max_connections`](Self::max_connections).
    pub fn max_connections_per_peer(mut self, count: usize) -> Self {
        self.0.max_connections_per_peer = Some(count);
        self
    }

    /// Most bytes of copies for clients, over all connections. Beyond it bodies travel as bytes.
    /// Default: 16 GiB.
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.0.max_bytes = bytes;
        self
    }

    /// How long a stream may wait for its client while other requests find no place. Default:
    /// 30 s. `None`: for ever.
    pub fn credit_timeout(mut self, limit: Option<Duration>) -> Self {
        self.0.credit_timeout = limit;
        self
    }

    /// How long a connection's first request may take to come. Default: 30 s. `None`: for ever.
    pub fn request_timeout(mut self, limit: Option<Duration>) -> Self {
        self.0.request_timeout = limit;
        self
    }

    /// How long a connection without a stream is kept, up to twice this time. Default: 10 minutes.
    /// `None`: for ever.
    pub fn idle_timeout(mut self, limit: Option<Duration>) -> Self {
        self.0.idle_timeout = limit;
        self
    }

    /// How long a client may take for a handshake.
    pub fn handshake_timeout(mut self, limit: Duration) -> Self {
        self.0.link.receiving.handshake_timeout = limit;
        self
    }

    /// How many batches, and how many bytes of bodies, a client that puts may send before they are
    /// read. Default: 16 batches and 256 MiB.
    pub fn put_window(mut self, batches: u64, bytes: u64) -> Self {
        self.0.take.window = Credit { batches, bytes };
        self
    }

    /// What is checked of tables that clients put. Default: [`Level::Structure`] for a client of
    /// the same user, [`Level::Full`] for others. See [soundness](crate#soundness).
    pub fn put_validation(mut self, level: Level) -> Self {
        self.0.take.level = Some(level);
        self
    }

    /// Most bytes that one message of a client that puts may take here beside its body. Default: as
    /// [`GetOptions::message_limit`](super::GetOptions::message_limit).
    pub fn put_message_limit(mut self, bytes: u64) -> Self {
        self.0.take.message_limit = Some(bytes);
        self
    }

    /// How long a client that puts may be silent while the host waits for it. Default: for ever.
    pub fn put_stall_timeout(mut self, limit: Duration) -> Self {
        self.0.take.stall_timeout = Some(limit);
        self
    }

    /// How bodies travel. Default: lent where that is possible and worth it.
    pub fn body(mut self, body: BodyPolicy) -> Self {
        self.0.body = body;
        self
    }

    /// Compresses bodies, which then travel as bytes.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.0.compression = Some(compression);
        self
    }

    /// How long the I/O thread spins before it sleeps. Default: not at all.
    pub fn spin(mut self, time: Duration) -> Self {
        self.0.spin = time;
        self
    }

    /// A setting of one transport, as `tcp.keepalive`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the setting is unknown.
    pub fn setting(mut self, name: &str, value: &str) -> Result<Self> {
        self.0.link.settings.set(name, value)?;
        Ok(self)
    }

    /// The server, without listeners and tables.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn build(self) -> Result<Server> {
        server::ServerHandle::new(self.0).map(|server| Server(Arc::new(server)))
    }
}

/// A closure as an authorizer.
struct Deciding<F>(F);

impl<F> Authorizer for Deciding<F>
where
    F: Fn(&Request<'_>) -> Result<()> + Send + Sync + 'static,
{
    fn authorize(&self, request: &server::ServerRequest) -> Result<()> {
        guarded(|| (self.0)(&Request(request)))
    }
}
