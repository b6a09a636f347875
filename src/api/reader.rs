//! Streams on their way in.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;

use crate::arrow::OwnedDeviceArray;
use crate::arrow::batches::{batch_from_c, schema_from_c};
use crate::arrow::stream::{ArrayReader as _, DeviceStreamReader};
use crate::client::{Parts, Stream, StreamStats};
use crate::error::Result;
use crate::proto::Headers;

/// The record batches of a server, or of a client that puts.
///
/// The batches' buffers are the ones that came, or the sender's own where it lent them. A batch
/// keeps its memory alive by itself: it may outlive the reader and the client.
///
/// Dropping a reader before its end cancels the stream.
pub struct Reader {
    source: Source,
    schema: SchemaRef,
    has_ended: bool,
}

enum Source {
    Stream(Box<Stream>),
    Parts(Box<Parts>),
    /// Of a host in this process.
    Host(DeviceStreamReader),
}

impl Reader {
    /// A stream of this schema.
    pub(super) fn new(mut stream: Stream) -> Result<Self> {
        let schema = Arc::new(schema_from_c(&stream.schema()?)?);
        Ok(Self {
            source: Source::Stream(Box::new(stream)),
            schema,
            has_ended: false,
        })
    }

    pub(super) fn of_parts(mut parts: Parts) -> Result<Self> {
        let schema = Arc::new(schema_from_c(&parts.schema()?)?);
        Ok(Self {
            source: Source::Parts(Box::new(parts)),
            schema,
            has_ended: false,
        })
    }

    /// The stream of a host in this process, which promises to follow Arrow's interface.
    pub(super) fn of_host(mut stream: DeviceStreamReader) -> Result<Self> {
        let schema = Arc::new(schema_from_c(&stream.schema()?)?);
        Ok(Self {
            source: Source::Host(stream),
            schema,
            has_ended: false,
        })
    }

    /// The schema of each batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch; `None` at the end, and after an error. Waits for the other side.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream: the other host's own error, `Disconnected`, `Timeout`,
    /// `Cancelled`, or `InvalidData` and `Protocol` where it sent what is no table.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.has_ended {
            return Ok(None);
        }
        let next = match &mut self.source {
            Source::Stream(stream) => stream.next(),
            Source::Parts(parts) => parts.next(),
            Source::Host(stream) => stream.next(),
        };
        let batch = next.and_then(|array| batch_of(array, &self.schema));
        self.has_ended = !matches!(batch, Ok(Some(_)));
        batch
    }

    /// The custom metadata of the batch that came last: key and value. Empty for a table in parts,
    /// and behind a middleware.
    pub fn batch_metadata(&self) -> &[(String, String)] {
        match &self.source {
            Source::Stream(stream) => stream.custom_metadata(),
            Source::Parts(_) | Source::Host(_) => &[],
        }
    }

    /// Headers of the other host's answer, so far.
    pub fn headers(&self) -> Headers {
        match &self.source {
            Source::Stream(stream) => stream.headers(),
            Source::Parts(_) | Source::Host(_) => Headers::new(),
        }
    }

    /// Figures up to now; zeros for a table of this process.
    pub fn stats(&self) -> StreamStats {
        match &self.source {
            Source::Stream(stream) => stream.stats(),
            Source::Parts(parts) => parts.stats(),
            Source::Host(_) => StreamStats::default(),
        }
    }
}

/// The batch of an array of one of this crate's own streams, which has this schema.
pub(super) fn batch_of(
    array: Option<OwnedDeviceArray>,
    schema: &SchemaRef,
) -> Result<Option<RecordBatch>> {
    // SAFETY: the decoder gives arrays of the stream's schema, checked as the options say. What is
    // not checked of a peer of the same user is trusted (crate docs, "Soundness"). A host in this
    // process promises that its streams follow Arrow's interface.
    let convert = |array| unsafe { batch_from_c(array, schema) };
    array.map(convert).transpose()
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().map_err(ArrowError::from).transpose()
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Self::schema(self)
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
