//! What one end of a connection knows of the protocol.
//!
//! A [`Session`] decides where each message belongs that arrives: to the connection, to the stream
//! that this end sends, or to the [stream that comes in](IncomingStream). It has both streams, the
//! request that waits for a holder, the answers to a client's request, and the messages that come
//! before their stream begins.

mod early;
mod inbound;
mod putting;
mod regions;
mod role;
mod stream;
mod timing;

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::proto::{
    Control, Headers, ReceiverTransmit, Request, Role, Sender, SenderConfig, SenderEvent,
    SenderState, Side, Timestamp, Transmit, WindowRoom, body_of_tag, is_answer,
};
use early::EarlyMessages;
use inbound::InboundState;
pub use putting::{HostResult, PutProgress, PutStage};
use regions::Regions;
use role::{ClientRole, ServerRole, SessionRole};
pub use stream::{BodiesWork, IncomingStream, Rest};
pub use timing::QuietTimes;

/// One end of a connection.
///
/// `P` and `K` are those of its [`Sender`], and `B` is that of its
/// [`Receiver`](crate::proto::Receiver).
///
/// Call order: `handle_*` for each input, or a command; then [`poll_transmit`](Self::poll_transmit)
/// and [`poll_event`](Self::poll_event) until both are `None`.
#[derive(Debug)]
pub struct Session<P, K, B> {
    role: SessionRole,
    sender: Sender<P, K>,
    /// The client has cancelled the stream that was asked for last. Longer than in the sender,
    /// which forgets a stream with its last word.
    is_cancelled: bool,
    /// Messages of the transport keep their order.
    is_ordered: bool,
    inbound: InboundState,
    /// The stream that comes in, until [`end_receiving`](Self::end_receiving).
    stream: Option<Box<IncomingStream<B>>>,
    early: EarlyMessages<B>,
    regions: Regions,
    /// Messages about the connection, which go before those of streams.
    controls: VecDeque<Transmit<P>>,
    events: VecDeque<SessionEvent<K>>,
    closed: Option<Error>,
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
pub type StreamMessage<T, B> = InMessage<T, B, Control>;

impl<B> InMessage<&[u8], B> {
    /// Bytes of memory that it takes.
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
    /// It tells of memory of the peer's.
    Memory(PeerMemory),
}

/// Where a control message belongs.
enum Routed {
    /// It is dealt with.
    Done,
    /// It tells of memory of the peer's.
    Memory(PeerMemory),
    /// It belongs to the stream that comes in.
    Stream(Control),
}

/// What a peer tells of memory that it lends.
#[derive(Debug, PartialEq, Eq)]
pub enum PeerMemory {
    /// Map a region.
    Region {
        /// Number of the region.
        id: u16,
        /// Data that the transport needs.
        handle: Vec<u8>,
    },
    /// Unmap a region, and say so.
    RegionGone {
        /// Number of the region.
        id: u16,
    },
    /// Read the body of a message only after an event of a GPU.
    Ready {
        /// Number of the message.
        seq: u32,
        /// Number of the event.
        event: u16,
        /// What opens the event; empty if it was told before.
        handle: Vec<u8>,
    },
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
    /// [put it back](Session::put_back).
    Requested(Box<ArrivedRequest>),
    /// Nobody waits any more for the stream that this end sends.
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
    /// The peer has been silent for so long about a stream that its consumer has left.
    Silent(Duration),
}

impl<P, K, B> Session<P, K, B> {
    /// The end that connected to a server.
    pub fn client(config: SenderConfig, is_ordered: bool) -> Self {
        let role = SessionRole::Client(ClientRole::default());
        Self::new(role, config, is_ordered, InboundState::Idle)
    }

    /// The end that accepted the connection, at `now`.
    pub fn server(
        config: SenderConfig,
        is_ordered: bool,
        times: QuietTimes,
        now: Timestamp,
    ) -> Self {
        let role = SessionRole::Server(ServerRole::new(times, now));
        Self::new(role, config, is_ordered, InboundState::Never)
    }

    fn new(
        role: SessionRole,
        config: SenderConfig,
        is_ordered: bool,
        inbound: InboundState,
    ) -> Self {
        Self {
            role,
            sender: Sender::new(config),
            is_cancelled: false,
            is_ordered,
            inbound,
            stream: None,
            early: EarlyMessages::new(),
            regions: Regions::default(),
            controls: VecDeque::new(),
            events: VecDeque::new(),
            closed: None,
        }
    }

    /// Takes a message that came at `now`.
    ///
    /// # Errors
    ///
    /// The peer broke a rule, and the caller closes the connection.
    pub fn handle(&mut self, now: Timestamp, message: InMessage<&[u8], B>) -> Result<Handled> {
        self.note_message(now)?;
        let bytes = message.held_bytes();
        let of_stream = match message {
            InMessage::Metadata(bytes) => StreamMessage::Metadata(bytes),
            InMessage::Body { seq, len, memory } => StreamMessage::Body { seq, len, memory },
            InMessage::Tagged { tag, bytes } => {
                let is_body = self.inbound.has_come() && body_of_tag(tag).is_some();
                if !is_body && (self.is_server() || self.sender.takes(tag)) {
                    self.sender.handle_tagged(tag, bytes)?;
                    return Ok(Handled::Done);
                }
                StreamMessage::Tagged { tag, bytes }
            }
            // Rule E3: unknown kinds are ignored.
            InMessage::Control(bytes) => match Control::decode(bytes) {
                Err(error) => return Err(self.sender.close(error).into()),
                Ok(None) => return Ok(Handled::Done),
                Ok(Some(control)) => match self.handle_control(control)? {
                    Routed::Done => return Ok(Handled::Done),
                    Routed::Memory(memory) => return Ok(Handled::Memory(memory)),
                    Routed::Stream(control) => StreamMessage::Control(control),
                },
            },
        };
        self.deliver(now, of_stream, bytes)?;
        Ok(Handled::Done)
    }

    fn handle_control(&mut self, control: Control) -> Result<Routed> {
        let receives = self.inbound.has_come();
        match control {
            Control::Region { id, handle } if receives => {
                return Ok(Routed::Memory(PeerMemory::Region { id, handle }));
            }
            Control::RegionGone { id } if receives => {
                return Ok(Routed::Memory(PeerMemory::RegionGone { id }));
            }
            Control::Ready { seq, event, handle } if receives => {
                return Ok(Routed::Memory(PeerMemory::Ready { seq, event, handle }));
            }
            Control::Abort { .. } if self.may_overtake_request() => {
                return Ok(Routed::Stream(control));
            }
            Control::Abort { .. } if receives && self.is_server() => {
                // The stream that comes in ends with it, too.
                self.sender.handle(&control)?;
                self.events.push_back(SessionEvent::Lost);
                return Ok(Routed::Stream(control));
            }
            Control::Credit { .. } | Control::Return { .. } if self.sender.is_extension() => {
                self.sender.handle(&control)?;
            }
            Control::RegionForgotten { id } if self.sender.is_extension() => {
                self.region_forgotten(id)?;
            }
            _ => return self.handle_by_role(control),
        }
        Ok(Routed::Done)
    }

    /// Takes a message that means something else at each end.
    fn handle_by_role(&mut self, control: Control) -> Result<Routed> {
        match &mut self.role {
            SessionRole::Server(_) => self.sender.handle(&control)?,
            SessionRole::Client(client) => match control {
                Control::GoAway => client.is_dismissed = true,
                Control::Error { .. } if self.sender.is_asking() => {
                    // Rule Q5: it ends both streams of an exchange.
                    self.sender.handle(&control)?;
                    if self.inbound == InboundState::Open {
                        return Ok(Routed::Stream(control));
                    }
                }
                _ if self.sender.is_asking() && is_answer(&control) => {
                    self.sender.handle(&control)?;
                }
                _ => return Ok(Routed::Stream(control)),
            },
        }
        Ok(Routed::Done)
    }

    /// Notes that the connection is over, and gives back every lend (rule F4): see
    /// [`Sender::handle_disconnect`]. What has come of a stream can still be taken.
    pub fn handle_disconnect(&mut self, error: Error) -> Vec<K> {
        if let Some(stream) = &mut self.stream {
            stream.handle_disconnect(Side::Metadata, &error);
        }
        self.closed = Some(error);
        self.sender.handle_disconnect()
    }

    /// Whether there may be a message for the transport, or an event.
    pub fn has_output(&self) -> bool {
        self.sender.has_output()
            || !self.controls.is_empty()
            || !self.events.is_empty()
            || self.stream().is_some_and(IncomingStream::has_output)
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        let own = (self.controls.pop_front()).or_else(|| self.sender.poll_transmit());
        if own.is_some() {
            return own;
        }
        Some(match self.stream.as_mut()?.poll_transmit()? {
            ReceiverTransmit::Tagged { tag, bytes, .. } => Transmit::Request {
                tag,
                bytes: bytes.into(),
            },
            ReceiverTransmit::Control { bytes, .. } => Transmit::Control {
                bytes,
                region: None,
            },
        })
    }

    /// The next event. `now` tells when a request came.
    pub fn poll_event(&mut self, now: impl Fn() -> Timestamp) -> Option<SessionEvent<K>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Some(event) = self.sender.poll_event() else {
                return self.poll_stream_event();
            };
            if let Some(event) = self.event_of(event, &now) {
                return Some(event);
            }
        }
    }

    fn event_of(
        &mut self,
        event: SenderEvent<K>,
        now: impl Fn() -> Timestamp,
    ) -> Option<SessionEvent<K>> {
        match event {
            SenderEvent::CreditChanged => None,
            SenderEvent::Requested {
                request,
                extension,
                role,
            } => {
                self.is_cancelled = false;
                if let SessionRole::Server(server) = &mut self.role {
                    server.requested();
                }
                let request = Box::new(ArrivedRequest {
                    request,
                    extension,
                    role,
                    at: now(),
                });
                if self.inbound == InboundState::Open {
                    // It waits for the end of the stream that comes in.
                    self.put_back(request);
                    return None;
                }
                Some(SessionEvent::Requested(request))
            }
            SenderEvent::Cancelled => {
                self.is_cancelled = true;
                Some(SessionEvent::Lost)
            }
            SenderEvent::Freed(hold) => Some(SessionEvent::Freed(hold)),
            SenderEvent::Pending
            | SenderEvent::Granted { .. }
            | SenderEvent::Refused { .. }
            | SenderEvent::Result { .. }
            | SenderEvent::Finished { .. } => self.answered(event),
        }
    }

    /// The sending side. An error of it changes nothing.
    pub fn sender(&mut self) -> &mut Sender<P, K> {
        &mut self.sender
    }

    /// The state of the sending side.
    pub fn state(&self) -> SenderState {
        self.sender.state()
    }

    /// Whether this end accepted the connection.
    pub fn is_server(&self) -> bool {
        matches!(self.role, SessionRole::Server(_))
    }

    /// Whether the peer reads what only our extension has (rule E1). A client lends to peers with
    /// the extension alone.
    pub fn is_extension(&self) -> bool {
        !self.is_server() || self.sender.is_extension()
    }

    /// Why the connection is over, once it is.
    pub fn closed(&self) -> Option<&Error> {
        self.closed.as_ref()
    }

    /// Fails if the connection is over.
    ///
    /// # Errors
    ///
    /// The reason.
    pub fn ensure_open(&self) -> Result<()> {
        self.closed.clone().map_or(Ok(()), Err)
    }

    /// Fails if something ended the stream that this end sends.
    ///
    /// # Errors
    ///
    /// Why the connection is over; `Cancelled`; why the server does not take the stream.
    pub fn ensure_streaming(&self) -> Result<()> {
        self.ensure_open()?;
        if self.is_cancelled {
            return Err(Error::cancelled("the client cancelled the stream"));
        }
        match self.put().and_then(PutProgress::refusal) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// The rest of the peer's credit: see [`Sender::room`].
    pub fn room(&self) -> Option<WindowRoom> {
        self.sender.room()
    }

    /// Record batches that the peer has taken of the stream.
    pub fn batches_taken(&self) -> u64 {
        match self.role.waiting_request() {
            // A client that asks for the next stream has done with this one.
            Some(_) => u64::MAX,
            None => self.sender.batches_taken(),
        }
    }

    /// Whether half of the peer's window is used.
    pub fn is_half_used(&self) -> bool {
        self.sender.is_half_used()
    }

    /// Lent spans that are not yet returned.
    pub fn lent_outstanding(&self) -> usize {
        self.sender.lent_outstanding()
    }

    /// Whether the connection is of use to somebody though no stream runs: the peer has memory of
    /// this end, or owes its last word.
    pub fn is_needed(&self) -> bool {
        self.closed.is_none() && (self.sender.lent_outstanding() > 0 || self.sender.is_asking())
    }

    /// Adds headers to the next answer.
    ///
    /// # Errors
    ///
    /// As [`Sender::add_answer_headers`], or the connection is over.
    pub fn add_answer_headers(&mut self, headers: &Headers) -> Result<()> {
        self.ensure_open()?;
        self.sender.add_answer_headers(headers)
    }
}

#[cfg(test)]
#[path = "../tests/session.rs"]
mod tests;
