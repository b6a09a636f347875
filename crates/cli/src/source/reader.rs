//! A table being read, and how.

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchReader};
use dipc::Batches;

/// Rows of a batch if neither the file nor the caller gives a number.
pub const DEFAULT_BATCH_ROWS: usize = 65_536;

/// [`Reading::message_limit`] where the caller gives none: that of
/// [`Decoder`](dipc::ipc::Decoder).
pub const DEFAULT_MESSAGE_LIMIT: u64 = 512 << 20;

/// Custom metadata of a batch: keys and values, in order.
pub type Metadata = Vec<(String, String)>;

/// Options for reading a table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    /// Most rows of a batch. Larger batches of Arrow files are cut; smaller ones stay. `None`:
    /// batches of Arrow files stay, others have [`DEFAULT_BATCH_ROWS`].
    pub batch_rows: Option<usize>,
    /// Most memory that a message of an Arrow file or stream, or a batch of a Parquet file, may
    /// take beside its bytes in the file. `None`: [`DEFAULT_MESSAGE_LIMIT`].
    pub message_limit: Option<u64>,
}

/// A table being read.
pub type Reader = Box<dyn TableReader>;

/// What reads a table.
pub trait TableReader: RecordBatchReader + Send {
    /// The custom metadata of the batch given last.
    fn metadata(&self) -> &[(String, String)] {
        &[]
    }
}

/// A table on its way out. Its batches keep their metadata.
pub fn batches(reader: Reader) -> Batches {
    Batches::with_metadata(reader.schema(), Annotated(reader))
}

/// Batches, each with its metadata.
pub struct Annotated(pub Reader);

impl Iterator for Annotated {
    type Item = Result<(RecordBatch, Metadata), ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.0.next()?;
        Some(batch.map(|batch| (batch, self.0.metadata().to_vec())))
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
