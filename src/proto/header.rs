//! Verified Arrow IPC headers, with the fields that the state machines need.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow::ipc::{Endianness, Message, MessageHeader, MetadataVersion};
use flatbuffers::VerifierOptions;

use crate::proto::ProtocolError;

/// Kinds of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderKind {
    /// The schema; it has no body (rule D1).
    Schema,
    /// A dictionary, or an addition to one.
    Dictionary,
    /// A record batch.
    RecordBatch,
}

/// Place of one buffer in a packed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodySpan {
    /// Bytes from the start of the body; 0 if `length` is 0.
    pub offset: u64,
    /// Length in bytes, without padding.
    pub length: u64,
}

/// A verified header: its flatbuffer is valid and its buffers lie inside its body (rule A8). Clones
/// share the bytes.
#[derive(Clone)]
pub struct Header {
    parsed: Arc<Parsed>,
}

struct Parsed {
    /// The flatbuffer starts at `start`, aligned to 8 bytes (rule M7). Nothing is added to this
    /// `Vec` later, so its bytes do not move.
    store: Vec<u8>,
    start: usize,
    kind: HeaderKind,
    compressed: bool,
    body_len: u64,
    /// Place of the buffers' offsets and lengths in the flatbuffer, 16 bytes for each buffer.
    buffers: Range<usize>,
}

/// Alignment that flatbuffers need (rule M7).
const ALIGNMENT: usize = 8;

/// Most levels of nested tables. A field of a schema lies one level below its parent, and its type
/// one level below the field. Arrow's own readers stop at 64 levels.
const MAX_DEPTH: usize = 128;

/// Copies to 8-byte alignment. Returns the memory, and the place of the copy in it.
fn copy_aligned(bytes: &[u8]) -> Result<(Vec<u8>, usize), ProtocolError> {
    let mut store: Vec<u8> = Vec::new();
    let reserved = store.try_reserve_exact(bytes.len().saturating_add(ALIGNMENT));
    reserved.map_err(|_| broken!("A8", "no memory for a header of {} bytes", bytes.len()))?;
    let start = store.as_ptr().addr().wrapping_neg() % ALIGNMENT;
    store.resize(start, 0);
    store.extend_from_slice(bytes);
    Ok((store, start))
}

/// Limits for the verification of `len` bytes as a flatbuffer. The verifier follows every path to a
/// table, and hostile bytes can have many paths to few tables. Honest bytes have one path to each
/// table, and a table has more than 4 bytes, so the verifier reads each byte a few times.
pub fn verifier_options(len: usize) -> VerifierOptions {
    VerifierOptions {
        max_depth: MAX_DEPTH,
        max_tables: (len / 4).max(64),
        max_apparent_size: len.saturating_mul(8).max(4096),
        ignore_missing_null_terminator: true,
    }
}

impl Header {
    /// Copies, verifies and reads the flatbuffer bytes that follow a metadata prefix.
    ///
    /// # Errors
    ///
    /// The bytes are no flatbuffer (rule M7). The header is no schema, dictionary or record batch
    /// in a supported version (rules M2, A6), or is big-endian (rule A6). A schema has a body (rule
    /// D1). A buffer lies outside the body (rule A8).
    pub fn parse(bytes: &[u8]) -> Result<Self, ProtocolError> {
        // Rule M7: copy to alignment, then verify, then read.
        let (store, start) = copy_aligned(bytes)?;
        let mut parsed = Parsed {
            store,
            start,
            kind: HeaderKind::Schema,
            compressed: false,
            body_len: 0,
            buffers: 0..0,
        };
        parsed.read()?;
        Ok(Self {
            parsed: Arc::new(parsed),
        })
    }

    /// The kind of the header.
    pub fn kind(&self) -> HeaderKind {
        self.parsed.kind
    }

    /// Length of the packed body, padding included.
    pub fn body_len(&self) -> u64 {
        self.parsed.body_len
    }

    /// The place of each buffer inside the packed body. Empty for a schema.
    pub fn buffers(&self) -> impl ExactSizeIterator<Item = BodySpan> + Clone + '_ {
        self.parsed.entries().iter().map(|entry| {
            let (offset, length) = numbers(entry);
            BodySpan {
                offset: if length == 0 { 0 } else { offset },
                length,
            }
        })
    }

    /// Whether the buffers are compressed (rule A4).
    pub fn compressed(&self) -> bool {
        self.parsed.compressed
    }

    /// Whether this header is a clone of `other`.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.parsed, &other.parsed)
    }

    /// The flatbuffer: a verified `Message`, aligned to 8 bytes.
    pub fn bytes(&self) -> &[u8] {
        self.parsed.bytes()
    }

    /// Length in bytes of an address list for the body (rule D8): 16 + 16 n.
    pub fn list_len(&self) -> u64 {
        (self.buffers().len() as u64)
            .saturating_add(1)
            .saturating_mul(16)
    }
}

impl Parsed {
    fn read(&mut self) -> Result<(), ProtocolError> {
        let aligned = self.bytes();
        let message =
            flatbuffers::root_with_opts::<Message<'_>>(&verifier_options(aligned.len()), aligned)
                .map_err(|error| malformed(&error))?;
        // Rule A6.
        if message.version() != MetadataVersion::V4 && message.version() != MetadataVersion::V5 {
            return Err(broken!(
                "A6",
                "header of metadata version V{}: V4 and V5 are read",
                i32::from(message.version().0).saturating_add(1)
            ));
        }
        let body_len = u64::try_from(message.bodyLength())
            .map_err(|_| broken!("A8", "body of {} bytes", message.bodyLength()))?;
        let missing = |what: &str| broken!("M2", "header without its {what}");
        let (kind, batch) = match message.header_type() {
            MessageHeader::Schema => {
                let schema = message
                    .header_as_schema()
                    .ok_or_else(|| missing("schema"))?;
                if schema.endianness() != Endianness::Little {
                    return Err(broken!(
                        "A6",
                        "the stream is big-endian: its producer must write little-endian"
                    ));
                }
                // Rule D1: the schema has no body.
                if body_len != 0 {
                    return Err(broken!("D1", "schema with a body of {body_len} bytes"));
                }
                (HeaderKind::Schema, None)
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = message
                    .header_as_dictionary_batch()
                    .ok_or_else(|| missing("dictionary"))?;
                let data = dictionary
                    .data()
                    .ok_or_else(|| missing("dictionary's data"))?;
                (HeaderKind::Dictionary, Some(data))
            }
            MessageHeader::RecordBatch => {
                let batch = message
                    .header_as_record_batch()
                    .ok_or_else(|| missing("batch"))?;
                (HeaderKind::RecordBatch, Some(batch))
            }
            other => {
                return Err(broken!(
                    "M2",
                    "header of type {}: only schemas, dictionaries and record batches travel",
                    other
                        .variant_name()
                        .map_or_else(|| other.0.to_string(), str::to_owned)
                ));
            }
        };
        let compressed = batch.is_some_and(|batch| batch.compression().is_some());
        let buffers = batch.and_then(|batch| batch.buffers());
        // Read as bytes, because the generated code makes a call for each number.
        let buffers = buffers.map_or(&[][..], |buffers| buffers.bytes());
        ensure_inside(buffers, body_len)?;
        let start = buffers
            .as_ptr()
            .addr()
            .saturating_sub(aligned.as_ptr().addr());
        let buffers = start..start.saturating_add(buffers.len());
        self.kind = kind;
        self.compressed = compressed;
        self.body_len = body_len;
        self.buffers = buffers;
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        self.store.get(self.start..).unwrap_or_default()
    }

    fn entries(&self) -> &[[u8; 16]] {
        let bytes = self.bytes().get(self.buffers.clone());
        bytes.unwrap_or_default().as_chunks::<16>().0
    }
}

/// Parses the headers of one stream, in order.
///
/// Batches without nulls have equal headers if the types have a fixed width and the numbers of rows
/// are equal. So the parser gives the last header again for equal bytes.
#[derive(Debug, Default)]
pub struct HeaderParser {
    last: Option<Header>,
}

/// Longest header that the parser keeps, in bytes: a rare large header must not hold memory.
const LONGEST_REMEMBERED: usize = 1 << 20;

impl HeaderParser {
    /// A parser of a stream whose first header is probably `header`.
    pub fn expecting(header: Header) -> Self {
        Self { last: Some(header) }
    }

    /// As [`Header::parse`].
    ///
    /// # Errors
    ///
    /// The same as for [`Header::parse`].
    pub fn parse(&mut self, bytes: &[u8]) -> Result<Header, ProtocolError> {
        if let Some(last) = self.last.as_ref().filter(|last| last.bytes() == bytes) {
            return Ok(last.clone());
        }
        let header = Header::parse(bytes)?;
        self.last = (bytes.len() <= LONGEST_REMEMBERED).then(|| header.clone());
        Ok(header)
    }
}

fn malformed(error: &flatbuffers::InvalidFlatbuffer) -> ProtocolError {
    // The text of the crate continues with a trace on further lines.
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    broken!("M7", "header is not a valid flatbuffer: {first}")
}

/// Offset and length of a buffer.
fn numbers(entry: &[u8; 16]) -> (u64, u64) {
    let entry = u128::from_le_bytes(*entry);
    let low = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0);
    (low(entry), low(entry >> 64))
}

/// Checks that each buffer lies inside the body (rule A8), and that all buffers together are not
/// longer than the body. So a copy of all buffers costs no more than the body has bytes. The
/// verified header itself limits the number of buffers.
fn ensure_inside(buffers: &[u8], body_len: u64) -> Result<(), ProtocolError> {
    let (entries, _) = buffers.as_chunks::<16>();
    let mut total = 0_u64;
    for (index, entry) in entries.iter().enumerate() {
        let (offset, length) = numbers(entry);
        // The numbers are signed: a negative number lies outside any body.
        let inside = i64::try_from(length | offset).is_ok()
            && (length == 0
                || offset
                    .checked_add(length)
                    .is_some_and(|end| end <= body_len));
        if !inside {
            return Err(outside(index, offset, length, body_len));
        }
        // No overflow: `length` and `total` are below 2^63.
        total = total.wrapping_add(length);
        if total > body_len {
            return Err(overlapping(index, body_len));
        }
    }
    Ok(())
}

#[cold]
fn overlapping(index: usize, body_len: u64) -> ProtocolError {
    broken!(
        "A8",
        "the buffers up to buffer {index} are longer together than their body of {body_len} \
             bytes"
    )
}

#[cold]
fn outside(index: usize, offset: u64, length: u64, body_len: u64) -> ProtocolError {
    broken!(
        "A8",
        "buffer {index} of {} bytes at offset {} lies outside its body of {body_len} bytes",
        length.cast_signed(),
        offset.cast_signed(),
    )
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Header")
            .field("kind", &self.kind())
            .field("body_len", &self.body_len())
            .field("buffers", &self.buffers().len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tests/header.rs"]
mod tests;
