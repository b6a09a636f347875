//! What one end of a connection knows of the protocol.
//!
//! A [`Session`] decides where each message belongs that arrives: to the connection, to the stream
//! that this end sends, or to the stream that comes in. It has the request that waits for a holder,
//! the answers to a client's request, and the messages that come before anybody reads them.

mod early;
mod inbound;
mod putting;
mod role;
mod timing;

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::proto::{
    Control, Headers, Request, Role, Sender, SenderConfig, SenderEvent, SenderState, Timestamp,
    Transmit, WindowRoom, body_of_tag, is_answer,
};
use early::EarlyMessages;
pub use early::{Early, Held};
use inbound::InboundState;
pub use putting::{HostResult, PutProgress, PutStage};
use role::{ClientRole, ServerRole, SessionRole};
pub use timing::QuietTimes;

/// One end of a connection.
///
/// `P` and `K` are those of its [`Sender`]. `M` is a message as the transport has it, kept until
/// the stream is read to which the message belongs.
///
/// Call order: `handle_*` for each input, or a command; then [`poll_transmit`](Self::poll_transmit)
/// and [`poll_event`](Self::poll_event) until both are `None`.
#[derive(Debug)]
pub struct Session<P, K, M> {
    role: SessionRole,
    sender: Sender<P, K>,
    /// The client has cancelled the stream that was asked for last. Longer than in the sender,
    /// which forgets a stream with its last word.
    is_cancelled: bool,
    /// Messages of the transport keep their order.
    is_ordered: bool,
    inbound: InboundState,
    early: EarlyMessages<M>,
    events: VecDeque<SessionEvent<K>>,
    closed: Option<Error>,
}

/// A message that arrived, without the memory of its body.
#[derive(Debug, Clone, Copy)]
pub enum InMessage<'a> {
    /// Untagged (rule M2).
    Metadata,
    /// A tagged message other than a packed body.
    Tagged {
        /// The whole tag.
        tag: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// A packed body (rule D3).
    Body,
    /// A control message (rule E3).
    Control(&'a [u8]),
}

/// What is left to do with a message that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Handled {
    /// Nothing.
    Done,
    /// It tells of memory of the peer's.
    Memory(PeerMemory),
    /// It belongs to the stream that comes in. A control message is decoded.
    Stream(Option<Control>),
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
    /// At a client: the server has said its last word on the stream.
    Answered,
}

impl<P, K, M> Session<P, K, M> {
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
            early: EarlyMessages::new(),
            events: VecDeque::new(),
            closed: None,
        }
    }

    /// Takes a message.
    ///
    /// # Errors
    ///
    /// The peer broke a rule, and the caller closes the connection.
    pub fn handle(&mut self, message: InMessage<'_>) -> Result<Handled> {
        match message {
            InMessage::Metadata | InMessage::Body => Ok(Handled::Stream(None)),
            InMessage::Tagged { tag, bytes } => {
                let is_body = self.inbound.has_come() && body_of_tag(tag).is_some();
                if is_body || !(self.is_server() || self.sender.takes(tag)) {
                    return Ok(Handled::Stream(None));
                }
                self.sender.handle_tagged(tag, bytes)?;
                Ok(Handled::Done)
            }
            // Rule E3: unknown kinds are ignored.
            InMessage::Control(bytes) => match Control::decode(bytes)? {
                Some(control) => self.handle_control(control),
                None => Ok(Handled::Done),
            },
        }
    }

    fn handle_control(&mut self, control: Control) -> Result<Handled> {
        let receives = self.inbound.has_come();
        match control {
            Control::Region { id, handle } if receives => {
                return Ok(Handled::Memory(PeerMemory::Region { id, handle }));
            }
            Control::RegionGone { id } if receives => {
                return Ok(Handled::Memory(PeerMemory::RegionGone { id }));
            }
            Control::Ready { seq, event, handle } if receives => {
                return Ok(Handled::Memory(PeerMemory::Ready { seq, event, handle }));
            }
            Control::Abort { .. } if self.may_overtake_request() => {
                return Ok(Handled::Stream(Some(control)));
            }
            Control::Abort { .. } if receives && self.is_server() => {
                // The stream that comes in ends with it, too.
                self.sender.handle(&control)?;
                self.events.push_back(SessionEvent::Lost);
                return Ok(Handled::Stream(Some(control)));
            }
            Control::Credit { .. } | Control::Return { .. } | Control::RegionForgotten { .. }
                if self.sender.is_extension() =>
            {
                self.sender.handle(&control)?;
            }
            _ => return self.handle_by_role(control),
        }
        Ok(Handled::Done)
    }

    /// Takes a message that means something else at each end.
    fn handle_by_role(&mut self, control: Control) -> Result<Handled> {
        match &mut self.role {
            SessionRole::Server(_) => self.sender.handle(&control)?,
            SessionRole::Client(client) => match control {
                Control::GoAway => client.is_dismissed = true,
                Control::Error { .. } if self.sender.is_asking() => {
                    // Rule Q5: it ends both streams of an exchange.
                    self.sender.handle(&control)?;
                    if self.inbound == InboundState::Open {
                        return Ok(Handled::Stream(Some(control)));
                    }
                }
                _ if self.sender.is_asking() && is_answer(&control) => {
                    self.sender.handle(&control)?;
                }
                _ => return Ok(Handled::Stream(Some(control))),
            },
        }
        Ok(Handled::Done)
    }

    /// Notes that the connection is over, and gives back every lend (rule F4): see
    /// [`Sender::handle_disconnect`].
    pub fn handle_disconnect(&mut self, error: Error) -> Vec<K> {
        self.closed = Some(error);
        self.sender.handle_disconnect()
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        self.sender.poll_transmit()
    }

    /// The next event. `now` tells when a request came.
    pub fn poll_event(&mut self, now: impl Fn() -> Timestamp) -> Option<SessionEvent<K>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let event = self.sender.poll_event()?;
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
                Some(SessionEvent::Requested(Box::new(ArrivedRequest {
                    request,
                    extension,
                    role,
                    at: now(),
                })))
            }
            SenderEvent::Cancelled => {
                self.is_cancelled = true;
                Some(SessionEvent::Lost)
            }
            SenderEvent::Freed(hold) => Some(SessionEvent::Freed(hold)),
            SenderEvent::RegionForgotten { id } => Some(SessionEvent::RegionForgotten { id }),
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
