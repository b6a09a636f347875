//! Streams on their way in.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Poll;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatchReader;

use super::device_array::{DeviceArray, metadata_of};
use crate::arrow::OwnedDeviceArray;
use crate::arrow::OwnedDeviceStream;
use crate::arrow::batches::schema_from_c;
use crate::arrow::format::Metadata;
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use crate::client::{NextBatch, Parts, Stream, StreamStats};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::proto::Headers;

/// The record batches of a server, or of a client that puts.
///
/// The buffers of a batch are those that were received, or the sender's own buffers if it lent
/// them. A batch keeps its memory alive by itself: it may outlive the reader and the client.
///
/// Dropping a reader before its end cancels the stream.
pub struct Reader {
    source: Source,
    schema: SchemaRef,
    /// The metadata of the array that came last.
    metadata: Metadata,
    has_ended: bool,
}

enum Source {
    Stream(Box<Stream>),
    Parts(Box<Parts>),
    /// A stream of a host in this process.
    Host(DeviceStreamReader),
}

impl Reader {
    pub(super) fn new(stream: Stream) -> Result<Self> {
        Self::of(Source::Stream(Box::new(stream)))
    }

    pub(super) fn of_parts(parts: Parts) -> Result<Self> {
        Self::of(Source::Parts(Box::new(parts)))
    }

    /// The stream of a host in this process, which promises to follow Arrow's interface.
    pub(super) fn of_host(stream: DeviceStreamReader) -> Result<Self> {
        Self::of(Source::Host(stream))
    }

    fn of(mut source: Source) -> Result<Self> {
        let schema = Arc::new(schema_from_c(&source.arrays().schema()?)?);
        Ok(Self {
            source,
            schema,
            metadata: Metadata::new(),
            has_ended: false,
        })
    }

    /// The schema of each batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch; `None` at the end, and after an error. Waits for the other side. A batch on
    /// a GPU is copied to the host.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream: the other host's own error, `Disconnected`, `Timeout`,
    /// `Cancelled`, or `InvalidData` and `Protocol` if it sent something that is not a table.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let batch = (self.next_array()).and_then(|array| {
            let batch = array.map(DeviceArray::into_batch);
            batch.transpose()
        });
        self.has_ended |= batch.is_err();
        batch
    }

    /// The next batch where it lies: on the host, or on the GPU that
    /// [`GetOptions::device`](super::GetOptions::device) asks for. Otherwise as
    /// [`next_batch`](Self::next_batch).
    ///
    /// # Errors
    ///
    /// As [`next_batch`](Self::next_batch).
    pub fn next_array(&mut self) -> Result<Option<DeviceArray>> {
        if self.has_ended {
            return Ok(None);
        }
        let next = self.source.arrays().next();
        self.has_ended = !matches!(next, Ok(Some(_)));
        Ok(next?.map(|array| self.taken(array)))
    }

    /// [`next_array`](Self::next_array) without a wait, for an event loop: `Pending` if nothing has
    /// come. Then [`fd`](Self::fd) tells when to call again.
    ///
    /// # Errors
    ///
    /// As [`next_array`](Self::next_array); `Unsupported` for a table in parts, and for a table of
    /// this process.
    pub fn try_next_array(&mut self) -> Result<Poll<Option<DeviceArray>>> {
        if self.has_ended {
            return Ok(Poll::Ready(None));
        }
        let next = self.source.pollable()?.try_next();
        self.has_ended = !matches!(next, Ok(NextBatch::Batch(_) | NextBatch::NotYet));
        Ok(match next? {
            NextBatch::Batch(array) => Poll::Ready(Some(self.taken(array))),
            NextBatch::End => Poll::Ready(None),
            NextBatch::NotYet => Poll::Pending,
        })
    }

    /// A descriptor that is readable when [`try_next_array`](Self::try_next_array) may find
    /// something, for epoll and the like; not to be read. It is readable at first, and stays
    /// readable after the end.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no descriptors left; `Unsupported` as for
    /// [`try_next_array`](Self::try_next_array).
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.source.pollable()?.fd()
    }

    fn taken(&mut self, array: OwnedDeviceArray) -> DeviceArray {
        self.metadata = metadata_of(&array);
        let schema = Arc::clone(&self.schema);
        DeviceArray { array, schema }
    }

    /// The kind of memory of each batch.
    pub fn device(&self) -> DeviceKind {
        DeviceKind(match &self.source {
            Source::Stream(stream) => stream.device_type(),
            Source::Parts(parts) => parts.device_type(),
            Source::Host(stream) => stream.device_type(),
        })
    }

    /// The rest of the table, as a stream of arrays.
    pub(super) fn into_stream(self) -> OwnedDeviceStream {
        match self.source {
            Source::Stream(stream) => export_device_stream(stream),
            Source::Parts(parts) => export_device_stream(parts),
            Source::Host(stream) => stream.into_inner(),
        }
    }

    /// How many rows the whole table has, if it comes in parts and its server has said so.
    pub fn total_rows(&self) -> Option<u64> {
        match &self.source {
            Source::Parts(parts) => parts.total_rows(),
            Source::Stream(_) | Source::Host(_) => None,
        }
    }

    /// The custom metadata of the batch that came last: key and value.
    pub fn batch_metadata(&self) -> &[(String, String)] {
        &self.metadata
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

impl Source {
    fn arrays(&mut self) -> &mut dyn ArrayReader {
        match self {
            Self::Stream(stream) => stream.as_mut(),
            Self::Parts(parts) => parts.as_mut(),
            Self::Host(stream) => stream,
        }
    }

    /// The stream that an event loop can wait for.
    fn pollable(&mut self) -> Result<&mut Stream> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::Parts(_) | Self::Host(_) => Err(Error::unsupported(
                "only a table that comes in one stream can be read without waits",
            )),
        }
    }
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

opaque_debug! { Reader, |it| schema = it.schema }
