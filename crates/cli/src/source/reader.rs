//! A table being read, and how.

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchReader};

/// Rows of a batch if neither the file nor the caller gives a number.
pub const DEFAULT_BATCH_ROWS: usize = 65_536;

/// Options for reading a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    /// Most rows of a batch. Larger batches of Arrow files are cut; smaller ones stay. `None`:
    /// batches of Arrow files stay, others have [`DEFAULT_BATCH_ROWS`].
    pub batch_rows: Option<usize>,
    /// Most memory that a message of an Arrow file or stream, or a batch of a Parquet file, may
    /// take beside its bytes in the file. `None`: the default of
    /// [`DecodeOptions::message_limit`](dipc::arrow::decode::DecodeOptions).
    pub message_limit: Option<u64>,
}

/// A table being read.
pub type Reader = Box<dyn TableReader>;

/// What reads a table.
pub trait TableReader: RecordBatchReader + Send {
    /// The custom metadata of the batch given last, encoded as `ArrowSchema.metadata`.
    fn metadata(&self) -> &[u8] {
        &[]
    }
}

/// A table whose batches have no metadata.
pub struct Plain<R>(pub R);

impl<R: RecordBatchReader> Iterator for Plain<R> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<R: RecordBatchReader> RecordBatchReader for Plain<R> {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

impl<R: RecordBatchReader + Send> TableReader for Plain<R> {}
