//! Inputs and outputs of a receiver.

use std::time::Duration;

use crate::error::Error;
use crate::proto::{Header, Request, Span, StreamInfo, Tags, Timestamp, Uri};

/// The connection of a stream. A connection that serves both streams is `Metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The connection of the metadata, or the only connection.
    Metadata,
    /// The connection of the bodies, if they have their own.
    Data,
}

/// Configuration of one connection of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SideConfig {
    /// The tags of the server's URI.
    pub tags: Tags,
    /// Whether the server speaks the extension.
    pub extension: bool,
}

impl SideConfig {
    /// A peer with these tags that speaks the extension.
    pub const fn extended(tags: Tags) -> Self {
        Self {
            tags,
            extension: true,
        }
    }
}

impl From<&Uri> for SideConfig {
    fn from(uri: &Uri) -> Self {
        Self {
            tags: uri.tags,
            extension: uri.extension,
        }
    }
}

/// Configuration of a [`Receiver`](super::Receiver).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// The request. A baseline server sees its ticket only.
    pub request: Request,
    /// The first connection, or the only one.
    pub metadata: SideConfig,
    /// The second connection, if the streams are separate (rule U3).
    pub data: Option<SideConfig>,
    /// Number of the schema: 0, except in tests of the wrap-around (rule M4).
    pub first_seq: u32,
    /// Longest silence of the server while the consumer waits.
    pub stall_timeout: Option<Duration>,
    /// The same for the first answer of a baseline server, which cannot refuse (rule R5). Used if
    /// there is no stall timeout; `None`: no limit.
    pub silence_timeout: Option<Duration>,
    /// The deadline that the program gave, for the texts of errors. The request carries the time
    /// that is left of it.
    pub given_deadline: Option<Duration>,
    /// Limit for the first answer of a server that speaks the extension; `None`: only the stall
    /// timeout limits it.
    pub answer: Option<AnswerLimit>,
}

impl ReceiverConfig {
    /// A stream over one connection, without limits of time.
    pub const fn new(request: Request, metadata: SideConfig) -> Self {
        Self {
            request,
            metadata,
            data: None,
            first_seq: 0,
            stall_timeout: None,
            silence_timeout: None,
            given_deadline: None,
            answer: None,
        }
    }
}

/// Limit for the answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimit {
    /// Latest time of the answer.
    pub by: Timestamp,
    /// The option that set the limit, for texts.
    pub timeout: Duration,
}

/// The body of a message, as it arrives.
#[derive(Debug)]
pub enum InBody<'a, B> {
    /// Kind 0: a packed body.
    Packed {
        /// Number of bytes received.
        len: u64,
        /// The memory with the bytes.
        memory: B,
    },
    /// Kind 1: the encoded list.
    List(&'a [u8]),
}

/// The body of a message for the consumer. The body agrees with the header.
#[derive(Debug, PartialEq, Eq)]
pub enum Body<B> {
    /// The packed body. Its length agrees with the header.
    Packed(B),
    /// Lent memory: one span for each buffer of the header, with the buffer's length (rule A1).
    /// Free each span that is not empty once (rule F3).
    Lent(Vec<Span>),
}

/// A dictionary or a record batch, whole and in order.
#[derive(Debug)]
pub struct Message<B> {
    /// Number of the message.
    pub seq: u32,
    /// Header of the message.
    pub header: Header,
    /// Body of the message.
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
        /// The payload.
        bytes: Vec<u8>,
    },
    /// A control message.
    Control {
        /// The connection.
        side: Side,
        /// The encoded message.
        bytes: Vec<u8>,
    },
}

/// A body whose header has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedBody {
    /// Number of the message.
    pub seq: u32,
    /// Length of a packed body.
    pub packed: u64,
    /// Length of an address list.
    pub list: u64,
}

impl ExpectedBody {
    /// The body of message `seq`: `packed` bytes, or a list of `list` bytes.
    pub const fn new(seq: u32, packed: u64, list: u64) -> Self {
        Self { seq, packed, list }
    }
}

/// Events of a receiver.
#[derive(Debug)]
pub enum ReceiverEvent {
    /// A server has accepted the request.
    Stream {
        /// The connection.
        side: Side,
        /// Properties of the stream.
        info: StreamInfo,
    },
    /// The schema, before any message.
    Schema(Header),
    /// A header has come before its body: post receives for the body (rule D8).
    Expect(ExpectedBody),
}

/// State of a [`Receiver`](super::Receiver).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReceiverState {
    /// The request is sent, or is about to be sent; the server has not answered (rule E2).
    Requested,
    /// The server has accepted (a baseline server does not answer); the schema has not come.
    AwaitingSchema,
    /// The schema has come.
    Streaming,
    /// Everything has arrived; messages may wait for the consumer.
    Ended,
    /// The stream failed: [`error`](super::Receiver::error) gives the reason.
    Failed,
    /// This side cancelled the stream.
    Cancelled,
}

impl ReceiverState {
    /// Whether the receiver neither hands out nor expects messages any more.
    pub(super) fn is_broken(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }
}

/// An ERROR that waits for the messages before its number.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    pub(super) seq: u32,
    pub(super) error: Error,
}
