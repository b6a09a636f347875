//! A table, and what a scan gives of it.

use datafusion::arrow::datatypes::SchemaRef;

use super::filter::Filter;
use super::server::{DipcServer, external};

/// What scans and inserts of a table share.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) server: DipcServer,
    pub(crate) ticket: Vec<u8>,
    pub(crate) schema: SchemaRef,
}

impl Table {
    /// The error as DataFusion hands it on, with the names of table and server.
    pub(super) fn error(&self, error: dipc::Error) -> datafusion::error::DataFusionError {
        external(self.server.naming(&self.ticket, error))
    }

    /// For plans and texts.
    pub(super) fn name(&self) -> String {
        let ticket = String::from_utf8_lossy(&self.ticket);
        format!("{ticket} at {}", self.server.uris)
    }
}

/// What a scan gives of its table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Places of columns; `None`: all.
    pub(crate) projection: Option<Vec<usize>>,
    /// Which rows; `None`: all.
    pub(crate) filter: Option<Filter>,
    /// Most rows of each partition.
    pub(crate) fetch: Option<usize>,
}
