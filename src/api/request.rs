//! Requests of clients, as a server's host sees them.

use std::net::SocketAddr;
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::provider::guarded;
use super::{Batches, Reader};
use crate::arrow::OwnedDeviceStream;
use crate::arrow::batches::schema_from_c;
use crate::arrow::stream::DeviceStreamReader;
use crate::error::{Error, Result};
use crate::proto::{Headers, Selection, Verb};
use crate::server::{self, SentTable};
use crate::transport::{PeerCertificate, PeerIds};

/// What a client asks for.
pub struct Request<'a>(pub(super) &'a server::ServerRequest);

impl Request<'_> {
    /// The ticket or descriptor.
    pub fn ticket(&self) -> &[u8] {
        self.0.ticket()
    }

    /// Get, put, exchange, describe or list.
    pub fn verb(&self) -> Verb {
        self.0.verb()
    }

    /// Headers of the client's host.
    pub fn headers(&self) -> &Headers {
        self.0.headers()
    }

    /// The columns and rows that the client wants. The host gives the whole table, and the library
    /// selects from it without a copy, unless the host [selects itself](Self::take_selection).
    pub fn selection(&self) -> &Selection {
        self.0.selection()
    }

    /// From now on the host selects: its batches have only the wanted columns and rows. This is for
    /// hosts that can then read less.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the stream has begun.
    pub fn take_selection(&self) -> Result<()> {
        self.0.select_by_host()
    }

    /// The name that the server's authorizer has given the client.
    pub fn principal(&self) -> Option<String> {
        self.0.principal()
    }

    /// Names the client, in an authorizer: handlers see the name as [`principal`](Self::principal).
    pub fn set_principal(&self, principal: &str) {
        self.0.set_principal(principal);
    }

    /// Counts the request under `label` in the server's figures, instead of under its ticket.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the label is empty or too long, or the stream has begun.
    pub fn set_label(&self, label: &str) -> Result<()> {
        self.0.set_label(label)
    }

    /// How long the client still waits for the end of the stream; `None`: for ever.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.time_left()
    }

    /// Adds headers to the server's answer.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when they are too long, or when the stream is over.
    pub fn add_headers(&self, headers: &Headers) -> Result<()> {
        self.0.add_headers(headers)
    }

    /// Whether the client has gone or has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Calls `then` once [`is_cancelled`](Self::is_cancelled) is true, which may be now: to end a
    /// computation, or this host's own requests to other servers by a [`Cancel`](crate::Cancel).
    /// `then` runs on a thread of the library, and must not block it. If the client stays to the
    /// end of the stream, `then` is dropped without a call.
    pub fn when_cancelled(&self, then: impl FnOnce() + Send + 'static) {
        self.0.when_cancelled(move || {
            // A panic of the host's closure must not end the library's thread.
            let _ = guarded(|| {
                then();
                Ok(())
            });
        });
    }

    /// Tells the client of a put that the first `batches` of its stream are safe, and sends it
    /// `bytes`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the client sends no stream, or too many bytes; `Cancelled`,
    /// `Disconnected`.
    pub fn say_result(&self, batches: u64, bytes: &[u8]) -> Result<()> {
        self.0.say_result(batches, bytes)
    }

    /// A description of the client, for logs.
    pub fn peer(&self) -> &str {
        self.0.peer()
    }

    /// The scheme of the connection's transport: `shm`, `tcp`, `tls` or `ucx`.
    pub fn scheme(&self) -> &str {
        self.0.origin().scheme
    }

    /// The client's process, if the transport stays within one machine.
    pub fn process(&self) -> Option<PeerIds> {
        self.0.origin().process
    }

    /// The client's address, if the transport has addresses.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.origin().address
    }

    /// The client's certificate, if it has shown one.
    pub fn certificate(&self) -> Option<&PeerCertificate> {
        self.0.origin().certificate.as_deref()
    }

    /// The schema of the table that the client sends, before it sends batches.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the client sends no table, or the table was taken before. `InvalidData`:
    /// its schema has a type that the `arrow` crate lacks.
    pub fn table_schema(&self) -> Result<SchemaRef> {
        schema_from_c(&self.0.source_schema()?).map(SchemaRef::new)
    }

    /// Takes the table that the client sends: from now on it sends batches. For
    /// [`take_put`](super::Provider::take_put) and
    /// [`take_exchange`](super::Provider::take_exchange); other methods get the table.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the client sends no table, or the table was taken before; or what ended
    /// the stream.
    pub fn take_table(&self) -> Result<Reader> {
        match self.0.table()? {
            SentTable::Client(stream) => Reader::new(*stream),
            SentTable::Forwarded(stream) => Reader::of_host(stream),
        }
    }

    /// Middleware: lets the server answer a get as if there were no middleware. Gives the whole
    /// table, even if the client has selected a part: the library selects from the table that the
    /// middleware gives.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the request is not a get that a middleware has. `NotFound`: the server
    /// has no such ticket. `Unsupported`: its table is not in host memory. `Cancelled`: the client
    /// went while a host of the pull form had not begun. `Stopped`, and what the ticket's provider
    /// says.
    pub fn forward_get(&self) -> Result<Reader> {
        self.forward(None)
    }

    /// Middleware: lets the server take `table` instead of the table that the client puts. The host
    /// behind the middleware reads `table` to its end.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the request is not a put that a middleware has. `Unsupported`: the server
    /// has no handler. `Cancelled`: the client went while a handler of the pull form had the table.
    /// `Stopped`, and what the handler says.
    pub fn forward_put(&self, table: Batches) -> Result<()> {
        self.0.forward(Some(table.export())).map(drop)
    }

    /// Middleware: lets the server's handler answer `table` instead of the table that the client
    /// sends. Gives the whole answer.
    ///
    /// # Errors
    ///
    /// As for [`forward_put`](Self::forward_put), for an exchange. Also `Unsupported`: the handler
    /// is one of the pull form.
    pub fn forward_exchange(&self, table: Batches) -> Result<Reader> {
        self.forward(Some(table.export()))
    }

    fn forward(&self, table: Option<OwnedDeviceStream>) -> Result<Reader> {
        let none = || Error::invalid_argument("the client of this request gets no table");
        let stream = self.0.forward(table)?.ok_or_else(none)?;
        Reader::of_host(DeviceStreamReader::new(stream))
    }
}

opaque_debug! { Request<'_>, |it|
    verb = it.verb(), ticket = String::from_utf8_lossy(it.ticket()), peer = it.peer()
}
