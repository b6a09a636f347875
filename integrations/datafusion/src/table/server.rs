//! Where tables are, and what their servers say of them.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::TableReference;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use dipc::crossing::arrow_59::schema_out;
use dipc::{Client, Description, Endpoint, GetOptions, PutOptions, Status, Uris};

use super::DipcTableProvider;
use crate::{DipcCatalogProvider, DipcSchemaProvider};

/// A server whose tickets are tables, and how it is asked.
///
/// ```no_run
/// # use std::time::Duration;
/// # use datafusion::prelude::SessionContext;
/// use dipc::{Client, GetOptions};
/// use dipc_datafusion::DipcServer;
///
/// # async fn register(context: &SessionContext) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder().tls_ca("/etc/lake/ca.pem").build()?;
/// let options = GetOptions::new()
///     .header("authorization", "Bearer 7ab2")?
///     .stall_timeout(Duration::from_secs(30));
/// DipcServer::with_client(client, "tls://lake.example.org:4000")
///     .get_options(options)
///     .register(context, "prices", "prices/today")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DipcServer {
    pub(crate) client: Client,
    pub(crate) uris: Uris,
    pub(crate) get: GetOptions,
    pub(crate) put: PutOptions,
}

impl DipcServer {
    /// The server at these URIs, asked by a client with the default options.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(uris: impl Into<Uris>) -> Result<Self> {
        let client = Client::new().map_err(external)?;
        Ok(Self::with_client(client, uris))
    }

    /// The server at these URIs, asked by this client. Clones of one client share connections.
    pub fn with_client(client: Client, uris: impl Into<Uris>) -> Self {
        Self {
            client,
            uris: uris.into(),
            get: GetOptions::new(),
            put: PutOptions::new(),
        }
    }

    /// The options of gets, describes and lists: headers, time limits, window and so on. Columns,
    /// rows and a filter are those of each query; set none here.
    #[must_use]
    pub fn get_options(mut self, options: GetOptions) -> Self {
        self.get = options;
        self
    }

    /// The options of puts, for `INSERT INTO`.
    #[must_use]
    pub fn put_options(mut self, options: PutOptions) -> Self {
        self.put = options;
        self
    }

    /// The table of `ticket`. Asks the server for its schema.
    ///
    /// # Errors
    ///
    /// [`DataFusionError::External`] of a [`dipc::Error`], as of `Client::describe`: `NotFound` for
    /// an unknown ticket. Its text names ticket and URI.
    pub async fn table(&self, ticket: impl AsRef<[u8]>) -> Result<DipcTableProvider> {
        let ticket = ticket.as_ref();
        let asked = self.schema_of(ticket).await;
        let schema = asked.map_err(|error| external(self.naming(ticket, error)))?;
        Ok(self.table_with_schema(ticket, schema))
    }

    /// The table of `ticket`, which has this schema. The server is asked when a query reads it, so
    /// that `INSERT INTO` can bring a table that the server does not have yet.
    pub fn table_with_schema(
        &self,
        ticket: impl AsRef<[u8]>,
        schema: SchemaRef,
    ) -> DipcTableProvider {
        DipcTableProvider::new(self.clone(), ticket.as_ref(), schema)
    }

    /// The tables whose tickets begin with `prefix`, named by the rest of their tickets.
    pub fn schema(&self, prefix: impl Into<String>) -> DipcSchemaProvider {
        DipcSchemaProvider::new(self.clone(), prefix.into())
    }

    /// All tables of the server, in a schema `public`.
    pub fn catalog(&self) -> DipcCatalogProvider {
        DipcCatalogProvider::new(self.clone())
    }

    /// Gives [`table`](Self::table) to the queries of `context`, as `name`.
    ///
    /// # Errors
    ///
    /// As [`table`](Self::table); a context that has such a table already.
    pub async fn register(
        &self,
        context: &SessionContext,
        name: impl Into<TableReference>,
        ticket: impl AsRef<[u8]>,
    ) -> Result<()> {
        let table = self.table(ticket).await?;
        context.register_table(name, Arc::new(table)).map(drop)
    }

    /// Gives [`catalog`](Self::catalog) to the queries of `context`, in place of an earlier catalog
    /// `name`.
    pub fn register_catalog(&self, context: &SessionContext, name: impl Into<String>) {
        context.register_catalog(name, Arc::new(self.catalog()));
    }

    /// What the server says about `ticket`. If it knows no descriptions, nothing is known.
    pub(super) async fn description(&self, ticket: &[u8]) -> dipc::Result<Description> {
        let asked = (self.client)
            .describe_async(&self.uris, ticket, &self.get)
            .await;
        match asked {
            Err(error) if error.status() == Status::Unsupported => Ok(Description::new()),
            asked => asked,
        }
    }

    async fn schema_of(&self, ticket: &[u8]) -> dipc::Result<SchemaRef> {
        let description = self.description(ticket).await?;
        let schema = match description.table_schema()? {
            Some(schema) => schema,
            // The schema comes first in the stream. Dropping the stream cancels the rest.
            None => {
                let parts = parts_of(&description, ticket);
                let first = (self.client).get_part_async(&self.uris, &parts[0], &self.get);
                first.await?.schema()
            }
        };
        schema_out(&schema).map(Arc::new)
    }

    /// The error with the names of table and server before its text.
    pub(crate) fn naming(&self, ticket: &[u8], error: dipc::Error) -> dipc::Error {
        let ticket = String::from_utf8_lossy(ticket);
        error.context(format_args!("the table {ticket} at {}", self.uris))
    }
}

/// The output leaves out the options: their headers may have secrets, and plans are shown.
impl fmt::Debug for DipcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DipcServer")
            .field("uris", &self.uris)
            .finish_non_exhaustive()
    }
}

/// Where the table's parts are: one at least.
pub(super) fn parts_of(description: &Description, ticket: &[u8]) -> Vec<Endpoint> {
    let mut parts = description.endpoints();
    if parts.is_empty() {
        parts.push(Endpoint::new(ticket));
    }
    parts
}

/// The error as DataFusion hands it on: with its text, and its status for a program that downcasts.
pub(crate) fn external(error: dipc::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
