//! Requests.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::options::{GetOptions, PutOptions};
use super::{Batches, Description, Endpoint, Put, Reader, Uris};
use crate::arrow::batches::schema_from_c;
use crate::arrow::stream::{ArrayReader as _, DeviceStreamReader};
use crate::arrow::{description, schema_to_c};
use crate::client::{self, ClientOptions, ClientStats};
use crate::device::DeviceKind;
use crate::error::Result;

/// Asks servers for tables, and sends them tables.
///
/// Clones share the idle connections, which later streams use again. Any thread may call a client.
/// Readers and batches stay valid without the client.
///
/// ```no_run
/// let client = dipc::Client::new()?;
/// for batch in client.get("shm:@prices", "today")? {
///     println!("{} rows", batch?.num_rows());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Client(pub(super) Arc<client::Client>);

/// Makes a [`Client`].
///
/// ```
/// let client = dipc::Client::builder()
///     .max_idle(2)
///     .setting("tcp.keepalive", "30")?
///     .build()?;
/// # let _ = client;
/// # Ok::<(), dipc::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct ClientBuilder(ClientOptions);

setters! { ClientBuilder
    /// Accepts servers of every user of this machine. Default: of this process's user only.
    any_user(any: bool) => 0.any_user = any;

    /// How long an idle connection is kept for later streams. Default: a minute.
    idle_timeout(limit: Duration) => 0.idle_timeout = limit;

    /// How many idle connections are kept for each server. Default: 8.
    max_idle(count: usize) => 0.max_idle = count;

    /// The most connections to one server, if it takes many streams on one connection; 0: each
    /// stream has its own connection. One connection is reserved for streams that share it. A
    /// reader that a thread waits for has its own connection, until the number is reached;
    /// asynchronous streams and parts of a table share from the start. Default: 16.
    connections(count: usize) => 0.connections = (count > 0).then_some(count);
}

impl ClientBuilder {
    /// The authorities, as a PEM file, whose certificates a server may have. Default: the system's.
    pub fn tls_ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.0.tls = self.0.tls.with(|files| files.ca = Some(file.into()));
        self
    }

    /// This client's certificates and its private key, as PEM files, for servers that ask for them.
    pub fn tls_identity(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let identity = Some((certificates.into(), key.into()));
        self.0.tls = self.0.tls.with(|files| files.identity = identity);
        self
    }

    /// The name that a server's certificate must have. Default: the host of the URI.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        let name = Some(name.into());
        self.0.tls = self.0.tls.with(|files| files.server_name = name);
        self
    }

    /// Reads the files of TLS now, for this client and for the clients of later clones of this
    /// builder; these clients can resume each other's TLS sessions. Without this call, the first
    /// connection reads the files.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `NotFound` and the like when a file cannot be used; `Unsupported` in a
    /// build without TLS.
    pub fn read_tls(self) -> Result<Self> {
        #[cfg(feature = "tls")]
        return self.0.tls.read_client().map(|()| self);
        #[cfg(not(feature = "tls"))]
        Err(crate::error::Error::unsupported("this build has no TLS"))
    }

    /// A setting of one transport, such as `ucx.TLS`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the setting is unknown.
    pub fn setting(mut self, name: &str, value: &str) -> Result<Self> {
        self.0.settings.set(name, value)?;
        Ok(self)
    }

    /// The client.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn build(self) -> Result<Client> {
        client::Client::new(self.0).map(|client| Client(Arc::new(client)))
    }
}

impl Client {
    /// A client with the default options.
    ///
    /// # Errors
    ///
    /// As [`ClientBuilder::build`].
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// A client with other options.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Asks for the table of `ticket`, and waits for its schema.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported`, `Unreachable`, `Permission`, `Timeout`, `NotFound` for an
    /// unknown ticket, `Busy`, and the errors of the server's host.
    pub fn get(&self, uris: impl Into<Uris>, ticket: impl AsRef<[u8]>) -> Result<Reader> {
        self.get_with(uris, ticket, &GetOptions::default())
    }

    /// [`get`](Self::get) with options.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Cancelled` by the token.
    pub fn get_with(
        &self,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Reader> {
        let (uris, token) = (uris.into(), options.cancel.as_ref());
        let stream = (self.0).get(&uris.texts(), ticket.as_ref(), &options.inner, token)?;
        Reader::new(stream)
    }

    /// Asks for a table in parts, on one server or several: describes it, then reads its endpoints,
    /// several at once. The batches come in any order, unless the description says that the order
    /// matters.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get) and [`describe`](Self::describe); `InvalidData` for parts with
    /// different columns.
    pub fn get_parts(
        &self,
        uris: impl Into<Uris>,
        ticket: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Reader> {
        let (uris, token) = (uris.into(), options.cancel.as_ref());
        let parts = (self.0).get_parts(&uris.texts(), ticket.as_ref(), &options.inner, token)?;
        Reader::of_parts(parts)
    }

    /// Sends all batches, and waits until the server's host has taken them. Returns how many
    /// batches it has taken.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Unsupported` if the server takes no tables; the errors of the
    /// batches' own source.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use arrow::array::{ArrayRef, Int64Array, RecordBatch};
    ///
    /// let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    /// let batch = RecordBatch::try_from_iter([("price", column)])?;
    /// let table = dipc::Batches::of(batch.schema(), [batch]);
    /// let client = dipc::Client::new()?;
    /// let taken = client.put("tls://lake.example.org:4000", "prices/today", table)?;
    /// println!("{taken} batches are there");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn put(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        batches: impl Into<Batches>,
    ) -> Result<u64> {
        self.put_with(uris, descriptor, batches, &PutOptions::default())
    }

    /// [`put`](Self::put) with options.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put); `Cancelled` by the token.
    pub fn put_with(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        batches: impl Into<Batches>,
        options: &PutOptions,
    ) -> Result<u64> {
        let put = self.put_stream(uris.into(), descriptor.as_ref(), batches.into(), options);
        put?.finish(None)
    }

    /// Begins a [`put_with`](Self::put_with), and returns when the server has accepted.
    /// [`Put::finish`] sends the batches, which may lie on a GPU; [`Put::stats`] says how they
    /// travelled.
    ///
    /// # Errors
    ///
    /// As [`put_with`](Self::put_with); `InvalidData` if the schema has a type that the `arrow`
    /// crate lacks.
    pub fn start_put_of(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        batches: impl Into<Batches>,
        options: &PutOptions,
    ) -> Result<Put> {
        let mut source = DeviceStreamReader::new(batches.into().export());
        let schema = Arc::new(schema_from_c(&source.schema()?)?);
        let batches = Batches::of_stream(source.into_inner());
        let inner = self.put_stream(uris.into(), descriptor.as_ref(), batches, options)?;
        Ok(Put { inner, schema })
    }

    fn put_stream(
        &self,
        uris: Uris,
        descriptor: &[u8],
        batches: Batches,
        options: &PutOptions,
    ) -> Result<client::Put> {
        let (source, token) = (batches.export(), options.cancel.as_ref());
        let put = (self.0).put_stream(&uris.texts(), descriptor, source, &options.inner, token);
        put.map_err(|(error, _)| error)
    }

    /// Asks the server to take a table of this schema, and waits for its answer. Then
    /// [`Put::push`] sends the batches.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn start_put(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        schema: &SchemaRef,
        options: &PutOptions,
    ) -> Result<Put> {
        let (uris, token) = (uris.into(), options.cancel.as_ref());
        let c_schema = schema_to_c(schema)?;
        let described = (&c_schema, DeviceKind::CPU.0);
        let inner = (self.0).put(
            &uris.texts(),
            descriptor.as_ref(),
            described,
            &options.inner,
            token,
        )?;
        Ok(Put {
            inner,
            schema: Arc::clone(schema),
        })
    }

    /// Sends a table of this schema and reads another, on one connection. Either may end first. Use
    /// two threads if the server reads while it answers: each stream waits by itself. Waits for the
    /// schema of the server's table.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn exchange(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        schema: &SchemaRef,
        options: (&PutOptions, &GetOptions),
    ) -> Result<(Put, Reader)> {
        let (uris, token) = (uris.into(), options.0.cancel.as_ref());
        let c_schema = schema_to_c(schema)?;
        let described = (&c_schema, DeviceKind::CPU.0);
        let inner = (&options.0.inner, &options.1.inner);
        let (put, stream) =
            (self.0).exchange(&uris.texts(), descriptor.as_ref(), described, inner, token)?;
        let put = Put {
            inner: put,
            schema: Arc::clone(schema),
        };
        Ok((put, Reader::new(stream)?))
    }

    /// Asks what `descriptor` stands for: schema, rows, bytes, and where its parts are.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Unsupported` if the server knows no descriptions.
    pub fn describe(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
    ) -> Result<Description> {
        self.describe_with(uris, descriptor, &GetOptions::default())
    }

    /// [`describe`](Self::describe) with options.
    ///
    /// # Errors
    ///
    /// As [`describe`](Self::describe); `Cancelled` by the token.
    pub fn describe_with(
        &self,
        uris: impl Into<Uris>,
        descriptor: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Description> {
        let (uris, token) = (uris.into(), options.cancel.as_ref());
        let (inner, headers) =
            (self.0).describe(&uris.texts(), descriptor.as_ref(), &options.inner, token)?;
        Ok(Description { inner, headers })
    }

    /// Asks for the tables whose tickets begin with `prefix`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get); `Unsupported` if the server knows no lists.
    pub fn list(&self, uris: impl Into<Uris>, prefix: impl AsRef<[u8]>) -> Result<Vec<Endpoint>> {
        self.list_with(uris, prefix, &GetOptions::default())
    }

    /// [`list`](Self::list) with options.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list); `Cancelled` by the token.
    pub fn list_with(
        &self,
        uris: impl Into<Uris>,
        prefix: impl AsRef<[u8]>,
        options: &GetOptions,
    ) -> Result<Vec<Endpoint>> {
        let (uris, token) = (uris.into(), options.cancel.as_ref());
        let stream = (self.0).list(&uris.texts(), prefix.as_ref(), &options.inner, token)?;
        Ok(Endpoint::of_list(description::Description::read(
            Box::new(stream),
        )?))
    }

    /// Figures of the client.
    pub fn stats(&self) -> ClientStats {
        self.0.stats()
    }
}

opaque_debug! { Client }
