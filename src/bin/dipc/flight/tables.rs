//! The tables of a Flight server.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchIterator};

use crate::source::{Reader, Reading, Source};

/// The tables, by their tickets.
pub type Tables = BTreeMap<Vec<u8>, Table>;

/// A table that several threads can read at once, any number of times.
#[derive(Clone)]
pub enum Table {
    /// A source that each read opens anew.
    Source {
        /// The source.
        source: Source,
        /// Options for reading it.
        reading: Reading,
    },
    /// A table in memory, shared with the libdipc server.
    Loaded {
        /// Its columns.
        schema: SchemaRef,
        /// Its rows.
        batches: Vec<RecordBatch>,
    },
}

impl Table {
    /// Reads the table from its start.
    pub fn reader(&self) -> Result<Reader> {
        match self {
            Self::Source { source, reading } => source.reader(*reading),
            Self::Loaded { schema, batches } => Ok(Box::new(RecordBatchIterator::new(
                batches.clone().into_iter().map(Ok),
                SchemaRef::clone(schema),
            ))),
        }
    }
}
