//! What descriptors stand for.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::arrow::description::{self, Endpoint as Inner};
use crate::arrow::{schema_from_c, schema_to_c};
use crate::error::Result;
use crate::proto::Headers;

/// What a descriptor stands for, as far as its server knows.
///
/// ```
/// use dipc::{Description, Endpoint};
///
/// let table = Description::new()
///     .rows(2_000_000)
///     .endpoint(Endpoint::new("lineitem/0").uri("tls://a.example.org:4000"))
///     .endpoint(Endpoint::new("lineitem/1").uri("tls://b.example.org:4000"));
/// assert_eq!(table.total_rows(), Some(2_000_000));
/// assert_eq!(table.endpoints().len(), 2);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Description {
    pub(super) inner: description::Description,
    pub(super) headers: Headers,
}

/// A part of a table, or a table in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(pub(super) Inner);

impl Description {
    /// A description in which nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the schema.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a schema that cannot be sent.
    pub fn schema(mut self, schema: &SchemaRef) -> Result<Self> {
        self.inner.set_schema(&schema_to_c(schema)?)?;
        Ok(self)
    }

    /// Adds a part of the table.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Endpoint) -> Self {
        self.inner.endpoints.push(endpoint.0);
        self
    }

    /// The schema, if it is known.
    ///
    /// # Errors
    ///
    /// `InvalidData` and the like: the server sent no valid schema.
    pub fn table_schema(&self) -> Result<Option<SchemaRef>> {
        let schema = self.inner.schema()?;
        (schema.as_ref())
            .map(|schema| schema_from_c(schema).map(Arc::new))
            .transpose()
    }

    /// Rows of the whole table, if they are known.
    pub fn total_rows(&self) -> Option<u64> {
        self.inner.rows
    }

    /// Bytes of the bodies, if they are known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.inner.bytes
    }

    /// Record batches of the whole table, if they are known.
    pub fn total_batches(&self) -> Option<u64> {
        self.inner.batches
    }

    /// Whether the order of the parts is that of the table.
    pub fn is_ordered(&self) -> bool {
        self.inner.is_ordered
    }

    /// Where the parts are.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.inner.endpoints.iter().cloned().map(Endpoint).collect()
    }

    /// Headers of the server's answer.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }
}

setters! { Description
    /// Sets the rows of the whole table.
    rows(rows: u64) => inner.rows = Some(rows);

    /// Sets the bytes of the bodies.
    bytes(bytes: u64) => inner.bytes = Some(bytes);

    /// Sets the number of record batches.
    batches(batches: u64) => inner.batches = Some(batches);

    /// Says whether the order of the parts is that of the table.
    ordered(ordered: bool) => inner.is_ordered = ordered;
}

impl Endpoint {
    /// The part with this ticket, at the server that is asked.
    pub fn new(ticket: impl AsRef<[u8]>) -> Self {
        Self(Inner {
            descriptor: ticket.as_ref().to_vec(),
            ..Inner::default()
        })
    }

    /// Adds a server that has the part; the best comes first.
    #[must_use]
    pub fn uri(mut self, uri: impl Into<String>) -> Self {
        self.0.uris.push(uri.into());
        self
    }

    /// The ticket to ask for.
    pub fn ticket(&self) -> &[u8] {
        &self.0.descriptor
    }

    /// The URIs of the servers that have the part, the best one first. Empty: the server that gave
    /// the description has the part.
    pub fn uris(&self) -> &[String] {
        &self.0.uris
    }

    /// Rows of the part, if they are known.
    pub fn total_rows(&self) -> Option<u64> {
        self.0.rows
    }

    /// Bytes of its bodies, if they are known.
    pub fn total_bytes(&self) -> Option<u64> {
        self.0.bytes
    }

    /// The rows of a server's list.
    pub(super) fn of_list(list: description::Description) -> Vec<Self> {
        list.endpoints.into_iter().map(Self).collect()
    }
}

setters! { Endpoint
    /// Sets the rows of the part.
    rows(rows: u64) => 0.rows = Some(rows);

    /// Sets the bytes of the part's bodies.
    bytes(bytes: u64) => 0.bytes = Some(bytes);
}
