//! The tables that are served, also by Flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parking_lot::RwLock;

use crate::served::Served;
use crate::source::{Metadata, Reader};

/// The tables, by their tickets. Clones share them.
#[derive(Clone, Default)]
pub struct Tables(Arc<RwLock<BTreeMap<Vec<u8>, Table>>>);

impl Tables {
    /// Adds a table; replaces a table with the same ticket.
    pub fn insert(&self, ticket: Vec<u8>, table: Table) {
        self.0.write().insert(ticket, table);
    }

    /// Removes the table of a ticket.
    pub fn remove(&self, ticket: &[u8]) {
        self.0.write().remove(ticket);
    }

    /// The table of a ticket.
    pub fn find(&self, ticket: &[u8]) -> Option<Table> {
        self.0.read().get(ticket).cloned()
    }

    /// Every table of this moment, in the order of the tickets.
    pub fn all(&self) -> BTreeMap<Vec<u8>, Table> {
        self.0.read().clone()
    }
}

/// A table that several threads can read at once, any number of times.
#[derive(Clone)]
pub enum Table {
    /// A source that each read opens anew.
    Source {
        /// The source.
        source: Served,
        /// Its rows, if they are known.
        rows: Option<u64>,
    },
    /// A table in memory, shared with the libdipc server.
    Loaded {
        /// Its columns.
        schema: SchemaRef,
        /// Its rows, each batch with its metadata.
        batches: Vec<(RecordBatch, Metadata)>,
    },
}

impl Table {
    /// How many rows it has, if that is known.
    pub fn rows(&self) -> Option<u64> {
        match self {
            Self::Source { rows, .. } => *rows,
            Self::Loaded { batches, .. } => Some(
                batches
                    .iter()
                    .map(|(batch, _)| batch.num_rows() as u64)
                    .sum(),
            ),
        }
    }

    /// Reads the table from its start.
    pub fn reader(&self) -> Result<Reader> {
        match self {
            Self::Source { source, .. } => source.reader(),
            Self::Loaded { schema, batches } => {
                let batches = batches.clone().into_iter().map(Ok::<_, ArrowError>);
                Ok(Reader::new(SchemaRef::clone(schema), batches))
            }
        }
    }
}
