//! The fields of each kind of control message. `None`: the message is malformed.

use super::{
    BODY_KIND_LIST, BODY_KIND_PACKED, Control, Grant, IPC_HANDLE_BYTES, MOST_RESULT, StreamInfo,
};
use crate::proto::extension::Credit;
use crate::proto::headers::{Headers, MAX_ANSWER_HEADERS};
use crate::proto::wire::Fields;

impl Control {
    pub(super) fn stream(payload: &[u8]) -> Option<Self> {
        let (info, rest) = Self::stream_info(payload)?;
        rest.is_empty().then(|| Self::Stream(info, Headers::new()))
    }

    pub(super) fn stream_with_headers(payload: &[u8]) -> Option<Self> {
        let (info, rest) = Self::stream_info(payload)?;
        Some(Self::Stream(info, answer_headers(rest)?))
    }

    /// The common start of both forms of STREAM, and the bytes after it.
    pub(super) fn stream_info(payload: &[u8]) -> Option<(StreamInfo, &[u8])> {
        let mut fields = Fields::new(payload);
        let info = StreamInfo {
            version: fields.u16()?,
            features: fields.u64()?,
            device_type: fields.i32()?,
            device_id: fields.i64()?,
            body_kinds: fields.u8()?,
        };
        let some_kind = info.body_kinds & (BODY_KIND_PACKED | BODY_KIND_LIST) != 0;
        (info.version != 0 && some_kind).then(|| (info, fields.rest()))
    }

    pub(super) fn grant(payload: &[u8]) -> Option<Self> {
        let (info, rest) = Self::stream_info(payload)?;
        let mut fields = Fields::new(rest);
        let grant = Grant {
            credit: Credit {
                batches: fields.u64()?,
                bytes: fields.u64()?,
            },
            lent_limit: fields.u64()?,
            device_type: fields.i32()?,
        };
        let headers = answer_headers(fields.rest())?;
        Some(Self::Grant {
            info,
            grant,
            headers,
        })
    }

    pub(super) fn streams(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let limit = fields.u32().filter(|limit| *limit > 0)?;
        fields.rest().is_empty().then_some(Self::Streams { limit })
    }

    pub(super) fn result(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let (stream, batches) = (fields.u64()?, fields.u64()?);
        let bytes = fields.rest();
        (bytes.len() <= MOST_RESULT).then(|| Self::Result {
            stream,
            batches,
            bytes: bytes.to_vec(),
        })
    }

    pub(super) fn abort(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let (stream, status, seq) = (fields.u64()?, fields.i32()?, fields.u32()?);
        let text = str::from_utf8(fields.rest()).ok()?.to_owned();
        // A status of success would be no failure.
        (status < 0).then_some(Self::Abort {
            stream,
            status,
            seq,
            text,
        })
    }

    pub(super) fn ended(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        Some(Self::End {
            stream: fields.u64()?,
            seq: fields.u32()?,
            batches: fields.u64()?,
            headers: answer_headers(fields.rest())?,
        })
    }

    pub(super) fn error(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let (status, seq) = (fields.i32()?, fields.u32()?);
        Self::failure(status, seq, fields.rest(), Headers::new())
    }

    pub(super) fn error_with_headers(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let (status, seq) = (fields.i32()?, fields.u32()?);
        let len = usize::try_from(fields.u32()?).ok()?;
        let (headers, text) = fields.rest().split_at_checked(len)?;
        Self::failure(status, seq, text, answer_headers(headers)?)
    }

    pub(super) fn failure(status: i32, seq: u32, text: &[u8], headers: Headers) -> Option<Self> {
        let text = str::from_utf8(text).ok()?.to_owned();
        // A status of success would be no failure.
        (status < 0).then_some(Self::Error {
            status,
            seq,
            text,
            headers,
        })
    }

    pub(super) fn cancel(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let stream = fields.u64()?;
        fields.end()?;
        Some(Self::Cancel { stream })
    }

    pub(super) fn pending(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let stream = fields.u64()?;
        fields.end()?;
        Some(Self::Pending { stream })
    }

    pub(super) fn credit(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let stream = fields.u64()?;
        let credit = Credit {
            batches: fields.u64()?,
            bytes: fields.u64()?,
        };
        fields.end()?;
        Some(Self::Credit { stream, credit })
    }

    pub(super) fn region(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let id = fields.u16().filter(|id| *id != 0)?;
        Some(Self::Region {
            id,
            handle: fields.rest().to_vec(),
        })
    }

    /// Reads the number of a region. Numbers start at 1.
    pub(super) fn region_id(payload: &[u8]) -> Option<u16> {
        let mut fields = Fields::new(payload);
        let id = fields.u16().filter(|id| *id != 0)?;
        fields.end()?;
        Some(id)
    }

    pub(super) fn ready(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let (seq, event) = (fields.u32()?, fields.u16()?);
        let handle = fields.rest().to_vec();
        matches!(handle.len(), 0 | IPC_HANDLE_BYTES).then_some(Self::Ready { seq, event, handle })
    }

    pub(super) fn returned(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields::new(payload);
        let stream = fields.u64()?;
        let (seqs, rest) = fields.rest().as_chunks::<4>();
        let seqs: Vec<_> = seqs.iter().map(|seq| u32::from_le_bytes(*seq)).collect();
        (!seqs.is_empty() && rest.is_empty()).then_some(Self::Return { stream, seqs })
    }
}

fn answer_headers(bytes: &[u8]) -> Option<Headers> {
    Headers::decode(bytes, MAX_ANSWER_HEADERS).ok()
}
