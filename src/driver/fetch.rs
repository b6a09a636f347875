//! One stream on its way in, driven by the thread that consumes it.

mod decode;
mod packed;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::arrow::decode::{DecodeOptions, DecodedBatch, Decoder, Level, ReceivedBody};
use crate::cancel::Cancel;
use crate::device::Target;
use crate::device::cuda::Device;
use crate::driver::clock;
use crate::driver::fetch::packed::Packed;
use crate::driver::link::{FetchLink, Memory};
use crate::driver::waiting::Looks;
use crate::error::{Error, Result};
use crate::proto::{
    Header, InBody, Receiver, ReceiverConfig, ReceiverEvent, ReceiverState, ReceiverTransmit, Side,
    StreamInfo, Timestamp,
};
use crate::transport::{Incoming, Outgoing, Payload, Watched};

/// What a stream has brought so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Rows handed out.
    pub rows: u64,
    /// Record batches handed out.
    pub batches: u64,
    /// Body bytes that the server lent and this side mapped.
    pub bytes_lent: u64,
    /// Body bytes copied on this side: joined dictionaries, values copied to be checked.
    pub bytes_copied: u64,
    /// Body bytes that came through the connection.
    pub bytes_received: u64,
    /// Body bytes copied on this side from one place of a GPU to another, or between GPUs.
    pub bytes_copied_on_device: u64,
    /// Body bytes copied on this side between the host and a GPU.
    pub bytes_staged: u64,
}

/// What the server has said of a stream.
#[derive(Default)]
struct Told {
    info: Option<StreamInfo>,
    schema: Option<Arc<Header>>,
}

/// One stream on its way in.
pub struct Fetch {
    receiver: Receiver<Packed>,
    metadata: Arc<FetchLink>,
    /// The same connection as `metadata`, unless the stream has two.
    data: Arc<FetchLink>,
    told: Told,
    decoder: Option<Decoder>,
    /// The decoder of the stream before on this connection.
    earlier: Option<Decoder>,
    decode: DecodeOptions,
    /// Where arrays shall be; [`Target::AsSent`] until it is known where the sender has them.
    target: Target,
    /// The server has them on a GPU, and they shall be there: which one it is here, the first body
    /// that was lent there shows.
    follow: bool,
    /// Dictionaries that came before that, as bytes.
    early: Vec<(Header, ReceivedBody)>,
    /// Bytes of their bodies.
    early_bytes: u64,
    /// How long to look for messages before sleeping.
    spin: Duration,
    /// The looks before a sleep.
    looks: Looks,
    stats: StreamStats,
    /// Why the stream is over, when it did not end well.
    failed: Option<Error>,
    /// Whether the metadata and the data connection have ended: there is nothing to read there.
    gone: [bool; 2],
    /// The system has said that a server's process has ended: what it left is read, and then no more
    /// is waited for.
    suspected: bool,
    /// The request has just left: nothing can have come yet.
    fresh: bool,
    /// What taking the last batch brought about is still to be said.
    told_later: bool,
}

impl Fetch {
    /// Asks for the stream. `data` is the same connection as `metadata` where one serves both.
    ///
    /// Boxed: it is handed on several times, and has some two thousand bytes.
    ///
    /// # Errors
    ///
    /// The request is not one that can be sent, or a connection is over.
    pub fn start(
        config: ReceiverConfig,
        metadata: Arc<FetchLink>,
        data: Arc<FetchLink>,
        decode: DecodeOptions,
        target: Target,
        spin: Duration,
    ) -> Result<Box<Self>> {
        // What is checked value by value is checked on the host: a body on a GPU would have to come
        // from there first.
        let gpu = match (target, decode.level) {
            (Target::Cuda(ordinal), Level::Structure) => Some(Device::get(ordinal.into())?),
            _ => None,
        };
        let gpus = config.request.gpus.clone();
        let mut receiver = Receiver::new(config)?;
        // From here on the connections are this stream's.
        metadata.begin();
        data.begin();
        data.receive_on(gpu.as_ref());
        data.accept_gpus(&gpus);
        let memory = metadata.recall();
        receiver.set_parser(memory.parser);
        receiver.start(clock::now());
        let mut fetch = Box::new(Self {
            receiver,
            metadata,
            data,
            told: Told::default(),
            decoder: None,
            earlier: memory.decoder,
            decode,
            target,
            follow: false,
            early: Vec::new(),
            early_bytes: 0,
            spin,
            looks: Looks::default(),
            stats: StreamStats::default(),
            failed: None,
            gone: [false; 2],
            suspected: false,
            fresh: false,
            told_later: false,
        });
        let asked = clock::now();
        fetch.pump();
        fetch.fresh = clock::since(asked) < AT_ONCE;
        Ok(fetch)
    }

    /// The connections that the stream is on: one, or metadata and data.
    pub fn links(&self) -> SmallVec<[Arc<FetchLink>; 2]> {
        let mut links = SmallVec::new();
        links.push(Arc::clone(&self.metadata));
        if !self.has_one_link() {
            links.push(Arc::clone(&self.data));
        }
        links
    }

    /// What an I/O thread watches when it drives the stream from now on; it begins by
    /// [`discard`](Self::discard).
    pub fn descriptors(&mut self) -> Vec<Arc<dyn Watched>> {
        // What woke it may be the end of the server.
        self.suspected = true;
        let links = self.links();
        for link in &links {
            // Whatever is there is read at once.
            link.doze();
        }
        let readiness = links.iter().map(|link| link.readiness());
        readiness
            .flat_map(|ready| [Some(Arc::clone(&ready.fd)), ready.peer_death.clone()])
            .flatten()
            .collect()
    }

    /// What the server said of the stream; `None` from a baseline server.
    pub fn info(&self) -> Option<&StreamInfo> {
        self.told.info.as_ref()
    }

    /// How long the server may say nothing while something is waited for; `None`: for ever.
    pub fn stall_timeout(&self) -> Option<Duration> {
        self.receiver.stall_timeout()
    }

    /// Figures so far.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// How many batches [`next`](Self::next) gives without waiting for the server. Where there are none, what the
    /// connections have is read first.
    pub fn batches_here(&mut self) -> usize {
        self.tell_now();
        let here = self.receiver.batches_here();
        if here > 0 || self.failed.is_some() || self.receiver.is_complete() {
            return here;
        }
        // Who asks here may wait for something else meanwhile, and is told of the connection's end by this alone.
        for link in self.links() {
            link.doze();
        }
        self.step();
        self.receiver.batches_here()
    }

    /// Why the stream is over, when it did not end well.
    pub fn error(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Whether it failed since this process cannot open the server's memory on a GPU.
    pub fn misses_gpus(&self) -> bool {
        self.data.misses_gpus()
    }

    /// Who the server is.
    pub fn peer(&self) -> &str {
        self.metadata.peer()
    }

    /// Whether the server has said its last word on this stream, so that its connection can serve
    /// another.
    pub fn is_settled(&self) -> bool {
        let sound = |link: &Arc<FetchLink>| {
            link.closed().is_none() && (link.is_ordered() || self.receiver.is_whole())
        };
        self.receiver.is_over_on_wire() && self.links().iter().all(sound)
    }

    /// Waits for the schema.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream.
    pub fn wait_for_schema(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        while self.decoder.is_none() {
            if let Some(header) = self.told.schema.clone() {
                // Rule E2: STREAM came before it.
                let target = self.settle_target();
                self.follow = self.target == Target::AsSent && target != Target::Host;
                self.target = target;
                let earlier = self.earlier.take();
                self.decoder =
                    earlier.filter(|known| known.fits(&header, self.decode, self.target));
                if self.decoder.is_none() {
                    let decoder = Decoder::with_target(&header, self.decode, self.target);
                    self.decoder = Some(decoder.map_err(|error| self.abort(error))?);
                }
            } else {
                self.check()?;
                self.advance(cancel)?;
            }
        }
        Ok(())
    }

    /// Where arrays will be, once the schema is there.
    pub fn target(&self) -> Target {
        self.target
    }

    /// What makes arrays of messages, once the schema is there.
    pub fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    /// Leaves the next stream on this connection what it may bring again.
    pub fn leave_memory(&mut self) {
        self.metadata.remember(Memory {
            parser: self.receiver.take_parser(),
            // Dictionaries may lie in memory that this connection lends, and keep it alive.
            decoder: self.decoder.take().and_then(Decoder::emptied),
        });
    }

    /// The schema message, once it is there.
    pub fn schema(&self) -> Option<Arc<Header>> {
        self.told.schema.clone()
    }

    /// The next record batch, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream; every later call says the same.
    pub fn next(&mut self, cancel: Option<&Cancel>) -> Result<Option<DecodedBatch>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.wait_for_schema(cancel)?;
        // Also where batches have come that need not be waited for.
        if let Some(Err(error)) = cancel.map(Cancel::check)
            && !self.receiver.is_complete()
        {
            return Err(self.abort(error));
        }
        self.tell_now();
        loop {
            if let Some(message) = self.receiver.next_message() {
                let (lent, len) = (self.stats.bytes_lent, message.header.body_len());
                let batch = self.decode(message, cancel);
                let batch = batch.map_err(|error| self.abort(error))?;
                let holds = batch.is_some() && self.stats.bytes_lent > lent;
                self.told_later = holds && self.may_tell_later(len);
                if !self.told_later {
                    // Credit, and perhaps an end, follow from taking it.
                    self.pump();
                }
                if let Some(batch) = batch {
                    return Ok(Some(batch));
                }
            } else if self.receiver.is_complete() {
                // The last credit tells a server that waits for a second connection that there is
                // none to come.
                self.receiver.flush_credit();
                self.pump();
                return Ok(None);
            } else {
                // After the messages: what came before a failure is still handed out.
                self.check()?;
                self.advance(cancel)?;
            }
        }
    }

    /// Whether the credit of a lent body of `len` bytes, which the consumer is handed now, may leave when it asks for the next
    /// one, with what it has given back of this one: that would else leave by itself, woken for by a timer. Of a wide window the
    /// server still has up to half; of the end of a stream it is told at once.
    fn may_tell_later(&self, len: u64) -> bool {
        self.receiver.state() == ReceiverState::Streaming
            && self.receiver.window_takes(BATCHES_AHEAD, len)
    }

    /// Says what was left to be said [later](Self::may_tell_later).
    fn tell_now(&mut self) {
        if std::mem::take(&mut self.told_later) {
            self.pump();
        }
    }

    /// Ends the stream early. The connection still has to be driven until the server agrees.
    pub fn cancel(&mut self) {
        if self.failed.is_none() && self.receiver.is_complete() {
            // It has come to its end, which a server of the bodies alone hears by the last credit.
            self.receiver.flush_credit();
            self.pump();
            return;
        }
        if self.failed.is_none() {
            self.failed = Some(Error::cancelled("the stream was cancelled by its consumer"));
        }
        self.receiver.cancel();
        self.pump();
    }

    /// Lets go of what makes arrays: of a cancelled stream nothing more is decoded.
    pub fn forget(&mut self) {
        self.decoder = None;
        self.early = Vec::new();
    }

    /// Whether the stream is of no use to its connections any more: the server broke a rule or said
    /// nothing in time, and what it may still say could not be told from the next stream.
    ///
    /// So is one that did not come to its end on a connection that keeps no order: what is still
    /// under way of it could come between the messages of the next.
    pub fn is_broken(&self) -> bool {
        let failed = self.receiver.state() == ReceiverState::Failed;
        let unordered = self.links().iter().any(|link| !link.is_ordered());
        (failed && !self.receiver.is_over_on_wire()) || (unordered && !self.is_settled())
    }

    /// Cuts the connections. Arrays handed out stay valid.
    pub fn close(&self) {
        for link in self.links() {
            link.close(Error::cancelled("the stream on this connection has failed"));
        }
    }

    /// Reads what is there without waiting and forgets it: for a cancelled stream whose end the
    /// server has still to say. It reads so much that others have their turn.
    pub fn discard(&mut self) -> Discarded {
        for link in self.links() {
            // A body that is not wanted any more was not announced either: it is thrown away.
            link.clear_posted();
            link.write_on();
        }
        // To the end of what is there: the descriptor tells of nothing that was read past.
        let steps = (0..STEPS_AT_ONCE).take_while(|_| self.step()).count();
        if self.is_settled() || self.links().iter().any(|link| link.closed().is_some()) {
            return Discarded::Over;
        }
        // The descriptor of a socket tells of bytes: those of a body that has not come whole.
        let parts = self.links().iter().all(|link| link.readiness().socket);
        match steps {
            0 if !parts => Discarded::Nothing,
            STEPS_AT_ONCE => Discarded::More,
            _ => Discarded::Some,
        }
    }

    /// Fails once the machine has failed.
    fn check(&mut self) -> Result<()> {
        match self.receiver.error() {
            Some(error) => Err(self.failed.get_or_insert(error.clone()).clone()),
            None => Ok(()),
        }
    }

    fn abort(&mut self, error: Error) -> Error {
        self.failed = Some(error.clone());
        self.cancel();
        error
    }

    /// Reads on, and sleeps when there is nothing to read.
    fn advance(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        if let Some(cancel) = cancel
            && let Err(error) = cancel.check()
        {
            return Err(self.abort(error));
        }
        let fresh = std::mem::take(&mut self.fresh);
        if self.look_on(cancel) || (self.spin.is_zero() && !fresh && self.step()) {
            return Ok(());
        }
        // Rule E5: before sleeping, the server is told of everything taken, or both would wait.
        self.tell_credit();
        if self.look_briefly() {
            return Ok(());
        }
        self.receiver.waits(clock::now());
        self.sleep(cancel)?;
        // Before it says that it looks: the end of the connection, which may have woken it, is not looked for then.
        self.step();
        self.links().iter().for_each(|link| link.wake());
        self.receiver.handle_timeout(clock::now());
        self.pump();
        Ok(())
    }

    /// Reads everything there is and may be read. Returns whether there was something.
    fn step(&mut self) -> bool {
        let mut progressed = self.read_side(Side::Metadata);
        if !Arc::ptr_eq(&self.metadata, &self.data) {
            progressed |= self.read_side(Side::Data);
        }
        progressed
    }

    fn link(&self, side: Side) -> &Arc<FetchLink> {
        match side {
            Side::Metadata => &self.metadata,
            Side::Data => &self.data,
        }
    }

    fn read_side(&mut self, side: Side) -> bool {
        let link = Arc::clone(self.link(side));
        // With two, what a header says of its body concerns the other: a message at a time.
        let most = if self.has_one_link() {
            MESSAGES_AT_ONCE
        } else {
            1
        };
        let mut read = 0;
        while read < MESSAGES_AT_ONCE {
            let turn = self.read_some(side, &link, most);
            self.pump();
            match turn {
                Ok(0) => break,
                Ok(some) => read += some,
                Err(Broken::Connection(error)) => {
                    self.gone[side_index(side)] = true;
                    self.receiver.handle_disconnect(side, &error);
                    self.pump();
                    return true;
                }
                Err(Broken::Rule(error)) => {
                    self.fail(&error);
                    return true;
                }
            }
            if most > 1 {
                break;
            }
        }
        read > 0
    }

    /// Reads up to `most` messages under one lock. Returns how many there were.
    fn read_some(&mut self, side: Side, link: &FetchLink, most: usize) -> Result<usize, Broken> {
        if !self.may_read(side) {
            link.write_on();
            return Ok(0);
        }
        let mut turn = link.turn(self.suspected).map_err(Broken::Connection)?;
        // The clock is asked once for all of them, and not where there is nothing.
        let (mut read, mut bytes, mut now) = (0, 0, None);
        while read < most && bytes < BODY_BYTES_AT_ONCE && self.may_read(side) {
            let mut received = turn.receive();
            if let Ok(Some(message)) = &mut received {
                match turn.handles(message) {
                    Ok(false) => {}
                    Ok(true) => {
                        read += 1;
                        continue;
                    }
                    Err(error) => received = Err(error),
                }
            }
            match received {
                Ok(Some(message)) => {
                    bytes += message.body_len();
                    self.deliver(side, message, *now.get_or_insert_with(clock::now));
                }
                Ok(None) if turn.is_waiting() && self.has_one_link() => {
                    return Err(Broken::Rule(Error::protocol(
                        // Rule D1.
                        "the server sent a large body before its header, on one connection",
                    )));
                }
                Ok(None) => break,
                // What came before it counts first.
                Err(_) if read > 0 => break,
                Err(error) => return Err(Broken::Connection(error)),
            }
            read += 1;
            if most > 1 {
                // Rule D8: before the next message, which may be the body.
                self.told.take_up(&mut self.receiver, |seq, packed, list| {
                    turn.post_body(seq, packed, list);
                });
            }
        }
        Ok(read)
    }

    fn has_one_link(&self) -> bool {
        Arc::ptr_eq(&self.metadata, &self.data)
    }

    /// The server broke a rule: both connections are of no use any more.
    fn fail(&mut self, error: &Error) {
        self.receiver.handle_disconnect(Side::Metadata, error);
        self.receiver.handle_disconnect(Side::Data, error);
        self.pump();
        self.close();
    }

    fn may_read(&self, side: Side) -> bool {
        if self.gone[side_index(side)] {
            return false;
        }
        match self.receiver.state() {
            // The answer that lent bodies wait for may be behind them.
            ReceiverState::Ended => {
                side == Side::Data && self.receiver.is_held_up() && self.receiver.may_read(side)
            }
            ReceiverState::Failed | ReceiverState::Cancelled => !self.receiver.is_over_on_wire(),
            ReceiverState::Requested | ReceiverState::AwaitingSchema | ReceiverState::Streaming => {
                self.receiver.may_read(side)
            }
        }
    }

    fn deliver(&mut self, side: Side, message: Incoming, now: Timestamp) {
        // An error is kept by the machine, which is closed by it.
        match message {
            Incoming::Metadata(bytes) => drop(self.receiver.handle_metadata(now, &bytes)),
            Incoming::Control { bytes, .. } => {
                drop(self.receiver.handle_control(now, side, &bytes));
            }
            Incoming::Tagged { tag, bytes } => {
                drop(self.receiver.handle_body(now, tag, InBody::List(&bytes)));
            }
            Incoming::Body { seq, memory } => self.deliver_packed(now, seq, Packed::Host(memory)),
            Incoming::GpuBody { seq, body } => self.deliver_packed(now, seq, Packed::Gpu(body)),
        }
    }

    fn deliver_packed(&mut self, now: Timestamp, seq: u32, memory: Packed) {
        let tag = crate::proto::body_tag(seq, crate::proto::BodyKind::Packed);
        let len = memory.len() as u64;
        let body = InBody::Packed { len, memory };
        drop(self.receiver.handle_body(now, tag, body));
    }

    /// Sends what the machine wants sent and takes up what it tells.
    fn pump(&mut self) {
        while let Some(transmit) = self.receiver.poll_transmit() {
            let (side, message) = match transmit {
                ReceiverTransmit::Tagged { side, tag, bytes } => {
                    let payload = Payload::Bytes(bytes.into());
                    (side, Outgoing::Tagged { tag, payload })
                }
                ReceiverTransmit::Control { side, bytes } => {
                    (side, Outgoing::Control { bytes, fd: None })
                }
            };
            if let Err(error) = self.link(side).send([message]) {
                self.receiver.handle_disconnect(side, &error);
            }
        }
        self.told.take_up(&mut self.receiver, |seq, packed, list| {
            self.data.post_body(seq, packed, list);
        });
        // Lent bodies that nobody will see.
        self.data.free(self.receiver.abandoned());
    }
}

impl Told {
    /// Takes up what the machine tells; `expect` is told of bodies to come.
    fn take_up(&mut self, receiver: &mut Receiver<Packed>, mut expect: impl FnMut(u32, u64, u64)) {
        while let Some(event) = receiver.poll_event() {
            match event {
                ReceiverEvent::Stream { info, .. } => self.info = Some(info),
                ReceiverEvent::Schema(header) => self.schema = Some(Arc::new(header)),
                ReceiverEvent::Expect { seq, packed, list } => expect(seq, packed, list),
                // Regions belong to the connection, which has dealt with them.
                ReceiverEvent::Region { .. } | ReceiverEvent::RegionGone { .. } => {}
            }
        }
    }
}

/// What [`Fetch::discard`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discarded {
    /// The stream's end, or the connection's, has come.
    Over,
    /// There was something, perhaps a part of a body, and nothing is left now.
    Some,
    /// Nothing is there now.
    Nothing,
    /// There may be more, which the descriptors need not tell of.
    More,
}

/// Steps of [`Fetch::discard`] before other connections have their turn.
const STEPS_AT_ONCE: usize = 16;
/// Messages read from one connection before the caller's token and the other connection are looked
/// at again.
const MESSAGES_AT_ONCE: usize = 64;

/// A window is wide where it takes so many batches.
const BATCHES_AHEAD: u64 = 8;
/// A request that takes longer to send has given the processor to the server, and the answer may be here: to give the processor away once
/// more would let the server end the stream first, and to read where nothing can be takes up to a microsecond.
const AT_ONCE: Duration = Duration::from_micros(7);

/// Bytes of bodies received at once: the consumer has them while they lie in a cache, and what comes
/// then is received into the same memory.
const BODY_BYTES_AT_ONCE: usize = 256 << 10;
/// Why nothing more is read.
enum Broken {
    /// The connection is over.
    Connection(Error),
    /// The server broke a rule.
    Rule(Error),
}

fn side_index(side: Side) -> usize {
    match side {
        Side::Metadata => 0,
        Side::Data => 1,
    }
}
