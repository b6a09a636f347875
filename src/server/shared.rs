//! What a server's threads share: tickets, connections, and the streams between them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::arrow::stream::{ArrayReader, DeviceStreamReader};
use crate::arrow::{EncodeOptions, share};
use crate::device::DeviceKind;
use crate::driver::acceptor::Acceptor;
use crate::driver::callbacks::{Callbacks, release_here};
use crate::driver::clock;
use crate::driver::io::IoThread;
use crate::driver::produce::{Counters, OutStream, ProduceOptions, Production, Replay};
use crate::driver::served::{Asked, Host, ServedLink};
use crate::driver::telling::shown;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::lines::Lines;
use crate::proto::{Role, RoleTags, SenderConfig, Timestamp, Uri};
use crate::server::pulls::Pulls;
use crate::server::streams::{Slot, Streams};
use crate::server::threads::Threads;
use crate::server::tickets::{Entry, Provided, Published, Tickets};
use crate::server::{Request, ServerOptions};
use crate::transport::{self, Connection, LinkOptions};

/// How long after the cut a stop waits for the threads of streams to notice.
const GRACE: Duration = Duration::from_millis(500);
/// How long it waits for connections to let go of what they had.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct Shared {
    pub(super) options: ServerOptions,
    pub(super) link_options: LinkOptions,
    pub(super) generation: Generation,
    pub(super) io: IoThread,
    pub(super) tickets: Tickets,
    pub(super) streams: Arc<Streams>,
    pub(super) threads: Threads,
    pub(super) listeners: Mutex<Vec<Listening>>,
    pub(super) links: Mutex<HashMap<u64, Arc<ServedLink>>>,
    pub(super) next_link: AtomicU64,
    pub(super) pulls: Pulls,
    /// `None` once stopped, so that the callback thread can end.
    pub(super) callbacks: Mutex<Option<Callbacks>>,
    pub(super) counters: Arc<Counters>,
    /// No new streams.
    pub(super) stopped: AtomicBool,
    /// No connections either.
    pub(super) cutting: AtomicBool,
    pub(super) me: Weak<Self>,
}

pub(super) struct Listening {
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) uri: Uri,
}

impl Shared {
    pub(super) fn ensure_running(&self) -> Result<()> {
        self.generation.ensure_same_process()?;
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::new(Status::Stopped, "the server was stopped"));
        }
        Ok(())
    }

    pub(super) fn add<T>(
        &self,
        ticket: &[u8],
        thing: T,
        wrap: impl FnOnce(T, Callbacks) -> Entry,
    ) -> Result<(), (Error, T)> {
        match self.ensure_running().and_then(|()| self.callbacks()) {
            Ok(callbacks) => self
                .tickets
                .add(ticket, thing, |thing| wrap(thing, callbacks)),
            Err(error) => Err((error, thing)),
        }
    }

    pub(super) fn links(&self) -> Vec<Arc<ServedLink>> {
        self.links.lock().values().cloned().collect()
    }

    /// Takes over a connection; on the I/O thread.
    ///
    /// # Errors
    ///
    /// Of the system, when the connection cannot be watched.
    pub(super) fn accepted(&self, connection: Box<dyn Connection>, tags: RoleTags) -> Result<()> {
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        let config = SenderConfig {
            tags,
            first_seq: self.options.first_seq,
        };
        let host: Weak<dyn Host> = Weak::clone(&self.me) as Weak<Self>;
        let idle = self.link_options.region_idle;
        let peer = connection.peer().to_owned();
        let queued = self.options.most_queued();
        let link = ServedLink::start(id, connection, config, idle, queued, &self.io, host)
            .map_err(|error| error.context(format_args!("the peer is {peer}")))?;
        self.links.lock().insert(id, Arc::clone(&link));
        // It may have ended, or missed the cut, while it was being added.
        if link.is_closed() || self.cutting.load(Ordering::Acquire) {
            link.cut(&Error::new(Status::Stopped, "the server was stopped"));
            self.links.lock().remove(&id);
        }
        Ok(())
    }

    /// Finds what was asked for and begins to serve it.
    fn begin(&self, link: &Arc<ServedLink>, asked: &Asked) -> Result<()> {
        self.ensure_running()?;
        let ticket = &asked.request.ticket;
        if asked.extension
            && asked.role != Role::Both
            && let Some(stream) = self.streams.find(asked.request.stream_id)
            && stream.ticket == *ticket
            && stream.join(link, asked.role)
        {
            link.say_pending_later();
            return Ok(()); // Rule E6
        }
        let entry = self.tickets.find(ticket)?;
        if !asked.extension && asked.role != Role::Both && !entry.replays() {
            return Err(Error::unsupported(
                "a baseline peer on two connections can be served only tickets that give the same \
                 batches each time: published ones, or a provider declared deterministic",
            )); // Rule E6
        }
        let calls_host = matches!(entry, Entry::Provider(_) | Entry::Pull);
        let most_provided = calls_host.then(|| self.options.most_providers());
        let slot = self
            .streams
            .take_slot(self.options.max_streams, most_provided)?;
        let alone = self.streams.counts().0 <= 1;
        if asked.role == Role::Both
            && let Entry::Published(published) = &entry
            && let Some(table) = published
                .get()
                .and_then(|published| published.table.as_ref())
            && table
                .get()
                .is_some_and(|table| table.suits(link, self.options.body, asked.extension, alone))
        {
            let (options, table) = (self.produce(self.callbacks()?), Arc::clone(table));
            Replay::start(link, ticket, table, options, ending(&slot), Box::new(slot));
            return Ok(());
        }
        let joinable = asked.extension && asked.role != Role::Both;
        let stream = OutStream::new(ticket.clone(), link, asked.role, joinable);
        // Before a provider is called: it may not come back.
        let place = Arc::downgrade(&slot);
        stream.when_lost(Box::new(move || {
            if let Some(place) = place.upgrade() {
                place.lost();
            }
        }));
        if joinable {
            self.streams.offer(asked.request.stream_id, &stream);
        }
        match entry {
            Entry::Pull => {
                let options = self.produce(self.pulls.callbacks.clone());
                let production = Production::new(Arc::clone(&stream), options, ending(&slot));
                self.pulls.put(Request::for_pull(stream, production, slot));
                link.say_pending_later();
                Ok(())
            }
            Entry::Provider(provided) => {
                let serving = Arc::clone(link);
                self.spawn(stream, slot, link, move |stream, production| {
                    provide(&provided, stream, production, &serving);
                })
            }
            Entry::Published(table) => self.spawn(stream, slot, link, move |_, production| {
                if let Some(table) = table.get() {
                    replay(table, production);
                }
            }),
        }
    }

    fn produce(&self, callbacks: Callbacks) -> ProduceOptions {
        ProduceOptions {
            encode: EncodeOptions {
                compression: self.options.compression,
            },
            body: self.options.body,
            callbacks,
            counters: Arc::clone(&self.counters),
        }
    }

    /// Runs one stream on a thread of its own.
    fn spawn(
        &self,
        stream: Arc<OutStream>,
        slot: Arc<Slot>,
        link: &Arc<ServedLink>,
        run: impl FnOnce(&Arc<OutStream>, &mut Production) + Send + 'static,
    ) -> Result<()> {
        let options = self.produce(self.callbacks()?);
        // An I/O thread that spins is awake already.
        let parks = self.options.spin.is_zero();
        let next = parks.then(|| Arc::clone(link));
        let unserved = (Arc::clone(&stream), options.clone());
        // The schema then leaves with the first batch, if that comes at once, and the client is woken once.
        link.cork_opening();
        let started = self.threads.run(move || {
            // Made here: where there is no thread, the client is told that, and not of a producer.
            let mut production = Production::new(Arc::clone(&stream), options, ending(&slot));
            production.parks(parks);
            run(&stream, &mut production);
            // In this order: the stream has ended before its place is free.
            drop(production);
            drop(slot);
            next
        });
        if let Err(error) = started {
            let error = Error::io("cannot start a thread for the stream", &error);
            let (stream, options) = unserved;
            // The other part of the stream, too, if it has joined already.
            Production::new(stream, options, Box::new(|| ()))
                .fail(error.status().code(), error.text());
        }
        Ok(())
    }

    /// Where the host's things are dropped.
    pub(super) fn callbacks(&self) -> Result<Callbacks> {
        let callbacks = self.callbacks.lock().clone();
        callbacks.ok_or_else(|| Error::new(Status::Stopped, "the server was stopped"))
    }

    pub(super) fn stop(&self, deadline: Duration) -> Result<()> {
        let drained_by = clock::after(deadline);
        let stopped = || Error::new(Status::Stopped, "the server was stopped");
        if !self.stopped.swap(true, Ordering::AcqRel) {
            tracing::info!("a server stops");
        }
        for listening in std::mem::take(&mut *self.listeners.lock()) {
            listening.acceptor.close();
        }
        // From here on no stream begins, so that what is counted only falls.
        self.streams.close();
        self.pulls.stop();
        self.streams.wait_idle(drained_by);
        self.wait_delivered(drained_by);
        self.cutting.store(true, Ordering::Release);
        for link in self.links() {
            link.cut(&stopped());
        }
        let ended = self.streams.wait_idle(clock::after(GRACE));
        self.threads.close();
        self.callbacks.lock().take();
        transport::wait_closed(CLOSE_PATIENCE);
        if ended {
            return Ok(());
        }
        Err(Error::timeout(format!(
            "{} streams were cut, but their providers have not returned; they are not called \
             again, and their threads end when they return",
            self.streams.active()
        )))
    }

    /// Waits until what was sent has arrived where a cut does not take it back.
    fn wait_delivered(&self, deadline: Timestamp) {
        const PAUSE: Duration = Duration::from_millis(1);
        while !clock::until(deadline).is_zero() && !self.all_finished() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends every connection's sending side. Returns whether all have delivered what they sent.
    fn all_finished(&self) -> bool {
        // Each of them: a slow client does not keep the others from hearing of the end.
        // One that is over is about to be forgotten by the thread that found it so.
        let finished = |all, link: &Arc<ServedLink>| link.end_sending() && !link.is_closed() && all;
        self.links().iter().fold(true, finished)
    }
}

/// Frees the stream's place among `max_streams` just before its last word.
fn ending(slot: &Arc<Slot>) -> Box<dyn FnOnce() + Send> {
    let slot = Arc::downgrade(slot);
    Box::new(move || {
        if let Some(slot) = slot.upgrade() {
            slot.ending();
        }
    })
}

/// Has the log say that a request was refused: a warning where it was for want of room.
fn tell_refusal(link: &ServedLink, asked: &Asked, error: &Error) {
    static BUSY: Lines = Lines::new();
    let line = || {
        let ticket = shown(&asked.request.ticket);
        let (peer, status) = (link.peer(), error.status().symbol());
        format!("a request for {ticket} of {peer} is refused: {status}: {error}")
    };
    if error.status() == Status::Busy {
        BUSY.say(|more| tracing::warn!("{}{more}", line()));
    } else {
        tracing::debug!("{}", line());
    }
}

/// Sends a published table.
fn replay(table: &Published, production: &mut Production) {
    let sent = (|| {
        let first = table.batches.first();
        let device = first.map_or(DeviceKind::CPU.0, |batch| batch.raw().device_type);
        production.start(&table.schema, device)?;
        for batch in &table.batches {
            production
                .push(share(batch), None, None)
                .map_err(|(error, _)| error)?;
        }
        production.finish(None)
    })();
    if let Err(error) = sent {
        production.fail(error.status().code(), error.text());
    }
}

/// Calls the provider and sends what it gives.
fn provide(
    provided: &Provided,
    stream: &Arc<OutStream>,
    production: &mut Production,
    link: &ServedLink,
) {
    let Some(provider) = provided.provider.get() else {
        return;
    };
    let request = Request::for_provider(Arc::clone(stream));
    production.has_thread();
    if let Some(encoder) = provided.encoder.lock().take() {
        production.reuse(encoder);
    }
    let mut is_first = true;
    let sent = (|| {
        let mut reader = DeviceStreamReader::new(provider.open(&request)?);
        let schema = reader.schema()?;
        production.start(&schema, reader.device_type())?;
        loop {
            // First room, then a batch: a slow consumer stops the producer being pulled.
            production.wait_for_room(None)?;
            let Some(batch) = reader.next()? else { break };
            // What has left already is released by this thread, which calls the host anyway.
            release_here(|| production.push(batch, None, None)).map_err(|(error, _)| error)?;
            if std::mem::take(&mut is_first) {
                link.give_way();
            }
        }
        production.finish(None)
    })();
    let encoder = production.take_encoder();
    if encoder.is_some() {
        *provided.encoder.lock() = encoder;
    }
    if let Err(error) = sent {
        let (code, text) = request.failure(&error);
        production.fail(code, &text);
    }
}

impl Host for Shared {
    fn requested(&self, link: &Arc<ServedLink>, asked: Asked) {
        if let Err(error) = self.begin(link, &asked) {
            tell_refusal(link, &asked, &error);
            // A connection that is over needs no answer.
            let _ = link.act(&[], |sender| {
                sender.refuse(error.status().code(), error.text())
            });
        }
    }

    fn closed(&self, link: &Arc<ServedLink>) {
        self.links.lock().remove(&link.id());
    }
}
