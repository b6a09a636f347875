//! What goes into a receiver and what comes out.

use std::time::Duration;

use crate::error::Error;
use crate::proto::{Header, Request, Span, StreamInfo, Tags, Timestamp};

/// Which connection of a stream. One that serves both streams is `Metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The metadata's, or the only one.
    Metadata,
    /// The bodies', where they have their own.
    Data,
}

/// How one connection of a stream is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideConfig {
    /// The tags of its URI.
    pub tags: Tags,
    /// Whether its server speaks the extension.
    pub extension: bool,
}

/// What a [`Receiver`](super::Receiver) asks for and of whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// The request; of it a baseline server sees the ticket alone.
    pub request: Request,
    /// The first or only connection.
    pub metadata: SideConfig,
    /// The second, where the streams are separate (rule U3).
    pub data: Option<SideConfig>,
    /// Number of the schema: 0, but in tests of the wrap-around (rule M4).
    pub first_seq: u32,
    /// How long the server may be silent while the consumer waits.
    pub stall_timeout: Option<Duration>,
    /// The same for the first answer of a baseline server, which cannot refuse (rule R5), where
    /// there is no stall timeout; `None`: for ever.
    pub silence_timeout: Option<Duration>,
    /// When a server that speaks the extension must have answered at the latest; `None`: no limit
    /// beside the stall timeout.
    pub answer: Option<AnswerLimit>,
}

/// How long the answer to a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimit {
    /// When it must be there.
    pub by: Timestamp,
    /// The option that this comes from, for texts.
    pub timeout: Duration,
}

/// The body of a message as it arrived.
#[derive(Debug)]
pub enum InBody<'a, B> {
    /// Kind 0.
    Packed {
        /// Bytes received.
        len: u64,
        /// Where they are.
        memory: B,
    },
    /// Kind 1: the encoded list.
    List(&'a [u8]),
}

/// The body of a message as it is handed out: it agrees with the header.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<B> {
    /// The packed body, as long as the header says.
    Packed(B),
    /// Lent memory, one span for each buffer of the header and of its length (rule A1). Each one
    /// that is not empty is to be freed once (rule F3).
    Lent(Vec<Span>),
}

/// A dictionary or a record batch, whole and in order.
#[derive(Debug)]
pub struct Message<B> {
    /// Its number.
    pub seq: u32,
    /// Its header.
    pub header: Header,
    /// Its body.
    pub body: Body<B>,
}

/// A message for a transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverTransmit {
    /// A request.
    Tagged {
        /// The connection.
        side: Side,
        /// The whole tag.
        tag: u64,
        /// Its payload.
        bytes: Vec<u8>,
    },
    /// Control.
    Control {
        /// The connection.
        side: Side,
        /// The encoded message.
        bytes: Vec<u8>,
    },
}

/// What happened.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// A server has accepted the request.
    Stream {
        /// The connection.
        side: Side,
        /// What it says of the stream.
        info: StreamInfo,
    },
    /// The schema, before any message.
    Schema(Header),
    /// The header of `seq` has come and its body not yet: post receives for it (rule D8).
    Expect {
        /// Number of the message.
        seq: u32,
        /// Length of a packed body.
        packed: u64,
        /// Length of an address list.
        list: u64,
    },
    /// The server announces a region: map it.
    Region {
        /// The connection.
        side: Side,
        /// Number of the region.
        id: u16,
        /// What the transport needs.
        handle: Vec<u8>,
    },
    /// The server has retired a region: unmap it. The acknowledgement waits in
    /// [`poll_transmit`](super::Receiver::poll_transmit) already.
    RegionGone {
        /// The connection.
        side: Side,
        /// Number of the region.
        id: u16,
    },
}

/// Where a [`Receiver`](super::Receiver) stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiverState {
    /// The request is sent, or about to be; the server has not answered (rule E2).
    Requested,
    /// Accepted (a baseline server says nothing); the schema has not come.
    AwaitingSchema,
    /// The schema has come.
    Streaming,
    /// Everything has arrived; messages may wait to be taken.
    Ended,
    /// It failed: [`error`](super::Receiver::error) says why.
    Failed,
    /// This side cancelled it.
    Cancelled,
}

impl ReceiverState {
    /// Whether nothing is handed out any more, and nothing is awaited.
    pub(super) fn is_broken(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }
}

/// An ERROR that came before the messages it leaves standing.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    pub(super) seq: u32,
    pub(super) error: Error,
}
