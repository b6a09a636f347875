//! Inputs and outputs of a sender.

use std::sync::Arc;

use crate::error::Error;
use crate::proto::{Bytes, Grant, Headers, Request, Role, RoleTags, Spans, StreamInfo, Tags};

/// Configuration of a [`Sender`](super::Sender).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfig {
    /// The tags that the sender answers, for each role that it serves.
    pub tags: RoleTags,
    /// Number of the schema: 0, except in tests of the wrap-around (rule M4).
    pub first_seq: u32,
}

impl Default for SenderConfig {
    /// Every role with its default tags (rule U5).
    fn default() -> Self {
        Self {
            tags: RoleTags::DEFAULT,
            first_seq: 0,
        }
    }
}

impl SenderConfig {
    /// One role with these tags.
    pub const fn only(role: Role, tags: Tags) -> Self {
        Self {
            tags: RoleTags::only(role, tags),
            first_seq: 0,
        }
    }
}

/// The body of an outgoing message.
#[derive(Debug)]
pub enum OutBody<P, K> {
    /// Kind 0: the bytes (rule D3).
    Packed {
        /// Number of bytes: the body length in the header.
        len: u64,
        /// The payload for the transport.
        payload: P,
    },
    /// Kind 1: memory that the peer fetches and frees (rules D4, D7).
    Lent {
        /// One span for each buffer of the header; an empty buffer is (0, 0) (rule A1).
        spans: Spans,
        /// Keeps the memory alive, and comes back as [`SenderEvent::Freed`].
        hold: K,
        /// True if the memory is the producer's own: nothing was copied for the peer.
        in_place: bool,
    },
    /// The connection of the other role carries the body.
    Elsewhere,
}

/// A message for the transport.
#[derive(Debug, PartialEq, Eq)]
pub enum Transmit<P> {
    /// An untagged metadata message.
    Metadata {
        /// Kind and number.
        prefix: [u8; 5],
        /// Flatbuffer bytes; `None` for the end of stream, and for a repeated header.
        header: Option<Arc<[u8]>>,
    },
    /// A control message.
    Control {
        /// The encoded message.
        bytes: Vec<u8>,
        /// The region that the message announces. The region's descriptor goes with the message.
        region: Option<u16>,
    },
    /// A request.
    Request {
        /// The whole tag.
        tag: u64,
        /// The encoded request.
        bytes: Bytes,
    },
    /// A packed body.
    Body {
        /// The whole tag.
        tag: u64,
        /// The bytes.
        packed: P,
    },
    /// An address list.
    List {
        /// The whole tag.
        tag: u64,
        /// The encoded list.
        bytes: Bytes,
    },
    /// Cut the connection after all earlier messages have left; then call
    /// [`handle_disconnect`](super::Sender::handle_disconnect).
    Disconnect {
        /// The reason, for the log (rule E7).
        reason: String,
    },
}

/// Events of a sender.
#[derive(Debug, PartialEq, Eq)]
pub enum SenderEvent<K> {
    /// The client requests a stream: call [`accept`](super::Sender::accept) or
    /// [`refuse`](super::Sender::refuse).
    Requested {
        /// The request. Of a baseline peer, only the ticket has a meaning.
        request: Request,
        /// Whether the client speaks the extension.
        extension: bool,
        /// The role that the client requests (rule U3).
        role: Role,
    },
    /// The client does not want the stream any more: call [`fail`](super::Sender::fail) or
    /// [`end`](super::Sender::end) soon; both answer the client.
    Cancelled,
    /// [`may_pull`](super::Sender::may_pull) and [`admits`](super::Sender::admits) may have
    /// changed.
    CreditChanged,
    /// The peer has returned every span of a lend.
    Freed(K),
    /// The server has read the request; its answer takes longer.
    Pending,
    /// The server takes the stream of this client: batches may go.
    Granted {
        /// The agreed version and features.
        info: StreamInfo,
        /// What may be sent.
        grant: Grant,
        /// Headers of the answer.
        headers: Headers,
    },
    /// The server has refused the stream of this client, or has failed. This is its last word.
    Refused {
        /// Status and text of the server.
        error: Error,
        /// Headers of the answer.
        headers: Headers,
    },
    /// The server's host says that a part of this client's stream is safe (rule Q4).
    Result {
        /// Number of record batches that this result covers, counted from the first one.
        batches: u64,
        /// Bytes from the host program, passed on unread.
        bytes: Vec<u8>,
    },
    /// The server's host has taken the whole stream of this client. This is the server's last word.
    Finished {
        /// Record batches that the host has taken.
        batches: u64,
        /// Headers of the answer.
        headers: Headers,
    },
}

/// State of a [`Sender`](super::Sender).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SenderState {
    /// Between streams: a request may come.
    Idle,
    /// A request waits for [`accept`](super::Sender::accept) or [`refuse`](super::Sender::refuse).
    Requested,
    /// A stream runs.
    Streaming,
    /// This client has asked the server to take a stream; the server has not answered. The schema
    /// may go (rule Q3).
    Asked,
    /// The stream of this client has left, whole or not. The server's last word has not come.
    Ending,
    /// This server takes a stream of the client.
    Taking,
    /// This server has failed the client's stream. The client's last word has not come (rule Q10).
    Draining,
    /// The only stream of this connection is over; its lent memory may still come back (rule F2).
    ///
    /// A baseline peer sends one request only. So does the client on a connection of role Data:
    /// nothing on the connection marks the end of the stream, so the client could not tell the next
    /// stream apart.
    Ended,
    /// The connection is over.
    Closed,
}
