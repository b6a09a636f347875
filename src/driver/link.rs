//! One connection at a client. It outlives the stream and the client while arrays point into the
//! server's memory (rule F6), and serves one stream after the other (rule E4).

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::arrow::decode::Decoder;
use crate::device::cuda::{Device, later};
use crate::driver::clock;
use crate::driver::io::{Interest, IoThread, Registration, Source};
use crate::driver::telling;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{Control, FreeMessage, FreeQueue, HeaderParser, Return, Span, Timestamp};
use crate::transport::{
    Connection, Identity, Incoming, Outgoing, Payload, PeerRegions, Readiness, Resolved, Unmapped,
};

/// One connection at a client.
pub struct FetchLink {
    identity: Identity,
    /// Before `state`, so that the thread outlives what it watches.
    io: IoThread,
    me: Weak<Self>,
    generation: Generation,
    state: Mutex<State>,
    /// Bodies to return. Not locked while something is read, so that a release on any thread waits
    /// for no read; never `state` inside it.
    frees: Mutex<Frees>,
    /// Regions that are not mapped any more, of which the server is to be told.
    forgotten: Mutex<Vec<u16>>,
    /// What the last stream leaves the next one.
    memory: Mutex<Memory>,
}

/// What is the same in each stream of a ticket, so that the next one need not read it again.
#[derive(Default)]
pub struct Memory {
    /// The schema's header, and the last batch's.
    pub parser: HeaderParser,
    /// The decoder for that schema.
    pub decoder: Option<Decoder>,
}

struct State {
    link: Box<dyn Connection>,
    registration: Option<Registration>,
    closed: Option<Error>,
    /// A timer that writes on is set.
    retrying: bool,
    /// No stream comes after the one that was on it: what is left of that is thrown away.
    retired: bool,
    /// The server serves no stream after the one that was on it (GOAWAY).
    dismissed: bool,
    /// Answers to regions that have gone since everything was last written.
    unread: u32,
}

struct Frees {
    /// `None` where the server named no `free_data` tag and so lends nothing (rule U2).
    queue: Option<FreeQueue>,
    /// A timer that sends them is set.
    armed: bool,
    /// The I/O thread is about to send them.
    asked: bool,
    /// When it tries again, where another thread had the connection; a timer is set for it.
    again_at: Option<Timestamp>,
}

/// How long after the end of a connection its server's end is waited for, to say which it was.
const DEATH_WAIT: Duration = Duration::from_millis(10);
/// The longest header that is kept between streams, in bytes: a hundred columns or so.
const LONGEST_KEPT: usize = 16 << 10;
/// Most messages read from a connection without a stream before others have their turn.
const MESSAGES_AT_ONCE: usize = 64;
/// Most answers to regions that have gone which wait to be written: a server that announces regions and
/// does not read what is said of them takes no more of this process's memory.
const MOST_UNREAD: u32 = 8192;
/// How long to leave a full socket alone before it is written to again.
const WRITE_RETRY: Duration = Duration::from_millis(10);

impl FetchLink {
    /// Takes over a connection.
    pub fn new(link: Box<dyn Connection>, free_tag: Option<u64>, io: &IoThread) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            identity: link.identity().clone(),
            io: io.clone(),
            me: Weak::clone(me),
            generation: Generation::now(),
            state: Mutex::new(State {
                link,
                registration: None,
                closed: None,
                retrying: false,
                retired: false,
                dismissed: false,
                unread: 0,
            }),
            frees: Mutex::new(Frees {
                queue: free_tag.map(FreeQueue::new),
                armed: false,
                asked: false,
                again_at: None,
            }),
            forgotten: Mutex::default(),
            memory: Mutex::default(),
        })
    }

    /// Takes what the last stream has left.
    pub fn recall(&self) -> Memory {
        std::mem::take(&mut *self.memory.lock())
    }

    /// Leaves something to the next stream, unless it is much.
    pub fn remember(&self, mut memory: Memory) {
        memory.parser.forget_longer(LONGEST_KEPT);
        memory
            .decoder
            .take_if(|decoder| decoder.header().bytes().len() > LONGEST_KEPT);
        *self.memory.lock() = memory;
    }

    /// Who the server is.
    pub fn peer(&self) -> &str {
        &self.identity.peer
    }

    /// Whether the server runs as the same user.
    pub fn same_user(&self) -> bool {
        self.identity.same_user
    }

    /// What to sleep on.
    pub fn readiness(&self) -> &Readiness {
        &self.identity.readiness
    }

    /// Whether bytes wait for room to be written.
    pub fn is_writing(&self) -> bool {
        self.state.lock().link.queued().bytes > 0
    }

    /// Writes on, where something is queued.
    pub fn write_on(&self) {
        let mut state = self.state.lock();
        if state.closed.is_none() && state.link.queued().bytes > 0 {
            // The end of the connection is found by reading, behind what was said before it.
            let _ = state.link.flush();
        }
    }

    /// Messages are looked for from now on, until [`doze`](Self::doze).
    pub fn wake(&self) {
        self.state.lock().link.wake();
    }

    /// The caller is about to wait for the descriptors. Returns whether there is something to be
    /// read first.
    pub fn doze(&self) -> bool {
        self.state.lock().link.doze()
    }

    /// Whether the connection holds a body back whose header has not been seen.
    pub fn is_waiting(&self) -> bool {
        self.state.lock().link.is_waiting()
    }

    /// The I/O thread that serves it.
    pub fn io(&self) -> &IoThread {
        &self.io
    }

    /// Whether it can serve another stream: it is not over, and what the server has announced is there.
    pub fn is_sound(&self) -> bool {
        let mut state = self.state.lock();
        state.closed.is_none()
            && !state.dismissed
            && state.link.with_regions(|regions| regions.is_sound())
    }

    /// Why the connection is over, once it is.
    pub fn closed(&self) -> Option<Error> {
        self.state.lock().closed.clone()
    }

    /// Sends messages, and with them what waits to be returned: one system call.
    ///
    /// A server that has said everything may be gone before its last messages were read: that
    /// nothing can be written is no reason not to read them. The reader finds the end behind them.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn send(&self, messages: impl IntoIterator<Item = Outgoing>) -> Result<()> {
        let frees = self.take_frees();
        self.with(|state| {
            for message in messages.into_iter().chain(frees) {
                telling::sent(&*state.link, &message);
                let _ = state.link.queue(message);
            }
            let _ = state.link.flush();
            Ok(())
        })
    }

    /// Where packed bodies that are announced from now on shall go ([`PeerRegions::receive_on`](crate::transport::PeerRegions::receive_on)).
    pub fn receive_on(&self, gpu: Option<&Arc<Device>>) {
        let mut state = self.state.lock();
        state.link.with_regions(|regions| regions.receive_on(gpu));
    }

    /// The GPUs that the next request names ([`PeerRegions::accept_gpus`](crate::transport::PeerRegions::accept_gpus)).
    pub fn accept_gpus(&self, gpus: &[[u8; 16]]) {
        let mut state = self.state.lock();
        state.link.with_regions(|regions| regions.accept_gpus(gpus));
    }

    /// See [`PeerRegions::misses_gpus`](crate::transport::PeerRegions::misses_gpus).
    pub fn misses_gpus(&self) -> bool {
        let mut state = self.state.lock();
        state.link.with_regions(|regions| regions.misses_gpus())
    }

    /// Announces the body of a header that has been seen (rule D8).
    pub fn post_body(&self, seq: u32, packed: u64, list: u64) {
        self.state.lock().link.post_body(seq, packed, list);
    }

    /// Begins a turn of reading: what is queued is written on, and the connection is this thread's
    /// until the turn is dropped. The caller must not call the host, or this link, meanwhile. It is
    /// asked whether the server's process has ended where that is `suspected`, once nothing is left
    /// to be read.
    ///
    /// # Errors
    ///
    /// The connection is over.
    pub fn turn(&self, suspected: bool) -> Result<Turn<'_>> {
        self.generation.ensure_same_process()?;
        let mut state = self.state.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        if state.link.queued().bytes > 0 {
            // The end of the connection is found by reading, behind what was said before it.
            let _ = state.link.flush();
        }
        Ok(Turn {
            link: self,
            state,
            suspected,
        })
    }

    /// Forgets announced bodies: the stream is over.
    pub fn clear_posted(&self) {
        self.state.lock().link.forget_bodies();
    }

    /// Everything of a stream has come, or nothing more comes.
    pub fn end(&self) {
        let mut state = self.state.lock();
        state.link.forget_bodies();
        state.link.end_stream();
    }

    /// Finds the lent memory of a message.
    ///
    /// # Errors
    ///
    /// `Protocol` when a span is outside the regions that the server announced; `Disconnected` where memory
    /// of a GPU cannot be opened since the server's process has ended; what else the driver says of it.
    pub fn resolve(&self, seq: u32, spans: Vec<Span>) -> Result<Resolved> {
        let resolved = {
            let mut state = self.state.lock();
            state
                .link
                .with_regions(|regions| regions.resolve(seq, spans))
        };
        resolved.map_err(|error| {
            // The driver knows its handles a moment less long than the system knows the process.
            let ended = error.status() != Status::Protocol
                && self.identity.readiness.peer_dies_within(DEATH_WAIT);
            if ended { self.has_ended() } else { error }
        })
    }

    /// Whether what the server sent first arrives first.
    pub fn is_ordered(&self) -> bool {
        self.identity.profile.is_ordered
    }

    fn has_ended(&self) -> Error {
        Error::disconnected(format!(
            "the server's process ({}) has ended",
            self.identity.peer
        ))
    }

    /// The next message, which may be [the connection's own](State::handles).
    fn receive_with(&self, state: &mut State, suspected: bool) -> Result<Option<Incoming>> {
        // Messages are not moved on their way up: each time would cost as much as to read one.
        let mut received = state.link.receive();
        if matches!(received, Ok(None)) {
            received = match suspected && self.identity.readiness.peer_has_died() {
                true => Err(self.has_ended()),
                // What failed to be written is told here alone, behind all that came: also what came since the look above.
                false => match state.link.flush() {
                    Ok(_) => Ok(None),
                    Err(error) => {
                        let last = state.link.receive();
                        last.and_then(|last| last.map(Some).ok_or(error))
                    }
                },
            };
        }
        if let Ok(Some(message)) = &received {
            telling::received(&*state.link, message);
        }
        received
    }

    fn with<R>(&self, step: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        self.generation.ensure_same_process()?;
        let mut state = self.state.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        let result = step(&mut state);
        if let Err(error) = &result {
            state.close(error.clone());
        }
        result
    }

    /// Cuts the connection.
    pub fn close(&self, error: Error) {
        self.state.lock().close(error);
    }

    /// Watches the connection while no stream is on it, if it is not watched already: the server's end
    /// is noticed, and regions it retires are let go.
    ///
    /// # Errors
    ///
    /// The connection is over, or cannot be watched.
    pub fn watch(&self) -> Result<()> {
        let source = self.source();
        let fds = [
            Some(Arc::clone(&self.identity.readiness.fd)),
            self.identity.readiness.peer_death.clone(),
        ];
        self.with(|state| {
            if state.registration.is_some() {
                return Ok(());
            }
            let registration =
                self.io
                    .register(source, fds.into_iter().flatten(), Interest::Read)?;
            state.registration = Some(registration);
            state.link.doze();
            // The descriptors tell neither of what came another way nor of what was read together with
            // the end of the stream.
            self.read_idle(state)
        })
    }

    /// Watches the connection for the sake of the arrays that point into its memory: no stream comes after
    /// the one that was on it, of which something may still be under way.
    pub fn retire(&self) {
        self.state.lock().retired = true;
        // Where it cannot be watched it has ended.
        drop(self.watch());
    }

    /// Reads what comes while no stream is on the connection.
    fn read_idle(&self, state: &mut State) -> Result<()> {
        for _ in 0..MESSAGES_AT_ONCE {
            match self.receive_with(state, true)? {
                None if state.link.is_waiting() && state.retired => {
                    // A body that was not announced: it is thrown away.
                    state.link.forget_bodies();
                }
                None if state.link.is_waiting() => {
                    return Err(Error::protocol(
                        // Rule E4.
                        "the server sent a body while no stream was asked for",
                    ));
                }
                // The server waits for that, so that this side loses nothing which it has not read.
                None if state.dismissed => {
                    return Err(Error::disconnected("the server is being stopped"));
                }
                None => return Ok(()),
                Some(mut message) => {
                    // Rule E3: unknown kinds are ignored.
                    let counts = !state.handles(&self.me, &mut message)?
                        && !state.retired
                        && !is_unknown(&message)?;
                    if counts {
                        return Err(Error::protocol(
                            // Rule E4.
                            "the server sent a message while no stream was asked for",
                        ));
                    }
                }
            }
        }
        self.io.call_soon(self.source());
        Ok(())
    }

    /// Stops watching: a consumer asks for a stream, drives the connection from now on, and looks
    /// for messages until it sleeps.
    pub fn begin(&self) {
        let registration = {
            let mut state = self.state.lock();
            state.link.begin_stream();
            state.link.wake();
            state.registration.take()
        };
        drop(registration);
    }

    /// Gives bodies back to the server, soon: at once when there are many, within 10 ms
    /// otherwise (rule F5). Safe from any thread; does nothing in a forked child.
    pub fn free(&self, bodies: impl IntoIterator<Item = Return>) {
        let mut bodies = bodies.into_iter().peekable();
        if bodies.peek().is_none() || self.generation.ensure_same_process().is_err() {
            return;
        }
        let (due, arm) = {
            let mut frees = self.frees.lock();
            let Frees { queue, armed, .. } = &mut *frees;
            let Some(queue) = queue else {
                return;
            };
            let now = queue.needs_time().then(clock::now);
            for body in bodies {
                queue.push(now.unwrap_or_default(), &body);
            }
            let arm = if *armed { None } else { queue.deadline() };
            *armed |= arm.is_some();
            (queue.is_due(now.unwrap_or_default()), arm)
        };
        if due {
            match self.say_on() {
                Some(false) => {}
                Some(true) => self.retry_writing(),
                // Whoever has the connection may wait for a device, as a release must not.
                None => self.ask_soon(),
            }
        }
        if let Some(deadline) = arm {
            self.io.call_at(deadline, self.source());
        }
    }

    /// Says what waits to be said, and writes on. Returns whether more is to be written; `None` where
    /// another thread has the connection.
    fn say_on(&self) -> Option<bool> {
        let mut state = self.state.try_lock()?;
        self.frees.lock().armed = false;
        state.retrying = false;
        if state.closed.is_some() {
            return Some(false);
        }
        let forgotten = std::mem::take(&mut *self.forgotten.lock());
        for message in self
            .take_frees()
            .into_iter()
            .chain(forgotten.into_iter().map(forget))
        {
            let _ = state.link.queue(message);
        }
        Some(matches!(state.link.flush(), Ok(false)))
    }

    /// Has the I/O thread say what waits to be said, once for all who ask meanwhile.
    fn ask_soon(&self) {
        if !std::mem::replace(&mut self.frees.lock().asked, true) {
            self.io.call_soon(self.source());
        }
    }

    /// Has the I/O thread try again a little later, unless it is to do so anyway: whoever has the
    /// connection may have it for long, and be asked for it often.
    fn try_again_later(&self) {
        let at = {
            let mut frees = self.frees.lock();
            let now = clock::now();
            if frees.again_at.is_some_and(|at| now < at) {
                return;
            }
            let at = now.saturating_add(WRITE_RETRY);
            frees.again_at = Some(at);
            at
        };
        self.io.call_at(at, self.source());
    }

    /// Everything that waits to be returned, as messages.
    fn take_frees(&self) -> Vec<Outgoing> {
        let mut frees = self.frees.lock();
        let queue = frees.queue.as_mut();
        queue.map_or_else(Vec::new, |queue| {
            std::iter::from_fn(|| queue.flush()).map(outgoing).collect()
        })
    }

    /// The socket is full, since the server reads on its own time: writes on a little later, unless
    /// that is under way already.
    pub fn retry_writing(&self) {
        // Whoever has the connection now writes on too, and is not waited for.
        let Some(mut state) = self.state.try_lock() else {
            return self.try_again_later();
        };
        if !std::mem::replace(&mut state.retrying, true) {
            drop(state);
            self.io.call_at(clock::after(WRITE_RETRY), self.source());
        }
    }

    /// Reads while no stream is on the connection. Returns whether that was possible: whoever has the
    /// connection may wait for a device.
    fn read_on(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else {
            return false;
        };
        // A consumer may have taken the connection over since epoll reported it: what comes then is
        // the consumer's. Nothing is left to do here when the connection is over.
        if state.registration.is_some()
            && state.closed.is_none()
            && let Err(error) = self.read_idle(&mut state)
        {
            state.close(error);
        }
        true
    }

    fn source(&self) -> Weak<dyn Source> {
        Weak::clone(&self.me) as Weak<Self>
    }
}

fn outgoing(message: FreeMessage) -> Outgoing {
    match message {
        FreeMessage::Tagged { tag, bytes } => {
            let payload = Payload::Bytes(bytes.into());
            Outgoing::Tagged { tag, payload }
        }
        FreeMessage::Control(bytes) => Outgoing::Control { bytes, fd: None },
    }
}

/// Whether it is a control message of a kind that is not known.
fn is_unknown(message: &Incoming) -> Result<bool> {
    match message {
        Incoming::Control { bytes, .. } => Ok(Control::decode(bytes)?.is_none()),
        _ => Ok(false),
    }
}

fn forget(id: u16) -> Outgoing {
    let bytes = Control::RegionForgotten { id }.encode();
    Outgoing::Control { bytes, fd: None }
}

/// Tells the server that a region is not mapped any more, which took a while. This waits for nobody who has
/// the connection: the I/O thread says it.
fn tell_forgotten(link: &Weak<FetchLink>, id: u16) {
    if let Some(link) = link.upgrade() {
        link.forgotten.lock().push(id);
        link.ask_soon();
    }
}

/// A turn of reading, under the connection's lock: many messages for one lock.
pub struct Turn<'a> {
    link: &'a FetchLink,
    state: MutexGuard<'a, State>,
    suspected: bool,
}

impl Turn<'_> {
    /// The next message, which may be [the connection's own](Self::handles).
    ///
    /// # Errors
    ///
    /// The connection is over; every later call says the same.
    pub fn receive(&mut self) -> Result<Option<Incoming>> {
        let mut received = self.link.receive_with(&mut self.state, self.suspected);
        if let Err(error) = &mut received {
            // A killed process's sockets end a moment before the process does.
            if error.status() == Status::Disconnected
                && self.link.identity.readiness.peer_dies_within(DEATH_WAIT)
            {
                *error = self.link.has_ended();
            }
            self.state.close(error.clone());
        }
        received
    }

    /// Deals with a message that belongs to the connection and not to a stream. Returns whether it was one.
    ///
    /// # Errors
    ///
    /// It makes no sense: the connection is over.
    pub fn handles(&mut self, message: &mut Incoming) -> Result<bool> {
        let handled = self.state.handles(&self.link.me, message);
        if let Err(error) = &handled {
            self.state.close(error.clone());
        }
        handled
    }

    /// See [`FetchLink::post_body`].
    pub fn post_body(&mut self, seq: u32, packed: u64, list: u64) {
        self.state.link.post_body(seq, packed, list);
    }

    /// See [`FetchLink::is_waiting`].
    pub fn is_waiting(&self) -> bool {
        self.state.link.is_waiting()
    }
}

impl State {
    /// Handles REGION, REGION_GONE, READY and GOAWAY. Returns whether the message was one of them; a descriptor
    /// that came with another is closed.
    fn handles(&mut self, me: &Weak<FetchLink>, message: &mut Incoming) -> Result<bool> {
        let Incoming::Control { bytes, fd } = message else {
            return Ok(false);
        };
        let fd = fd.take();
        match Control::decode(bytes)? {
            Some(Control::Region { id, handle }) => {
                let map = |regions: &mut dyn PeerRegions| regions.map(id, &handle, fd);
                self.link.with_regions(map)?;
            }
            Some(Control::RegionGone { id }) => {
                let unmapped = self.link.with_regions(|regions| regions.unmap(id))?;
                let me = Weak::clone(me);
                // The server may free the memory once it is told.
                let told_later = unmapped == Unmapped::Later
                    && later::after(move || tell_forgotten(&me, id)).is_ok();
                if !told_later {
                    self.forget(id)?;
                }
            }
            Some(Control::Ready { seq, event, handle }) => {
                self.link
                    .with_regions(|regions| regions.order(seq, event, &handle))?;
            }
            Some(Control::GoAway) => self.dismissed = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Tells the server that it may free a region.
    fn forget(&mut self, id: u16) -> Result<()> {
        if self.link.queued().bytes == 0 {
            self.unread = 0;
        }
        self.unread += 1;
        if self.unread > MOST_UNREAD {
            return Err(Error::protocol(
                "the server retires region after region and does not read the answers",
            ));
        }
        // That nothing can be written is no reason not to read what the server said before it went.
        let message = forget(id);
        telling::sent(&*self.link, &message);
        let _ = self.link.send(message);
        Ok(())
    }

    fn close(&mut self, error: Error) {
        if self.closed.is_none() {
            tracing::debug!(
                "the connection to {} ends: {error}",
                self.link.identity().peer
            );
            self.closed = Some(error);
            self.registration = None;
            self.link.close(None);
        }
    }
}

impl Source for FetchLink {
    fn panicked(&self) {
        let text = "a call to this connection panicked: please report this bug";
        self.close(Error::new(Status::Panic, text));
    }

    fn ready(&self) {
        // What is there is reported again.
        let _ = self.read_on();
    }

    fn timer(&self) {
        match self.say_on() {
            Some(false) => {}
            Some(true) => self.retry_writing(),
            // Whoever has the connection may wait for a device, as this thread must not.
            None => return self.try_again_later(),
        }
        // What was read from the socket and not looked at is not reported again.
        if !self.read_on() {
            self.try_again_later();
        }
    }

    fn turn(&self) {
        self.frees.lock().asked = false;
        self.timer();
    }
}

impl Drop for FetchLink {
    fn drop(&mut self) {
        if self.generation.ensure_same_process().is_err() {
            // A forked child: closing its copies of the descriptors sends nothing.
            return;
        }
        let _ = self.send(None);
        let state = self.state.get_mut();
        if state.closed.is_none() {
            tracing::debug!(
                "the connection to {} ends: nothing needs it",
                self.identity.peer
            );
        }
        // Not cut: the connection's own end closes what it mapped first.
        drop(state.registration.take());
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
