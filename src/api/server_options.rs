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

setters! { ServerBuilder
    /// Accepts clients of every user of this machine. Default: of this process's user only.
    any_user(any: bool) => 0.link.access.any_user = any;

    /// Listens over `tcp` also where other machines can connect, without encryption or
    /// authentication. `tls` needs no such permission.
    allow_remote(allow: bool) => 0.link.access.allow_remote = allow;

    /// Says that every process that can reach a listener of `ucx` may read and write this process's
    /// memory.
    trusted_network(trusted: bool) => 0.link.access.trusted_network = trusted;

    /// Most streams served at once; further requests are refused with `Busy`, and those with a
    /// deadline wait for a place. An eighth, 64 at most, is only for processes of the server's own
    /// user, over shm. Default: 64.
    max_streams(count: usize) => 0.max_streams = count;

    /// Most streams of one machine, or of one other user. Default: half of
    /// [`max_streams`](Self::max_streams).
    max_streams_per_peer(count: usize) => 0.max_streams_per_peer = Some(count);

    /// Most streams that one connection carries at once, if the client can have many streams on one
    /// connection. Default: [`max_streams`](Self::max_streams). With 1, each stream has its own
    /// connection.
    max_streams_per_connection(count: u32) => 0.max_streams_per_connection = Some(count.max(1));

    /// Most streams with providers, also of clients that have gone. Default: `max_streams` and 64
    /// more.
    max_providers(count: usize) => 0.max_providers = Some(count);

    /// Most connections. Default: as many as need half of the files that the process may open. A
    /// connection over shm needs two files, and one over tcp needs one for each of its sockets.
    max_connections(count: usize) => 0.max_connections = Some(count);

    /// Most connections of one machine, or of one other user. Default: half of
    /// [`max_connections`](Self::max_connections).
    max_connections_per_peer(count: usize) => 0.max_connections_per_peer = Some(count);

    /// Most bytes of copies for clients, over all connections. Beyond this limit bodies travel as
    /// bytes. Default: 16 GiB.
    max_bytes(bytes: u64) => 0.max_bytes = bytes;

    /// How long a stream may wait for its client while other requests find no place for their
    /// streams. Default: 30 s. `None`: for ever.
    credit_timeout(limit: Option<Duration>) => 0.credit_timeout = limit;

    /// How long a connection's first request may take to come. Default: 30 s. `None`: for ever.
    request_timeout(limit: Option<Duration>) => 0.request_timeout = limit;

    /// How long a connection without a stream is kept, up to twice this time. Default: 10 minutes.
    /// `None`: for ever.
    idle_timeout(limit: Option<Duration>) => 0.idle_timeout = limit;

    /// How long a client may take for a handshake.
    handshake_timeout(limit: Duration) => 0.link.receiving.handshake_timeout = limit;

    /// How many batches, and how many bytes of bodies, a client that puts may send before they are
    /// read. Default: 16 batches and 256 MiB.
    put_window(batches: u64, bytes: u64) => 0.take.window = Credit { batches, bytes };

    /// How thoroughly tables that clients put are checked. Default: [`Level::Structure`] for a
    /// client of the same user, [`Level::Full`] for others. See [soundness](crate#soundness).
    put_validation(level: Level) => 0.take.level = Some(level);

    /// Most memory of this process that one message of a put may take in addition to its body.
    /// Default: as for [`GetOptions::message_limit`](super::GetOptions::message_limit).
    put_message_limit(bytes: u64) => 0.take.message_limit = Some(bytes);

    /// How long a client that puts may be silent while the host waits for it. Default: for ever.
    put_stall_timeout(limit: Duration) => 0.take.stall_timeout = Some(limit);

    /// How bodies travel. Default: lent if that is possible and faster.
    body(body: BodyPolicy) => 0.body = body;

    /// Compresses bodies, which then travel as bytes.
    compression(compression: Compression) => 0.compression = Some(compression);

    /// How long a thread of the server spins before it sleeps. Default: zero, which means at most
    /// 50 microseconds, and only while spinning has lately found work.
    spin(time: Duration) => 0.spin = time;
}

impl ServerBuilder {
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

    /// A setting of one transport, such as `tcp.keepalive`.
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
