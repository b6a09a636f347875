//! The state that a server's threads share: tickets, connections and streams.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use crate::arrow::EncodeOptions;
use crate::arrow::stream::{ArrayReader, DeviceStreamReader};
use crate::driver::acceptor::{Acceptor, NotTaken};
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::clock;
use crate::driver::end::{ArrivedRequest, Begun, End, EndLink, Host, ServedLimits, StreamWork};
use crate::driver::figures::Record;
use crate::driver::io::IoThread;
use crate::driver::produce::{
    Counting, OutStream, ProduceOptions, Production, Publication, Published,
};
use crate::driver::turning::Turner;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{self, QuietTimes, Role, RoleTags, SenderConfig, Timestamp, Uri, Verb};
use crate::server::answers::Answers;
use crate::server::authorizing::{Allowed, Authorizing};
use crate::server::connections::{ConnectionBounds, Connections};
use crate::server::draining::Draining;
use crate::server::figures::ServerFigures;
use crate::server::pulls::PullQueues;
use crate::server::refusing::with_retry;
use crate::server::request::AskedFor;
use crate::server::selecting::selected;
use crate::server::streams::{Slot, StreamLimits, Streams};
use crate::server::threads::{Threads, send_table};
use crate::server::tickets::{Entry, Provider, Tickets};
use crate::server::{Request, ServerOptions};
use crate::transport::{self, Connection, LinkOptions};

/// How long a stop waits after the cut until the streams' threads have ended.
const GRACE: Duration = Duration::from_millis(500);
/// How long a stop waits until transports have closed their connections.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct ServerCore {
    pub(super) options: ServerOptions,
    pub(super) link_options: LinkOptions,
    pub(super) generation: Generation,
    pub(super) io: IoThread,
    pub(super) tickets: Tickets,
    /// `None`: whoever can connect may do everything.
    pub(super) authorizing: Option<Arc<Authorizing>>,
    pub(super) streams: Arc<Streams>,
    pub(super) threads: Threads,
    pub(super) listeners: Mutex<Vec<Listening>>,
    pub(super) links: Mutex<Connections>,
    pub(super) bounds: ConnectionBounds,
    pub(super) next_link: AtomicU64,
    pub(super) pulls: PullQueues,
    pub(super) answers: Answers,
    /// `None` once stopped, so that the callback thread can end.
    pub(super) callbacks: Mutex<Option<Callbacks>>,
    pub(super) figures: ServerFigures,
    /// Requests are refused, and told where else to ask.
    pub(super) draining: Draining,
    /// No new streams begin.
    pub(super) stopped: AtomicBool,
    /// No new connections are kept.
    pub(super) cutting: AtomicBool,
    pub(super) me: Weak<Self>,
}

pub(super) struct Listening {
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) uri: Uri,
}

impl ServerCore {
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
        replaces: bool,
        thing: T,
        wrap: impl FnOnce(T, Callbacks) -> Entry,
    ) -> Result<(), (Error, T)> {
        match self.ensure_running().and_then(|()| self.callbacks()) {
            Ok(callbacks) => self
                .tickets
                .add(ticket, replaces, thing, |thing| wrap(thing, callbacks)),
            Err(error) => Err((error, thing)),
        }
    }

    pub(super) fn links(&self) -> Vec<Arc<EndLink>> {
        self.links.lock().all().cloned().collect()
    }

    /// Takes over a new connection, on the I/O thread.
    ///
    /// # Errors
    ///
    /// `Busy`, with the connection, where the server has as many as it may; the system's error if
    /// the connection cannot be watched.
    pub(super) fn accepted(
        &self,
        connection: Box<dyn Connection>,
        tags: RoleTags,
    ) -> Result<(), NotTaken> {
        let origin = &connection.identity().origin;
        let descriptors = connection.descriptors();
        let place = self.links.lock().ensure_place(origin, self.bounds);
        if let Err(error) = place.map_err(|error| self.draining.refusal().unwrap_or(error)) {
            let peer = &connection.identity().peer;
            let logged = error.clone().context(format_args!("the peer is {peer}"));
            return Err(NotTaken {
                told: Some((connection, with_retry(&error))),
                error: logged,
            });
        }
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        let config = SenderConfig {
            tags,
            first_seq: self.options.first_seq,
        };
        let host: Weak<dyn Host> = Weak::clone(&self.me) as Weak<Self>;
        let peer = connection.identity().peer.clone();
        let limits = ServedLimits {
            region_idle: self.link_options.region_idle,
            most_queued: self.options.most_queued(),
            quiet: QuietTimes {
                request: self.options.request_timeout,
                idle: self.options.idle_timeout,
            },
        };
        let link = EndLink::start(id, connection, config, limits, &self.io, host)
            .map_err(|error| error.context(format_args!("the peer is {peer}")))?;
        self.links.lock().add(&link, descriptors);
        self.figures.opened();
        // The connection may have ended, or missed the cut, before it was in the list.
        if link.is_closed() || self.cutting.load(Ordering::Acquire) {
            link.cut(&Error::new(Status::Stopped, "the server was stopped"));
            self.remove(&link);
        }
        Ok(())
    }

    fn remove(&self, link: &EndLink) {
        if self.links.lock().remove(link) {
            self.figures.closed();
        }
    }

    /// Options of the encoder.
    pub(super) fn encode_options(&self) -> EncodeOptions {
        EncodeOptions {
            compression: self.options.compression,
        }
    }

    /// Finds the ticket of a request and begins its stream. An error brings the connection back.
    fn begin_stream(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        allowed: Allowed,
    ) -> Result<Begun, (Error, Turner<End>)> {
        let ticket = &asked.request.ticket;
        let shared_id = asked.extension && asked.role != Role::Both;
        if let Some(stream) = self.joinable(asked) {
            turner.step_to_host(|_, _| ());
            match stream.join(turner, asked.role) {
                Ok(()) => return Ok(Begun::Elsewhere), // Rule E6
                Err(given_back) => turner = given_back,
            }
        }
        if asked.request.verb.has_source() {
            return self.begin_taking(turner, asked, allowed);
        }
        let (entry, slot) = match self.admit(turner.link(), asked) {
            Ok(admitted) => admitted,
            Err(error) => return Err((error, turner)),
        };
        let callbacks = match self.callbacks() {
            Ok(callbacks) => callbacks,
            Err(error) => return Err((error, turner)),
        };
        let record = self.record(turner.link(), asked, &entry, &allowed);
        let options = self.produce(callbacks.clone(), &record);
        let entry = match entry {
            Entry::Published(table) if asked.request.selection.is_all() => {
                return Ok(self.publish(turner, asked, table, options, slot));
            }
            Entry::Published(table) => selected(table, callbacks),
            other => other,
        };
        // A provider, or a host of the pull form, may be slow.
        turner.step_to_host(|_, _| ());
        let stream = OutStream::new(ticket.clone(), turner, asked.role, shared_id);
        // Before the provider's call, which may never return.
        let place = Arc::downgrade(&slot);
        stream.when_lost(Box::new(move || {
            if let Some(place) = place.upgrade() {
                place.lost();
            }
        }));
        if shared_id {
            self.streams.offer(asked.request.stream_id, &stream);
        }
        let asked_for = AskedFor::of_allowed(&asked.request, allowed, &record)
            .before(self.forwards(&asked.request));
        let production = |options| Production::new(Arc::clone(&stream), options, ending(&slot));
        Ok(match entry {
            Entry::Provider(provider) => Begun::Thread(Box::new(ProvidedStream {
                production: production(options),
                provider,
                stream,
                record,
                asked_for,
                slot,
                yields: self.options.spin.is_zero(),
            })),
            Entry::Pull | Entry::Published(_) => {
                let production = production(self.produce(self.pulls.callbacks.clone(), &record));
                self.pulls.put(Request::for_pull(
                    stream, asked_for, production, slot, &self.me,
                ));
                Begun::Elsewhere
            }
        })
    }

    /// This server, behind the middleware that answers a request.
    pub(super) fn forwards(&self, request: &proto::Request) -> Option<&Weak<Self>> {
        self.tickets.middleware(request).map(|_| &self.me)
    }

    /// Finds the ticket of a request, and takes a slot for its stream.
    pub(super) fn admit(
        &self,
        link: &Arc<EndLink>,
        asked: &ArrivedRequest,
    ) -> Result<(Entry, Arc<Slot>)> {
        self.ensure_running()?;
        let entry = self.entry(link, &asked.request)?;
        if !asked.extension && asked.role != Role::Both && !entry.replays() {
            return Err(Error::unsupported(
                "a baseline peer on two connections can be served only tickets that give the same \
                 batches each time: published ones, or a provider declared deterministic",
            )); // Rule E6
        }
        let calls_host = matches!(entry, Entry::Provider(_) | Entry::Pull);
        let most_provided = calls_host.then(|| self.options.most_providers());
        let limits = StreamLimits {
            bounds: self.options.stream_bounds(),
            is_granted: !asked.extension
                || asked.request.verb == Verb::Put
                || asked.request.credit.batches > 0,
            most_provided,
            credit_time: self.options.credit_timeout,
        };
        let slot = self.streams.take_slot(link, limits)?;
        Ok((entry, slot))
    }

    /// Begins what the host has allowed, or refuses it.
    pub(super) fn begin_allowed(
        &self,
        turner: Turner<End>,
        asked: &ArrivedRequest,
        allowed: Allowed,
    ) -> Begun {
        let principal = allowed.principal.clone();
        match self.begin_stream(turner, asked, allowed) {
            Ok(begun) => begun,
            Err((error, turner)) => self.refuse(turner, asked, principal, &error),
        }
    }

    /// Begins to send a published table. The owner of the connection continues it.
    fn publish(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        table: Arc<Deferred<Published>>,
        options: ProduceOptions,
        slot: Arc<Slot>,
    ) -> Begun {
        let link = Arc::clone(turner.link());
        let lends = link.lender().is_some();
        let is_light = table
            .get()
            .is_some_and(|table| table.is_light(options.body, lends, asked.extension));
        let wanted = (asked.request.ticket.as_slice(), asked.role);
        let (ending, place) = (ending(&slot), Box::new(slot));
        let publication = Publication::new(&link, wanted, table, &options, ending, place);
        turner.step(|served, effects| served.publish(publication, effects));
        if is_light {
            Begun::Here(turner)
        } else {
            Begun::Thread(Box::new(HeavyTable(turner)))
        }
    }

    pub(super) fn produce(&self, callbacks: Callbacks, record: &Arc<Record>) -> ProduceOptions {
        ProduceOptions {
            encode: self.encode_options(),
            body: self.options.body,
            callbacks,
            counting: Counting::Request(Arc::clone(record)),
        }
    }

    /// The queue of the thread that drops the host's objects.
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
            self.figures.not_accepted(listening.acceptor.not_accepted());
        }
        // From here on no stream begins, so the count of streams only falls.
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
            // Threads between two streams own connections. None outlives a stop that went well.
            self.threads.wait_ended(clock::after(GRACE));
            return Ok(());
        }
        Err(Error::timeout(format!(
            "{} streams were cut, but their providers have not returned; they are not called \
             again, and their threads end when they return",
            self.streams.active()
        )))
    }

    /// Waits until the clients have received the sent data, or until `deadline`.
    fn wait_delivered(&self, deadline: Timestamp) {
        const PAUSE: Duration = Duration::from_millis(1);
        while !clock::until(deadline).is_zero() && !self.all_finished() {
            std::thread::sleep(PAUSE);
        }
    }

    /// Ends every connection's sending side. Returns whether all have delivered their data.
    fn all_finished(&self) -> bool {
        // All connections are asked, so that a slow client does not delay the others. A closed
        // connection in the list is about to be removed by another thread.
        let finished = |all, link: &Arc<EndLink>| link.end_sending() && !link.is_closed() && all;
        self.links().iter().fold(true, finished)
    }
}

/// Frees the stream's place among `max_streams` just before its last message.
pub(super) fn ending(slot: &Arc<Slot>) -> Box<dyn FnOnce() + Send> {
    let slot = Arc::downgrade(slot);
    Box::new(move || {
        if let Some(slot) = slot.upgrade() {
            slot.ending();
        }
    })
}

/// A published table whose bodies are copied, on a thread for this stream only.
struct HeavyTable(Turner<End>);

impl StreamWork for HeavyTable {
    fn run(self: Box<Self>) -> Option<Turner<End>> {
        send_table(self.0)
    }

    fn refuse(self: Box<Self>, error: &Error) {
        // Without a thread the I/O thread sends the table, while other connections wait.
        tracing::debug!("a table is sent by the I/O thread: {error}");
    }
}

/// A stream of a provider.
struct ProvidedStream {
    /// The first field, so that the stream ends before its slot is free.
    production: Production,
    provider: Arc<Deferred<Box<dyn Provider>>>,
    stream: Arc<OutStream>,
    record: Arc<Record>,
    asked_for: AskedFor,
    slot: Arc<Slot>,
    /// The thread yields its processor once after the first batch.
    yields: bool,
}

impl StreamWork for ProvidedStream {
    fn run(self: Box<Self>) -> Option<Turner<End>> {
        let Self {
            mut production,
            provider,
            stream,
            record,
            asked_for,
            slot,
            yields,
        } = *self;
        let provider = provider.get()?;
        let _span = record.enter_stream();
        // The request lives until the host's stream is released.
        let request = Request::for_provider(stream, asked_for);
        let mut reader = None;
        let sent = provide(&**provider, &request, &mut production, yields, &mut reader);
        if let Err(error) = sent {
            let (code, text) = request.failure(&error);
            production.fail(code, &text);
        }
        // Before the release of the host's stream, which may be slow.
        let link = production.release();
        drop(reader);
        drop(slot);
        link?.take()
    }

    fn refuse(mut self: Box<Self>, error: &Error) {
        self.production.fail(error.status().code(), error.text());
    }
}

/// Calls the provider and sends its batches. The host's stream goes to `reader`.
pub(super) fn provide(
    provider: &dyn Provider,
    request: &Request,
    production: &mut Production,
    yields: bool,
    reader: &mut Option<DeviceStreamReader>,
) -> Result<()> {
    let reader = reader.insert(DeviceStreamReader::new(provider.open(request)?));
    request.ensure_not_failed()?;
    let schema = reader.schema()?;
    let selection = request.selection_left();
    production.start_selected(&schema, reader.device_type(), &selection)?;
    let mut is_first = true;
    while !production.is_complete() {
        // Wait first, then pull: a slow consumer also slows the producer.
        production.wait_for_room(None)?;
        let Some(batch) = reader.next()? else { break };
        production
            .push(batch, None, None)
            .map_err(|(error, _)| error)?;
        if std::mem::take(&mut is_first) && yields {
            // The client may wait for this processor, and for the first batch only.
            std::thread::yield_now();
        }
    }
    request.ensure_not_failed()?;
    production.finish(None)
}

impl Host for ServerCore {
    fn begin(&self, turner: Turner<End>, request: ArrivedRequest) -> Begun {
        if let Err(error) = self.ensure_not_draining(&request) {
            return self.refuse(turner, &request, None, &error);
        }
        match &self.authorizing {
            Some(authorizing) => self.authorize_first(authorizing, turner, request),
            None => self.begin_allowed(turner, &request, Allowed::default()),
        }
    }

    fn run(&self, work: Box<dyn StreamWork>) {
        self.threads.run(work);
    }

    fn closed(&self, link: &Arc<EndLink>) {
        self.remove(link);
    }
}
