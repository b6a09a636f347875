//! The stream that comes in: when its messages may come, and where they go.

use std::collections::VecDeque;

use super::{IncomingStream, Rest, SessionEvent, SessionStream, StreamMessage};
use crate::error::{Error, Result};
use crate::proto::{
    Bytes, Control, ExpectedBody, Header, Prefix, PrefixKind, SenderState, Side, Timestamp,
};

/// Most messages that may overtake a request: the schema, and an ABORT.
const MOST_OVERTAKING: usize = 4;

/// Longest schema that is kept. A longer one is read again for each stream, so that a connection
/// between streams keeps little memory.
const MOST_SCHEMA_BYTES: usize = 16 << 10;

/// The direction in which the peer sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InboundState {
    /// At a server: no client has asked to send a stream.
    Never,
    /// Between streams.
    Idle,
    /// The host of a server decides about a stream. The client may begin to send it meanwhile.
    Undecided,
    /// A stream comes in.
    Open,
    /// Bodies come in for a stream of another session (rule U3).
    Bodies,
    /// Bodies come in for a stream of another session, and are thrown away.
    Discarding,
    /// No further stream comes. The rest of the last one is thrown away.
    Retired,
}

impl<P, K, B> SessionStream<P, K, B> {
    /// At a server: the host decides about a stream that the client sends. The stream's messages
    /// are kept until [`begin_receiving`](Self::begin_receiving).
    pub fn await_decision(&mut self) {
        self.inbound = InboundState::Undecided;
    }

    /// A stream comes in. It gets those of its messages that have come before.
    ///
    /// # Errors
    ///
    /// Those of a message that has come before.
    pub fn begin_receiving(&mut self, now: Timestamp, stream: IncomingStream<B>) -> Result<()> {
        self.inbound = InboundState::Open;
        let stream = self.incoming.insert(Box::new(stream));
        if let Some(schema) = &self.last_schema {
            stream.expect_schema(schema);
        }
        if let Some(error) = &self.closed {
            stream.handle_disconnect(Side::Metadata, error);
        }
        let early = self.early.take();
        early.into_iter().try_for_each(|message| {
            if let StreamMessage::Control(control) = &message
                && let abort @ Control::Abort { stream, .. } = &**control
                && self.is_server()
                && self.sender.mark() == Some(*stream)
            {
                // If the message overtook the request, the sender did not know the stream at that
                // time. To handle the message twice changes nothing.
                let _ = self.sender.handle(abort);
                self.events.push_back(SessionEvent::Lost);
            }
            self.deliver_here(now, Side::Metadata, message)
        })
    }

    /// Bodies come in for a stream of another session. At most `most_bytes` of them are kept until
    /// [`take_bodies`](Self::take_bodies).
    pub fn begin_bodies(&mut self, most_bytes: u64) {
        self.inbound = InboundState::Bodies;
        self.early.body_limit = most_bytes;
    }

    /// The consumer of the bodies has left: bodies that are not announced are thrown away.
    pub fn discard_bodies(&mut self) {
        if self.inbound == InboundState::Bodies {
            self.inbound = InboundState::Discarding;
        }
    }

    /// The messages that have come for the stream of the other session.
    pub fn take_bodies(&mut self) -> VecDeque<StreamMessage<Bytes, B>> {
        self.early.take()
    }

    /// Takes messages that have come on the other connection of the stream, and whether that
    /// connection is over.
    ///
    /// # Errors
    ///
    /// The peer broke a rule, and the caller closes the connections.
    pub fn handle_bodies(
        &mut self,
        now: Timestamp,
        messages: VecDeque<StreamMessage<Bytes, B>>,
        closed: Option<&Error>,
    ) -> Result<()> {
        let mut messages = messages.into_iter();
        let handled = messages.try_for_each(|it| {
            self.note_message(now)?;
            self.deliver_here(now, Side::Data, it)
        });
        if let Some(error) = closed
            && let Some(stream) = &mut self.incoming
        {
            stream.handle_disconnect(Side::Data, error);
        }
        handled
    }

    /// Notes that the whole stream has come, or that no more of it comes.
    pub fn end_receiving(&mut self) {
        // If a request waits, the messages after it belong to the next stream.
        if !self.has_waiting() {
            self.early.take();
        }
        if let Some(ended) = self.incoming.take()
            && let Some(schema) = ended.schema()
        {
            let is_short = schema.bytes().len() <= MOST_SCHEMA_BYTES;
            self.last_schema = is_short.then(|| Header::clone(schema));
        }
        if self.is_expecting() {
            self.inbound = InboundState::Idle;
        }
        self.set_host_waiting(None);
    }

    /// Notes that no further stream comes. The connection stays only for arrays that point into the
    /// peer's memory.
    pub fn retire(&mut self) {
        self.inbound = InboundState::Retired;
        self.incoming = None;
    }

    /// Whether a stream comes in.
    pub fn is_receiving(&self) -> bool {
        matches!(
            self.inbound,
            InboundState::Open | InboundState::Bodies | InboundState::Discarding
        )
    }

    /// Whether a stream comes in, or the host decides about one.
    pub(super) fn is_expecting(&self) -> bool {
        self.is_receiving() || self.inbound == InboundState::Undecided
    }

    /// The stream that comes in.
    pub fn incoming(&self) -> Option<&IncomingStream<B>> {
        self.incoming.as_deref()
    }

    /// As [`incoming`](Self::incoming), for changes.
    pub fn incoming_mut(&mut self) -> Option<&mut IncomingStream<B>> {
        self.incoming.as_deref_mut()
    }

    /// Whether the consumer of the stream that comes in can take a message.
    pub fn has_message(&self) -> bool {
        (self.incoming.as_ref()).is_some_and(|stream| stream.has_message())
    }

    /// What is still to come of the stream.
    pub fn rest(&self) -> Rest {
        match &self.incoming {
            Some(stream) if self.closed.is_none() => stream.rest(),
            _ => Rest::Unusable,
        }
    }

    /// Whether so many messages wait for the consumer of the stream that nothing more is read (rule
    /// Q11).
    pub fn is_full(&self) -> bool {
        self.early.is_full() || (self.incoming.as_ref()).is_some_and(|stream| stream.is_full())
    }

    /// Takes a message of the stream that comes in, and hands it to the stream. Keeps it if the
    /// host has not decided about the stream, or if the message has overtaken the request (rule
    /// Q3). A retired connection throws it away.
    ///
    /// # Errors
    ///
    /// The peer sends a message that nobody asked for.
    #[inline]
    pub(super) fn deliver(
        &mut self,
        now: Timestamp,
        message: StreamMessage<&[u8], B>,
        bytes: u64,
    ) -> Result<()> {
        match self.inbound {
            InboundState::Retired => {
                self.drop_message(&message);
                Ok(())
            }
            // A message after a request belongs to the stream of the request, even if the host has
            // not ended the stream before.
            _ if self.has_waiting() => {
                self.early.push(message, bytes);
                Ok(())
            }
            InboundState::Open => self.deliver_here(now, Side::Metadata, message),
            InboundState::Undecided | InboundState::Bodies | InboundState::Discarding => {
                self.early.push(message, bytes);
                Ok(())
            }
            InboundState::Never | InboundState::Idle if self.may_overtake_request() => {
                self.early.push(message, bytes);
                Ok(())
            }
            InboundState::Never | InboundState::Idle => Err(match message {
                StreamMessage::Body { .. } => self.unasked("a body"),
                StreamMessage::Control(control) => self.unasked(control.name()),
                StreamMessage::Metadata(_) | StreamMessage::Tagged { .. } => {
                    self.unasked("a message")
                }
            }),
        }
    }

    /// Fails if the peer has sent more of a stream than this end keeps while its host decides about
    /// the stream. Does not apply to a connection with many streams, which is read whatever one
    /// host does (rule S3).
    pub(super) fn ensure_not_ahead(&self) -> Result<()> {
        match self.early.is_full() {
            // Rule Q3.
            true => Err(Error::protocol(
                "the client goes on with a stream before the server has answered its request",
            )),
            false => Ok(()),
        }
    }

    /// Drops a message of a stream that nobody reads.
    fn drop_message(&mut self, message: &StreamMessage<&[u8], B>) {
        if self.is_server()
            && let StreamMessage::Metadata(bytes) = message
            && let Ok((prefix, _)) = Prefix::split(bytes)
            && prefix.kind == PrefixKind::EndOfStream
        {
            // Rule Q10.
            self.sender.incoming_over();
        }
    }

    /// Notes for the stream that comes in that a message has come.
    pub(super) fn note_message(&mut self, now: Timestamp) -> Result<()> {
        (self.incoming_mut()).map_or(Ok(()), |stream| stream.note_message(now))
    }

    #[inline]
    fn deliver_here<T: AsRef<[u8]>>(
        &mut self,
        now: Timestamp,
        side: Side,
        message: StreamMessage<T, B>,
    ) -> Result<()> {
        let is_server = self.is_server();
        let Some(stream) = &mut self.incoming else {
            return Ok(());
        };
        stream.deliver(now, side, message);
        if is_server && stream.is_over_on_wire() {
            // Rule Q10.
            self.sender.incoming_over();
        }
        // The client gives no credit any more for the stream that the server sends. Without this
        // error, that stream would wait for ever.
        if is_server
            && self.sender.state() == SenderState::Streaming
            && stream.is_peer_at_fault()
            && let Some(error) = stream.error()
        {
            return Err(error.clone());
        }
        Ok(())
    }

    /// See [`IncomingStream::take_expected`].
    #[inline]
    pub(super) fn take_expected(&mut self) -> Option<ExpectedBody> {
        match self.events.is_empty() {
            true => self.incoming.as_mut()?.take_expected(),
            false => None,
        }
    }

    /// The next event of the stream that comes in.
    pub(super) fn poll_incoming(&mut self) -> Option<SessionEvent<K>> {
        let stream = self.incoming.as_mut()?;
        if let Some(work) = stream.poll_event() {
            return Some(SessionEvent::Bodies(work));
        }
        (stream.has_just_ended()).then_some(SessionEvent::LeftOver)
    }

    /// The transport has a body that was not announced. Returns whether the transport is to forget
    /// that body.
    pub(super) fn has_unannounced_body(&self) -> Result<bool> {
        match (self.inbound, self.incoming()) {
            (InboundState::Open, Some(incoming)) if !incoming.is_broken() => {
                match incoming.is_split() {
                    true => Ok(false),
                    false => Err(Error::protocol(
                        // Rule D1.
                        "a large body came before its header, on one connection",
                    )),
                }
            }
            // The other session announces the body.
            (InboundState::Bodies, _) => Ok(false),
            (InboundState::Open | InboundState::Retired | InboundState::Discarding, _) => Ok(true),
            _ => Err(self.unasked("a body")),
        }
    }

    /// At a client: whether nothing comes in, and the server owes no last word.
    pub(super) fn is_between_streams(&self) -> bool {
        let is_over = matches!(self.inbound, InboundState::Idle | InboundState::Retired);
        is_over && !self.sender.is_asking()
    }

    /// Whether the peer may announce its memory: streams come in here, or have come.
    pub(super) fn has_come(&self) -> bool {
        self.inbound != InboundState::Never
    }

    /// Whether a message may come before the request to which it belongs (rule Q3).
    pub(super) fn may_overtake_request(&self) -> bool {
        self.is_server()
            && !self.is_ordered
            && self.sender.state() == SenderState::Idle
            && self.early.len() < MOST_OVERTAKING
    }

    fn unasked(&self, what: &str) -> Error {
        Error::protocol(match self.is_server() {
            // Rule M1.
            true => format!("the client sent {what} that only servers send"),
            // Rules E4, Q3.
            false if self.sender.is_asking() => {
                format!("the server sent {what} of a stream, and is asked to take one")
            }
            false => format!("the server sent {what} while no stream was asked for"),
        })
    }
}
