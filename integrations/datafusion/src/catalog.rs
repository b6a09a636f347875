//! The tables of a server, as its list shows them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::TableType;
use dipc::Status;

use crate::DipcServer;

/// The schema that has all tables of a server, where DataFusion looks by default.
const ALL: &str = "public";

/// The schemas of a server: `public` has all of its tables.
///
/// ```
/// use datafusion::catalog::CatalogProvider as _;
/// use dipc_datafusion::DipcServer;
///
/// let server = DipcServer::new("shm:@lake")?;
/// let catalog = server.catalog().with_schema("sales", "sales/");
/// assert_eq!(catalog.schema_names(), ["public", "sales"]);
/// # Ok::<(), datafusion::error::DataFusionError>(())
/// ```
#[derive(Debug, Clone)]
pub struct DipcCatalogProvider {
    server: DipcServer,
    schemas: BTreeMap<String, Arc<DipcSchemaProvider>>,
}

/// The tables whose tickets begin with a prefix. A table's name is the rest of its ticket; names
/// with other characters than small letters, digits and `_` stand in quotes in SQL. Tickets that
/// are no UTF-8 have no names.
///
/// A query asks the server itself for the tables that it names, even if a list says that another
/// server has them. `SHOW TABLES` and the like list the server's tables anew each time. DataFusion
/// gives them no way to wait or to fail: the call keeps its thread until the server has answered,
/// within the options' time limits. If the server does not answer, they show the names that they
/// have shown last, and the log says why.
#[derive(Debug)]
pub struct DipcSchemaProvider {
    server: DipcServer,
    prefix: String,
    last: Mutex<Vec<String>>,
}

impl DipcCatalogProvider {
    pub(crate) fn new(server: DipcServer) -> Self {
        let catalog = Self {
            server,
            schemas: BTreeMap::new(),
        };
        catalog.with_schema(ALL, "")
    }

    /// Adds a schema: the tables whose tickets begin with `prefix`.
    #[must_use]
    pub fn with_schema(mut self, name: impl Into<String>, prefix: impl Into<String>) -> Self {
        let schema = self.server.schema(prefix);
        self.schemas.insert(name.into(), Arc::new(schema));
        self
    }
}

impl CatalogProvider for DipcCatalogProvider {
    fn schema_names(&self) -> Vec<String> {
        self.schemas.keys().cloned().collect()
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let schema = self.schemas.get(name)?;
        Some(Arc::clone(schema) as _)
    }
}

impl DipcSchemaProvider {
    pub(crate) fn new(server: DipcServer, prefix: String) -> Self {
        Self {
            server,
            prefix,
            last: Mutex::default(),
        }
    }

    fn ticket(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The names of the tickets that begin with the schema's prefix and `name`.
    fn names(&self, name: &str) -> dipc::Result<Vec<String>> {
        let (server, prefix) = (&self.server, self.ticket(name));
        let listed = (server.client).list_with(&server.uris, prefix, &server.get)?;
        let name_of = |ticket: &[u8]| {
            let name = str::from_utf8(ticket).ok()?.strip_prefix(&self.prefix)?;
            (!name.is_empty()).then(|| name.to_owned())
        };
        Ok(listed
            .iter()
            .filter_map(|it| name_of(it.ticket()))
            .collect())
    }
}

#[async_trait]
impl SchemaProvider for DipcSchemaProvider {
    fn table_names(&self) -> Vec<String> {
        let listed = self.names("");
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match listed {
            Ok(names) => *last = names,
            Err(error) => log::warn!("the tables at {} are not known: {error}", self.server.uris),
        }
        last.clone()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match self.server.table(self.ticket(name)).await {
            Ok(table) => Ok(Some(Arc::new(table))),
            Err(error) if is_unknown(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    // With a list of names, `table` would ask for the description of each one.
    async fn table_type(&self, _: &str) -> Result<Option<TableType>> {
        Ok(Some(TableType::Base))
    }

    fn table_exist(&self, name: &str) -> bool {
        match self.names(name) {
            Ok(names) => names.iter().any(|it| it == name),
            Err(error) => {
                log::warn!("the tables at {} are not known: {error}", self.server.uris);
                false
            }
        }
    }
}

fn is_unknown(error: &DataFusionError) -> bool {
    let DataFusionError::External(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<dipc::Error>();
    error.is_some_and(|error| error.status() == Status::NotFound)
}
