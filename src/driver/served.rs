//! One connection at a server: a transport's connection and the sending state machine under one
//! lock.

mod corking;
mod half;
mod leaving;
mod looking;
mod parked;
mod reading;
mod upkeep;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corking::Cork;
use parking_lot::Mutex;
use reading::Reading;

use crate::device::BufferRef;
use crate::device::cuda::GpuBody;
use crate::driver::callbacks::HostOwner;
use crate::driver::clock;
use crate::driver::io::{Interest, IoThread, Registration, Source};
use crate::driver::signal::Wake;
use crate::driver::telling;
use crate::error::{Error, Result, Status};
use crate::proto::{
    Bytes, Request, Role, Sender, SenderConfig, SenderEvent, SenderState, Timestamp,
};
use crate::transport::{Connection, Lender, Owner, Profile, Readiness, RegionNotice};

/// A packed body on its way to a transport.
pub enum Gathered {
    /// From where it lies on the host.
    Host {
        /// Runs of memory, padding included.
        parts: Vec<BufferRef>,
        /// Keeps the runs alive.
        owner: Box<dyn Send>,
    },
    /// From a GPU, over a connection that [sends from there](Profile::sends_gpu).
    Gpu(GpuBody),
    /// Few bytes, which are a copy.
    Copied(Bytes),
}

/// Memory lent to the peer: dropped when it is back.
pub struct Hold {
    /// Blocks of regions. They go first: they may lie in the arena of the producer's array.
    _blocks: Owner,
    /// The producer's array or table; its release runs where host code may run.
    _owner: Option<HostOwner>,
}

impl Hold {
    /// Owns `blocks` and, where the producer's own memory is lent, what keeps that alive.
    pub fn new(blocks: Owner, owner: Option<HostOwner>) -> Self {
        Self {
            _blocks: blocks,
            _owner: owner,
        }
    }
}

/// What a connection asks of the server that accepted it. Calls come without locks held.
pub trait Host: Send + Sync {
    /// The peer asks for a stream.
    fn requested(&self, link: &Arc<ServedLink>, asked: Asked);

    /// The connection is over, and everything it held is on its way back.
    fn closed(&self, link: &Arc<ServedLink>);
}

/// A request that arrived.
#[derive(Debug)]
pub struct Asked {
    /// Ticket, credit and stream id.
    pub request: Request,
    /// Whether the peer speaks our extension (rule E1).
    pub extension: bool,
    /// Which streams the connection shall carry.
    pub role: Role,
}

/// One connection at a server.
pub struct ServedLink {
    id: u64,
    peer: String,
    readiness: Readiness,
    profile: Profile,
    lender: Option<Arc<dyn Lender>>,
    region_idle: Duration,
    io: IoThread,
    host: Weak<dyn Host>,
    me: Weak<Self>,
    /// A thread of its own drives the stream now served.
    driven: AtomicBool,
    half: Mutex<Half>,
}

/// What the lock of a connection guards.
struct Half {
    link: Box<dyn Connection>,
    /// Where more bytes than this wait to be written, nothing new is produced.
    most_queued: u64,
    sender: Sender<Gathered, Hold>,
    /// Descriptors of regions whose REGION message has not left the state machine.
    announced: HashMap<u16, Arc<OwnedFd>>,
    registration: Option<Registration>,
    /// The I/O thread looks for messages here: the descriptor does not tell of them.
    looked_at: bool,
    /// Woken when credit, room or the connection's life changes.
    signal: Option<Arc<dyn Wake>>,
    /// Somebody was told that there is no room, since too many bytes are queued.
    is_full: bool,
    /// Whether more messages are about to follow: they are written together.
    cork: Cork,
    /// The peer has cancelled the stream now served.
    cancelled: bool,
    /// Bytes of the stream that were queued when it was last acted on.
    stream_queued: u64,
    /// Between two streams another thread than the I/O thread waits for the next request.
    parked: bool,
    /// Who reads within a stream.
    reading: Reading,
    /// When to look for idle regions next; a timer is set for it.
    retire_at: Option<Timestamp>,
    /// When to ask next whether the peer's machine still answers; a timer is set for it.
    probe_at: Option<Timestamp>,
    /// When to look next whether a request waits for its answer; a timer is set for it.
    pending_at: Option<Timestamp>,
    /// When the request came whose stream is served.
    asked_at: Timestamp,
    /// When the peer was first given the time to read what was said last, at a stop.
    dismissed_at: Option<Timestamp>,
    /// Why the connection is over, once it is.
    closed: Option<Error>,
}

/// What is to be done once the lock is released.
#[derive(Default)]
struct Effects {
    /// Boxed, since there is one of these for each batch too.
    asked: Option<Box<Asked>>,
    /// What was out when the connection ended.
    given_up: Option<Box<dyn Send>>,
    signal: Option<Arc<dyn Wake>>,
    /// The stream behind `signal` has lost its client.
    lost: bool,
    closed: bool,
    /// When the connection wants to be called.
    timers: Vec<Timestamp>,
}

/// More bytes than this waiting to be written, and nothing new is produced: a baseline peer gives
/// no credit, and is bounded by sends not yet complete (rule E5).
///
/// They lie where the producer has them, so that little below it would save no memory: with less
/// than two large bodies, one is not being made while the other is written.
const QUEUE_HIGH_WATER_BYTES: u64 = 64 << 20;
/// The same of bytes in memory that was made for them. Lists of wide batches take as much as a small body:
/// made before there is room for them, they go out of the caches again, and take pages that the system gives
/// anew for every stream.
const HELD_HIGH_WATER_BYTES: u64 = 512 << 10;

/// More bytes of answers than this waiting to be written behind those of a stream, and nothing more
/// is read: the peer asks and does not read.
const ANSWERS_HIGH_WATER_BYTES: u64 = 1 << 20;
/// How long to leave a connection alone that is not read from, where its descriptor cannot tell
/// when there is room to write.
const WRITE_RETRY: Duration = Duration::from_millis(10);

/// Messages read from one connection before another one has its turn.
const MESSAGES_AT_ONCE: usize = 256;
/// Why a connection is over in whose middle something panicked.
const PANICKED: &str = "a call to this connection panicked: please report this bug";

/// Requests answered on one connection before another one has its turn.
const REQUESTS_AT_ONCE: usize = 16;

impl ServedLink {
    /// Takes over an accepted connection and begins to watch it. With more than `most_queued` bytes
    /// waiting to be written, nothing new is produced.
    ///
    /// # Errors
    ///
    /// Of the system, when the connection cannot be watched; it is closed then.
    pub fn start(
        id: u64,
        link: Box<dyn Connection>,
        config: SenderConfig,
        region_idle: Duration,
        most_queued: u64,
        io: &IoThread,
        host: Weak<dyn Host>,
    ) -> Result<Arc<Self>> {
        let readiness = link.readiness();
        let served = Arc::new_cyclic(|me| Self {
            id,
            peer: link.peer().to_owned(),
            readiness: readiness.clone(),
            profile: link.profile(),
            lender: link.lender(),
            region_idle,
            io: io.clone(),
            host,
            me: Weak::clone(me),
            driven: AtomicBool::new(false),
            half: Mutex::new(Half {
                link,
                most_queued,
                sender: Sender::new(config),
                announced: HashMap::new(),
                registration: None,
                looked_at: false,
                signal: None,
                is_full: false,
                cork: Cork::default(),
                cancelled: false,
                stream_queued: 0,
                parked: false,
                reading: Reading::default(),
                retire_at: None,
                probe_at: None,
                pending_at: None,
                asked_at: Timestamp::default(),
                dismissed_at: None,
                closed: None,
            }),
        });
        let fds = [Some(readiness.fd), readiness.peer_death];
        {
            // Under the lock, so that the I/O thread waits until the registration is in its place.
            let mut half = served.half.lock();
            let fds = fds.into_iter().flatten();
            let registration = io.register(served.source(), fds, Interest::Read)?;
            if served.profile.is_for_looking {
                registration.look_too(served.source());
            }
            half.registration = Some(registration);
        }
        // Bytes may have come, and been passed over by a source that had no registration yet.
        served.ready();
        Ok(served)
    }

    /// Number of the connection at its server.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Who the peer is.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The I/O thread that watches it.
    pub fn io(&self) -> &IoThread {
        &self.io
    }

    /// What a thread sleeps on that has [parked](Self::park) it.
    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Memory for lending, where the transport has it and the peer understands it.
    pub fn lender(&self) -> Option<Arc<dyn Lender>> {
        let lender = self.lender.clone()?;
        if self.half.lock().sender.is_extension() {
            return Some(lender);
        }
        lender.for_baseline()
    }

    /// How the connection behaves.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Who is to be woken from now on when credit, room or the connection's life changes.
    pub fn set_signal(&self, signal: Arc<dyn Wake>) {
        let mut half = self.half.lock();
        self.driven
            .store(signal.wakes_a_thread(), Ordering::Relaxed);
        half.signal = Some(signal);
    }

    /// Nobody is to be woken any more, unless another stream has begun since.
    pub fn clear_signal<W: Wake>(&self, signal: &Arc<W>) {
        let mut half = self.half.lock();
        let cleared = half
            .signal
            .take_if(|set| std::ptr::addr_eq(Arc::as_ptr(set), Arc::as_ptr(signal)));
        if cleared.is_some() {
            self.driven.store(false, Ordering::Relaxed);
        }
        // What drops with it may take the lock.
        drop(half);
        drop(cleared);
    }

    /// Whether a message can be sent now: one with a body of `body_len` bytes, which is lent
    /// `in_place` or not, or, with `None`, whether another one may be pulled from the producer.
    ///
    /// # Errors
    ///
    /// Why the stream cannot go on: the connection is over, or the peer has cancelled.
    pub fn has_room(&self, body_len: Option<u64>, in_place: bool) -> Result<bool> {
        let mut half = self.half.lock();
        half.ensure_streaming()?;
        half.is_full = half.is_crowded();
        if half.is_full {
            return Ok(false);
        }
        Ok(match body_len {
            None => half.sender.may_pull(),
            Some(len) => half.sender.admits(len, in_place),
        })
    }

    /// Record batches that the consumer has taken so far, as its credit says.
    pub fn batches_taken(&self) -> u64 {
        self.half.lock().sender.batches_taken()
    }

    /// Buffers lent and not yet given back.
    pub fn lent_outstanding(&self) -> u64 {
        self.half.lock().sender.lent_outstanding() as u64
    }

    /// Bytes queued and not yet written.
    pub fn queued_bytes(&self) -> u64 {
        self.half.lock().link.queued_bytes()
    }

    /// Why the stream cannot go on, if something ended it.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn ensure_streaming(&self) -> Result<()> {
        self.half.lock().ensure_streaming()
    }

    /// Whether the connection is over.
    pub fn is_closed(&self) -> bool {
        self.half.lock().closed.is_some()
    }

    /// Whether no stream is requested or served on it.
    pub fn is_idle(&self) -> bool {
        let half = self.half.lock();
        half.closed.is_some() || matches!(half.sender.state(), SenderState::Idle)
    }

    /// Runs `step` on the state machine and sends what it gives, with `announce` told to the peer
    /// first.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn act<R>(
        &self,
        announce: &[RegionNotice],
        step: impl FnOnce(&mut Sender<Gathered, Hold>) -> R,
    ) -> Result<R> {
        let mut effects = Effects::default();
        let result = {
            let mut half = self.half.lock();
            if let Some(error) = &half.closed {
                return Err(error.clone());
            }
            for notice in announce {
                if let Some(fd) = &notice.fd {
                    half.announced.insert(notice.id, Arc::clone(fd));
                }
                half.sender.announce_region(notice.id, &notice.handle)?;
            }
            if half.sender.state() == SenderState::Streaming {
                half.stream_queued = half.link.queued_bytes();
            }
            let result = step(&mut half.sender);
            self.pump(&mut half, &mut effects);
            half.closed.clone().map_or(Ok(result), Err)
        };
        self.finish(effects);
        result
    }

    /// Ends the connection, telling the peer why where it is in a stream and can be told.
    pub fn cut(&self, error: &Error) {
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            if half.closed.is_some() {
                return;
            }
            // It is written at once, or never.
            half.cork.is_in = false;
            let state = half.sender.state();
            if half.sender.is_extension() && state == SenderState::Streaming {
                // Both fail only in another state.
                let _ = half.sender.fail(error.status().code(), error.text());
            } else if half.sender.is_extension() && state == SenderState::Requested {
                let _ = half.sender.refuse(error.status().code(), error.text());
            }
            self.pump(&mut half, &mut effects);
            self.close(&mut half, error.clone(), &mut effects);
        }
        self.finish(effects);
    }

    /// Ends the connection without a word: what was being done when something panicked is half
    /// done.
    pub fn break_off(&self, error: &Error) {
        let mut effects = Effects::default();
        self.close(&mut self.half.lock(), error.clone(), &mut effects);
        self.finish(effects);
    }

    /// Moves everything that can be moved: machine to connection, and events to effects.
    fn pump(&self, half: &mut Half, effects: &mut Effects) {
        if half.closed.is_some() {
            return;
        }
        loop {
            let mut moved = false;
            while let Some(transmit) = half.sender.poll_transmit() {
                moved = true;
                if let Err(error) = half.transmit(transmit) {
                    return self.close(half, error, effects);
                }
            }
            while let Some(event) = half.sender.poll_event() {
                moved = true;
                self.handle(half, event, effects);
            }
            if !moved {
                break;
            }
        }
        // Everything that the turn said in one system call: a header, its list, an end.
        if let Err(error) = half.write() {
            return self.close(half, error, effects);
        }
        // Not where it is flushed: over UCX sends come to their end in any call, also while receiving.
        if half.is_full && !half.is_crowded() {
            half.is_full = false;
            effects.signal.clone_from(&half.signal);
        }
        if half.is_flooded() && !self.readiness.socket {
            effects.timers.push(clock::after(WRITE_RETRY));
        }
        let interest = self.interest(half);
        if let Some(registration) = &mut half.registration {
            registration.set_interest(interest);
        }
    }

    fn handle(&self, half: &mut Half, event: SenderEvent<Hold>, effects: &mut Effects) {
        match event {
            SenderEvent::Requested {
                request,
                extension,
                role,
            } => {
                half.cancelled = false;
                if half.probe_at.is_none() {
                    self.probe(half, effects);
                }
                if let Some(lender) = self.lender.as_ref().filter(|_| extension) {
                    lender.set_client(request.lent_limit, request.device_type, &request.gpus);
                }
                effects.asked = Some(Box::new(Asked {
                    request,
                    extension,
                    role,
                }));
            }
            SenderEvent::Cancelled => {
                half.cancelled = true;
                effects.lost = true;
                effects.signal.clone_from(&half.signal);
            }
            SenderEvent::CreditChanged => effects.signal.clone_from(&half.signal),
            SenderEvent::Freed(hold) => {
                // Under the lock: another thread may find the connection's end next, and what is back must
                // not count as out then.
                drop(hold);
                if half.retire_at.is_none() {
                    half.retire_at = Some(clock::after(self.region_idle));
                    effects.timers.extend(half.retire_at);
                }
            }
            SenderEvent::RegionForgotten { id } => {
                if let Some(lender) = &self.lender {
                    lender.region_forgotten(id);
                }
            }
        }
    }

    /// The connection is over. Memory that the peer may have mapped is given up before anything
    /// that it held comes back (rule F4).
    fn close(&self, half: &mut Half, error: Error, effects: &mut Effects) {
        if half.closed.is_some() {
            return;
        }
        tracing::debug!("connection {} ({}): {error}", self.id, self.peer);
        half.closed = Some(error);
        if let Some(lender) = &self.lender {
            lender.abandon();
        }
        let lent = half.sender.handle_disconnect();
        let lent = (!lent.is_empty()).then(|| Box::new(lent) as Box<dyn Send>);
        effects.given_up = half.link.close_lent(lent);
        half.registration = None;
        effects.signal = half.signal.take();
        effects.lost = true;
        effects.closed = true;
    }

    fn source(&self) -> Weak<dyn Source> {
        Weak::clone(&self.me) as Weak<Self>
    }

    fn finish(&self, effects: Effects) {
        drop(effects.given_up);
        self.retire_at_once();
        if let Some(signal) = effects.signal {
            if effects.lost {
                signal.lost();
            }
            signal.notify();
        }
        for at in effects.timers {
            self.io.call_at(at, self.source());
        }
        // For most batches there is nothing else.
        if effects.asked.is_none() && !effects.closed {
            return;
        }
        let (Some(host), Some(me)) = (self.host.upgrade(), self.me.upgrade()) else {
            return;
        };
        if let Some(asked) = effects.asked {
            host.requested(&me, *asked);
        }
        if effects.closed {
            host.closed(&me);
        }
    }

    /// Reads a bounded number of messages; `told`: some were read since the descriptors were said to be
    /// ready. Returns whether there may be more.
    fn receive(&self, half: &mut Half, mut told: bool, effects: &mut Effects) -> bool {
        for _ in 0..MESSAGES_AT_ONCE {
            if half.closed.is_some() || half.is_flooded() {
                break;
            }
            let outcome = match half.link.receive() {
                Ok(Some(message)) => {
                    telling::received(&*half.link, &message);
                    half.deliver(message)
                }
                Ok(None) if half.link.is_waiting() => Err(Error::protocol(
                    // Rule D1.
                    "the client sent a body, which only servers send",
                )),
                Ok(None) => {
                    // Where something came, that was it; the end of the peer's process is told again.
                    if !told && self.readiness.peer_has_died() {
                        let text = format!("the peer's process ({}) has ended", self.peer);
                        self.close(half, Error::disconnected(text), effects);
                    }
                    return false;
                }
                Err(error) => Err(error),
            };
            if let Err(error) = outcome {
                self.close(half, error, effects);
                return false;
            }
            told = true;
            // A request, a return or a credit may be followed by the next at once.
            self.pump(half, effects);
            if effects.asked.is_some() {
                // The server answers this one before the next is looked at.
                return true;
            }
        }
        if half.is_flooded() {
            // Until the peer reads its answers; its death is still noticed.
            if self.readiness.peer_has_died() {
                let text = format!("the peer's process ({}) has ended", self.peer);
                self.close(half, Error::disconnected(text), effects);
            }
            return false;
        }
        half.closed.is_none()
    }
}

impl Source for ServedLink {
    fn ready(&self) {
        for answered in 0..REQUESTS_AT_ONCE {
            let mut effects = Effects::default();
            let more = {
                let mut half = self.half.lock();
                if half.closed.is_none()
                    && half.link.queued_bytes() > 0
                    && let Err(error) = half.link.flush()
                {
                    self.close(&mut half, error, &mut effects);
                }
                if std::mem::take(&mut half.looked_at) {
                    // What it would tell of is read now.
                    half.link.doze();
                }
                let more = self.receive(&mut half, answered > 0, &mut effects);
                self.pump(&mut half, &mut effects);
                more
            };
            self.finish(effects);
            if !more {
                return;
            }
        }
        // The rest when the other connections have had their turn.
        self.io.call_soon(self.source());
    }

    fn is_to_be_looked_at(&self) -> bool {
        self.profile.is_for_looking && !self.driven.load(Ordering::Relaxed)
    }

    fn look(&self) -> bool {
        self.look_once()
    }

    fn panicked(&self) {
        self.break_off(&Error::new(Status::Panic, PANICKED));
    }

    fn turn(&self) {
        self.ready();
    }

    fn timer(&self) {
        self.uncork_when_due();
        self.retire();
        self.probe_when_due();
        self.say_pending_when_due();
        if self.take_back_when_due() {
            self.ready();
        }
    }
}

#[cfg(test)]
mod tests;
