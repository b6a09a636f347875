//! Our extension's control messages (section E); `docs/wire.md` has the exact bytes.

use crate::error::{Error, Status};
use crate::proto::ProtocolError;
use crate::proto::extension::{Credit, VERSION};
use crate::proto::headers::Headers;
use crate::proto::wire::{Fields, Wire, wire_struct};

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
    /// Server: its host says that a part of the client's stream is safe (rule Q4).
    Result {
        /// The stream: [`Request::mark`](crate::proto::Request::mark).
        stream: u64,
        /// Number of record batches that this result covers, counted from the first one.
        batches: u64,
        /// Bytes from the host program, passed on unread.
        bytes: Vec<u8>,
    },
    /// Client: its stream fails at message `seq` (rule Q10). Earlier messages stay valid.
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
    /// Server: takes many streams at once on this connection (rule S1). Only for clients that know
    /// [`FEATURE_STREAMS`](crate::proto::FEATURE_STREAMS).
    Streams {
        /// Most streams at once, at least 1.
        limit: u32,
    },
}

impl StreamInfo {
    /// The properties of a stream on a device of this type, whose bodies are packed or listed.
    pub(crate) fn of(device_type: i32, features: u64) -> Self {
        Self {
            version: VERSION,
            features,
            device_type,
            device_id: -1,
            body_kinds: BODY_KIND_PACKED | BODY_KIND_LIST,
        }
    }
}

wire_struct!(StreamInfo {
    version,
    features,
    device_type,
    device_id,
    body_kinds
});
wire_struct!(Grant {
    credit,
    lent_limit,
    device_type
});

/// A text up to the end of the message. The part beyond 8 KiB is left out.
impl Wire for String {
    fn put(&self, bytes: &mut Vec<u8>) {
        let text = self.get(..self.floor_char_boundary(MOST_TEXT));
        bytes.extend_from_slice(text.unwrap_or(self).as_bytes());
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        Some(str::from_utf8(fields.rest()).ok()?.to_owned())
    }
}

/// Most bytes of a message without headers, a text, a handle or a list.
const MOST_FIXED: usize = 64;
/// Most bytes of a RESULT of the host.
pub const MOST_RESULT: usize = 32 << 10;

const STREAM: u8 = 1;
const ERROR: u8 = 2;
const STREAM_WITH_HEADERS: u8 = 16;
const ERROR_WITH_HEADERS: u8 = 17;

/// The number, the name and the fields of each kind, in the order of the bytes. The kinds of STREAM
/// and ERROR depend on their headers, and have functions of their own.
macro_rules! kinds {
    ($($number:literal $name:literal $kind:ident { $($field:ident),* };)*) => {
        impl Control {
            /// The bytes. Cuts the text of an ERROR at 8 KiB.
            pub fn encode(&self) -> Vec<u8> {
                let mut bytes = Vec::with_capacity(MOST_FIXED);
                match self {
                    Self::Stream(info, headers) => put_stream(info, headers, &mut bytes),
                    Self::Error { status, seq, text, headers } => {
                        put_error(*status, *seq, headers, &mut bytes);
                        text.put(&mut bytes);
                    }
                    $(Self::$kind { $($field),* } => {
                        bytes.push($number);
                        $($field.put(&mut bytes);)*
                    })*
                }
                bytes
            }

            /// The message of a kind that is known, unless it is malformed.
            fn take(kind: u8, fields: &mut Fields<'_>) -> Option<Self> {
                match kind {
                    STREAM | STREAM_WITH_HEADERS => take_stream(kind, fields),
                    ERROR | ERROR_WITH_HEADERS => take_error(kind, fields),
                    $($number => Some(Self::$kind { $($field: fields.take()?),* }),)*
                    _ => None,
                }
            }

            fn name_of(kind: u8) -> Option<&'static str> {
                match kind {
                    STREAM | STREAM_WITH_HEADERS => Some("STREAM"),
                    ERROR | ERROR_WITH_HEADERS => Some("ERROR"),
                    $($number => Some($name),)*
                    // Rule E3: unknown kinds are ignored. The transports themselves read 8 (JOIN),
                    // 10 (RING), 22 (CHECKSUMS) and 24 (CLIENT_RING).
                    _ => None,
                }
            }

            /// The name of the kind, for texts.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    Self::Stream(..) => "STREAM",
                    Self::Error { .. } => "ERROR",
                    $(Self::$kind { .. } => $name,)*
                }
            }
        }
    };
}

kinds! {
    3 "CANCEL" Cancel { stream };
    4 "CREDIT" Credit { stream, credit };
    5 "REGION" Region { id, handle };
    6 "REGION_GONE" RegionGone { id };
    7 "REGION_FORGOTTEN" RegionForgotten { id };
    9 "READY" Ready { seq, event, handle };
    11 "RETURN" Return { stream, seqs };
    12 "GOAWAY" GoAway {};
    15 "PENDING" Pending { stream };
    18 "END" End { stream, seq, batches, headers };
    19 "RESULT" Result { stream, batches, bytes };
    20 "ABORT" Abort { stream, status, seq, text };
    21 "GRANT" Grant { info, grant, headers };
    23 "STREAMS" Streams { limit };
}

fn put_stream(info: &StreamInfo, headers: &Headers, bytes: &mut Vec<u8>) {
    bytes.push(match headers.is_empty() {
        true => STREAM,
        false => STREAM_WITH_HEADERS,
    });
    info.put(bytes);
    headers.put(bytes);
}

fn take_stream(kind: u8, fields: &mut Fields<'_>) -> Option<Control> {
    let info = fields.take()?;
    let headers = match kind {
        STREAM => Headers::new(),
        _ => fields.take()?,
    };
    Some(Control::Stream(info, headers))
}

/// Writes an ERROR without its text.
fn put_error(status: i32, seq: u32, headers: &Headers, bytes: &mut Vec<u8>) {
    bytes.push(match headers.is_empty() {
        true => ERROR,
        false => ERROR_WITH_HEADERS,
    });
    status.put(bytes);
    seq.put(bytes);
    if !headers.is_empty() {
        let len = u32::try_from(headers.encoded_len()).unwrap_or(u32::MAX);
        len.put(bytes);
        headers.put(bytes);
    }
}

fn take_error(kind: u8, fields: &mut Fields<'_>) -> Option<Control> {
    let (status, seq) = (fields.take()?, fields.take()?);
    let mut headers = Headers::new();
    if kind == ERROR_WITH_HEADERS {
        let len = usize::try_from(fields.take::<u32>()?).ok()?;
        let (of_headers, text) = fields.rest().split_at_checked(len)?;
        headers = Fields::new(of_headers).take()?;
        *fields = Fields::new(text);
    }
    let text = fields.take()?;
    Some(Control::Error {
        status,
        seq,
        text,
        headers,
    })
}

impl Control {
    /// Reads a message; `None` for a kind that this version does not know and must ignore.
    ///
    /// # Errors
    ///
    /// Rule E3: the message is empty, or has a known kind and is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, ProtocolError> {
        let Some((kind, payload)) = bytes.split_first() else {
            return Err(broken!(
                "E3",
                "empty control message: it starts with its kind"
            ));
        };
        let Some(name) = Self::name_of(*kind) else {
            return Ok(None);
        };
        let mut fields = Fields::new(payload);
        let message =
            Self::take(*kind, &mut fields).filter(|it| fields.end().is_some() && it.is_valid());
        message.map(Some).ok_or_else(|| {
            let len = bytes.len();
            broken!(
                "E3",
                "malformed {name} message of {len} bytes: see docs/wire.md"
            )
        })
    }

    /// Whether the fields have values that they may have.
    fn is_valid(&self) -> bool {
        match self {
            Self::Stream(info, _) | Self::Grant { info, .. } => {
                info.version != 0 && info.body_kinds & (BODY_KIND_PACKED | BODY_KIND_LIST) != 0
            }
            // A status of success would be no failure.
            Self::Error { status, .. } | Self::Abort { status, .. } => *status < 0,
            Self::Streams { limit } => *limit > 0,
            Self::Result { bytes, .. } => bytes.len() <= MOST_RESULT,
            // Numbers start at 1.
            Self::Region { id, .. } | Self::RegionGone { id } | Self::RegionForgotten { id } => {
                *id != 0
            }
            Self::Ready { handle, .. } => matches!(handle.len(), 0 | IPC_HANDLE_BYTES),
            Self::Return { seqs, .. } => !seqs.is_empty(),
            _ => true,
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
#[path = "tests/control.rs"]
mod tests;
