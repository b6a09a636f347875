//! One stream of a client whose host carries the messages.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::arrow::decode::{DecodeOptions, Decoder, ReceivedBody};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::bare::{MessageClass, WireMessage};
use crate::device::{BufferRef, HostBuffer, Target};
use crate::error::{Error, Result};
use crate::proto::{
    Body, BodyKind, FreeMessage, FreeQueue, Header, HeaderKind, Headers, InBody, Receiver,
    ReceiverConfig, ReceiverEvent, ReceiverState, ReceiverTransmit, Return, Side, Span, Timestamp,
    parse_body_tag,
};

/// The result of [`BareReceiver::next_batch`].
pub enum NextBatch {
    /// A batch.
    Batch(OwnedDeviceArray),
    /// No whole batch has arrived.
    NotYet,
    /// The end of the stream.
    End,
}

/// Memory of the server that this process can read.
pub struct OpenMemory {
    /// The memory in this process.
    pub memory: BufferRef,
    /// Keeps the memory alive. Dropped when neither the receiver nor an array needs it any more.
    pub owner: Arc<dyn Any + Send + Sync>,
}

/// A body whose receive can be posted: its number, its length if packed, and the length of its
/// address list (rule D8).
pub type ExpectedBody = (u32, u64, u64);

/// The consuming side of one stream.
///
/// Call order: [`start`](Self::start), then `handle_*` for each arriving message and
/// [`next_batch`](Self::next_batch) for batches. After every call, `poll_transmit` until `None`,
/// then `poll_timeout`.
pub struct BareReceiver {
    machine: Receiver<HostBuffer>,
    decode: DecodeOptions,
    /// The device that the arrays come to. Bodies come to the host first.
    pub(super) target: Target,
    schema: Option<Header>,
    decoder: Option<Decoder>,
    expected: VecDeque<ExpectedBody>,
    /// Memory for lent bodies, by the server's address.
    lendable: BTreeMap<u64, OpenMemory>,
    returns: Arc<ReturnQueue>,
    failed: Option<Error>,
}

/// Turns a tagged message into the form of the state machine.
fn received(tag: u64, bytes: &[u8]) -> Result<InBody<'_, HostBuffer>> {
    let (_, kind) = parse_body_tag(tag)?;
    Ok(match kind {
        BodyKind::List => InBody::List(bytes),
        BodyKind::Packed => {
            let mut memory = HostBuffer::new(bytes.len())?;
            memory.as_mut_slice().copy_from_slice(bytes);
            InBody::Packed {
                len: bytes.len() as u64,
                memory,
            }
        }
    })
}

/// Lent bodies that go back to the server. Arrays add to it, on any thread.
struct ReturnQueue {
    queue: Mutex<PendingReturns>,
    /// Number of addresses that arrays hold.
    held: AtomicUsize,
    /// The connection that carries the returns.
    side: Side,
}

struct PendingReturns {
    /// `None` if the server's URI has no `free_data`; then the server lends nothing.
    frees: Option<FreeQueue>,
    /// Returns since the last poll. Only a poll knows the time.
    fresh: Vec<Return>,
}

impl ReturnQueue {
    fn give_back(&self, bodies: impl IntoIterator<Item = Return>) {
        let mut queue = self.queue.lock();
        if queue.frees.is_some() {
            queue.fresh.extend(bodies);
        }
    }
}

/// A lent body. It goes back when its last array is released (rule F1).
struct HeldBody {
    /// The return to send; `None` if all buffers are empty.
    back: Option<Return>,
    /// Number of addresses in its list.
    addresses: usize,
    returns: Arc<ReturnQueue>,
    _owners: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.returns.give_back(self.back.take());
        self.returns
            .held
            .fetch_sub(self.addresses, Ordering::Relaxed);
    }
}

impl BareReceiver {
    /// Makes a receiver, which has not sent its request.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`, `InvalidUri` for tags that break rule U4.
    pub fn new(config: ReceiverConfig, decode: DecodeOptions) -> Result<Self> {
        let (side, tags) = match &config.data {
            Some(data) => (Side::Data, data.tags),
            None => (Side::Metadata, config.metadata.tags),
        };
        let queue = PendingReturns {
            frees: tags.free_data.map(FreeQueue::new),
            fresh: Vec::new(),
        };
        let mut machine = Receiver::new(config)?;
        machine.limit_messages(decode.body_limit(), decode.message_limit);
        Ok(Self {
            machine,
            decode,
            target: Target::Host,
            schema: None,
            decoder: None,
            expected: VecDeque::new(),
            lendable: BTreeMap::new(),
            returns: Arc::new(ReturnQueue {
                queue: Mutex::new(queue),
                held: AtomicUsize::new(0),
                side,
            }),
            failed: None,
        })
    }

    /// Headers of the server's answer: headers of STREAM, then headers of ERROR.
    pub fn answer_headers(&self) -> &Headers {
        self.machine.answer_headers()
    }

    /// Starts the stream: `poll_transmit` then gives the request.
    pub fn start(&mut self, now: Timestamp) {
        self.machine.start(now);
        self.advance();
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
        let len = lendable.memory.len as u64;
        let end = address
            .checked_add(len)
            .filter(|_| address > 0 && len > 0)
            .ok_or_else(|| {
                Error::invalid_argument("memory at address 0, empty, or past the end")
            })?;
        let before = self.lendable.range(..end).next_back();
        if before.is_some_and(|(start, known)| start + known.memory.len as u64 > address) {
            return Err(Error::invalid_argument("the range overlaps an earlier one"));
        }
        self.lendable.insert(address, lendable);
        Ok(())
    }

    /// Hands in an untagged message.
    ///
    /// # Errors
    ///
    /// The error that ended the stream.
    pub fn handle_metadata(&mut self, now: Timestamp, message: &[u8]) -> Result<()> {
        let outcome = self.machine.handle_metadata(now, message);
        self.advance();
        outcome
    }

    /// Hands in a tagged message: a body, which is copied, or an address list.
    ///
    /// # Errors
    ///
    /// The error that ended the stream; `OutOfMemory`.
    pub fn handle_tagged(&mut self, now: Timestamp, tag: u64, bytes: &[u8]) -> Result<()> {
        let outcome = match received(tag, bytes) {
            Ok(body) => self.machine.handle_body(now, tag, body),
            Err(error) => {
                // The server will not send this body again, so the stream fails.
                self.failed.get_or_insert_with(|| error.clone());
                self.machine.cancel();
                Err(error)
            }
        };
        self.advance();
        outcome
    }

    /// Hands in a control message of one connection.
    ///
    /// # Errors
    ///
    /// The error that ended the stream.
    pub fn handle_control(&mut self, now: Timestamp, side: Side, bytes: &[u8]) -> Result<()> {
        let outcome = self.machine.handle_control(now, side, bytes);
        self.advance();
        outcome
    }

    /// Reports that a connection has ended, with the reason.
    pub fn handle_disconnect(&mut self, side: Side, reason: &Error) {
        self.machine.handle_disconnect(side, reason);
        self.advance();
    }

    /// Reports that the time of [`poll_timeout`](Self::poll_timeout) has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.machine.handle_timeout(now);
        self.advance();
    }

    /// Cancels the stream, and tells the server.
    pub fn cancel(&mut self) {
        self.machine.cancel();
        self.advance();
    }

    /// The state of the stream.
    pub fn state(&self) -> ReceiverState {
        self.machine.state()
    }

    /// Number of addresses that arrays hold or that wait to be sent back. The connection is needed
    /// until it is 0 (rule F6).
    pub fn lent_outstanding(&self) -> usize {
        let queue = self.returns.queue.lock();
        let waiting = queue
            .frees
            .as_ref()
            .is_some_and(|frees| frees.deadline().is_some());
        self.returns.held.load(Ordering::Relaxed) + queue.fresh.len() + usize::from(waiting)
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
    pub fn next_batch(&mut self) -> Result<NextBatch> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        while let Some(message) = self.machine.next_message() {
            let batch = self.decode_message(message.seq, &message.header, message.body);
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
        // Rule E5: the consumer waits, so it grants credit for all batches that it has taken.
        self.machine.flush_credit();
        Ok(if self.machine.is_complete() {
            NextBatch::End
        } else {
            NextBatch::NotYet
        })
    }

    fn check(&self) -> Result<()> {
        let error = self.failed.as_ref().or_else(|| self.machine.error());
        error.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The next message for the transport.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<WireMessage> {
        if let Some(transmit) = self.machine.poll_transmit() {
            return Some(match transmit {
                ReceiverTransmit::Tagged { side, tag, bytes } => {
                    WireMessage::of_bytes(MessageClass::Tagged, tag, bytes).on(side)
                }
                ReceiverTransmit::Control { side, bytes } => {
                    WireMessage::of_bytes(MessageClass::Control, 0, bytes).on(side)
                }
            });
        }
        let mut queue = self.returns.queue.lock();
        let fresh = std::mem::take(&mut queue.fresh);
        let frees = queue.frees.as_mut()?;
        if !fresh.is_empty() {
            for body in &fresh {
                frees.push(now, body);
            }
        }
        let message = match frees.poll(now)? {
            // Rule F5
            FreeMessage::Tagged { tag, bytes } => {
                WireMessage::of_bytes(MessageClass::Tagged, tag, bytes)
            }
            FreeMessage::Control(bytes) => WireMessage::of_bytes(MessageClass::Control, 0, bytes),
        };
        Some(message.on(self.returns.side))
    }

    /// The next body whose receive can be posted (rule D8).
    pub fn poll_expected(&mut self) -> Option<ExpectedBody> {
        self.expected.pop_front()
    }

    /// The latest time for the next [`handle_timeout`](Self::handle_timeout) and polls.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let queue = self.returns.queue.lock();
        if !queue.fresh.is_empty() {
            // The time of rule F5 begins with the next poll, which knows the clock.
            return Some(Timestamp::from_nanos(0));
        }
        let frees = queue.frees.as_ref().and_then(FreeQueue::deadline);
        [self.machine.poll_timeout(), frees]
            .into_iter()
            .flatten()
            .min()
    }

    fn advance(&mut self) {
        while let Some(event) = self.machine.poll_event() {
            match event {
                ReceiverEvent::Schema(header) => self.schema = Some(header),
                ReceiverEvent::Expect { seq, packed, list } => {
                    self.expected.push_back((seq, packed, list));
                }
                // The host passes memory by `add_memory` instead.
                ReceiverEvent::Stream { .. }
                | ReceiverEvent::Region { .. }
                | ReceiverEvent::RegionGone { .. } => {}
            }
        }
        if let Some(header) = self.schema.take() {
            match Decoder::with_target(&header, self.decode, self.target) {
                Ok(decoder) => self.decoder = Some(decoder),
                Err(error) => {
                    self.failed = Some(error);
                    self.machine.cancel();
                }
            }
        }
        self.returns.give_back(self.machine.abandoned());
    }

    fn decode_message(
        &mut self,
        seq: u32,
        header: &Header,
        body: Body<HostBuffer>,
    ) -> Result<Option<OwnedDeviceArray>> {
        let body = match body {
            Body::Packed(memory) => ReceivedBody::packed(header, memory)?,
            Body::Lent(spans) => self.find(seq, &spans)?,
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

    /// Finds the memory of a lent body. The body goes back when the result is dropped, or at once
    /// if an address is unknown.
    fn find(&self, seq: u32, spans: &[Span]) -> Result<ReceivedBody> {
        let addresses = spans.iter().filter(|span| span.length > 0).count();
        self.returns.held.fetch_add(addresses, Ordering::Relaxed);
        let mut held = HeldBody {
            back: self.machine.to_return(seq, spans),
            addresses,
            returns: Arc::clone(&self.returns),
            _owners: Vec::new(),
        };
        let mut buffers = Vec::with_capacity(spans.len());
        for span in spans {
            if span.length == 0 {
                buffers.push(BufferRef::EMPTY);
                continue;
            }
            let (buffer, owner) = self.look_up(span).ok_or_else(|| {
                Error::protocol(format!(
                    "{} bytes at address {:#x} are not in memory that can be read here",
                    span.length, span.address
                ))
            })?;
            buffers.push(buffer);
            held._owners.push(owner);
        }
        // SAFETY: each buffer lies inside memory that `look_up` knows by `add_memory`, whose caller
        // promised that it can be read on the host until its owner, now in `held`, is dropped, and
        // that only the server writes to it.
        Ok(unsafe { ReceivedBody::new(buffers, Arc::new(held), true) })
    }

    fn look_up(&self, span: &Span) -> Option<(BufferRef, Arc<dyn Any + Send + Sync>)> {
        let (start, known) = self.lendable.range(..=span.address).next_back()?;
        let offset = usize::try_from(span.address - start).ok()?;
        let len = usize::try_from(span.length).ok()?;
        if offset.checked_add(len)? > known.memory.len {
            return None;
        }
        let data = known.memory.data.wrapping_add(offset);
        Some((BufferRef { data, len }, Arc::clone(&known.owner)))
    }
}
