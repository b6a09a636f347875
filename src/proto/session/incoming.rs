//! One stream that comes in, with what its consumer has not taken.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::StreamMessage;
use crate::error::{Error, Result};
use crate::proto::{
    Body, BodyKind, Control, ExpectedBody, Header, Headers, InBody, Message, Receiver,
    ReceiverEvent, ReceiverState, ReceiverTransmit, Return, Side, StreamInfo, Timestamp, body_tag,
};

/// How many messages a peer may send of a stream after its consumer has left. CANCEL tells the
/// peer, so an honest peer sends hardly more than is already on its way.
const MOST_LEFT: usize = 1 << 20;

/// What is still to come of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// More messages.
    More,
    /// Nothing: the peer has said its last word, and the connection can serve another stream.
    Nothing,
    /// Nothing that anybody waits for: a client has said its last word before all of its messages
    /// came, on a connection without order.
    Late,
    /// The connection is over, or can serve no other stream: the peer broke a rule, or messages of
    /// this stream could come between those of the next.
    Unusable,
}

/// Work for the connection of the bodies, if a stream has a separate one (rule U3).
#[derive(Debug, PartialEq, Eq)]
pub enum BodiesWork {
    /// Send a request.
    Request {
        /// The whole tag.
        tag: u64,
        /// The payload.
        bytes: Vec<u8>,
    },
    /// Send a control message.
    Control(Vec<u8>),
    /// Post receives for a body: see [`ReceiverEvent::Expect`].
    Expect(ExpectedBody),
    /// Return bodies that nobody will see.
    Abandoned(Vec<Return>),
}

/// A stream that comes in.
#[derive(Debug)]
pub struct IncomingStream<B> {
    receiver: Receiver<B>,
    /// The bodies come on a connection of their own.
    is_split: bool,
    /// Its connections keep the order of messages.
    is_ordered: bool,
    /// The properties of the stream, once the sender has told them.
    info: Option<StreamInfo>,
    schema: Option<Arc<Header>>,
    /// Connections that are over. The consumer first takes the messages that came before, and then
    /// the stream fails.
    cuts: Vec<Cut>,
    left: Option<Left>,
    /// Work for the connection of the bodies.
    of_bodies: VecDeque<BodiesWork>,
}

/// A closed connection of the stream.
#[derive(Debug)]
struct Cut {
    side: Side,
    error: Error,
    /// The receiver was told.
    is_told: bool,
}

/// A stream that its consumer has left.
#[derive(Debug)]
struct Left {
    heard: Timestamp,
    /// How long the peer may be silent.
    patience: Duration,
    /// How many messages it may still send.
    messages: usize,
    /// The host was told of the end, or of the silence.
    is_told: bool,
    /// Other streams share the connection. So the connection is not closed because of this stream.
    is_one_of_many: bool,
}

impl<B> IncomingStream<B> {
    /// `is_ordered`: all its connections keep the order of messages.
    pub fn new(receiver: Receiver<B>, is_ordered: bool) -> Self {
        Self {
            is_split: receiver.is_split(),
            receiver,
            is_ordered,
            info: None,
            schema: None,
            cuts: Vec::new(),
            left: None,
            of_bodies: VecDeque::new(),
        }
    }

    /// See [`Receiver::expect_schema`].
    pub fn expect_schema(&mut self, schema: &Header) {
        self.receiver.expect_schema(schema);
    }

    /// Sends the request, if the receiver has not: see [`Receiver::start`].
    pub fn start(&mut self, now: Timestamp) {
        self.receiver.start(now);
    }

    /// Takes a message that has come on the connection `side`. The receiver keeps an error, which
    /// ends the stream.
    #[inline]
    pub fn deliver<T: AsRef<[u8]>>(
        &mut self,
        now: Timestamp,
        side: Side,
        message: StreamMessage<T, B>,
    ) {
        let _ = match message {
            StreamMessage::Metadata(bytes) => self.receiver.handle_metadata(now, bytes.as_ref()),
            StreamMessage::Tagged { tag, bytes } => {
                let body = InBody::List(bytes.as_ref());
                self.receiver.handle_body(now, tag, body)
            }
            StreamMessage::Body { seq, len, memory } => {
                let tag = body_tag(seq, BodyKind::Packed);
                let body = InBody::Packed { len, memory };
                self.receiver.handle_body(now, tag, body)
            }
            StreamMessage::Control(control) => {
                let is_last = matches!(*control, Control::Error { .. } | Control::Abort { .. });
                let handled = self.receiver.handle(now, side, *control);
                if is_last && self.is_ordered && !self.is_split {
                    self.receiver.ends_here();
                }
                handled
            }
        };
    }

    /// Notes that a message has come on one of its connections, whatever the message is.
    ///
    /// # Errors
    ///
    /// The peer sends too many messages of a stream that its consumer has left.
    pub fn note_message(&mut self, now: Timestamp) -> Result<()> {
        let Some(left) = &mut self.left else {
            return Ok(());
        };
        left.heard = now;
        left.messages = left.messages.saturating_sub(1);
        match left.messages {
            0 => Err(Error::protocol(format!(
                // Rule E4: CANCEL is answered by ERROR.
                "the peer goes on with a cancelled stream: {MOST_LEFT} messages came after it was \
                 left"
            ))),
            _ => Ok(()),
        }
    }

    /// The next message to send on the connection of the headers.
    pub fn poll_transmit(&mut self) -> Option<ReceiverTransmit> {
        loop {
            match self.receiver.poll_transmit()? {
                ReceiverTransmit::Tagged {
                    side: Side::Data,
                    tag,
                    bytes,
                } => (self.of_bodies).push_back(BodiesWork::Request { tag, bytes }),
                ReceiverTransmit::Control {
                    side: Side::Data,
                    bytes,
                } => self.of_bodies.push_back(BodiesWork::Control(bytes)),
                transmit => return Some(transmit),
            }
        }
    }

    /// The next work for the connection of the bodies, if all of the stream comes on one
    /// connection.
    pub fn poll_event(&mut self) -> Option<BodiesWork> {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ReceiverEvent::Stream { info, .. } => self.info = Some(info),
                ReceiverEvent::Schema(header) => self.schema = Some(Arc::new(header)),
                ReceiverEvent::Expect(expected) => {
                    self.of_bodies.push_back(BodiesWork::Expect(expected));
                }
            }
        }
        let abandoned = self.receiver.abandoned();
        if !abandoned.is_empty() {
            self.of_bodies.push_back(BodiesWork::Abandoned(abandoned));
        }
        match self.is_split {
            true => None,
            false => self.of_bodies.pop_front(),
        }
    }

    /// The body to post receives for on this connection, if nothing else must be done first.
    #[inline]
    pub fn take_expected(&mut self) -> Option<ExpectedBody> {
        match self.is_split || !self.of_bodies.is_empty() {
            true => None,
            false => self.receiver.take_expected(),
        }
    }

    /// Whether there is something to send, or to do.
    pub fn has_output(&self) -> bool {
        self.left.is_some() || !self.of_bodies.is_empty() || self.receiver.has_output()
    }

    /// Work for the connection of the bodies, if the bodies come on another connection.
    pub fn take_bodies_work(&mut self) -> VecDeque<BodiesWork> {
        std::mem::take(&mut self.of_bodies)
    }

    /// Notes that a connection is over.
    pub fn handle_disconnect(&mut self, side: Side, error: &Error) {
        if self.cuts.iter().all(|cut| cut.side != side) {
            self.cuts.push(Cut {
                side,
                error: error.clone(),
                is_told: false,
            });
        }
    }

    /// Fails the stream if a connection is over and the consumer has taken every message.
    fn apply_cuts(&mut self) {
        if self.has_message() {
            return;
        }
        for cut in self.cuts.iter_mut().filter(|cut| !cut.is_told) {
            self.receiver.handle_disconnect(cut.side, &cut.error);
            cut.is_told = true;
        }
    }

    /// Why the stream has failed. While messages wait for the consumer, a cut is no failure.
    pub fn error(&mut self) -> Option<&Error> {
        self.apply_cuts();
        self.receiver.error()
    }

    /// Notes that time has passed while the consumer waits.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.receiver.handle_timeout(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due for a consumer that waits.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.receiver.poll_timeout()
    }

    /// The next message for the consumer, and how its lent body goes back.
    #[inline]
    pub fn next_message(&mut self) -> Option<(Message<B>, Option<Return>)> {
        let message = self.receiver.next_message()?;
        let back = match &message.body {
            Body::Packed(_) => None,
            Body::Lent(spans) => self.receiver.to_return(message.seq, spans),
        };
        Some((message, back))
    }

    /// Whether the consumer can take a message.
    pub fn has_message(&self) -> bool {
        self.receiver.waiting() > 0 && !self.receiver.is_held_up()
    }

    /// Number of messages that wait for the consumer.
    pub fn waiting(&self) -> usize {
        self.receiver.waiting()
    }

    /// Whether a consumer that waits for a message has a reason to wake.
    pub fn is_ready(&self) -> bool {
        let has_failed =
            self.receiver.error().is_some() || self.cuts.iter().any(|cut| !cut.is_told);
        self.has_message() || self.is_complete() || has_failed
    }

    /// Number of batches that the consumer can take.
    pub fn batches_here(&self) -> usize {
        self.receiver.batches_here()
    }

    /// Whether the stream has ended without an error and the consumer has taken every message.
    pub fn is_complete(&self) -> bool {
        self.receiver.is_complete()
    }

    /// Whether a client sends the stream.
    pub fn is_of_client(&self) -> bool {
        self.receiver.is_of_client()
    }

    /// The schema message, once it is there.
    pub fn schema(&self) -> Option<&Arc<Header>> {
        self.schema.as_ref()
    }

    /// The properties of the stream, once the sender has told them.
    pub fn info(&self) -> Option<&StreamInfo> {
        self.info.as_ref()
    }

    /// Whether the server has sent anything that shows that it has read the request, or the stream
    /// or a connection has failed.
    pub fn is_answered(&self) -> bool {
        self.receiver.is_answered() || self.is_broken() || !self.cuts.is_empty()
    }

    /// Headers of the server's answers, so far.
    pub fn answer_headers(&self) -> &Headers {
        self.receiver.answer_headers()
    }

    /// Tells the peer of everything that was taken (rule E5).
    pub fn flush_credit(&mut self) {
        self.receiver.flush_credit();
    }

    /// The consumer wants no more.
    pub fn cancel(&mut self) {
        self.apply_cuts();
        self.receiver.cancel();
    }

    /// The consumer has left: the rest is read and thrown away. The wait ends when the peer is
    /// silent for the stall timeout, or for `patience` if the stream has no stall timeout.
    pub fn leave(&mut self, now: Timestamp, patience: Duration) {
        self.left = Some(Left {
            heard: now,
            patience: self.receiver.stall_timeout().unwrap_or(patience),
            messages: MOST_LEFT,
            is_told: false,
            is_one_of_many: false,
        });
    }

    /// [`leave`](Self::leave) for a stream that shares its connection. The connection waits for the
    /// rest of the stream, unless the peer broke a rule.
    pub fn leave_one(&mut self, now: Timestamp, patience: Duration) {
        self.leave(now, patience);
        if let Some(left) = &mut self.left {
            left.is_one_of_many = true;
        }
    }

    /// Whether a stream that its consumer has left is over. True once.
    pub fn has_just_ended(&mut self) -> bool {
        if self.left.as_ref().is_none_or(|left| left.is_told) || self.rest() == Rest::More {
            return false;
        }
        self.left.as_mut().map(|left| left.is_told = true).is_some()
    }

    /// The time from which the peer counts as silent for too long about a stream that its consumer
    /// has left.
    pub fn silent_at(&self) -> Option<Timestamp> {
        let left = self.left.as_ref().filter(|left| !left.is_told)?;
        Some(left.heard.saturating_add(left.patience))
    }

    /// How long the peer has been silent, if that is too long. `Some` once.
    pub fn take_silence(&mut self, now: Timestamp) -> Option<Duration> {
        self.silent_at().filter(|at| *at <= now)?;
        let left = self.left.as_mut()?;
        left.is_told = true;
        Some(left.patience)
    }

    /// What is still to come, if none of the connections is over.
    pub fn rest(&self) -> Rest {
        let is_last = self.receiver.is_over_on_wire();
        if !self.cuts.is_empty() {
            return Rest::Unusable;
        }
        if is_last && (self.is_ordered || self.receiver.is_whole()) {
            return Rest::Nothing;
        }
        let is_one_of_many = (self.left.as_ref()).is_some_and(|left| left.is_one_of_many);
        let is_unusable = match self.is_of_client() || is_one_of_many {
            // The connection waits for the peer, to read the server's last word.
            true => self.is_peer_at_fault(),
            false => !self.is_ordered || (self.state() == ReceiverState::Failed && !is_last),
        };
        match (is_unusable, is_last) {
            (true, _) => Rest::Unusable,
            // Rule S3: later bodies under this number would belong to no stream.
            (false, true) if is_one_of_many && !self.receiver.has_all_bodies() => Rest::More,
            (false, true) => Rest::Late,
            (false, false) => Rest::More,
        }
    }

    /// Whether the peer has said its last word, and nothing more of the stream follows on this
    /// connection.
    pub fn is_over_on_wire(&self) -> bool {
        self.receiver.is_over_on_wire()
    }

    /// Whether more is to be read from a connection.
    pub fn may_read(&self, side: Side) -> bool {
        match self.state() {
            // All bodies have come, but the answer of their connection may still be missing. It
            // says how lent bodies are given back, and the consumer cannot take them without it.
            ReceiverState::Ended => {
                side == Side::Data && self.receiver.is_held_up() && self.receiver.may_read(side)
            }
            ReceiverState::Failed | ReceiverState::Cancelled => !self.receiver.is_over_on_wire(),
            ReceiverState::Requested | ReceiverState::AwaitingSchema | ReceiverState::Streaming => {
                self.receiver.may_read(side) && !self.is_full()
            }
        }
    }

    /// Whether nothing more is read until the consumer has taken something (rule Q11), or has ended
    /// a stream whose peer broke a rule.
    pub fn is_full(&self) -> bool {
        self.is_peer_at_fault() || (self.has_message() && self.receiver.is_full())
    }

    /// Whether the peer broke a rule, or its connection was cut.
    pub fn is_peer_at_fault(&self) -> bool {
        self.receiver.is_peer_at_fault()
    }

    /// Why the peer is at fault: see [`is_peer_at_fault`](Self::is_peer_at_fault).
    pub fn fault(&self) -> Option<Error> {
        let error = self.receiver.error().cloned();
        error.filter(|_| self.is_peer_at_fault())
    }

    /// The state of the receiver.
    pub fn state(&self) -> ReceiverState {
        self.receiver.state()
    }

    /// Whether bodies of the stream are thrown away.
    pub fn is_broken(&self) -> bool {
        matches!(
            self.state(),
            ReceiverState::Failed | ReceiverState::Cancelled
        )
    }

    /// Whether the bodies come on a connection of their own.
    pub fn is_split(&self) -> bool {
        self.is_split
    }
}
