//! The flatbuffers of messages. One builder serves the whole stream, so that a header costs one
//! allocation.
//!
//! Nodes and buffers are pairs of numbers, two or three for each column. They are written as
//! [`Pair`]s, because the generated code makes several calls for each pair.

use std::fmt;
use std::sync::Arc;

use arrow::ipc;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use super::fault::{Checked, Fault};
use super::pair::Pair;
use super::plan::{Plan, count};
use crate::arrow::format::{Schema, metadata_to_ipc};
use crate::device::BufferRef;
use crate::proto::BodySpan;

/// Alignment of buffers in a body (rule A2).
const ALIGNMENT: u64 = 64;

/// Assigns offsets to the buffers of a packed body, one after the other. Rule A1: bodies that are
/// not packed use the same offsets. At the limit of 64 bits the numbers saturate.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Packing {
    /// The end of the last buffer and its padding.
    pub(super) end: u64,
}

impl Packing {
    /// The offset and length of the next buffer.
    #[inline]
    pub(super) fn place(&mut self, buffer: BufferRef) -> BodySpan {
        let length = buffer.len as u64;
        let span = BodySpan {
            offset: self.end,
            length,
        };
        let padded = length.saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1);
        self.end = self.end.saturating_add(padded);
        span
    }
}

/// The content of a message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    /// A record batch, with its own metadata.
    Batch(&'a [(String, String)]),
    /// A dictionary.
    Dictionary {
        /// The dictionary's number.
        id: i64,
        /// True if it is appended to the earlier dictionary.
        delta: bool,
    },
}

/// Builds headers.
#[derive(Default)]
pub(super) struct Headers {
    fbb: FlatBufferBuilder<'static>,
    buffers: Vec<Pair>,
    /// The content of the last header.
    last: Option<LastHeader>,
}

/// The content of the header of a batch without own metadata. Later batches with fixed-width values
/// have the same header if they have as many rows and no nulls.
#[derive(Default)]
struct LastHeader {
    header: Arc<[u8]>,
    rows: usize,
    nodes: Vec<Pair>,
    buffers: Vec<Pair>,
    variadic: Vec<i64>,
}

impl LastHeader {
    fn matches(&self, rows: usize, plan: &Plan, buffers: &[Pair]) -> bool {
        self.rows == rows
            && self.nodes == plan.nodes
            && self.buffers == buffers
            && self.variadic == plan.variadic
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers").finish_non_exhaustive()
    }
}

impl Headers {
    /// The header of a schema.
    pub(super) fn schema(&mut self, schema: &Schema) -> Arc<[u8]> {
        self.last = None;
        self.fbb.reset();
        let header = schema.to_ipc(&mut self.fbb).as_union_value();
        self.message(ipc::MessageHeader::Schema, header, 0, &[])
    }

    /// The header of `rows` rows with the layout `plan`, and the length of their packed body. Takes
    /// the plan's nodes. A header that equals the last header shares its memory. All headers of a
    /// stream have the same `codec`.
    pub(super) fn body(
        &mut self,
        subject: Subject<'_>,
        rows: usize,
        plan: &mut Plan,
        codec: Option<ipc::CompressionType>,
    ) -> Checked<(Arc<[u8]>, u64)> {
        self.buffers.clear();
        let mut packing = Packing::default();
        self.buffers.extend(plan.buffers.iter().map(|buffer| {
            let BodySpan { offset, length } = packing.place(*buffer);
            Pair(offset, length)
        }));
        // No other number is larger than the end.
        let body_len = i64::try_from(packing.end)
            .map_err(|_| Fault::invalid("the body would be larger than any memory"))?;
        let is_plain = matches!(subject, Subject::Batch([]));
        let last = self.last.take();
        if let Some(known) = last.as_ref()
            && is_plain
            && known.matches(rows, plan, &self.buffers)
        {
            let header = Arc::clone(&known.header);
            self.last = last;
            return Ok((header, packing.end));
        }
        self.fbb.reset();
        let fbb = &mut self.fbb;
        // Only the type differs: the generated code writes the same bytes for its two structs.
        let buffers = WIPOffset::new(fbb.create_vector(&self.buffers).value());
        let nodes = WIPOffset::new(fbb.create_vector(&plan.nodes).value());
        let variadic = (!plan.variadic.is_empty()).then(|| fbb.create_vector(&plan.variadic));
        let compression = codec.map(|codec| {
            let method = ipc::BodyCompressionMethod::BUFFER;
            ipc::BodyCompression::create(fbb, &ipc::BodyCompressionArgs { codec, method })
        });
        let batch = ipc::RecordBatch::create(
            fbb,
            &ipc::RecordBatchArgs {
                length: count(rows)?,
                nodes: Some(nodes),
                buffers: Some(buffers),
                compression,
                variadicBufferCounts: variadic,
            },
        );
        let header = match subject {
            Subject::Batch(metadata) => {
                let kind = ipc::MessageHeader::RecordBatch;
                self.message(kind, batch.as_union_value(), body_len, metadata)
            }
            Subject::Dictionary { id, delta } => {
                let args = ipc::DictionaryBatchArgs {
                    id,
                    data: Some(batch),
                    isDelta: delta,
                };
                let batch = ipc::DictionaryBatch::create(fbb, &args).as_union_value();
                self.message(ipc::MessageHeader::DictionaryBatch, batch, body_len, &[])
            }
        };
        if is_plain {
            // A swap, because nobody needs the plan's lists any more.
            let last = self.last.insert(last.unwrap_or_default());
            last.rows = rows;
            last.header = Arc::clone(&header);
            std::mem::swap(&mut last.nodes, &mut plan.nodes);
            std::mem::swap(&mut last.buffers, &mut self.buffers);
            std::mem::swap(&mut last.variadic, &mut plan.variadic);
        }
        Ok((header, packing.end))
    }

    fn message(
        &mut self,
        header_type: ipc::MessageHeader,
        header: WIPOffset<UnionWIPOffset>,
        body_len: i64,
        metadata: &[(String, String)],
    ) -> Arc<[u8]> {
        let metadata = metadata_to_ipc(metadata, &mut self.fbb);
        let message = ipc::Message::create(
            &mut self.fbb,
            &ipc::MessageArgs {
                // Rule A6.
                version: ipc::MetadataVersion::V5,
                header_type,
                header: Some(header),
                bodyLength: body_len,
                custom_metadata: metadata,
            },
        );
        self.fbb.finish(message, None);
        self.fbb.finished_data().into()
    }
}
