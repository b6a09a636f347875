//! One stream of a client whose host carries the messages.

use std::collections::VecDeque;
use std::convert::Infallible;

use crate::arrow::decode::{DecodeOptions, Decoder, ReceivedBody};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::bare::lent::{LentMemory, OpenMemory};
use crate::bare::{MessageClass, WireMessage};
use crate::client::NextBatch;
use crate::device::{HostBuffer, Target};
use crate::error::{Error, Result};
use crate::proto::{
    BodiesWork, Body, BodyKind, ExpectedBody, Handled, HeaderKind, Headers, InMessage,
    IncomingStream, Message, Receiver, ReceiverConfig, ReceiverState, Return, SenderConfig,
    Session, SessionEvent, Side, StreamMessage, Timestamp, parse_body_tag,
};

/// One end of a connection that sends no stream.
type ReadingSession = Session<Infallible, Infallible, HostBuffer>;

/// The consuming side of one stream.
///
/// Call order: [`start`](Self::start), then `handle_*` for each arriving message and
/// [`next_batch`](Self::next_batch) for batches. After every call, `poll_transmit` until `None`,
/// then `poll_timeout`.
pub struct BareReceiver {
    /// The connection of the metadata, or the only one. It has the stream.
    session: ReadingSession,
    /// The connection of the bodies, if they have their own.
    bodies: Option<ReadingSession>,
    decode: DecodeOptions,
    /// The device that the arrays come to. Bodies come to the host first.
    pub(super) target: Target,
    decoder: Option<Decoder>,
    expected: VecDeque<ExpectedBody>,
    /// Messages of this side for the connection of the bodies.
    for_bodies: VecDeque<WireMessage>,
    lent: LentMemory,
    failed: Option<Error>,
}

impl BareReceiver {
    /// Makes a receiver, which has not sent its request.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `InvalidUri` for tags that break rule U4.
    pub fn new(config: ReceiverConfig, decode: DecodeOptions) -> Result<Self> {
        let free_data = config.data.unwrap_or(config.metadata).tags.free_data;
        let is_split = config.data.is_some();
        let mut receiver = Receiver::new(config)?;
        receiver.limit_messages(decode.body_limit(), decode.message_limit);
        // The host may carry messages in any order.
        let is_ordered = false;
        let connection = || Session::client(SenderConfig::default(), is_ordered);
        let mut session = connection();
        let stream = IncomingStream::new(receiver, is_ordered);
        session
            .first_mut()
            .begin_receiving(Timestamp::default(), stream)?;
        let bodies = is_split.then(|| {
            let mut bodies = connection();
            // Without a limit, because `hand_on` takes the bodies at once.
            bodies.first_mut().begin_bodies(u64::MAX);
            bodies
        });
        Ok(Self {
            session,
            bodies,
            decode,
            target: Target::Host,
            decoder: None,
            expected: VecDeque::new(),
            for_bodies: VecDeque::new(),
            lent: LentMemory::new(free_data),
            failed: None,
        })
    }

    /// Headers of the server's answer: headers of STREAM, then headers of ERROR.
    pub fn answer_headers(&self) -> &Headers {
        static NONE: Headers = Headers::new();
        let stream = self.session.first().incoming();
        stream.map_or(&NONE, IncomingStream::answer_headers)
    }

    /// Starts the stream: `poll_transmit` then gives the request.
    pub fn start(&mut self, now: Timestamp) {
        self.change(|stream| stream.start(now));
    }

    /// Maps a range of the server's addresses, from `address` on, to memory here, for lent bodies.
    ///
    /// # Safety
    ///
    /// The memory lies on the host. All parts that address lists for this receiver name are
    /// readable until its owner is dropped. Only the server writes to it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for an empty range, an overlap with an earlier range, or a range past the
    /// last address.
    pub unsafe fn add_memory(&mut self, address: u64, lendable: OpenMemory) -> Result<()> {
        // SAFETY: the caller promises that the memory lies on the host and is readable until its
        // owner is dropped, and that only the server writes to it.
        unsafe { self.lent.add(address, lendable) }
    }

    /// Hands in an untagged message.
    ///
    /// # Errors
    ///
    /// The error that ended the stream.
    pub fn handle_metadata(&mut self, now: Timestamp, message: &[u8]) -> Result<()> {
        self.handle(now, Side::Metadata, InMessage::Metadata(message))
    }

    /// Hands in a tagged message: a body, which is copied, or an address list.
    ///
    /// # Errors
    ///
    /// The error that ended the stream; `OutOfMemory`.
    pub fn handle_tagged(&mut self, now: Timestamp, tag: u64, bytes: &[u8]) -> Result<()> {
        let message = received(tag, bytes).inspect_err(|error| {
            // The server will not send this body again, so the stream fails.
            self.failed.get_or_insert_with(|| error.clone());
            self.cancel();
        })?;
        self.handle(now, self.side_of_bodies(), message)
    }

    /// Hands in a control message of one connection.
    ///
    /// # Errors
    ///
    /// The error that ended the stream.
    pub fn handle_control(&mut self, now: Timestamp, side: Side, bytes: &[u8]) -> Result<()> {
        self.handle(now, side, InMessage::Control(bytes))
    }

    /// Reports that a connection has ended, with the reason. Batches that have arrived can still be
    /// taken.
    pub fn handle_disconnect(&mut self, side: Side, reason: &Error) {
        // A reader lends nothing.
        drop(self.connection(side).handle_disconnect(reason));
        self.change(|stream| stream.handle_disconnect(side, reason));
    }

    /// Reports that the time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.change(|stream| stream.handle_timeout(now));
    }

    /// Cancels the stream, and tells the server.
    pub fn cancel(&mut self) {
        self.change(IncomingStream::cancel);
    }

    /// The state of the stream.
    pub fn state(&self) -> ReceiverState {
        let stream = self.session.first().incoming();
        stream.map_or(ReceiverState::Failed, IncomingStream::state)
    }

    /// Number of addresses that arrays hold or that wait to be sent back. The connection is needed
    /// until the number is 0 (rule F6).
    pub fn lent_outstanding(&self) -> usize {
        self.lent.outstanding()
    }

    /// The schema; `None` until it has arrived.
    ///
    /// # Errors
    ///
    /// The error that ended the stream.
    pub fn schema(&mut self) -> Result<Option<OwnedSchema>> {
        if self.decoder.is_none() {
            self.check()?;
        }
        Ok(self.decoder.as_ref().map(Decoder::schema))
    }

    /// The next batch.
    ///
    /// # Errors
    ///
    /// The error that ended the stream, also in every later call.
    pub fn next_batch(&mut self) -> Result<NextBatch<OwnedDeviceArray>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        while let Some((message, back)) =
            (self.session.first_mut().incoming_mut()).and_then(IncomingStream::next_message)
        {
            let batch = self.decode_message(message, back);
            self.advance();
            match batch {
                Ok(Some(array)) => return Ok(NextBatch::Batch(array)),
                Ok(None) => {}
                Err(error) => {
                    self.failed = Some(error.clone());
                    self.cancel();
                    return Err(error);
                }
            }
        }
        self.check()?;
        let Some(stream) = self.session.first_mut().incoming_mut() else {
            return Ok(NextBatch::End);
        };
        // Rule E5: the consumer waits, so it grants credit for all batches that it has taken.
        stream.flush_credit();
        Ok(match stream.is_complete() {
            true => NextBatch::End,
            false => NextBatch::NotYet,
        })
    }

    fn check(&mut self) -> Result<()> {
        let of_stream = self
            .session
            .first_mut()
            .incoming_mut()
            .and_then(IncomingStream::error);
        let error = self.failed.as_ref().or(of_stream);
        error.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<WireMessage> {
        if let Some((_, transmit)) = self.session.poll_transmit() {
            return Some(WireMessage::of_transmit(transmit, |body| match body {}));
        }
        self.advance();
        if let Some(message) = self.for_bodies.pop_front() {
            return Some(message);
        }
        let side = self.side_of_bodies();
        Some(self.lent.poll(now)?.on(side))
    }

    /// The next body whose receive can be posted (rule D8).
    pub fn poll_expected(&mut self) -> Option<ExpectedBody> {
        self.expected.pop_front()
    }

    /// The latest time for the next [`handle_timeout`](Self::handle_timeout) and polls.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let of_stream = (self.session.first().incoming()).and_then(IncomingStream::poll_timeout);
        of_stream.into_iter().chain(self.lent.deadline()).min()
    }

    /// Hands in a message of one connection. Returns the error if the stream fails by it.
    fn handle(
        &mut self,
        now: Timestamp,
        side: Side,
        message: InMessage<&[u8], HostBuffer>,
    ) -> Result<()> {
        let is_broken = |session: &ReadingSession| {
            (session.first().incoming())
                .is_none_or(|stream| stream.state() == ReceiverState::Failed)
        };
        let was_broken = is_broken(&self.session);
        let handled = self.connection(side).handle(now, 0, message);
        let outcome = handled.and_then(|handled| self.hand_on(now, side, handled));
        if let Err(error) = &outcome {
            self.handle_disconnect(side, error);
        }
        let outcome = outcome.and_then(|()| match !was_broken && is_broken(&self.session) {
            true => self.check(),
            false => Ok(()),
        });
        self.advance();
        outcome
    }

    /// Hands messages on to the stream: the bodies from the other connection, and messages that
    /// name no stream.
    fn hand_on(&mut self, now: Timestamp, side: Side, handled: Handled) -> Result<()> {
        if let Some(bodies) = &mut self.bodies {
            let messages = bodies.first_mut().take_bodies();
            self.session
                .first_mut()
                .handle_bodies(now, messages, None)?;
        }
        let control = match handled {
            Handled::Done => return Ok(()),
            Handled::Expect(expected) => {
                self.expected.push_back(expected);
                return Ok(());
            }
            // The host maps memory by `add_memory`. The stream knows what may come, and answers.
            Handled::Memory(control) => control,
        };
        let message = StreamMessage::<&[u8], _>::Control(control);
        if let Some(stream) = self.session.first_mut().incoming_mut() {
            stream.deliver(now, side, message);
        }
        Ok(())
    }

    fn connection(&mut self, side: Side) -> &mut ReadingSession {
        match &mut self.bodies {
            Some(bodies) if side == Side::Data => bodies,
            _ => &mut self.session,
        }
    }

    fn side_of_bodies(&self) -> Side {
        match &self.bodies {
            Some(_) => Side::Data,
            None => Side::Metadata,
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut IncomingStream<HostBuffer>)) {
        self.session.first_mut().incoming_mut().map(change);
        self.advance();
    }

    fn advance(&mut self) {
        // A cut counts once every batch is taken.
        let _ = self
            .session
            .first_mut()
            .incoming_mut()
            .and_then(IncomingStream::error);
        while let Some((_, event)) = self.session.poll_event(Timestamp::default) {
            if let SessionEvent::Bodies(work) = event {
                self.work_for_bodies(work);
            }
        }
        let Some(stream) = self.session.first_mut().incoming_mut() else {
            return;
        };
        let work = stream.take_bodies_work();
        let is_new = self.decoder.is_none() && self.failed.is_none();
        if let Some(header) = stream.schema().filter(|_| is_new) {
            match Decoder::with_target(header, self.decode, self.target) {
                Ok(decoder) => self.decoder = Some(decoder),
                Err(error) => {
                    self.failed = Some(error);
                    stream.cancel();
                }
            }
        }
        work.into_iter().for_each(|work| self.work_for_bodies(work));
    }

    fn work_for_bodies(&mut self, work: BodiesWork) {
        let message = match work {
            BodiesWork::Request { tag, bytes } => {
                WireMessage::of_bytes(MessageClass::Tagged, tag, bytes)
            }
            BodiesWork::Control(bytes) => WireMessage::of_bytes(MessageClass::Control, 0, bytes),
            BodiesWork::Expect(expected) => return self.expected.push_back(expected),
            BodiesWork::Abandoned(bodies) => return self.lent.give_back(bodies),
        };
        self.for_bodies.push_back(message.on(Side::Data));
    }

    fn decode_message(
        &mut self,
        message: Message<HostBuffer>,
        back: Option<Return>,
    ) -> Result<Option<OwnedDeviceArray>> {
        let header = &message.header;
        let body = match message.body {
            Body::Packed(memory) => ReceivedBody::packed(header, memory)?,
            Body::Lent(spans) => self.lent.find(back, &spans)?,
        };
        let Some(decoder) = &mut self.decoder else {
            return Err(Error::protocol(
                // Rule M4.
                "a message came before the schema",
            ));
        };
        if header.kind() == HeaderKind::Dictionary {
            decoder.add_dictionary(header, &body)?;
            return Ok(None);
        }
        Ok(Some(decoder.batch(header, &body)?.array))
    }
}

/// Turns a tagged message into the form of the session.
fn received(tag: u64, bytes: &[u8]) -> Result<InMessage<&[u8], HostBuffer>> {
    let (seq, kind) = parse_body_tag(tag)?;
    if kind == BodyKind::List {
        return Ok(InMessage::Tagged { tag, bytes });
    }
    let mut memory = HostBuffer::new(bytes.len())?;
    memory.as_mut_slice().copy_from_slice(bytes);
    let len = bytes.len() as u64;
    Ok(InMessage::Body { seq, len, memory })
}
