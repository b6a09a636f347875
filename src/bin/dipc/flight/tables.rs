//! What a Flight server serves.

use std::collections::BTreeMap;

use anyhow::Result;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchIterator};

use crate::source::{Reader, Reading, Source};

/// The tables, by their tickets.
pub type Tables = BTreeMap<Vec<u8>, Table>;

/// A table that can be read any number of times, also by several at once.
#[derive(Clone)]
pub enum Table {
    /// Opened anew each time.
    Source {
        /// Where it comes from.
        source: Source,
        /// How it is read.
        reading: Reading,
    },
    /// In memory, which it shares with whoever else serves it.
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
