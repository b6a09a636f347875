//! A server: tickets on one side, connections on the other, and the streams between them.

mod options;
mod request;
mod streams;
mod tickets;

use std::collections::{HashMap, VecDeque};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

pub use options::{ServerOptions, ServerStats};
pub use request::Request;
pub use tickets::Provider;

use crate::arrow::stream::{ArrayReader, DeviceStreamReader};
use crate::arrow::{EncodeOptions, OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::driver::acceptor::Acceptor;
use crate::driver::callbacks::{Callbacks, Pulled};
use crate::driver::clock;
use crate::driver::io::IoThread;
use crate::driver::produce::{Counters, OutStream, ProduceOptions, Production};
use crate::driver::served::{Asked, Host, ServedLink};
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{Role, RoleTags, SenderConfig, Tags, Timestamp, Uri};
use crate::transport::{self, Budget, Connection, LinkOptions};
use streams::{Slot, Streams};
use tickets::{Entry, Published, Tickets};

/// A server. Calls are safe from any thread; dropping it cuts every stream, and lets go of host
/// callbacks that are still running.
pub struct Server {
    shared: Arc<Shared>,
    callback_thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    options: ServerOptions,
    link_options: LinkOptions,
    generation: Generation,
    io: IoThread,
    tickets: Tickets,
    streams: Arc<Streams>,
    listeners: Mutex<Vec<Listening>>,
    links: Mutex<HashMap<u64, Arc<ServedLink>>>,
    next_link: AtomicU64,
    pulls: Pulls,
    /// `None` once stopped, so that the callback thread can end.
    callbacks: Mutex<Option<Callbacks>>,
    counters: Arc<Counters>,
    /// No new streams.
    stopped: AtomicBool,
    /// No connections either.
    cutting: AtomicBool,
    me: Weak<Self>,
}

struct Listening {
    /// Held for its drop, which stops the listening.
    _acceptor: Arc<Acceptor>,
    uri: Uri,
}

/// The pull form: requests that wait for the host, and releases that do.
struct Pulls {
    requests: Mutex<VecDeque<Request>>,
    /// Counts the requests, so that waiting for one can also wait for a cancel token.
    arrivals: OwnedFd,
    callbacks: Callbacks,
    releases: Pulled,
}

/// How long after the cut a stop waits for the threads of streams to notice.
const GRACE: Duration = Duration::from_millis(500);

impl Server {
    /// Makes a server that serves nothing yet. It has an I/O thread and a callback thread.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(options: ServerOptions) -> Result<Self> {
        let io = IoThread::start("dipc-server-io")?;
        let (callbacks, callback_thread) = Callbacks::start()?;
        let (pull_callbacks, releases) = Callbacks::pulled();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let arrivals =
            eventfd(0, flags).map_err(|errno| Error::os("cannot make a request queue", errno))?;
        let mut link_options = options.link.clone();
        link_options.budget = Arc::new(Budget::new(options.max_bytes));
        let shared = Arc::new_cyclic(|me| Shared {
            options,
            link_options,
            generation: Generation::now(),
            io,
            tickets: Tickets::default(),
            streams: Arc::default(),
            listeners: Mutex::default(),
            links: Mutex::default(),
            next_link: AtomicU64::new(1),
            pulls: Pulls {
                requests: Mutex::default(),
                arrivals,
                callbacks: pull_callbacks,
                releases,
            },
            callbacks: Mutex::new(Some(callbacks)),
            counters: Arc::default(),
            stopped: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        Ok(Self {
            shared,
            callback_thread: Mutex::new(Some(callback_thread)),
        })
    }

    /// Listens at `uri` (`shm:/path`, `shm:@name`) and returns the URI to give to clients.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` scheme, `AddressInUse`, `Permission`, `Stopped`.
    pub fn listen(&self, uri: &str) -> Result<String> {
        self.shared.ensure_running()?;
        let mut uri = Uri::parse(uri)?;
        let transport = transport::by_scheme(&uri.scheme)?;
        let listener = transport.listen(&uri, &self.shared.link_options)?;
        uri.address = Uri::parse(&listener.address())?.address;
        uri.extension = true;
        // The tags of the URI are those of both streams; each role alone has its defaults.
        let tags = RoleTags::DEFAULT.with(Role::Both, uri.tags);
        tags.validate()?;
        let me = Weak::clone(&self.shared.me);
        let acceptor = Acceptor::start(
            listener,
            &self.shared.io,
            Box::new(move |connection| {
                if let Some(shared) = me.upgrade() {
                    shared.accepted(connection, tags);
                }
            }),
        )?;
        let text = uri.to_string();
        self.shared.listeners.lock().push(Listening {
            _acceptor: acceptor,
            uri,
        });
        Ok(text)
    }

    /// The URI of the first listener, for one role (rule U3): both streams, or one of two.
    pub fn location(&self, role: Role) -> Option<String> {
        let listeners = self.shared.listeners.lock();
        let mut uri = listeners.first()?.uri.clone();
        if role != Role::Both {
            uri.role = Some(role);
            uri.tags = Tags::default_for(role);
        }
        Some(uri.to_string())
    }

    /// Serves `ticket` by calling `provider` for each stream.
    ///
    /// # Errors
    ///
    /// With the provider given back: `AlreadyExists` when the ticket is served already, `Stopped`.
    pub fn serve(
        &self,
        ticket: &[u8],
        provider: Box<dyn Provider>,
    ) -> Result<(), (Error, Box<dyn Provider>)> {
        self.shared.add(ticket, provider, |provider| {
            Entry::Provider(Arc::from(provider))
        })
    }

    /// Serves `ticket` in the pull form: its requests come out of
    /// [`next_request`](Self::next_request).
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    pub fn serve_pull(&self, ticket: &[u8]) -> Result<()> {
        self.shared
            .add(ticket, (), |()| Entry::Pull)
            .map_err(|(error, ())| error)
    }

    /// Serves `ticket` with a table that can be fetched any number of times. The arrays are
    /// released when the ticket is withdrawn and the last stream of it has ended.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve), with the table given back.
    #[allow(
        clippy::type_complexity,
        reason = "the table is given back in the shape it came in"
    )]
    pub fn publish(
        &self,
        ticket: &[u8],
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, (OwnedSchema, Vec<OwnedDeviceArray>))> {
        self.shared
            .add(ticket, (schema, batches), |(schema, batches)| {
                let batches = batches.into_iter().map(Arc::new).collect();
                Entry::Published(Arc::new(Published { schema, batches }))
            })
    }

    /// Stops serving `ticket`. Streams under way go on.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn withdraw(&self, ticket: &[u8]) -> Result<()> {
        self.shared.generation.ensure_same_process()?;
        self.shared.tickets.withdraw(ticket).map(drop)
    }

    /// The tickets served now, in byte order.
    pub fn tickets(&self) -> Vec<Vec<u8>> {
        self.shared.tickets.names()
    }

    /// Pull form: the next request, waiting at most `timeout`; `None` when there was none in time.
    ///
    /// # Errors
    ///
    /// `Cancelled` by the token, `Stopped`.
    pub fn next_request(
        &self,
        timeout: Option<Duration>,
        cancel: Option<&Cancel>,
    ) -> Result<Option<Request>> {
        let deadline = timeout.map(clock::after);
        loop {
            self.shared.ensure_running()?;
            if let Some(cancel) = cancel {
                cancel.check()?;
            }
            if let Some(request) = self.shared.pulls.take() {
                return Ok(Some(request));
            }
            if deadline.is_some_and(|deadline| clock::until(deadline).is_zero()) {
                return Ok(None);
            }
            self.shared.pulls.wait(deadline, cancel)?;
        }
    }

    /// Pull form: releases, on this thread, arrays that clients have given back. Returns how many
    /// releases were run.
    pub fn drain_releases(&self) -> usize {
        self.shared.pulls.releases.drain()
    }

    /// Figures of the server.
    pub fn stats(&self) -> ServerStats {
        let (active, served) = self.shared.streams.counts();
        let links = self.shared.links();
        let counters = &self.shared.counters;
        ServerStats {
            connections: links.len() as u64,
            streams_active: active as u64,
            streams_served: served,
            batches: counters.batches.load(Ordering::Relaxed),
            bytes_lent: counters.bytes_lent.load(Ordering::Relaxed),
            bytes_copied: counters.bytes_copied.load(Ordering::Relaxed),
            bytes_sent: counters.bytes_sent.load(Ordering::Relaxed),
            lent_outstanding: links.iter().map(|link| link.lent_outstanding()).sum(),
            region_bytes: self.shared.link_options.budget.used(),
        }
    }

    /// Stops: no new connections or streams; streams under way may end until `deadline` from now;
    /// then connections are cut. Arrays that clients hold stay valid. Idempotent.
    ///
    /// # Errors
    ///
    /// `Timeout` when a provider had still not returned a moment after the cut; it is not called
    /// again, and its thread ends when it returns.
    pub fn stop(&self, deadline: Duration) -> Result<()> {
        self.shared.generation.ensure_same_process()?;
        self.shared.stop(deadline)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.shared.generation.ensure_same_process().is_err() {
            // The threads do not exist in a forked child, and locks may be held for ever: the
            // copy is left as it is.
            let _left = ManuallyDrop::new(Arc::clone(&self.shared));
            return;
        }
        let ended = self.shared.stop(Duration::ZERO).is_ok();
        self.shared.tickets.clear();
        self.shared.pulls.releases.drain();
        if let Some(thread) = self.callback_thread.lock().take()
            && ended
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn ensure_running(&self) -> Result<()> {
        self.generation.ensure_same_process()?;
        if self.stopped.load(Ordering::Acquire) {
            return Err(Error::new(Status::Stopped, "the server was stopped"));
        }
        Ok(())
    }

    fn add<T>(
        &self,
        ticket: &[u8],
        thing: T,
        wrap: impl FnOnce(T) -> Entry,
    ) -> Result<(), (Error, T)> {
        match self.ensure_running() {
            Ok(()) => self.tickets.add(ticket, thing, wrap),
            Err(error) => Err((error, thing)),
        }
    }

    fn links(&self) -> Vec<Arc<ServedLink>> {
        self.links.lock().values().cloned().collect()
    }

    /// Takes over a connection; on the I/O thread.
    fn accepted(&self, connection: Box<dyn Connection>, tags: RoleTags) {
        let id = self.next_link.fetch_add(1, Ordering::Relaxed);
        let config = SenderConfig {
            tags,
            first_seq: self.options.first_seq,
        };
        let host: Weak<dyn Host> = Weak::clone(&self.me) as Weak<Self>;
        let idle = self.link_options.region_idle;
        let peer = connection.peer().to_owned();
        match ServedLink::start(id, connection, config, idle, &self.io, host) {
            Ok(link) => {
                self.links.lock().insert(id, Arc::clone(&link));
                // It may have ended, or missed the cut, while it was being added.
                if link.is_closed() || self.cutting.load(Ordering::Acquire) {
                    link.cut(&Error::new(Status::Stopped, "the server was stopped"));
                    self.links.lock().remove(&id);
                }
            }
            Err(error) => tracing::warn!("the connection from {peer} was not taken: {error}"),
        }
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
            return Ok(()); // Rule E6
        }
        let entry = self.tickets.find(ticket)?;
        if !asked.extension && asked.role != Role::Both && !entry.replays() {
            return Err(Error::unsupported(
                "a baseline peer on two connections can be served only tickets that give the same \
                 batches each time: published ones, or a provider declared deterministic",
            )); // Rule E6
        }
        let most = self.options.max_streams;
        let slot = self.streams.take_slot(most).ok_or_else(|| {
            let text = format!("the server serves {most} streams already, its most; try again");
            Error::new(Status::Busy, text)
        })?;
        let stream = OutStream::new(ticket.clone(), link, asked.role);
        if asked.extension && asked.role != Role::Both {
            self.streams.offer(asked.request.stream_id, &stream);
        }
        match entry {
            Entry::Pull => {
                let callbacks = self.pulls.callbacks.clone();
                let production = Production::new(Arc::clone(&stream), self.produce(callbacks));
                self.pulls.put(Request::for_pull(stream, production, slot));
                Ok(())
            }
            Entry::Provider(provider) => self.spawn(stream, slot, move |stream, production| {
                provide(&*provider, stream, production);
            }),
            Entry::Published(table) => self.spawn(stream, slot, move |_, production| {
                let sent = (|| {
                    let device = table
                        .batches
                        .first()
                        .map_or(1, |batch| batch.raw().device_type);
                    production.start(&table.schema, device)?;
                    for batch in table.read() {
                        production
                            .push(batch, None, None)
                            .map_err(|(error, _)| error)?;
                    }
                    production.finish(None)
                })();
                if let Err(error) = sent {
                    production.fail(error.status().code(), error.text());
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
        slot: Slot,
        run: impl FnOnce(&Arc<OutStream>, &mut Production) + Send + 'static,
    ) -> Result<()> {
        let Some(callbacks) = self.callbacks.lock().clone() else {
            return self.ensure_running();
        };
        let mut production = Production::new(Arc::clone(&stream), self.produce(callbacks));
        std::thread::Builder::new()
            .name("dipc-stream".into())
            .spawn(move || {
                run(&stream, &mut production);
                // In this order: the stream has ended before its place is free.
                drop(production);
                drop(slot);
            })
            .map(drop)
            .map_err(|error| Error::io("cannot start a thread for the stream", &error))
    }

    fn stop(&self, deadline: Duration) -> Result<()> {
        let drained_by = clock::after(deadline);
        let stopped = || Error::new(Status::Stopped, "the server was stopped");
        self.stopped.store(true, Ordering::Release);
        self.listeners.lock().clear();
        self.pulls.wake();
        // Requests of the pull form that nobody took can end at once.
        drop(std::mem::take(&mut *self.pulls.requests.lock()));
        self.streams.wait_idle(drained_by);
        self.wait_written(drained_by);
        self.cutting.store(true, Ordering::Release);
        for link in self.links() {
            link.cut(&stopped());
        }
        let ended = self.streams.wait_idle(clock::after(GRACE));
        self.callbacks.lock().take();
        if ended {
            return Ok(());
        }
        let (active, _) = self.streams.counts();
        Err(Error::timeout(format!(
            "{active} streams were cut, but their providers have not returned; they are not called \
             again, and their threads end when they return"
        )))
    }

    /// Waits until what was sent has left for the clients' sockets.
    fn wait_written(&self, deadline: Timestamp) {
        const PAUSE: Duration = Duration::from_millis(1);
        while !clock::until(deadline).is_zero()
            && self.links().iter().any(|link| link.queued_bytes() > 0)
        {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Calls the provider and sends what it gives.
fn provide(provider: &dyn Provider, stream: &Arc<OutStream>, production: &mut Production) {
    let request = Request::for_provider(Arc::clone(stream));
    let sent = (|| {
        let mut reader = DeviceStreamReader::new(provider.open(&request)?);
        let schema = reader.schema()?;
        production.start(&schema, reader.device_type())?;
        loop {
            // First room, then a batch: a slow consumer stops the producer being pulled.
            production.wait_for_room(None)?;
            let Some(batch) = reader.next()? else { break };
            production
                .push(batch, None, None)
                .map_err(|(error, _)| error)?;
        }
        production.finish(None)
    })();
    if let Err(error) = sent {
        tracing::debug!(
            "the stream of `{}` failed: {error}",
            request.ticket().escape_ascii()
        );
        let (code, text) = request.failure(&error);
        production.fail(code, &text);
    }
}

impl Host for Shared {
    fn requested(&self, link: &Arc<ServedLink>, asked: Asked) {
        if let Err(error) = self.begin(link, &asked) {
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

impl Pulls {
    fn put(&self, request: Request) {
        self.requests.lock().push_back(request);
        self.wake();
    }

    fn take(&self) -> Option<Request> {
        let request = self.requests.lock().pop_front()?;
        let mut count = [0; 8];
        // The count may be ahead of the queue after a stop, never behind it.
        let _ = rustix::io::read(&self.arrivals, &mut count);
        Some(request)
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.arrivals, &1_u64.to_ne_bytes());
    }

    fn wait(&self, deadline: Option<Timestamp>, cancel: Option<&Cancel>) -> Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.arrivals.as_fd(),
            PollFlags::IN,
        )];
        if let Some(cancel) = cancel {
            fds.push(PollFd::from_borrowed_fd(cancel.fd(), PollFlags::IN));
        }
        let timeout = deadline.and_then(|at| Timespec::try_from(clock::until(at)).ok());
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::os("cannot wait for a request", errno)),
        }
    }
}
