//! One stream of a connection: the request, what this end sends, and what the peer sends.

use std::collections::VecDeque;

use super::early::EarlyMessages;
use super::inbound::InboundState;
use super::role::StreamRole;
use super::{ArrivedRequest, IncomingStream, PutProgress, SessionEvent, StreamMessage};
use crate::error::{Error, Result};
use crate::proto::{
    Control, Header, Headers, ReceiverTransmit, Request, Role, Sender, SenderConfig, SenderEvent,
    SenderState, Side, Timestamp, Transmit, WindowRoom, is_answer,
};

/// One stream of a connection, or all streams that follow one another under one number (rule E4).
///
/// `P`, `K` and `B` are those of the [`Session`](super::Session).
#[derive(Debug)]
pub struct SessionStream<P, K, B> {
    pub(super) role: StreamRole,
    pub(super) sender: Sender<P, K>,
    /// The client has cancelled the stream that was asked for last. Kept here, because the sender
    /// forgets a stream at its last word.
    pub(super) is_cancelled: bool,
    /// Messages of the transport keep their order.
    pub(super) is_ordered: bool,
    pub(super) inbound: InboundState,
    /// What the peer sends, until [`end_receiving`](Self::end_receiving).
    pub(super) incoming: Option<Box<IncomingStream<B>>>,
    /// The schema of the last stream that came in. The next stream mostly has the same.
    pub(super) last_schema: Option<Header>,
    pub(super) early: EarlyMessages<B>,
    pub(super) events: VecDeque<SessionEvent<K>>,
    /// Why the connection is over.
    pub(super) closed: Option<Error>,
}

impl<P, K, B> SessionStream<P, K, B> {
    pub(super) fn new(role: StreamRole, config: SenderConfig, is_ordered: bool) -> Self {
        let inbound = match role {
            StreamRole::Client(_) => InboundState::Idle,
            StreamRole::Server(_) => InboundState::Never,
        };
        Self {
            role,
            sender: Sender::new(config),
            is_cancelled: false,
            is_ordered,
            inbound,
            incoming: None,
            last_schema: None,
            early: EarlyMessages::new(),
            events: VecDeque::new(),
            closed: None,
        }
    }

    /// At a server: takes a request. A request that is not admitted is refused at once.
    pub(super) fn requested(
        &mut self,
        role: Role,
        is_extension: bool,
        request: Request,
        admitted: Result<()>,
    ) -> Result<()> {
        if admitted.is_err() && request.source.is_some() {
            // The client's messages up to its last word are thrown away, because nobody reads them.
            self.inbound = InboundState::Retired;
        }
        self.sender
            .requested(role, is_extension, request, admitted)?;
        if self.is_ordered {
            // The messages belong to the earlier stream, which was refused: nothing overtakes a
            // request.
            self.early.take();
        }
        Ok(())
    }

    /// Takes a control message of the stream, which takes `bytes` of memory.
    pub(super) fn handle_control(
        &mut self,
        now: Timestamp,
        control: Control,
        bytes: u64,
    ) -> Result<()> {
        match self.route(control)? {
            Some(control) => self.deliver(now, StreamMessage::Control(Box::new(control)), bytes),
            None => Ok(()),
        }
    }

    /// Handles a control message that is not about the stream that the peer sends. Returns all
    /// others.
    fn route(&mut self, control: Control) -> Result<Option<Control>> {
        match control {
            Control::Abort { .. } if self.may_overtake_request() => return Ok(Some(control)),
            Control::Abort { stream, .. }
                if self.is_server() && self.has_come() && self.inbound != InboundState::Retired =>
            {
                if self.sender.mark() != Some(stream) {
                    // The message belongs to an earlier stream.
                    return Ok(None);
                }
                // The message also ends the stream that the peer sends.
                self.sender.handle(&control)?;
                self.events.push_back(SessionEvent::Lost);
                return Ok(Some(control));
            }
            Control::Credit { .. } | Control::Return { .. } if self.sender.is_extension() => {
                self.sender.handle(&control)?;
            }
            _ if self.is_server() => self.sender.handle(&control)?,
            Control::Error { .. } if self.sender.is_asking() => {
                // Rule Q5: the message ends both streams of an exchange.
                self.sender.handle(&control)?;
                if self.inbound == InboundState::Open {
                    return Ok(Some(control));
                }
            }
            _ if self.sender.is_asking() && is_answer(&control) => self.sender.handle(&control)?,
            _ => return Ok(Some(control)),
        }
        Ok(None)
    }

    /// Notes that the connection is over, and gives back every lend (rule F4): see
    /// [`Sender::handle_disconnect`]. What has come can still be taken.
    pub(super) fn handle_disconnect(&mut self, error: &Error) -> Vec<K> {
        if let Some(incoming) = &mut self.incoming {
            incoming.handle_disconnect(Side::Metadata, error);
        }
        self.closed = Some(error.clone());
        self.sender.handle_disconnect()
    }

    /// Whether there may be a message for the transport, or an event.
    pub(super) fn has_output(&self) -> bool {
        self.sender.has_output()
            || !self.events.is_empty()
            || self.incoming().is_some_and(IncomingStream::has_output)
    }

    #[inline]
    pub(super) fn poll_transmit(&mut self) -> Option<Transmit<P>> {
        if let Some(transmit) = self.sender.poll_transmit() {
            return Some(transmit);
        }
        Some(match self.incoming.as_mut()?.poll_transmit()? {
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

    /// `now` tells when a request came.
    #[inline]
    pub(super) fn poll_event(&mut self, now: impl Fn() -> Timestamp) -> Option<SessionEvent<K>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let Some(event) = self.sender.poll_event() else {
                return self.poll_incoming();
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
                if let StreamRole::Server(served) = &mut self.role {
                    served.is_pending_said = false;
                }
                let request = Box::new(ArrivedRequest {
                    request,
                    extension,
                    role,
                    at: now(),
                });
                if self.inbound == InboundState::Open {
                    // The request waits for the end of the stream that comes in.
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

    /// The sender of this end. A call of it that fails changes nothing.
    pub fn sender(&mut self) -> &mut Sender<P, K> {
        &mut self.sender
    }

    /// The state of what this end sends.
    pub fn state(&self) -> SenderState {
        self.sender.state()
    }

    /// Whether this end accepted the connection.
    pub(super) fn is_server(&self) -> bool {
        matches!(self.role, StreamRole::Server(_))
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
        match self.has_waiting() {
            // A client that asks for the next stream has taken all of this one.
            true => u64::MAX,
            false => self.sender.batches_taken(),
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

    /// Whether the connection is needed although the stream does not run: the peer has memory of
    /// this end, or owes its last word.
    pub fn is_needed(&self) -> bool {
        self.closed.is_none() && (self.sender.lent_outstanding() > 0 || self.sender.is_asking())
    }

    /// Whether both sides have said their last word, and nothing waits.
    pub(super) fn is_over(&self) -> bool {
        let is_sent = matches!(self.state(), SenderState::Idle | SenderState::Closed);
        is_sent && self.incoming.is_none() && !self.has_waiting() && !self.is_expecting()
    }

    /// The time from which the peer counts as silent for too long about a stream that its consumer
    /// has left.
    pub(super) fn silent_at(&self) -> Option<Timestamp> {
        self.incoming().and_then(IncomingStream::silent_at)
    }

    /// Notes that time has passed.
    pub(super) fn handle_timeout(&mut self, now: Timestamp) {
        let incoming = self.incoming.as_mut();
        if let Some(silent) = incoming.and_then(|incoming| incoming.take_silence(now)) {
            self.events.push_back(SessionEvent::Silent(silent));
        }
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
