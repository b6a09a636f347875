//! Our extension's control messages (section E); `docs/wire.md` has the exact bytes.

mod fields;

use crate::error::{Error, Status};
use crate::proto::ProtocolError;
use crate::proto::extension::Credit;
use crate::proto::headers::Headers;

/// Bit of [`StreamInfo::body_kinds`]: packed bodies may come.
pub const BODY_KIND_PACKED: u8 = 1;
/// Bit of [`StreamInfo::body_kinds`]: address lists may come.
pub const BODY_KIND_LIST: u8 = 2;

/// Longest text of an ERROR, in bytes; `encode` cuts a longer text (rule Q1).
const MOST_TEXT: usize = 8 << 10;

/// Bytes of a CUDA IPC handle, which opens an event or memory of another process.
pub const IPC_HANDLE_BYTES: usize = 64;

/// Properties of a stream. The server sends them before the schema (rule E2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamInfo {
    /// Version of the extension, within the range of the request.
    pub version: u16,
    /// Features in use, out of the features of the request.
    pub features: u64,
    /// Device of the bodies, as `ArrowDeviceType`.
    pub device_type: i32,
    /// Number of the device; -1 if the device type has no numbers.
    pub device_id: i64,
    /// Bits of [`BODY_KIND_PACKED`] and [`BODY_KIND_LIST`].
    pub body_kinds: u8,
}

/// What a server grants to a client that sends (rule Q3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Credit of the client before the first CREDIT.
    pub credit: Credit,
    /// Most bytes of copies lent at a time. Beyond this limit bodies travel packed.
    pub lent_limit: u64,
    /// Device where the server wants bodies, as
    /// [`Request::device_type`](crate::proto::Request::device_type).
    pub device_type: i32,
}

/// A control message (rule E3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Server: accepts the request. Has headers only if
    /// [`FEATURE_HEADERS`](crate::proto::FEATURE_HEADERS) is in use.
    Stream(StreamInfo, Headers),
    /// Server: accepts a stream of the client's. STREAM of put and exchange (rule Q3).
    Grant {
        /// Version and features in use, out of those of the request's source. The rest describes
        /// the server's own direction.
        info: StreamInfo,
        /// What the client may send.
        grant: Grant,
        /// Headers, as in STREAM.
        headers: Headers,
    },
    /// Server: so much of the client's stream is safe, by the host's word (rule Q4).
    Result {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// Record batches from the first on that this result covers.
        batches: u64,
        /// Bytes of the host.
        bytes: Vec<u8>,
    },
    /// Client: its stream ends at message `seq`, not well (rule Q10). Earlier messages stay valid.
    Abort {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// The number of a [`Status`].
        status: i32,
        /// Number of the first message that will not come.
        seq: u32,
        /// The text for people.
        text: String,
    },
    /// Server: the host has taken all of the client's stream (rule Q4).
    End {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// Number of the server's next message.
        seq: u32,
        /// Record batches that the host has taken.
        batches: u64,
        /// Headers, as in STREAM.
        headers: Headers,
    },
    /// Server: the stream fails at message `seq`. Earlier messages stay valid.
    Error {
        /// The number of a [`Status`].
        status: i32,
        /// Number of the first message that will not come.
        seq: u32,
        /// The text for people.
        text: String,
        /// Headers, as in STREAM.
        headers: Headers,
    },
    /// Client: cancels the stream.
    Cancel {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
    },
    /// Client: totals since the start (rule E5).
    Credit {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// Credit, as totals.
        credit: Credit,
    },
    /// Server: addresses may name this region from now on.
    Region {
        /// Number of the region, from 1.
        id: u16,
        /// Data that the transport needs to reach the region.
        handle: Vec<u8>,
    },
    /// Server: no address will name this region again.
    RegionGone {
        /// Number of the region.
        id: u16,
    },
    /// Client: has forgotten the region. The region's number is free again.
    RegionForgotten {
        /// Number of the region.
        id: u16,
    },
    /// Server: the body of message `seq` may be read only after a CUDA event. The address list of
    /// the message comes later.
    Ready {
        /// Number of the message.
        seq: u32,
        /// Number of the event on this connection.
        event: u16,
        /// Handle that opens the event, [`IPC_HANDLE_BYTES`] long; empty if sent before.
        handle: Vec<u8>,
    },
    /// Client: returns lent bodies (rule F1). Only if
    /// [`FEATURE_RETURN`](crate::proto::FEATURE_RETURN) is in use.
    Return {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// Numbers of the messages of the bodies, at least one.
        seqs: Vec<u32>,
    },
    /// Server: takes no further request on this connection. The client closes the connection once
    /// the running stream, if any, has arrived completely.
    GoAway,
    /// Server: has read the request, and STREAM or ERROR takes longer
    /// ([`FEATURE_PENDING`](crate::proto::FEATURE_PENDING)).
    Pending {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
    },
    /// Server: takes many streams at once on this connection (rule S1). Only for a client that knows
    /// [`FEATURE_STREAMS`](crate::proto::FEATURE_STREAMS).
    Streams {
        /// Most streams at once, at least 1.
        limit: u32,
    },
}

const STREAM: u8 = 1;
const ERROR: u8 = 2;
const CANCEL: u8 = 3;
const CREDIT: u8 = 4;
const REGION: u8 = 5;
const REGION_GONE: u8 = 6;
const REGION_FORGOTTEN: u8 = 7;
const READY: u8 = 9;
const RETURN: u8 = 11;
const GOAWAY: u8 = 12;
const PENDING: u8 = 15;
const STREAM_WITH_HEADERS: u8 = 16;
const ERROR_WITH_HEADERS: u8 = 17;
const END: u8 = 18;
const RESULT: u8 = 19;
const ABORT: u8 = 20;
const GRANT: u8 = 21;
const STREAMS: u8 = 23;

/// Most bytes of a message without headers, a text, a handle or a list.
const MOST_FIXED: usize = 64;

/// Most bytes of a RESULT of the host.
pub const MOST_RESULT: usize = 32 << 10;

impl StreamInfo {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.version.to_le_bytes());
        bytes.extend_from_slice(&self.features.to_le_bytes());
        bytes.extend_from_slice(&self.device_type.to_le_bytes());
        bytes.extend_from_slice(&self.device_id.to_le_bytes());
        bytes.push(self.body_kinds);
    }
}

/// The part of a text that a message has room for.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MOST_TEXT))
        .unwrap_or(text)
}

/// Starts a message of this kind.
fn begin(kind: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MOST_FIXED);
    bytes.push(kind);
    bytes
}

impl Control {
    /// The bytes. Cuts the text of an ERROR at 8 KiB.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Stream(info, headers) => {
                let mut bytes = begin(match headers.is_empty() {
                    true => STREAM,
                    false => STREAM_WITH_HEADERS,
                });
                info.encode(&mut bytes);
                headers.encode(&mut bytes);
                bytes
            }
            Self::Grant {
                info,
                grant,
                headers,
            } => {
                let mut bytes = begin(GRANT);
                info.encode(&mut bytes);
                bytes.extend_from_slice(&grant.credit.batches.to_le_bytes());
                bytes.extend_from_slice(&grant.credit.bytes.to_le_bytes());
                bytes.extend_from_slice(&grant.lent_limit.to_le_bytes());
                bytes.extend_from_slice(&grant.device_type.to_le_bytes());
                headers.encode(&mut bytes);
                bytes
            }
            Self::Result {
                stream,
                batches,
                bytes: result,
            } => {
                let mut bytes = begin(RESULT);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes.extend_from_slice(&batches.to_le_bytes());
                bytes.extend_from_slice(result);
                bytes
            }
            Self::Abort {
                stream,
                status,
                seq,
                text,
            } => {
                let mut bytes = begin(ABORT);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes.extend_from_slice(&status.to_le_bytes());
                bytes.extend_from_slice(&seq.to_le_bytes());
                bytes.extend_from_slice(cut(text).as_bytes());
                bytes
            }
            Self::End {
                stream,
                seq,
                batches,
                headers,
            } => {
                let mut bytes = begin(END);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes.extend_from_slice(&seq.to_le_bytes());
                bytes.extend_from_slice(&batches.to_le_bytes());
                headers.encode(&mut bytes);
                bytes
            }
            Self::Error {
                status,
                seq,
                text,
                headers,
            } => {
                let mut bytes = begin(match headers.is_empty() {
                    true => ERROR,
                    false => ERROR_WITH_HEADERS,
                });
                bytes.extend_from_slice(&status.to_le_bytes());
                bytes.extend_from_slice(&seq.to_le_bytes());
                if !headers.is_empty() {
                    let len = u32::try_from(headers.encoded_len()).unwrap_or(u32::MAX);
                    bytes.extend_from_slice(&len.to_le_bytes());
                    headers.encode(&mut bytes);
                }
                bytes.extend_from_slice(cut(text).as_bytes());
                bytes
            }
            Self::Cancel { stream } => {
                let mut bytes = begin(CANCEL);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes
            }
            Self::Credit { stream, credit } => {
                let mut bytes = begin(CREDIT);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes.extend_from_slice(&credit.batches.to_le_bytes());
                bytes.extend_from_slice(&credit.bytes.to_le_bytes());
                bytes
            }
            Self::Region { id, handle } => {
                let mut bytes = begin(REGION);
                bytes.extend_from_slice(&id.to_le_bytes());
                bytes.extend_from_slice(handle);
                bytes
            }
            Self::RegionGone { id } => {
                let [low, high] = id.to_le_bytes();
                vec![REGION_GONE, low, high]
            }
            Self::RegionForgotten { id } => {
                let [low, high] = id.to_le_bytes();
                vec![REGION_FORGOTTEN, low, high]
            }
            Self::Ready { seq, event, handle } => {
                let mut bytes = begin(READY);
                bytes.extend_from_slice(&seq.to_le_bytes());
                bytes.extend_from_slice(&event.to_le_bytes());
                bytes.extend_from_slice(handle);
                bytes
            }
            Self::Return { stream, seqs } => {
                let mut bytes = begin(RETURN);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes.extend(seqs.iter().flat_map(|seq| seq.to_le_bytes()));
                bytes
            }
            Self::GoAway => vec![GOAWAY],
            Self::Pending { stream } => {
                let mut bytes = begin(PENDING);
                bytes.extend_from_slice(&stream.to_le_bytes());
                bytes
            }
            Self::Streams { limit } => {
                let mut bytes = begin(STREAMS);
                bytes.extend_from_slice(&limit.to_le_bytes());
                bytes
            }
        }
    }

    /// Reads a message; `None` for a kind that this version does not know and must ignore.
    ///
    /// # Errors
    ///
    /// Rule E3: the message is empty, or has a known kind and is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some((kind, payload)) = bytes.split_first() else {
            return Err(ProtocolError::new(
                "E3",
                "empty control message: it starts with its kind",
            ));
        };
        let (name, message) = match *kind {
            STREAM => ("STREAM", Self::stream(payload)),
            STREAM_WITH_HEADERS => ("STREAM", Self::stream_with_headers(payload)),
            GRANT => ("GRANT", Self::grant(payload)),
            RESULT => ("RESULT", Self::result(payload)),
            ABORT => ("ABORT", Self::abort(payload)),
            END => ("END", Self::ended(payload)),
            ERROR => ("ERROR", Self::error(payload)),
            ERROR_WITH_HEADERS => ("ERROR", Self::error_with_headers(payload)),
            CANCEL => ("CANCEL", Self::cancel(payload)),
            CREDIT => ("CREDIT", Self::credit(payload)),
            REGION => ("REGION", Self::region(payload)),
            REGION_GONE => (
                "REGION_GONE",
                Self::region_id(payload).map(|id| Self::RegionGone { id }),
            ),
            REGION_FORGOTTEN => (
                "REGION_FORGOTTEN",
                Self::region_id(payload).map(|id| Self::RegionForgotten { id }),
            ),
            READY => ("READY", Self::ready(payload)),
            RETURN => ("RETURN", Self::returned(payload)),
            GOAWAY => ("GOAWAY", payload.is_empty().then_some(Self::GoAway)),
            PENDING => ("PENDING", Self::pending(payload)),
            STREAMS => ("STREAMS", Self::streams(payload)),
            // Rule E3: unknown kinds are ignored. The transports themselves read 8 (JOIN), 10
            // (RING), 22 (CHECKSUMS) and 24 (CLIENT_RING).
            _ => return Ok(None),
        };
        message.map(Some).ok_or_else(|| {
            ProtocolError::new(
                "E3",
                format!(
                    "malformed {name} message of {} bytes: see docs/wire.md",
                    bytes.len()
                ),
            )
        })
    }

    /// The name of the kind, for texts.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Stream(..) => "STREAM",
            Self::Grant { .. } => "GRANT",
            Self::Result { .. } => "RESULT",
            Self::Abort { .. } => "ABORT",
            Self::End { .. } => "END",
            Self::Error { .. } => "ERROR",
            Self::Cancel { .. } => "CANCEL",
            Self::Credit { .. } => "CREDIT",
            Self::Region { .. } => "REGION",
            Self::RegionGone { .. } => "REGION_GONE",
            Self::RegionForgotten { .. } => "REGION_FORGOTTEN",
            Self::Ready { .. } => "READY",
            Self::Return { .. } => "RETURN",
            Self::GoAway => "GOAWAY",
            Self::Pending { .. } => "PENDING",
            Self::Streams { .. } => "STREAMS",
        }
    }
}

/// The error that an ERROR message stands for at the client. A status that is unknown here, or that
/// has a meaning only inside one process, becomes [`Status::Provider`].
pub(crate) fn error_of(status: i32, text: &str) -> Error {
    match Status::from_code(status) {
        Some(known) if known.is_for_peers() => Error::new(known, text),
        Some(own) => Error::new(Status::Provider, format!("{text} ({})", own.symbol())),
        None => Error::new(Status::Provider, format!("{text} (status {status})")),
    }
}

#[cfg(test)]
#[path = "../tests/control.rs"]
mod tests;
