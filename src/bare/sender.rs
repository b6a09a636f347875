//! One connection of a server whose transport is the host's.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::arrow::encode::EncodedOwner;
use crate::arrow::{EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, OwnedSchema};
use crate::bare::{MessageClass, WireMessage};
use crate::device::{BufferRef, DeviceKind};
use crate::driver::produce::gather;
use crate::error::{Error, Result, Status};
use crate::proto::{
    HeaderKind, OutBody, Request, Role, Sender, SenderConfig, SenderEvent, SenderState, Span,
    StreamInfo, Tags, Transmit, VERSION,
};

/// The runs of a packed body and what keeps them.
type PackedBody = (Vec<BufferRef>, EncodedOwner);

/// The producing side of one connection.
///
/// Call order: `handle_*` for what arrives. In state `Requested`, [`start`](Self::start) or
/// [`refuse`](Self::refuse); then [`send_batch`](Self::send_batch) while
/// [`may_send`](Self::may_send), and [`end`](Self::end). After every call, `poll_transmit` until
/// `None`.
pub struct BareSender {
    machine: Sender<PackedBody, EncodedOwner>,
    encoder: Option<Encoder>,
    request: Option<Request>,
    /// Bodies are lent: sent as address lists.
    lend: bool,
    /// Encoded, and not yet admitted by the client's window (rule E5).
    waiting: VecDeque<EncodedMessage>,
    ending: bool,
}

impl BareSender {
    /// The sender of a fresh connection. `lend` sends bodies as lists of the addresses that they
    /// have in this process (rule D4), for clients that can read its memory.
    ///
    /// # Errors
    ///
    /// `InvalidUri` for tags that break rule U4, or that have none for frees where bodies are lent.
    pub fn new(config: SenderConfig, lend: bool) -> Result<Self> {
        config.tags.validate()?;
        let roles = [config.tags.both, config.tags.metadata, config.tags.data];
        let no_way_back = |tags: Tags| tags.free_data.is_none();
        if lend && roles.into_iter().flatten().any(no_way_back) {
            // Rule U2.
            return Err(Error::new(
                Status::InvalidUri,
                "bodies are lent only where the URI has free_data, for their way back",
            ));
        }
        Ok(Self {
            machine: Sender::new(config),
            encoder: None,
            request: None,
            lend,
            waiting: VecDeque::new(),
            ending: false,
        })
    }

    /// Takes a tagged message: a request or a list of frees. Arrays that come back are released
    /// here.
    ///
    /// # Errors
    ///
    /// `Protocol`: the connection is to be cut, as `poll_transmit` says.
    pub fn handle_tagged(&mut self, tag: u64, bytes: &[u8]) -> Result<()> {
        self.machine.handle_tagged(tag, bytes)?;
        self.advance()
    }

    /// Takes a control message.
    ///
    /// # Errors
    ///
    /// As [`handle_tagged`](Self::handle_tagged).
    pub fn handle_control(&mut self, bytes: &[u8]) -> Result<()> {
        self.machine.handle_control(bytes)?;
        self.advance()
    }

    /// The connection is over: everything lent is released (rule F4). The client must not read it
    /// any more.
    pub fn handle_disconnect(&mut self) {
        self.waiting.clear();
        self.encoder = None;
        drop(self.machine.handle_disconnect());
    }

    /// Where it stands.
    pub fn state(&self) -> SenderState {
        self.machine.state()
    }

    /// What is asked for, from the request on until the next one.
    pub fn request(&self) -> Option<&Request> {
        self.request.as_ref()
    }

    /// Whether the client has cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.machine.is_cancelled()
    }

    /// Whether the window has room for a batch (rule E5).
    pub fn may_send(&self) -> bool {
        self.machine.state() == SenderState::Streaming
            && self.encoder.is_some()
            && !self.ending
            && self.waiting.is_empty()
            && self.machine.may_pull()
    }

    /// Addresses lent and not yet given back.
    pub fn lent_outstanding(&self) -> usize {
        self.machine.lent_outstanding()
    }

    /// Accepts the request and gives the schema.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when nothing is asked for, `InvalidData` for a bad schema, `Unsupported`
    /// for a device that cannot be read here, `Cancelled`.
    pub fn start(&mut self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        DeviceKind(device_type).ensure_readable()?;
        let encoder = Encoder::new(schema, EncodeOptions::default())?;
        self.machine.accept(StreamInfo {
            version: VERSION,
            features: 0,
            device_type,
            device_id: -1,
            body_kinds: if self.lend { 0b11 } else { 0b01 },
        })?;
        self.machine
            .send_schema(Arc::clone(encoder.schema_header()))?;
        self.encoder = Some(encoder);
        self.ending = false;
        Ok(())
    }

    /// Refuses the request (a baseline client is cut off, rule E7).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when nothing is asked for.
    pub fn refuse(&mut self, status: i32, text: &str) -> Result<()> {
        self.machine.refuse(status, text)
    }

    /// Sends a batch and the dictionaries that it needs.
    ///
    /// # Errors
    ///
    /// With the array, where nothing was sent: `Busy` when the window is full, `InvalidArgument`
    /// when no stream is running, `Cancelled`, `InvalidData`, `Unsupported`.
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
            // Parts of the batch may be on their way, so it cannot be given back: the stream fails.
            tracing::error!("a batch was encoded and cannot be sent: {error}");
            let _ = self.fail(error.status().code(), error.text());
        }
        Ok(())
    }

    fn ensure_room(&self) -> Result<()> {
        if self.machine.state() != SenderState::Streaming || self.ending {
            return Err(no_stream());
        }
        if self.machine.is_cancelled() {
            return Err(Error::cancelled("the client cancelled the stream"));
        }
        if !self.may_send() {
            return Err(Error::new(
                Status::Busy,
                // Rule E5.
                "the client's window is full: hand in its control messages and try again",
            ));
        }
        Ok(())
    }

    /// Ends the stream, once everything before has gone.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when no stream is running.
    pub fn end(&mut self) -> Result<()> {
        if self.machine.state() != SenderState::Streaming || self.ending {
            return Err(no_stream());
        }
        self.ending = true;
        self.advance()
    }

    /// Ends the stream with an error that the client is told.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when no stream is running.
    pub fn fail(&mut self, status: i32, text: &str) -> Result<()> {
        self.waiting.clear();
        self.ending = false;
        self.encoder = None;
        self.machine.fail(status, text)
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self) -> Option<WireMessage> {
        let (class, tag, bytes) = match self.machine.poll_transmit()? {
            Transmit::Metadata { prefix, header } => {
                let mut bytes = prefix.to_vec();
                bytes.extend_from_slice(header.as_deref().unwrap_or_default());
                (MessageClass::Metadata, 0, bytes)
            }
            Transmit::Control { bytes, .. } => (MessageClass::Control, 0, bytes),
            Transmit::List { tag, bytes } => (MessageClass::Tagged, tag, bytes.into_vec()),
            Transmit::Disconnect { reason } => (MessageClass::Disconnect, 0, reason.into_bytes()),
            Transmit::Body {
                tag,
                packed: (parts, owner),
            } => {
                return Some(WireMessage::of_parts(
                    MessageClass::Tagged,
                    tag,
                    parts,
                    Box::new(owner),
                ));
            }
        };
        Some(WireMessage::of_bytes(class, tag, bytes))
    }

    /// Takes up events, and sends what waits as far as the window goes.
    fn advance(&mut self) -> Result<()> {
        while let Some(event) = self.machine.poll_event() {
            match event {
                SenderEvent::Requested { request, .. } => {
                    self.request = Some(request);
                    self.encoder = None;
                    self.ending = false;
                    self.waiting.clear();
                }
                SenderEvent::Freed(owner) => drop(owner),
                // Getters tell of these.
                SenderEvent::Cancelled
                | SenderEvent::CreditChanged
                | SenderEvent::RegionForgotten { .. } => {}
            }
        }
        if self.machine.state() != SenderState::Streaming {
            return Ok(());
        }
        if self.machine.is_cancelled() {
            self.waiting.clear();
        }
        while let Some(message) = self.waiting.front() {
            if !self.machine.admits(message.body_len, false) {
                return Ok(());
            }
            if let Some(message) = self.waiting.pop_front() {
                self.send(message)?;
            }
        }
        if self.ending {
            self.ending = false;
            self.encoder = None;
            self.machine.end()?;
        }
        Ok(())
    }

    fn send(&mut self, message: EncodedMessage) -> Result<()> {
        let body = if self.machine.role() == Some(Role::Metadata) {
            // Rule U3: the other connection carries the bodies.
            OutBody::Elsewhere
        } else if self.lend && !message.compressed {
            let spans = message.buffers.iter().map(|buffer| Span {
                // Rule A1: empty ones as (0, 0).
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
                self.machine
                    .send_dictionary(message.header, message.body_len, body)
            }
            _ => self
                .machine
                .send_batch(message.header, message.body_len, body),
        }
    }
}

fn no_stream() -> Error {
    Error::invalid_argument("no stream is running: a request is answered by start first")
}
