//! A server: its tickets, its connections, and the streams between them.

mod answers;
mod asked;
mod authorizing;
mod connections;
mod core;
mod describe;
mod draining;
mod figures;
mod forwarding;
mod options;
mod peers;
mod providing;
mod pulls;
mod pushing;
mod refusing;
mod relay;
mod request;
mod selecting;
mod source;
mod streams;
mod taking;
mod threads;
mod tickets;

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::io::Errno;

pub use answers::AsyncAnswer;
pub use authorizing::{Authorizer, SharedAuthorizer};
pub use figures::process_stats;
pub use options::{ServerOptions, ServerStats, TakeOptions};
pub use request::Request;
pub use source::SentTable;
pub use tickets::Provider;

pub use crate::driver::figures::{
    BUCKETS, HANDLER, HistogramSums, LABEL_BYTES, LIST, MOST_LABELS, OTHER, STATUSES, StreamSums,
    VERBS, upper_bound,
};

use self::core::{Listening, ServerCore};
use crate::arrow::description::Description;
use crate::arrow::{Encoder, OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::device::cuda::later;
use crate::driver::acceptor::Acceptor;
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::clock;
use crate::driver::io::IoThread;
use crate::driver::produce::{Published, TableParts};
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::{Role, RoleTags, Tags, Uri};
use crate::transport::{self, MemoryBudget, TlsOptions};
use answers::Answers;
use authorizing::{Asking, Authorizing};
use connections::ConnectionBounds;
use draining::Draining;
use figures::ServerFigures;
use pulls::PullQueues;
use threads::Threads;
use tickets::{Entry, Tickets, provided};

/// A server. Any thread may call it. Its drop cuts every stream, and does not wait for host
/// callbacks that still run.
pub struct Server {
    core: Arc<ServerCore>,
    /// The sender keeps the thread from ending.
    callback_thread: Mutex<Option<(Callbacks, JoinHandle<()>)>>,
}

impl Server {
    /// Makes a server without tickets. It has an I/O thread and a callback thread.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(mut options: ServerOptions) -> Result<Self> {
        let io = IoThread::start("dipc-server-io", options.spin)?;
        let (callbacks, callback_thread) = Callbacks::start()?;
        let pulls = PullQueues::new()?;
        let mut link_options = options.link.clone();
        // Clients send no bodies.
        link_options.receiving.unexpected_bytes = 0;
        link_options.lending.budget = Arc::new(MemoryBudget::new(options.max_bytes));
        link_options.receiving.partial = Arc::new(MemoryBudget::new(options.max_request_bytes));
        link_options.lending.body = options.body;
        link_options.lending.region_idle = link_options.lending.idle_time();
        // What is read from the files, and read again, is this server's.
        link_options.tls = link_options.tls.with(|_| ());
        let asking = match options.authorizer.take() {
            Some(authorizer) => Some(Asking::Call(authorizer)),
            None => options.authorizes_by_pull.then_some(Asking::Pull),
        };
        let authorizing =
            asking.map(|way| Arc::new(Authorizing::new(way, options.most_providers())));
        let bounds =
            ConnectionBounds::new(options.max_connections, options.max_connections_per_peer);
        let core = Arc::new_cyclic(|me| ServerCore {
            options,
            link_options,
            generation: Generation::now(),
            io,
            tickets: Tickets::default(),
            authorizing,
            streams: Arc::default(),
            threads: Threads::new(me),
            listeners: Mutex::default(),
            links: Mutex::default(),
            bounds,
            next_link: AtomicU64::new(1),
            pulls,
            answers: Answers::default(),
            callbacks: Mutex::new(Some(callbacks.clone())),
            figures: ServerFigures::default(),
            draining: Draining::default(),
            stopped: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        figures::enlist(&core);
        Ok(Self {
            core,
            callback_thread: Mutex::new(Some((callbacks, callback_thread))),
        })
    }

    /// Listens at `uri` (`shm:/path`, `shm:@name`, `tls://host:port`, `tcp://host:port`,
    /// `ucx://host:port`) and returns the URI to give to clients.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` scheme, `AddressInUse`, `Permission`, `Stopped`; of tls,
    /// `InvalidArgument` and the like when its files are not given or cannot be used.
    pub fn listen(&self, uri: &str) -> Result<String> {
        self.core.ensure_running()?;
        let uri = Uri::parse(uri)?;
        let transport = transport::by_scheme(&uri.scheme)?;
        let listener = transport.listen(&uri, &self.core.link_options)?;
        self.listen_with(uri, listener)
    }

    /// The same by a socket that listens already, of a service manager or of the host's: a Unix
    /// stream socket for the scheme `shm`, a TCP socket for `tcp` and `tls`. The server has a
    /// descriptor of its own. It neither shuts the socket down nor removes it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when it is no such socket, `Unsupported` for another scheme; `Permission`,
    /// `Stopped` and of tls as [`listen`](Self::listen).
    pub fn listen_fd(&self, scheme: &str, socket: BorrowedFd<'_>) -> Result<String> {
        self.core.ensure_running()?;
        let transport = transport::by_scheme(scheme)?;
        let own = rustix::io::fcntl_dupfd_cloexec(socket, 3).map_err(|errno| match errno {
            Errno::BADF => Error::invalid_argument("the descriptor is not open"),
            _ => Error::os("cannot take a descriptor", errno),
        })?;
        let listener = transport.listen_by(own, &self.core.link_options)?;
        let uri = Uri::parse(&listener.address())?;
        self.listen_with(uri, listener)
    }

    fn listen_with(&self, mut uri: Uri, listener: Box<dyn transport::Listener>) -> Result<String> {
        uri.address = Uri::parse(&listener.address())?.address;
        uri.extension = true;
        // Rule U2: without this tag the server cannot lend.
        uri.tags
            .free_data
            .get_or_insert(Tags::DEFAULT.free_data.unwrap_or_default());
        listener.complete(&mut uri);
        // The URI's tags are for both streams on one connection. Each single role has its default
        // tags.
        let tags = RoleTags::DEFAULT.with(Role::Both, uri.tags);
        tags.validate()?;
        let me = Weak::clone(&self.core.me);
        let acceptor = Acceptor::start(
            listener,
            &self.core.io,
            tags,
            Box::new(move |connection| match me.upgrade() {
                Some(core) => core.accepted(connection, tags),
                None => Ok(()),
            }),
        )?;
        let text = uri.to_string();
        tracing::info!("a server listens at {text}");
        self.core.listeners.lock().push(Listening { acceptor, uri });
        Ok(text)
    }

    /// Reads the certificates again. Connections made from now on go by them.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` and the like when a file cannot be used: the server goes on with what it
    /// had. `Stopped`.
    pub fn reload_tls(&self) -> Result<()> {
        self.core.ensure_running()?;
        self.core.link_options.tls.reload()
    }

    /// The certificates, which [`reload_tls`](Self::reload_tls) reads again.
    pub fn tls(&self) -> Arc<TlsOptions> {
        Arc::clone(&self.core.link_options.tls)
    }

    /// The URI of the first listener, for one role (rule U3).
    pub fn location(&self, role: Role) -> Option<String> {
        self.locations(role).into_iter().next()
    }

    /// The URIs of all listeners, oldest first, for one role.
    pub fn locations(&self, role: Role) -> Vec<String> {
        let listeners = self.core.listeners.lock();
        let of_role = |listening: &Listening| {
            let mut uri = listening.uri.clone();
            if role != Role::Both {
                uri.role = Some(role);
                let free_data = uri.tags.free_data;
                uri.tags = Tags::default_for(role);
                // Rule U2: each role's URI names free_data, or no role's.
                uri.tags.free_data = uri.tags.free_data.filter(|_| free_data.is_some());
            }
            uri.to_string()
        };
        listeners.iter().map(of_role).collect()
    }

    /// Serves `ticket` by calling `provider` for each stream.
    ///
    /// # Errors
    ///
    /// The provider is given back with `AlreadyExists` if the ticket is served already,
    /// `InvalidArgument` if it is longer than [`MAX_TICKET_BYTES`](crate::proto::MAX_TICKET_BYTES),
    /// or `Stopped`.
    pub fn serve(
        &self,
        ticket: &[u8],
        provider: Box<dyn Provider>,
    ) -> Result<(), (Error, Box<dyn Provider>)> {
        self.core.add(ticket, false, provider, provided)
    }

    /// Serves every ticket that has nothing of its own by calling `provider`, until another handler
    /// takes its place. [`Request::ticket`] and [`Request::headers`] say what the client wants.
    ///
    /// # Errors
    ///
    /// With the provider given back: `Stopped`.
    pub fn set_handler(
        &self,
        provider: Box<dyn Provider>,
    ) -> Result<(), (Error, Box<dyn Provider>)> {
        let callbacks = match self
            .core
            .ensure_running()
            .and_then(|()| self.core.callbacks())
        {
            Ok(callbacks) => callbacks,
            Err(error) => return Err((error, provider)),
        };
        self.core
            .tickets
            .set_handler(Some(provided(provider, callbacks)));
        Ok(())
    }

    /// Serves every ticket that has nothing of its own in the pull form.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn set_handler_pull(&self) -> Result<()> {
        self.core.ensure_running()?;
        self.core.tickets.set_handler(Some(Entry::Pull));
        Ok(())
    }

    /// Serves only the tickets that have something of their own.
    ///
    /// # Errors
    ///
    /// `Stopped`.
    pub fn clear_handler(&self) -> Result<()> {
        self.core.ensure_running()?;
        self.core.tickets.set_handler(None);
        Ok(())
    }

    /// Serves `ticket` in the pull form: [`next_request`](Self::next_request) gives its requests.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    pub fn serve_pull(&self, ticket: &[u8]) -> Result<()> {
        self.core
            .add(ticket, false, (), |(), _| Entry::Pull)
            .map_err(|(error, ())| error)
    }

    /// Publishes a table that clients can fetch any number of times. The arrays are released after
    /// the ticket was withdrawn and its last stream has ended.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve), and `InvalidData` for a table that cannot be sent, `OutOfMemory`,
    /// or what the driver of a GPU says. The table is given back.
    pub fn publish(
        &self,
        ticket: &[u8],
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, TableParts)> {
        self.put_table(ticket, false, schema, batches)
    }

    /// [`publish`](Self::publish) in the place of what `ticket` stands for, if anything: there is
    /// no moment at which the ticket is unknown. Streams under way go on with what they began.
    ///
    /// # Errors
    ///
    /// As [`publish`](Self::publish), but for `AlreadyExists`.
    pub fn replace(
        &self,
        ticket: &[u8],
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, TableParts)> {
        self.put_table(ticket, true, schema, batches)
    }

    fn put_table(
        &self,
        ticket: &[u8],
        replaces: bool,
        schema: OwnedSchema,
        batches: Vec<OwnedDeviceArray>,
    ) -> Result<(), (Error, TableParts)> {
        let options = self.core.encode_options();
        // The producer gets the errors of its table, not each client.
        let encoder = match Encoder::new(&schema, options) {
            Ok(encoder) => encoder,
            Err(error) => return Err((error, (schema, batches))),
        };
        let table = Published::new(schema, batches, encoder)?;
        self.core
            .add(ticket, replaces, table, |table, callbacks| {
                Entry::Published(Arc::new(Deferred::new(table, callbacks)))
            })
            .map_err(|(error, table)| (error, table.into_parts()))
    }

    /// Sets the answer to clients that ask what a ticket stands for. The server itself knows only
    /// published tables. A description without endpoints gets one: the ticket, at this server. A
    /// new table in the ticket's place removes the description.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Stopped`.
    pub fn set_description(&self, ticket: &[u8], description: Description) -> Result<()> {
        self.core.ensure_running()?;
        self.core.tickets.set_description(ticket, description)
    }

    /// Stops serving `ticket`. Running streams go on.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn withdraw(&self, ticket: &[u8]) -> Result<()> {
        self.core.generation.ensure_same_process()?;
        self.core.tickets.withdraw(ticket).map(drop)
    }

    /// The tickets served now, in byte order.
    pub fn tickets(&self) -> Vec<Vec<u8>> {
        self.core.tickets.names()
    }

    /// Pull form: waits at most `timeout` for the next request; `None` if none came in time.
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
            self.core.ensure_running()?;
            if let Some(cancel) = cancel {
                cancel.check()?;
            }
            if let Some(request) = self.core.pulls.take() {
                return Ok(Some(request));
            }
            if deadline.is_some_and(|deadline| clock::until(deadline).is_zero()) {
                return Ok(None);
            }
            self.core.pulls.wait(deadline, cancel)?;
        }
    }

    /// Pull form: a descriptor for an event loop, readable while a request waits and once the
    /// server was stopped; not to be read.
    pub fn request_fd(&self) -> BorrowedFd<'_> {
        self.core.pulls.fd()
    }

    /// Pull form: releases, on this thread, the arrays that clients have given back. Returns the
    /// number of releases.
    pub fn drain_releases(&self) -> usize {
        self.core.pulls.releases.drain()
    }

    /// Stops the server: refuses new connections and streams, gives running streams `deadline` from
    /// now to end, then cuts connections. Arrays that clients hold stay valid. Idempotent.
    ///
    /// # Errors
    ///
    /// `Timeout` if a provider still did not return after the cut. It is not called again, and its
    /// thread ends when it returns.
    pub fn stop(&self, deadline: Duration) -> Result<()> {
        self.core.generation.ensure_same_process()?;
        self.core.stop(deadline)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.core.generation.ensure_same_process().is_err() {
            // A forked child has no threads, and locks may be held for ever: the copy is leaked.
            let _left = ManuallyDrop::new(Arc::clone(&self.core));
            return;
        }
        let ended = self.core.stop(Duration::ZERO).is_ok();
        figures::retire(&self.core);
        self.core.answers.close();
        self.core.tickets.clear();
        if let Some(authorizing) = &self.core.authorizing {
            authorizing.close();
        }
        // The I/O thread has no work left. It stops first, so that it queues no release after the
        // drain.
        self.core.io.shut_down();
        self.core.pulls.releases.drain();
        let Some((callbacks, thread)) = self.callback_thread.lock().take() else {
            return;
        };
        if !ended || thread.thread().id() == std::thread::current().id() {
            return;
        }
        if transport::keeps_memory() {
            // Lost clients may still read some arrays. The callback thread releases them when the
            // clients have ended.
            callbacks.catch_up();
        } else {
            drop(callbacks);
            let _ = thread.join();
        }
        // Waits until lent GPU memory is back with the driver, unless a device is stuck.
        later::wait(later::PATIENCE);
    }
}
