//! One stream on its way out: the thread that pulls the producer, builds messages and sends them.
//!
//! A stream has one outlet or two (rule U3: metadata and bodies may go to different connections).
//! Everything it says is kept in a log until every outlet has sent it. With one outlet the log is
//! empty between two batches; with two it holds what the slower one has still to send, bounded by
//! the window, since nothing is pulled while an outlet has no room.
//!
//! A second outlet may come late, or never to this server: the other connection then leads to a
//! server of its own (rule E6 shares a provider call only within one server). The log is cut behind
//! what the consumer has taken, which it can only have done with both parts in hand.

mod body;
mod on_gpu;
mod pace;
mod replay;
mod stage;
mod stream;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use body::gather;
pub use replay::{Replay, Table};
pub use stream::OutStream;

use crate::arrow::{EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, OwnedSchema};
use crate::device::DeviceKind;
use crate::device::cuda::Driver;
use crate::driver::brief::Brief;
use crate::driver::callbacks::{Callbacks, HostOwner};
use crate::driver::clock;
use crate::driver::io::Busy;
use crate::driver::served::ServedLink;
use crate::driver::telling::Account;
use crate::error::{Error, Result, Status};
use crate::proto::{
    BODY_KIND_LIST, BODY_KIND_PACKED, HeaderKind, OutBody, Role, StreamInfo, Timestamp, VERSION,
};
use crate::transport::{BodyPolicy, Owner};
use body::{Figures, Placed, Ready, Room, place, room_for};
use pace::Pace;

/// Counters of a server, shared by its streams.
#[derive(Debug, Default)]
pub struct Counters {
    /// Record batches sent.
    pub batches: AtomicU64,
    /// Body bytes lent where they lay.
    pub bytes_lent: AtomicU64,
    /// Body bytes copied on the host: into regions, to be lent from there, or small ones to be
    /// sent.
    pub bytes_copied: AtomicU64,
    /// Body bytes sent through the connection.
    pub bytes_sent: AtomicU64,
    /// Body bytes copied within a GPU's memory and lent from there.
    pub bytes_copied_on_device: AtomicU64,
    /// Body bytes copied from a GPU's memory to the host's.
    pub bytes_staged: AtomicU64,
}

/// What a stream says, in order.
#[derive(Clone)]
enum Item {
    Schema { header: Arc<[u8]>, info: StreamInfo },
    Message(EncodedMessage),
    End,
    Failed { status: i32, text: String },
}

/// How far one outlet has come.
struct Cursor {
    role: Role,
    /// `None` for the part that has not come to this server.
    link: Option<Arc<ServedLink>>,
    /// Number of the next item to send.
    next: u64,
    /// A message that came from the log, and whose body turned out to need room that there was not.
    waiting: Option<Ready>,
    /// STREAM was sent: errors are now ERROR messages of a running stream.
    accepted: bool,
    /// The end, or an error, was sent: whatever the connection carries next is not this stream.
    done: bool,
}

/// The producing side of one stream. Dropping it unfinished fails the stream.
pub struct Production {
    stream: Arc<OutStream>,
    /// A thread drives the stream, and nothing else.
    busy: Option<Busy>,
    /// The thread waits for the connection's next request when the stream is over.
    parks: bool,
    /// What the thread knows of its looks before it sleeps.
    brief: Brief,
    /// When there was room for a batch last.
    pulled_at: Timestamp,
    /// Batches that were not sent soon after that, one after the other.
    slow: u32,
    /// When the producer could last begin with a batch.
    returned_at: Timestamp,
    options: ProduceOptions,
    encoder: Option<Encoder>,
    /// That of an earlier stream, for one of the same schema.
    spare: Option<Encoder>,
    log: VecDeque<Item>,
    /// Number of the first item in the log.
    first: u64,
    /// While a part is absent: the item numbers just behind each record batch that the consumer has
    /// not taken, and how many it has.
    batches: VecDeque<u64>,
    batches_before: u64,
    cursors: Vec<Cursor>,
    /// The last word, End or Failed, is in the log.
    finished: bool,
    /// Until when a finished stream waits for a part that may never come.
    linger: Option<Timestamp>,
    /// What went wrong after a batch had been taken: the next call says it.
    broken: Option<Error>,
    /// There was room, and nothing was sent since: credit only grows meanwhile.
    has_room: bool,
    /// Which batches wait for the next ones.
    pace: Pace,
    /// Called when the last word is about to be sent.
    ending: Option<Box<dyn FnOnce() + Send>>,
    /// For the log, until it has the stream's end.
    account: Option<Box<Account>>,
}

/// What a production needs from its server.
#[derive(Clone)]
pub struct ProduceOptions {
    /// How headers and bodies are made.
    pub encode: EncodeOptions,
    /// How bodies travel.
    pub body: BodyPolicy,
    /// Where the producer's arrays are released.
    pub callbacks: Callbacks,
    /// Where figures are counted.
    pub counters: Arc<Counters>,
}

/// An encoder with a longer header of its schema is not kept for another stream.
const MOST_KEPT_HEADER_BYTES: usize = 16 << 10;

/// How long a finished stream waits for its second part, when no batch tells whether it is needed.
const LINGER: Duration = Duration::from_secs(2);

impl Production {
    /// Begins to produce for `stream`. `ending` is called when its last word is about to be sent:
    /// a client may ask for the next stream as soon as it has that.
    pub fn new(
        stream: Arc<OutStream>,
        options: ProduceOptions,
        ending: Box<dyn FnOnce() + Send>,
    ) -> Self {
        Self {
            busy: None,
            parks: false,
            brief: Brief::default(),
            pulled_at: clock::now(),
            returned_at: clock::now(),
            slow: waiting::MOST_SLOW,
            account: Account::open("to", &stream.ticket, &stream.peer),
            stream,
            options,
            encoder: None,
            spare: None,
            log: VecDeque::new(),
            first: 0,
            batches: VecDeque::new(),
            batches_before: 0,
            cursors: Vec::new(),
            finished: false,
            linger: None,
            broken: None,
            has_room: false,
            pace: Pace::default(),
            ending: Some(ending),
        }
    }

    /// The caller does nothing else until this is dropped: the I/O thread shall not spin beside it where
    /// processors are few.
    pub fn has_thread(&mut self) {
        let link = self.stream.links().into_iter().next();
        self.busy = link.map(|link| link.io().busy());
    }

    /// Whether the thread is going to [park](ServedLink::park) the connection when the stream is over, and so may leave it
    /// as it is until then.
    pub fn parks(&mut self, parks: bool) {
        self.parks = parks;
    }

    /// Gives it the encoder of an earlier stream, which most often had the same schema.
    pub fn reuse(&mut self, encoder: Encoder) {
        self.spare = Some(encoder);
    }

    /// The encoder for another stream, when this one is over. `None` where it takes much memory.
    pub fn take_encoder(&mut self) -> Option<Encoder> {
        let kept = |encoder: &Encoder| encoder.schema_header().len() <= MOST_KEPT_HEADER_BYTES;
        self.encoder.take().filter(kept).map(Encoder::emptied)
    }

    /// Sends the schema, which comes before everything else.
    ///
    /// # Errors
    ///
    /// `InvalidData` when the schema is not valid, `Unsupported` for a device that cannot be read
    /// here, and whatever ended the stream.
    pub fn start(&mut self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        if self.finished || self.encoder.is_some() {
            return Err(Error::invalid_argument(
                "the stream has its schema already, or is over",
            ));
        }
        ensure_served(DeviceKind(device_type))?;
        let spare = self.spare.take();
        let encoder = match spare.filter(|spare| spare.fits(schema, self.options.encode)) {
            Some(encoder) => encoder,
            None => Encoder::new(schema, self.options.encode)?,
        };
        let info = stream_info(device_type);
        self.log.push_back(Item::Schema {
            header: Arc::clone(encoder.schema_header()),
            info,
        });
        self.encoder = Some(encoder);
        self.advance().map(drop)
    }

    /// Sends one record batch, dictionaries first. Once a batch is taken, what then goes wrong is
    /// said by the next call: part of it may be with the consumer already.
    ///
    /// # Errors
    ///
    /// With the array given back: `Timeout` when there was no room in time, `InvalidData` when the
    /// array is not valid, and whatever ended the stream.
    pub fn push(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        deadline: Option<Timestamp>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        if self.finished {
            let error = Error::invalid_argument("the stream has been finished already");
            return Err((error, array));
        }
        let made_in = clock::since(self.returned_at);
        if !self.has_room
            && let Err(error) = self.wait_for_room(deadline)
        {
            return Err((error, array));
        }
        self.has_room = false;
        let Some(encoder) = &mut self.encoder else {
            let error = Error::invalid_argument("the stream has no schema yet: start it first");
            return Err((error, array));
        };
        let messages = encoder
            .try_encode(array, custom_metadata)
            .map_err(|refused| *refused)?;
        let absent = self.cursors.iter().any(|cursor| cursor.link.is_none());
        for message in messages {
            let is_batch = message.kind == HeaderKind::RecordBatch;
            self.log.push_back(Item::Message(message));
            if absent && is_batch {
                self.batches.push_back(self.first + self.log.len() as u64);
            }
        }
        self.brief.note(1);
        let waits = self.holds_back(made_in);
        self.broken = self.advance().err();
        if !waits {
            self.uncork();
        }
        self.returned_at = clock::now();
        Ok(())
    }

    /// Ends the stream: waits until everything has been sent, to both parts where it has two.
    ///
    /// # Errors
    ///
    /// As [`wait_for_room`](Self::wait_for_room); after `Timeout` it may be called again.
    pub fn finish(&mut self, deadline: Option<Timestamp>) -> Result<()> {
        if !self.finished {
            if self.encoder.is_none() {
                return Err(Error::invalid_argument(
                    "the stream has no schema yet: start it first",
                ));
            }
            self.finished = true;
            self.log.push_back(Item::End);
        }
        let linger = *self.linger.get_or_insert_with(|| clock::after(LINGER));
        let finished =
            self.wait_until(deadline, |this| Ok(this.advance()? && this.is_over(linger)));
        self.uncork();
        if !self.parks {
            self.hand_back();
        }
        if finished.is_ok()
            && let Some(account) = self.account.take()
        {
            account.end();
        }
        finished
    }

    /// Ends the stream with an error that the consumer is told, unless it has been told the end.
    pub fn fail(&mut self, status: i32, text: &str) {
        self.tell_failure(status, text);
        self.refresh_cursors();
        self.finished = true;
        self.broken = None;
        self.log.clear();
        self.first = 0;
        for cursor in &mut self.cursors {
            cursor.next = 0;
            if let (Some(waiting), Some(link)) = (cursor.waiting.take(), &cursor.link) {
                waiting.give_up(link);
            }
        }
        self.log.push_back(Item::Failed {
            status,
            text: text.to_owned(),
        });
        for index in 0..self.cursors.len() {
            // The consumer may be gone; then there is nobody left to tell on this connection.
            let _ = self.advance_one(index);
        }
        self.uncork();
        if !self.parks {
            self.hand_back();
        }
    }

    /// Has the log say why the stream ends: where its client has gone, that is why.
    fn tell_failure(&mut self, status: i32, text: &str) {
        let Some(account) = self.account.take() else {
            return;
        };
        let links = self.stream.links();
        match links.iter().find_map(|link| link.ensure_streaming().err()) {
            Some(lost) => account.fail(lost.status().code(), lost.text()),
            None => {
                account.warn_of_provider(status, text);
                account.fail(status, text);
            }
        }
    }

    /// Whether nobody needs the stream any more, once all present parts have sent everything.
    fn is_over(&self, linger: Timestamp) -> bool {
        let mut present = self
            .cursors
            .iter()
            .filter_map(|cursor| cursor.link.as_ref());
        let absent = self.cursors.iter().any(|cursor| cursor.link.is_none());
        if !absent || present.any(|link| link.ensure_streaming().is_err()) {
            return true;
        }
        let total = self.batches_before + self.batches.len() as u64;
        let taken = self.taken();
        (total > 0 && taken >= total) || (total == 0 && clock::now() >= linger)
    }

    fn taken(&self) -> u64 {
        self.cursors
            .iter()
            .filter_map(|cursor| cursor.link.as_ref())
            .map(|link| link.batches_taken())
            .max()
            .unwrap_or(0)
    }

    /// Takes up connections that have joined.
    fn refresh_cursors(&mut self) {
        let outlets = self.stream.outlets.lock();
        for (link, role) in outlets.present.iter().zip(&outlets.roles) {
            match self.cursors.iter_mut().find(|cursor| cursor.role == *role) {
                Some(cursor) => {
                    if cursor.link.is_none() {
                        cursor.link = Some(Arc::clone(link));
                    }
                }
                None => self.cursors.push(Cursor {
                    role: *role,
                    link: Some(Arc::clone(link)),
                    next: self.first,
                    waiting: None,
                    accepted: false,
                    done: false,
                }),
            }
        }
        drop(outlets);
        let absent = match self.cursors.as_slice() {
            [
                Cursor {
                    role: Role::Metadata,
                    ..
                },
            ] => Some(Role::Data),
            [
                Cursor {
                    role: Role::Data, ..
                },
            ] => Some(Role::Metadata),
            _ => None,
        };
        if let Some(role) = absent.filter(|_| self.stream.joinable) {
            let next = self.first;
            self.cursors.push(Cursor {
                role,
                link: None,
                next,
                waiting: None,
                accepted: false,
                done: false,
            });
        }
    }

    /// Sends what can be sent now. Returns whether every part that is present has sent everything.
    fn advance(&mut self) -> Result<bool> {
        self.refresh_cursors();
        let mut caught_up = true;
        for index in 0..self.cursors.len() {
            caught_up &= self.advance_one(index)?;
        }
        self.trim();
        Ok(caught_up)
    }

    fn advance_one(&mut self, index: usize) -> Result<bool> {
        let alone = self.cursors.len() == 1;
        loop {
            let cursor = &self.cursors[index];
            let Some(link) = cursor.link.clone().filter(|_| !cursor.done) else {
                return Ok(true);
            };
            if let Some(waiting) = &cursor.waiting {
                if !waiting.has_room(&link)? {
                    return Ok(false);
                }
                self.send_waiting(index, &link)?;
                continue;
            }
            let at = usize::try_from(cursor.next - self.first).unwrap_or(usize::MAX);
            let Some(item) = self.log.get(at) else {
                return Ok(true);
            };
            let room = match item {
                Item::Message(message) => room_for(&self.options, &link, message)?,
                _ => Room::Any,
            };
            if room == Room::None {
                // Rule E5: a dictionary uses bytes of the window, a batch also a place in it.
                return Ok(false);
            }
            let item = if alone {
                self.first += 1;
                self.log.pop_front()
            } else {
                self.log.get(at).cloned()
            };
            let Some(item) = item else { return Ok(true) };
            self.cursors[index].next += 1;
            self.send(index, &link, item, room)?;
        }
    }

    fn send(&mut self, index: usize, link: &ServedLink, item: Item, room: Room) -> Result<()> {
        let cursor = &mut self.cursors[index];
        if matches!(item, Item::End | Item::Failed { .. }) {
            cursor.done = true;
            if let Some(ending) = self.ending.take() {
                ending();
            }
        }
        match item {
            Item::Schema { header, mut info } => {
                cursor.accepted = true;
                info.device_type = device_in_transit(&self.options, link, info.device_type);
                link.act(&[], |sender| {
                    sender.accept(info)?;
                    sender.send_schema(header)
                })??;
            }
            Item::Message(message) => {
                let ready = self.place(link, self.cursors[index].role, message)?;
                self.pace.note(ready.is_small());
                let suits = ready.suits(room);
                self.cursors[index].waiting = Some(ready);
                if suits {
                    self.send_waiting(index, link)?;
                }
            }
            Item::End => link.act(&[], |sender| sender.end())??,
            Item::Failed { status, text } => {
                let accepted = cursor.accepted;
                link.act(&[], |sender| {
                    if accepted {
                        sender.fail(status, &text)
                    } else {
                        sender.refuse(status, &text)
                    }
                })??;
            }
        }
        Ok(())
    }

    fn place(&self, link: &ServedLink, role: Role, message: EncodedMessage) -> Result<Ready> {
        let placed = match role {
            Role::Metadata => Placed::of(OutBody::Elsewhere),
            Role::Both | Role::Data => {
                let owner = || {
                    let owner = Owner::Shared(message.owner.clone().shared());
                    HostOwner::new(owner, self.options.callbacks.clone())
                };
                place(&self.options, link, &message, owner)?
            }
        };
        let EncodedMessage {
            kind,
            header,
            rows,
            body_len,
            ..
        } = message;
        let figures = Figures { rows, body_len };
        Ok(Ready::new(kind, header, figures, placed))
    }

    fn send_waiting(&mut self, index: usize, link: &ServedLink) -> Result<()> {
        let cursor = &mut self.cursors[index];
        let Some(ready) = cursor.waiting.take() else {
            return Ok(());
        };
        let figures = ready.figures();
        let kind = ready.send(link)?;
        if cursor.role == Role::Metadata {
            return Ok(());
        }
        let is_batch = kind == HeaderKind::RecordBatch;
        if is_batch {
            let batches = &self.options.counters.batches;
            batches.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(account) = &mut self.account {
            account.sent(is_batch, figures.rows, figures.body_len);
        }
        Ok(())
    }

    /// Forgets items that no part needs any more.
    fn trim(&mut self) {
        let taken = self.taken();
        while self.batches_before < taken
            && let Some(end) = self.batches.pop_front()
        {
            self.batches_before += 1;
            for cursor in &mut self.cursors {
                if cursor.link.is_none() {
                    cursor.next = cursor.next.max(end);
                }
            }
        }
        let needed = self
            .cursors
            .iter()
            .map(|cursor| cursor.next)
            .min()
            .unwrap_or(self.first);
        while self.first < needed && self.log.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// What a server says of a stream (rule E2).
fn stream_info(device_type: i32) -> StreamInfo {
    StreamInfo {
        version: VERSION,
        features: 0,
        device_type,
        device_id: -1,
        body_kinds: BODY_KIND_PACKED | BODY_KIND_LIST,
    }
}

/// Whether arrays of this kind can be served.
fn ensure_served(kind: DeviceKind) -> Result<()> {
    match kind {
        DeviceKind::CUDA | DeviceKind::CUDA_HOST | DeviceKind::CUDA_MANAGED => {
            // What is missing is said before the client is told that the stream begins.
            Driver::get().map(drop).map_err(|error| {
                error.context(format!(
                    "memory of Arrow device type {} cannot be served here",
                    kind.0
                ))
            })
        }
        _ => kind.ensure_readable(),
    }
}

/// Where the bodies of a stream lie on their way over `link`, if the producer's are of `device_type`.
fn device_in_transit(options: &ProduceOptions, link: &ServedLink, device_type: i32) -> i32 {
    let on_gpu = matches!(
        DeviceKind(device_type),
        DeviceKind::CUDA | DeviceKind::CUDA_MANAGED
    );
    let lent = on_gpu
        && options.body != BodyPolicy::Packed
        && link.lender().is_some_and(|lender| lender.lends_on_gpus());
    if lent {
        DeviceKind::CUDA.0
    } else {
        DeviceKind::CPU.0
    }
}

impl Drop for Production {
    fn drop(&mut self) {
        self.stream.outlets.lock().over = true;
        // Also parts that joined a moment ago, and those that an early end has not reached.
        let text = "the producer ended without finishing the stream";
        self.fail(Status::Provider.code(), text);
        for link in self.stream.links() {
            link.clear_signal(&self.stream.signal);
            // A panic of the host's ends the thread.
            if !self.parks || std::thread::panicking() {
                link.hand_back();
            }
        }
    }
}

#[cfg(test)]
mod tests;
