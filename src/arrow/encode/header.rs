//! The flatbuffers of messages. One builder serves all of a stream, so that a header costs one
//! allocation, its own.

use std::fmt;

use arrow::ipc;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};

use super::fault::{Checked, Fault};
use super::plan::{Plan, count};
use crate::arrow::format::{Schema, metadata_to_ipc};
use crate::proto::BodySpan;

/// Alignment of buffers in a body (rule A2).
const ALIGNMENT: u64 = 64;

/// Where the buffers of a body lie when it is packed (rule A1: also where it will not be).
pub(super) fn pack(plan: &Plan) -> Checked<(Vec<BodySpan>, u64)> {
    let too_large = || Fault::invalid("the body would be larger than any memory");
    let mut spans = Vec::with_capacity(plan.buffers.len());
    let mut end: u64 = 0;
    for buffer in &plan.buffers {
        let length = u64::try_from(buffer.len).map_err(|_| too_large())?;
        spans.push(BodySpan {
            offset: end,
            length,
        });
        end = end
            .checked_add(length)
            .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(too_large)?;
    }
    Ok((spans, end))
}

/// What a message is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Subject<'a> {
    /// A record batch, with metadata of its own.
    Batch(&'a [(String, String)]),
    /// A dictionary; a delta adds to the one before.
    Dictionary {
        /// Its number.
        id: i64,
        /// Whether it adds to the one before.
        delta: bool,
    },
}

/// Builds headers.
#[derive(Default)]
pub(super) struct Headers {
    fbb: FlatBufferBuilder<'static>,
    buffers: Vec<ipc::Buffer>,
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Headers").finish_non_exhaustive()
    }
}

impl Headers {
    /// The header of a schema.
    pub(super) fn schema(&mut self, schema: &Schema) -> Vec<u8> {
        self.fbb.reset();
        let header = schema.to_ipc(&mut self.fbb).as_union_value();
        self.message(ipc::MessageHeader::Schema, header, 0, &[])
    }

    /// The header of `rows` rows laid out as `plan`, in a body packed as `spans`.
    pub(super) fn body(
        &mut self,
        subject: Subject<'_>,
        rows: usize,
        plan: &Plan,
        spans: &[BodySpan],
        body_len: u64,
        codec: Option<ipc::CompressionType>,
    ) -> Checked<Vec<u8>> {
        self.fbb.reset();
        self.buffers.clear();
        // `pack` made sure that all of them are below 2^63.
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.buffers.extend(
            spans
                .iter()
                .map(|span| ipc::Buffer::new(number(span.offset), number(span.length))),
        );
        let fbb = &mut self.fbb;
        let buffers = fbb.create_vector(&self.buffers);
        let nodes = fbb.create_vector(&plan.nodes);
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
        let body_len = number(body_len);
        Ok(match subject {
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
        })
    }

    fn message(
        &mut self,
        header_type: ipc::MessageHeader,
        header: WIPOffset<UnionWIPOffset>,
        body_len: i64,
        metadata: &[(String, String)],
    ) -> Vec<u8> {
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
        self.fbb.finished_data().to_vec()
    }
}
