//! The other side of requests.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::provider::Provided;
use super::{Batches, Description, Provider, ServerBuilder};
use crate::arrow::batches::batch_to_c;
use crate::arrow::columns::ensure_columns;
use crate::arrow::stream::into_reader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema, schema_to_c};
use crate::error::Result;
use crate::proto::Role;
use crate::server::{self, ServerStats};

/// Serves tables to clients of this machine and of others.
///
/// Clones are the same server. The drop of the last one ends every stream; batches that clients
/// hold stay valid. A provider that holds a clone of its own server keeps the server alive until
/// its ticket is withdrawn.
///
/// ```
/// use std::sync::{Arc, Weak};
/// use arrow::array::{ArrayRef, Int64Array, RecordBatch};
///
/// let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
/// let batch = RecordBatch::try_from_iter([("n", column)])?;
///
/// let server = dipc::Server::new()?;
/// server.publish("numbers", &batch.schema(), [batch.clone()])?;
/// let uri = server.listen("shm:@dipc-doc-server")?;
///
/// let client = dipc::Client::new()?;
/// let batches: Vec<_> = client.get(&uri, "numbers")?.collect::<Result<_, _>>()?;
/// assert_eq!(batches, [batch]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Server(pub(super) Arc<server::ServerHandle>);

impl Server {
    /// A server with the default options.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// A server with other options.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Listens at `uri` and returns the URI to give to clients: `shm:/path`, `shm:@name`,
    /// `tcp://host:port`, `tls://host:port` or `ucx://host:port`. Port 0 takes a free one.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` scheme, `AddressInUse`, `Permission` if the options do not allow
    /// the address, `Stopped`; for tls, `InvalidArgument` and the like if its files cannot be used.
    pub fn listen(&self, uri: &str) -> Result<String> {
        self.0.listen(uri)
    }

    /// [`listen`](Self::listen) on a socket that listens already, such as one from a service
    /// manager: a Unix stream socket for the scheme `shm`, a TCP socket for `tcp` and `tls`.
    ///
    /// # Errors
    ///
    /// As [`listen`](Self::listen); `InvalidArgument` if `socket` is no such socket.
    pub fn listen_fd(&self, scheme: &str, socket: BorrowedFd<'_>) -> Result<String> {
        self.0.listen_fd(scheme, socket)
    }

    /// The URIs of all listeners, oldest first.
    pub fn uris(&self) -> Vec<String> {
        self.uris_of(Role::Both)
    }

    /// The URIs of all listeners for one role, oldest first: a client that knows nothing of
    /// libdipc reads metadata and bodies on two connections.
    pub fn uris_of(&self, role: Role) -> Vec<String> {
        self.0.locations(role)
    }

    /// Publishes a table that clients can get any number of times. The buffers are shared, not
    /// copied; on shm, those of an [`Arena`](crate::Arena) are lent where they lie.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the ticket is served already, `InvalidData` for batches of other columns
    /// or a table that cannot be sent, `InvalidArgument` for a ticket that is too long, `Stopped`.
    pub fn publish(
        &self,
        ticket: impl AsRef<[u8]>,
        schema: &SchemaRef,
        batches: impl IntoIterator<Item = RecordBatch>,
    ) -> Result<()> {
        let (schema, arrays) = table(schema, batches)?;
        let published = self.0.publish(ticket.as_ref(), schema, arrays);
        published.map_err(|(error, _)| error)
    }

    /// [`publish`](Self::publish), replacing what `ticket` stands for, if anything. Streams under
    /// way go on with the earlier table.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), except `AlreadyExists`.
    pub fn replace(
        &self,
        ticket: impl AsRef<[u8]>,
        schema: &SchemaRef,
        batches: impl IntoIterator<Item = RecordBatch>,
    ) -> Result<()> {
        let (schema, arrays) = table(schema, batches)?;
        let replaced = self.0.replace(ticket.as_ref(), schema, arrays);
        replaced.map_err(|(error, _)| error)
    }

    /// Reads a table to its end, and publishes it where it lies: on the host or on a GPU. Returns
    /// the number of batches.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), and the errors of the table's own source.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    ///
    /// let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    /// let batch = RecordBatch::try_from_iter([("n", column)])?;
    /// let table = dipc::Batches::of(batch.schema(), [batch]);
    ///
    /// let server = dipc::Server::new()?;
    /// let arena = dipc::Arena::host()?;
    /// assert_eq!(server.load("numbers", table.moved_into(&arena)?)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load(&self, ticket: impl AsRef<[u8]>, table: impl Into<Batches>) -> Result<usize> {
        let mut reader = into_reader(table.into().export());
        let schema = reader.schema()?;
        let mut arrays = Vec::new();
        while let Some(array) = reader.next()? {
            arrays.push(array);
        }
        let count = arrays.len();
        let published = self.0.publish(ticket.as_ref(), schema, arrays);
        published.map_err(|(error, _)| error).map(|()| count)
    }

    /// Serves `ticket` by calling `provider` for each get.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the ticket is served already, `InvalidArgument` if it is too long,
    /// `Stopped`.
    ///
    /// ```
    /// use std::sync::{Arc, Weak};
    /// use arrow::array::{Int64Array, RecordBatch};
    /// use arrow::datatypes::{DataType, Field, Schema};
    /// use dipc::{Batches, Request, Server};
    ///
    /// let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    /// let server = Server::new()?;
    /// server.serve("counter", move |_: &Request<'_>| {
    ///     let each = Arc::clone(&schema);
    ///     let batches = (0..4).map(move |n| {
    ///         RecordBatch::try_new(Arc::clone(&each), vec![Arc::new(Int64Array::from(vec![n]))])
    ///     });
    ///     Ok(Batches::new(Arc::clone(&schema), batches))
    /// })?;
    /// let uri = server.listen("shm:@dipc-doc-serve")?;
    /// assert_eq!(dipc::Client::new()?.get(uri, "counter")?.count(), 4);
    /// # Ok::<(), dipc::Error>(())
    /// ```
    pub fn serve(&self, ticket: impl AsRef<[u8]>, provider: impl Provider) -> Result<()> {
        let served = (self.0).serve(ticket.as_ref(), Box::new(Provided(provider)));
        served.map_err(|(error, _)| error)
    }

    /// From now on `provider` answers every request for a ticket that nothing else serves: gets,
    /// puts, exchanges, describes and lists. Replaces an earlier handler.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn handler(&self, provider: impl Provider) -> Result<()> {
        let set = self.0.set_handler(Box::new(Provided(provider)));
        set.map_err(|(error, _)| error)
    }

    /// Removes the handler: only the server's own tickets are served from now on.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn clear_handler(&self) -> Result<()> {
        self.0.clear_handler()
    }

    /// From now on `middleware` answers every get, put and exchange that has the header `header`,
    /// in place of the ticket. It may pass a request on, by `forward_get`, `forward_put` and
    /// `forward_exchange` of [`Request`](crate::Request). Replaces an earlier middleware.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no header can have this key. `Stopped`.
    pub fn middleware(&self, header: &str, middleware: impl Provider) -> Result<()> {
        let set = (self.0).set_middleware(header, Box::new(Provided(middleware)));
        set.map_err(|(error, _)| error)
    }

    /// Removes the middleware: tickets answer every request again.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn clear_middleware(&self) -> Result<()> {
        self.0.clear_middleware()
    }

    /// Sets the answer to clients that ask what a ticket stands for. The server itself knows only
    /// published tables.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Stopped`.
    pub fn set_description(
        &self,
        ticket: impl AsRef<[u8]>,
        description: Description,
    ) -> Result<()> {
        (self.0).set_description(ticket.as_ref(), description.inner)
    }

    /// Stops serving `ticket`. Running streams go on.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn withdraw(&self, ticket: impl AsRef<[u8]>) -> Result<()> {
        self.0.withdraw(ticket.as_ref())
    }

    /// The tickets served now, in byte order.
    pub fn tickets(&self) -> Vec<Vec<u8>> {
        self.0.tickets()
    }

    /// Reads the certificates again. New connections use them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` and the like when a file cannot be used: the server goes on with the
    /// earlier ones. `Stopped`.
    pub fn reload_tls(&self) -> Result<()> {
        self.0.reload_tls()
    }

    /// Figures of the server.
    pub fn stats(&self) -> ServerStats {
        self.0.stats()
    }

    /// The figures in Prometheus' text format, version 0.0.4.
    pub fn stats_text(&self) -> String {
        self.0.stats_text()
    }

    /// Whether the server takes requests: it listens, and neither drains nor was stopped.
    pub fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    /// A reference that does not keep the server alive, for example for one of its own providers.
    pub fn downgrade(&self) -> WeakServer {
        WeakServer(Arc::downgrade(&self.0))
    }

    /// Refuses new requests with `Busy` from now on, and tells their clients to ask at
    /// `elsewhere`. Streams under way go on.
    ///
    /// # Errors
    ///
    /// `InvalidUri` of `elsewhere`, `Stopped`.
    pub fn drain(&self, elsewhere: &[&str]) -> Result<()> {
        self.0.drain(elsewhere)
    }

    /// Stops the server: refuses new connections and streams, gives running streams `deadline` from
    /// now to end, then cuts them. Batches that clients hold stay valid.
    ///
    /// # Errors
    ///
    /// `Timeout` if a provider still did not return after the cut.
    pub fn stop(&self, deadline: Duration) -> Result<()> {
        self.0.stop(deadline)
    }
}

/// A reference to a [`Server`] that does not keep it alive.
#[derive(Clone)]
pub struct WeakServer(Weak<server::ServerHandle>);

impl WeakServer {
    /// The server; `None`: it is gone.
    pub fn upgrade(&self) -> Option<Server> {
        self.0.upgrade().map(Server)
    }
}

impl std::fmt::Debug for WeakServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WeakServer")
    }
}

/// A table as the core takes it.
fn table(
    schema: &SchemaRef,
    batches: impl IntoIterator<Item = RecordBatch>,
) -> Result<(OwnedSchema, Vec<OwnedDeviceArray>)> {
    let arrays = (batches.into_iter())
        .map(|batch| ensure_columns(schema, &batch).map(|()| batch_to_c(batch)))
        .collect::<Result<_>>()?;
    Ok((schema_to_c(schema)?, arrays))
}

opaque_debug! { Server, |it| uris = it.uris() }
