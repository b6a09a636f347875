//! What goes into a sender and what comes out.

use std::sync::Arc;

use crate::proto::{Bytes, Request, Role, RoleTags, Spans, Tags};

/// What a [`Sender`](super::Sender) listens for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SenderConfig {
    /// The tags it answers to, for each role it serves.
    pub tags: RoleTags,
    /// Number of the schema: 0, but in tests of the wrap-around (rule M4).
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

/// The body of a message to be sent.
#[derive(Debug)]
pub enum OutBody<P, K> {
    /// Kind 0: the bytes (rule D3).
    Packed {
        /// Their number: the header's body length.
        len: u64,
        /// What the transport sends.
        payload: P,
    },
    /// Kind 1: memory that the peer fetches and frees (rules D4, D7).
    Lent {
        /// One for each buffer of the header, empty ones as (0, 0) (rule A1).
        spans: Spans,
        /// Keeps the memory alive; comes back as [`SenderEvent::Freed`].
        hold: K,
        /// It lies where the producer has it: nothing was copied for the peer.
        in_place: bool,
    },
    /// The connection of the other role carries it.
    Elsewhere,
}

/// A message for the transport.
#[derive(Debug, PartialEq, Eq)]
pub enum Transmit<P> {
    /// Untagged.
    Metadata {
        /// Kind and number.
        prefix: [u8; 5],
        /// Flatbuffer bytes; `None` for the end of stream, and for a header like the one before.
        header: Option<Arc<[u8]>>,
    },
    /// Control.
    Control {
        /// The encoded message.
        bytes: Vec<u8>,
        /// The region it announces, whose descriptor goes with it.
        region: Option<u16>,
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
    /// Cut the connection once everything before has left; then call
    /// [`handle_disconnect`](super::Sender::handle_disconnect).
    Disconnect {
        /// Why, for the log (rule E7).
        reason: String,
    },
}

/// What happened.
#[derive(Debug, PartialEq, Eq)]
pub enum SenderEvent<K> {
    /// A stream is asked for: [`accept`](super::Sender::accept) or
    /// [`refuse`](super::Sender::refuse) it.
    Requested {
        /// What the client said; of a baseline peer only the ticket means anything.
        request: Request,
        /// Whether the client speaks the extension.
        extension: bool,
        /// The streams asked for (rule U3).
        role: Role,
    },
    /// The client does not want the stream any more: call [`fail`](super::Sender::fail) or
    /// [`end`](super::Sender::end), soon; both answer it.
    Cancelled,
    /// [`may_pull`](super::Sender::may_pull) and [`admits`](super::Sender::admits) may have
    /// changed.
    CreditChanged,
    /// Every span of a lend has been returned.
    Freed(K),
    /// The client has forgotten a retired region: its number may be used again.
    RegionForgotten {
        /// The number.
        id: u16,
    },
}

/// Where a [`Sender`](super::Sender) stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SenderState {
    /// Between streams: a request may come.
    Idle,
    /// A request waits for [`accept`](super::Sender::accept) or [`refuse`](super::Sender::refuse).
    Requested,
    /// A stream runs.
    Streaming,
    /// The only stream of this connection is over; what it lent may still come back (rule F2).
    ///
    /// A baseline peer gets here, since it asks once, and so does a connection of role Data:
    /// nothing on it tells the client where the stream ends, so no further request could be told
    /// apart.
    Ended,
    /// The connection is over.
    Closed,
}
