//! The protocol at one end of a connection.
//!
//! A [`Session`] decides to whom each message belongs: to the connection, or to a
//! [`SessionStream`]. The connection has the regions, the times, and the server's dismissal. A
//! stream has the request, what this end sends, [what the peer sends](IncomingStream), and the
//! messages that come before their stream begins.

mod early;
mod inbound;
mod incoming;
mod many;
mod putting;
mod quiet;
mod regions;
mod role;
mod stream;
mod streams;
mod timing;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::proto::{
    Control, ExpectedBody, Request, Role, SenderConfig, Timestamp, Transmit, body_of_tag,
};
pub use incoming::{BodiesWork, IncomingStream, Rest};
pub use putting::{HostResult, PutProgress, PutStage};
pub use quiet::QuietTimes;
use regions::Regions;
use role::{ServerRole, SessionRole, StreamRole};
pub use stream::SessionStream;
use streams::Streams;

/// One end of a connection.
///
/// `P` and `K` are those of a [`Sender`](crate::proto::Sender), and `B` is that of a
/// [`Receiver`](crate::proto::Receiver).
///
/// Call order: `handle_*` for each input, or a command; then [`poll_transmit`](Self::poll_transmit)
/// and [`poll_event`](Self::poll_event) until both are `None`.
#[derive(Debug)]
pub struct Session<P, K, B> {
    role: SessionRole,
    streams: Streams<P, K, B>,
    regions: Regions,
    /// Messages about the connection, which go before those of streams.
    controls: VecDeque<Transmit<P>>,
    events: VecDeque<SessionEvent<K>>,
}

/// A message that arrived. `T` has bytes, and `C` a control message (rule E3), encoded or not.
#[derive(Debug)]
pub enum InMessage<T, B, C = T> {
    /// Untagged (rule M2).
    Metadata(T),
    /// A tagged message other than a packed body.
    Tagged {
        /// The whole tag.
        tag: u64,
        /// The bytes.
        bytes: T,
    },
    /// A packed body (rule D3).
    Body {
        /// Number of its message.
        seq: u32,
        /// Number of bytes received.
        len: u64,
        /// The memory with the bytes.
        memory: B,
    },
    /// A control message.
    Control(C),
}

/// A message of a stream that comes in.
///
/// Control messages are boxed, because they are rare and larger than the other messages.
pub type StreamMessage<T, B> = InMessage<T, B, Box<Control>>;

impl<B> InMessage<&[u8], B> {
    /// Bytes of memory that the message takes.
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Metadata(bytes) | Self::Tagged { bytes, .. } | Self::Control(bytes) => {
                bytes.len() as u64
            }
            Self::Body { len, .. } => *len,
        }
    }
}

/// What is left to do with a message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Handled {
    /// Nothing.
    Done,
    /// Post receives for a body of its stream (rule D8).
    Expect(ExpectedBody),
    /// REGION, REGION_GONE or READY: a message about the peer's memory.
    Memory(Box<Control>),
}

/// A request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct ArrivedRequest {
    /// Ticket, credit and stream id.
    pub request: Request,
    /// Whether the peer speaks our extension (rule E1).
    pub extension: bool,
    /// Which streams the connection shall carry.
    pub role: Role,
    /// When it came.
    pub at: Timestamp,
}

/// Events of a session.
#[derive(Debug, PartialEq, Eq)]
pub enum SessionEvent<K> {
    /// At a server: a request has come. Begin the stream, refuse the request, or
    /// [put it back](SessionStream::put_back).
    Requested(Box<ArrivedRequest>),
    /// Nobody waits for the stream that this end sends.
    Lost,
    /// The peer has returned every span of a lend.
    Freed(K),
    /// The peer has forgotten a retired region.
    RegionForgotten {
        /// The number, which is free again.
        id: u16,
    },
    /// At a client: the server takes the stream.
    Granted {
        /// Most bytes of copies lent and not returned.
        lent_limit: u64,
        /// Where the server wants bodies.
        device_type: i32,
    },
    /// At a client: the server has said its last word on the stream that this end sends.
    Answered,
    /// Something to do for the bodies of the stream that comes in.
    Bodies(BodiesWork),
    /// A stream that its consumer has left is over.
    LeftOver,
    /// The peer has been silent for this time about a stream that its consumer has left.
    Silent(Duration),
}

impl<P, K, B> Session<P, K, B> {
    /// The end that connected to a server.
    pub fn client(config: SenderConfig, is_ordered: bool) -> Self {
        let stream = StreamRole::Client(None);
        Self::new(
            SessionRole::Client {
                is_dismissed: false,
            },
            stream,
            config,
            is_ordered,
        )
    }

    /// The end that accepted the connection, at `now`.
    pub fn server(
        config: SenderConfig,
        is_ordered: bool,
        times: QuietTimes,
        now: Timestamp,
    ) -> Self {
        let role = SessionRole::Server(ServerRole::new(times, now));
        Self::new(role, StreamRole::server(), config, is_ordered)
    }

    fn new(role: SessionRole, stream: StreamRole, config: SenderConfig, is_ordered: bool) -> Self {
        Self {
            role,
            streams: Streams::new(stream, config, is_ordered),
            regions: Regions::default(),
            controls: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The stream of number 0, which is there from the beginning.
    pub fn first(&self) -> &SessionStream<P, K, B> {
        &self.streams.first
    }

    /// As [`first`](Self::first), for changes.
    pub fn first_mut(&mut self) -> &mut SessionStream<P, K, B> {
        &mut self.streams.first
    }

    /// Takes a message of the stream `number` that came at `now`. Messages about the connection
    /// have number 0.
    ///
    /// # Errors
    ///
    /// The peer broke a rule, and the caller closes the connection.
    pub fn handle(
        &mut self,
        now: Timestamp,
        number: u32,
        message: InMessage<&[u8], B>,
    ) -> Result<Handled> {
        if let Some(stream) = self.streams.get_mut(number) {
            stream.note_message(now)?;
        }
        let held = message.held_bytes();
        let message = match message {
            InMessage::Metadata(bytes) => StreamMessage::Metadata(bytes),
            InMessage::Body { seq, len, memory } => StreamMessage::Body { seq, len, memory },
            InMessage::Tagged { tag, bytes } => {
                if self.takes(number, tag) {
                    self.handle_tagged(tag, bytes)?;
                    return Ok(Handled::Done);
                }
                StreamMessage::Tagged { tag, bytes }
            }
            InMessage::Control(bytes) => {
                let control = match Control::decode(bytes) {
                    Err(error) => return Err(self.streams.first.sender.close(error).into()),
                    // Rule E3: unknown kinds are ignored.
                    Ok(None) => return Ok(Handled::Done),
                    Ok(Some(control)) => control,
                };
                let control = match self.handle_control(control)? {
                    ControlFlow::Break(handled) => return Ok(handled),
                    ControlFlow::Continue(control) => control,
                };
                if self.streams.keep_early_cancel(number, &control)? {
                    return Ok(Handled::Done);
                }
                // Lent memory outlives the stream, so the peer may return it later.
                let is_late =
                    self.streams.is_late(number) && !matches!(control, Control::Return { .. });
                match self.streams.at(number)?.filter(|_| !is_late) {
                    Some(stream) => stream.handle_control(now, control, held)?,
                    None => {
                        let message = StreamMessage::Control(Box::new(control));
                        self.ensure_may_be_late(number, &message)?;
                    }
                }
                return Ok(Handled::Done);
            }
        };
        let (is_many, is_late) = (self.is_many(), self.streams.is_late(number));
        let Some(stream) = self.streams.at(number)?.filter(|_| !is_late) else {
            self.ensure_may_be_late(number, &message)?;
            return Ok(Handled::Done);
        };
        stream.deliver(now, message, held)?;
        if is_many {
            stream.ensure_not_ahead()?;
        }
        let expected = stream.take_expected();
        Ok(expected.map_or(Handled::Done, Handled::Expect))
    }

    /// Whether a tagged message is a request, or gives lent memory back.
    fn takes(&self, number: u32, tag: u64) -> bool {
        let stream = self.streams.get(number);
        let is_body = stream.is_some_and(SessionStream::has_come) && body_of_tag(tag).is_some();
        !is_body && (self.is_server() || self.streams.first.sender.takes(tag))
    }

    fn handle_tagged(&mut self, tag: u64, bytes: &[u8]) -> Result<()> {
        match self.streams.config.tags.request(tag) {
            Some((role, is_extension)) => self.requested(role, is_extension, bytes),
            None => Ok(self.streams.first.sender.handle_tagged(tag, bytes)?),
        }
    }

    /// Rule S7: some messages may come after the end of their stream. Fails for all others.
    fn ensure_may_be_late(&self, number: u32, message: &StreamMessage<&[u8], B>) -> Result<()> {
        let may_be_late = match message {
            StreamMessage::Control(control) => matches!(
                **control,
                Control::Credit { .. }
                    | Control::Cancel { .. }
                    | Control::Return { .. }
                    | Control::Abort { .. }
            ),
            StreamMessage::Metadata(_) => false,
            // The end of the stream has waited for all messages of these kinds.
            StreamMessage::Tagged { .. } | StreamMessage::Body { .. } => return Err(ended(number)),
        };
        match may_be_late || !self.streams.is_ordered {
            true => Ok(()),
            false => Err(ended(number)),
        }
    }

    /// Takes a control message that is about the connection. Returns a message that is about a
    /// stream.
    fn handle_control(&mut self, control: Control) -> Result<ControlFlow<Handled, Control>> {
        Ok(ControlFlow::Break(match control {
            Control::Region { .. } | Control::RegionGone { .. } if self.streams.has_come() => {
                Handled::Memory(Box::new(control))
            }
            Control::Ready { .. } if self.streams.is_receiving() => {
                Handled::Memory(Box::new(control))
            }
            Control::RegionForgotten { id } if self.is_heard() => {
                self.region_forgotten(id)?;
                Handled::Done
            }
            Control::Streams { limit } if !self.is_server() => {
                self.learn_limit(limit)?;
                Handled::Done
            }
            Control::GoAway => match &mut self.role {
                SessionRole::Client { is_dismissed } => {
                    *is_dismissed = true;
                    Handled::Done
                }
                SessionRole::Server(_) => return Ok(ControlFlow::Continue(control)),
            },
            control => return Ok(ControlFlow::Continue(control)),
        }))
    }

    /// Notes that the connection is over, and gives back every lend (rule F4): see
    /// [`Sender::handle_disconnect`](crate::proto::Sender::handle_disconnect). What has come of a
    /// stream can still be taken.
    pub fn handle_disconnect(&mut self, error: &Error) -> Vec<K> {
        let streams = self.streams.all_mut();
        streams
            .flat_map(|stream| stream.handle_disconnect(error))
            .collect()
    }

    /// Whether there may be a message for the transport, or an event.
    pub fn has_output(&self) -> bool {
        self.streams.has_output() || !self.controls.is_empty() || !self.events.is_empty()
    }

    /// The next message for the transport, and the number of its stream.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<(u32, Transmit<P>)> {
        if let Some(transmit) = self.controls.pop_front() {
            return Some((0, transmit));
        }
        if let Some(transmit) = self.streams.first.poll_transmit() {
            return Some((0, transmit));
        }
        self.streams.poll_transmit()
    }

    /// The next event, and the number of its stream. `now` tells when a request came.
    #[inline]
    pub fn poll_event(&mut self, now: impl Fn() -> Timestamp) -> Option<(u32, SessionEvent<K>)> {
        let (number, event) = match self.streams.first.poll_event(&now) {
            Some(event) => (0, event),
            None => match self.events.pop_front() {
                Some(event) => (0, event),
                None => self.streams.poll_event(&now)?,
            },
        };
        if let (SessionEvent::Requested(_), SessionRole::Server(server)) = (&event, &mut self.role)
        {
            server.quiet.requested();
        }
        Some((number, event))
    }

    /// Whether this end accepted the connection.
    pub fn is_server(&self) -> bool {
        matches!(self.role, SessionRole::Server(_))
    }

    /// Whether the peer reads the messages of our extension (rule E1). Always true at a client,
    /// because a client lends memory only to peers with the extension.
    pub fn is_extension(&self) -> bool {
        !self.is_server() || self.streams.first.sender.is_extension()
    }

    /// Why the connection is over, once it is.
    pub fn closed(&self) -> Option<&Error> {
        self.streams.first.closed.as_ref()
    }

    /// Fails if the connection is over.
    ///
    /// # Errors
    ///
    /// The reason.
    pub fn ensure_open(&self) -> Result<()> {
        self.streams.first.ensure_open()
    }

    /// At a server: asks the client once to end the connection. Returns the time of the first call.
    pub fn dismiss(&mut self, now: Timestamp) -> Timestamp {
        let SessionRole::Server(server) = &mut self.role else {
            return now;
        };
        let is_first = server.dismissed_at.is_none();
        let since = *server.dismissed_at.get_or_insert(now);
        if is_first {
            // Fails if the connection is over, or if the client does not know the message.
            let _ = self.go_away();
        }
        since
    }

    /// Whether the server serves no stream after the last one.
    pub fn is_dismissed(&self) -> bool {
        matches!(self.role, SessionRole::Client { is_dismissed: true })
    }

    /// Notes that nothing can be read now. `waiting`: the transport has a body of the stream with
    /// this number that was not announced. Returns whether the transport is to forget that body.
    ///
    /// # Errors
    ///
    /// The peer sends a body that nobody asked for; the server is being stopped.
    pub fn nothing_came(&self, waiting: Option<u32>) -> Result<bool> {
        match waiting {
            Some(number) => match self.streams.get(number) {
                Some(stream) => stream.has_unannounced_body(),
                None => Err(ended(number)),
            },
            // The server waits for the client's end, so that the client loses nothing unread.
            None if self.is_dismissed() => {
                let is_in_use = |stream: &SessionStream<P, K, B>| !stream.is_between_streams();
                match self.streams.all().any(is_in_use) {
                    true => Ok(false),
                    false => Err(Error::disconnected("the server is being stopped")),
                }
            }
            None => Ok(false),
        }
    }
}

fn ended(number: u32) -> Error {
    Error::protocol(format!(
        "a message came for stream {number}, which has ended"
    ))
}

#[cfg(test)]
#[path = "../tests/session.rs"]
mod tests;
