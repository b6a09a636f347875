//! A table being read, and how.

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchReader};
use dipc::Batches;

/// Rows of a batch if neither the file nor the caller gives a number.
pub const DEFAULT_BATCH_ROWS: usize = 65_536;

/// [`Reading::message_limit`] if the caller gives none: that of
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
    /// take in addition to its bytes in the file. `None`: [`DEFAULT_MESSAGE_LIMIT`].
    pub message_limit: Option<u64>,
}

/// A batch with its metadata.
pub type Annotated = (RecordBatch, Metadata);

/// A table being read: its batches, each with its metadata.
pub struct Reader {
    schema: SchemaRef,
    batches: Box<dyn Iterator<Item = Result<Annotated, ArrowError>> + Send>,
}

impl Reader {
    /// A table of these columns.
    pub fn new<I, E>(schema: SchemaRef, batches: I) -> Self
    where
        I: Iterator<Item = Result<Annotated, E>> + Send + 'static,
        E: Into<ArrowError>,
    {
        let batches = Box::new(batches.map(|batch| batch.map_err(Into::into)));
        Self { schema, batches }
    }

    /// A table whose batches have no metadata.
    pub fn plain(reader: impl RecordBatchReader + Send + 'static) -> Self {
        let plain = |batch: Result<_, ArrowError>| batch.map(|batch| (batch, Metadata::new()));
        Self::new(reader.schema(), reader.map(plain))
    }

    /// Its columns.
    pub fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    /// The batches without their metadata.
    #[cfg(test)]
    pub fn batches(self) -> Result<Vec<RecordBatch>, ArrowError> {
        self.map(|batch| batch.map(|(batch, _)| batch)).collect()
    }
}

impl Iterator for Reader {
    type Item = Result<Annotated, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.batches.next()
    }
}

/// A table on its way out. Its batches keep their metadata.
pub fn batches(reader: Reader) -> Batches {
    Batches::with_metadata(reader.schema(), reader)
}
