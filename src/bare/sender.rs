//! One connection of a server whose host carries the messages.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use crate::arrow::encode::EncodedOwner;
use crate::arrow::{EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, OwnedSchema};
use crate::bare::WireMessage;
use crate::device::{BufferRef, DeviceKind};
use crate::driver::produce::gather;
use crate::error::{Error, Result, Status};
use crate::proto::{
    HeaderKind, Headers, InMessage, OutBody, QuietTimes, Request, Role, SenderConfig, SenderState,
    Session, SessionEvent, Span, StreamInfo, Tags, Timestamp, VERSION, Verb, WindowRoom,
};

/// The parts of a packed body, and the owner of their memory.
type PackedBody = (Vec<BufferRef>, EncodedOwner);

/// The producing side of one connection.
///
/// Call order: `handle_*` for each arriving message. In state `Requested`, [`start`](Self::start)
/// or [`refuse`](Self::refuse); then [`send_batch`](Self::send_batch) while
/// [`may_send`](Self::may_send), and [`end`](Self::end). After every call, `poll_transmit` until
/// `None`.
pub struct BareSender {
    /// No stream comes in, so there are no bodies.
    session: Session<PackedBody, EncodedOwner, Infallible>,
    encoder: Option<Encoder>,
    request: Option<Request>,
    /// Bodies are lent by address lists.
    lend: bool,
    /// Encoded messages that the client's window does not admit yet (rule E5).
    waiting: VecDeque<EncodedMessage>,
    ending: bool,
}

impl BareSender {
    /// Makes the sender of a new connection. `lend` sends bodies as lists of their addresses in
    /// this process (rule D4), for clients that can read its memory.
    ///
    /// # Errors
    ///
    /// `InvalidUri` for tags that break rule U4, or that lack `free_data` with `lend`.
    pub fn new(config: SenderConfig, lend: bool) -> Result<Self> {
        config.tags.validate()?;
        let roles = [config.tags.both, config.tags.metadata, config.tags.data];
        let no_way_back = |tags: Tags| tags.free_data.is_none();
        if lend && roles.into_iter().flatten().any(no_way_back) {
            // Rule U2.
            return Err(Error::new(
                Status::InvalidUri,
                "bodies can be lent only with free_data in the URI, which returns them",
            ));
        }
        // The client sends no table that could overtake its request, so the order does not matter.
        // The host keeps the time.
        let is_ordered = true;
        let (times, now) = (QuietTimes::default(), Timestamp::default());
        Ok(Self {
            session: Session::server(config, is_ordered, times, now),
            encoder: None,
            request: None,
            lend,
            waiting: VecDeque::new(),
            ending: false,
        })
    }

    /// Hands in a tagged message: a request or a free_data list. Releases the arrays that come
    /// back.
    ///
    /// # Errors
    ///
    /// `Protocol`: the host must cut the connection, when `poll_transmit` gives that order.
    pub fn handle_tagged(&mut self, tag: u64, bytes: &[u8]) -> Result<()> {
        self.handle(InMessage::Tagged { tag, bytes })
    }

    /// Hands in a control message.
    ///
    /// # Errors
    ///
    /// As [`handle_tagged`](Self::handle_tagged).
    pub fn handle_control(&mut self, bytes: &[u8]) -> Result<()> {
        self.handle(InMessage::Control(bytes))
    }

    /// Reports that the connection has ended. Releases everything lent (rule F4): the client must
    /// no longer be able to read it.
    pub fn handle_disconnect(&mut self) {
        self.waiting.clear();
        self.encoder = None;
        let reason = Error::disconnected("the connection has ended");
        drop(self.session.handle_disconnect(&reason));
    }

    /// The state of the connection.
    pub fn state(&self) -> SenderState {
        self.session.first().state()
    }

    /// The last request of the client.
    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Adds headers to the answer: to the schema's before [`start`](Self::start), and to those of
    /// a failure after it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` without a request or a stream, and for headers that are too long.
    pub fn add_headers(&mut self, headers: &Headers) -> Result<()> {
        self.session
            .first_mut()
            .sender()
            .add_answer_headers(headers)
    }

    /// Whether the client has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.session.first().is_serving() && self.session.first().ensure_streaming().is_err()
    }

    /// Whether the window has room for a batch (rule E5).
    pub fn may_send(&self) -> bool {
        self.session.first().state() == SenderState::Streaming
            && self.encoder.is_some()
            && !self.ending
            && self.waiting.is_empty()
            && self.session.first().room().is_none_or(WindowRoom::may_pull)
    }

    /// Number of addresses lent and not yet given back.
    pub fn lent_outstanding(&self) -> usize {
        self.session.first().lent_outstanding()
    }

    /// Accepts the request, and sends the schema.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` without a request, `InvalidData` for an invalid schema, `Unsupported` for
    /// a device that this process cannot read, `Cancelled`.
    pub fn start(&mut self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        DeviceKind(device_type).ensure_readable()?;
        let encoder = Encoder::new(schema, EncodeOptions::default())?;
        let sender = self.session.first_mut().sender();
        sender.accept(StreamInfo {
            version: VERSION,
            features: 0,
            device_type,
            device_id: -1,
            body_kinds: if self.lend { 0b11 } else { 0b01 },
        })?;
        sender.send_schema(Arc::clone(encoder.schema_header()))?;
        self.encoder = Some(encoder);
        self.ending = false;
        Ok(())
    }

    /// Refuses the request. A baseline client is disconnected instead (rule E7).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` without a request.
    pub fn refuse(&mut self, status: i32, text: &str) -> Result<()> {
        self.session.first_mut().sender().refuse(status, text)
    }

    /// Sends a batch and the dictionaries that it needs.
    ///
    /// # Errors
    ///
    /// Nothing was sent, and the array is given back: `Busy` if the window is full,
    /// `InvalidArgument` without a running stream, `Cancelled`, `InvalidData`, `Unsupported`.
    pub fn send_batch(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
    ) -> Result<(), Box<(Error, OwnedDeviceArray)>> {
        if let Err(error) = self.ensure_room() {
            return Err(Box::new((error, array)));
        }
        let Some(encoder) = &mut self.encoder else {
            return Err(Box::new((no_stream(), array)));
        };
        self.waiting
            .extend(encoder.try_encode(array, custom_metadata)?);
        if let Err(error) = self.advance() {
            // A part of the batch may be sent already, so the array cannot be given back: the
            // stream fails.
            tracing::error!("a batch was encoded and cannot be sent: {error}");
            let _ = self.fail(error.status().code(), error.text());
        }
        Ok(())
    }

    fn ensure_room(&self) -> Result<()> {
        if self.session.first().state() != SenderState::Streaming || self.ending {
            return Err(no_stream());
        }
        self.session.first().ensure_streaming()?;
        if !self.may_send() {
            return Err(Error::new(
                Status::Busy,
                // Rule E5.
                "the client's window is full: hand in its control messages and try again",
            ));
        }
        Ok(())
    }

    /// Completes the stream, after all messages that wait.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` without a running stream.
    pub fn end(&mut self) -> Result<()> {
        if self.session.first().state() != SenderState::Streaming || self.ending {
            return Err(no_stream());
        }
        self.ending = true;
        self.advance()
    }

    /// Ends the stream with an error, which is sent to the client.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` without a running stream.
    pub fn fail(&mut self, status: i32, text: &str) -> Result<()> {
        self.waiting.clear();
        self.ending = false;
        self.encoder = None;
        self.session.first_mut().sender().fail(status, text)
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self) -> Option<WireMessage> {
        let (_, transmit) = self.session.poll_transmit()?;
        Some(WireMessage::of_transmit(transmit, |(parts, owner)| {
            (parts, Box::new(owner))
        }))
    }

    /// Hands in a message, and does what follows from it.
    fn handle(&mut self, message: InMessage<&[u8], Infallible>) -> Result<()> {
        // Only incoming streams need the time and the peer's memory, and a sender has none.
        self.session.handle(Timestamp::default(), 0, message)?;
        self.advance()
    }

    /// Takes a request. The host sees only requests that it can serve.
    fn requested(&mut self, request: Request) -> Result<()> {
        let (verb, selects) = (request.verb, !request.selection.is_all());
        self.request = Some(request);
        self.encoder = None;
        self.ending = false;
        self.waiting.clear();
        let text = match verb {
            // Rule Q12: the host does not see the selection.
            Verb::Get | Verb::Describe | Verb::List if selects => {
                "this server gives whole tables: it selects neither columns nor rows".to_owned()
            }
            Verb::Get | Verb::Describe | Verb::List => return Ok(()),
            // A sender takes no tables.
            _ => {
                let verb = verb.name();
                format!("this server does not {verb}: it only gives tables")
            }
        };
        self.refuse(Status::Unsupported.code(), &text)
    }

    /// Handles events, and sends the waiting messages that the window admits.
    fn advance(&mut self) -> Result<()> {
        while let Some((_, event)) = self.session.poll_event(Timestamp::default) {
            // An event drops the memory that the client has returned.
            if let SessionEvent::Requested(arrived) = event {
                self.requested(arrived.request)?;
            }
        }
        if self.session.first().state() != SenderState::Streaming {
            return Ok(());
        }
        if self.session.first().ensure_streaming().is_err() {
            self.waiting.clear();
        }
        while let Some(message) = self.waiting.front() {
            let room = self.session.first().room();
            if !room.is_none_or(|room| room.admits(message.body_len, false)) {
                return Ok(());
            }
            if let Some(message) = self.waiting.pop_front() {
                self.send(message)?;
            }
        }
        if self.ending {
            self.ending = false;
            self.encoder = None;
            self.session.first_mut().sender().end()?;
        }
        Ok(())
    }

    fn send(&mut self, message: EncodedMessage) -> Result<()> {
        let sender = self.session.first_mut().sender();
        let body = if sender.role() == Some(Role::Metadata) {
            // Rule U3: the other connection carries the bodies.
            OutBody::Elsewhere
        } else if self.lend && !message.compressed {
            let spans = message.buffers.iter().map(|buffer| Span {
                // Rule A1: an empty buffer is the pair (0, 0).
                address: if buffer.len == 0 {
                    0
                } else {
                    buffer.data.expose_provenance() as u64
                },
                length: buffer.len as u64,
            });
            OutBody::Lent {
                spans: spans.collect(),
                hold: message.owner.clone(),
                // The host's transport may copy.
                in_place: false,
            }
        } else {
            let payload = (gather(&message), message.owner.clone());
            OutBody::Packed {
                len: message.body_len,
                payload,
            }
        };
        match message.kind {
            HeaderKind::Dictionary => {
                sender.send_dictionary(message.header, message.body_len, body)
            }
            _ => sender.send_batch(message.header, message.body_len, body),
        }
    }
}

fn no_stream() -> Error {
    Error::invalid_argument("no stream is running: a request is answered by start first")
}
