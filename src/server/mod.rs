//! A server: tickets on one side, connections on the other, and the streams between them.

mod core;
mod options;
mod pulls;
mod request;
mod streams;
mod threads;
mod tickets;

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

pub use options::{ServerOptions, ServerStats};
pub use request::Request;
pub use tickets::Provider;

use self::core::{Listening, ServerCore};
use crate::arrow::{Encoder, OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::device::cuda::later;
use crate::driver::acceptor::Acceptor;
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::driver::clock;
use crate::driver::io::IoThread;
use crate::driver::produce::Published;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::{Role, RoleTags, Tags, Uri};
use crate::transport::{self, Budget};
use pulls::Pulls;
use threads::Threads;
use tickets::{Entry, Provided, Tickets};

/// A server. Calls are safe from any thread; dropping it cuts every stream, and lets go of host
/// callbacks that are still running.
pub struct Server {
    core: Arc<ServerCore>,
    /// With a way to it, which keeps it from ending.
    callback_thread: Mutex<Option<(Callbacks, JoinHandle<()>)>>,
}

impl Server {
    /// Makes a server that serves nothing yet. It has an I/O thread and a callback thread.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(options: ServerOptions) -> Result<Self> {
        let io = IoThread::start("dipc-server-io", options.spin)?;
        let (callbacks, callback_thread) = Callbacks::start()?;
        let pulls = Pulls::new()?;
        let mut link_options = options.link.clone();
        // Clients send no bodies.
        link_options.unexpected_bytes = 0;
        link_options.budget = Arc::new(Budget::new(options.max_bytes));
        link_options.body = options.body;
        link_options.region_idle = link_options.region_idle_time();
        let core = Arc::new_cyclic(|me| ServerCore {
            options,
            link_options,
            generation: Generation::now(),
            io,
            tickets: Tickets::default(),
            streams: Arc::default(),
            threads: Threads::default(),
            listeners: Mutex::default(),
            links: Mutex::default(),
            next_link: AtomicU64::new(1),
            pulls,
            callbacks: Mutex::new(Some(callbacks.clone())),
            counters: Arc::default(),
            stopped: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        Ok(Self {
            core,
            callback_thread: Mutex::new(Some((callbacks, callback_thread))),
        })
    }

    /// Listens at `uri` (`shm:/path`, `shm:@name`, `tcp://host:port`, `ucx://host:port`) and
    /// returns the URI to give to clients.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, `Unsupported` scheme, `AddressInUse`, `Permission`, `Stopped`.
    pub fn listen(&self, uri: &str) -> Result<String> {
        self.core.ensure_running()?;
        let mut uri = Uri::parse(uri)?;
        let transport = transport::by_scheme(&uri.scheme)?;
        let listener = transport.listen(&uri, &self.core.link_options)?;
        uri.address = Uri::parse(&listener.address())?.address;
        uri.extension = true;
        // Rule U2: without this tag nothing could be lent.
        uri.tags
            .free_data
            .get_or_insert(Tags::DEFAULT.free_data.unwrap_or_default());
        listener.complete(&mut uri);
        // The tags of the URI are those of both streams; each role alone has its defaults.
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

    /// The URI of the first listener, for one role (rule U3): both streams, or one of two.
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
                // Rule U2: named by each role's URI, or by none.
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
    /// With the provider given back: `AlreadyExists` when the ticket is served already,
    /// `InvalidArgument` when it is longer than a request can carry
    /// ([`MAX_TICKET_BYTES`](crate::proto::MAX_TICKET_BYTES)), `Stopped`.
    pub fn serve(
        &self,
        ticket: &[u8],
        provider: Box<dyn Provider>,
    ) -> Result<(), (Error, Box<dyn Provider>)> {
        self.core.add(ticket, provider, |provider, callbacks| {
            Entry::Provider(Arc::new(Provided {
                provider: Deferred::new(provider, callbacks),
                encoder: Mutex::default(),
            }))
        })
    }

    /// Serves `ticket` in the pull form: its requests come out of
    /// [`next_request`](Self::next_request).
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve).
    pub fn serve_pull(&self, ticket: &[u8]) -> Result<()> {
        self.core
            .add(ticket, (), |(), _| Entry::Pull)
            .map_err(|(error, ())| error)
    }

    /// Serves `ticket` with a table that can be fetched any number of times. The arrays are
    /// released when the ticket is withdrawn and the last stream of it has ended.
    ///
    /// # Errors
    ///
    /// As [`serve`](Self::serve), and `InvalidData` for a schema that cannot be sent; with the
    /// table given back.
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
        let options = self.core.encode_options();
        // A schema that cannot be sent is told to its producer, not to every client.
        let encoder = match Encoder::new(&schema, options) {
            Ok(encoder) => encoder,
            Err(error) => return Err((error, (schema, batches))),
        };
        let table = Published::new(schema, batches, encoder, options);
        self.core
            .add(ticket, table, |table, callbacks| {
                Entry::Published(Arc::new(Deferred::new(table, callbacks)))
            })
            .map_err(|(error, table)| (error, table.into_parts()))
    }

    /// Stops serving `ticket`. Streams under way go on.
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

    /// Pull form: releases, on this thread, arrays that clients have given back. Returns how many
    /// releases were run.
    pub fn drain_releases(&self) -> usize {
        self.core.pulls.releases.drain()
    }

    /// Figures of the server.
    pub fn stats(&self) -> ServerStats {
        let (active, served) = self.core.streams.counts();
        let links = self.core.links();
        let counters = &self.core.counters;
        ServerStats {
            connections: links.len() as u64,
            streams_active: active as u64,
            streams_served: served,
            batches: counters.batches.load(Ordering::Relaxed),
            bytes_lent: counters.bytes_lent.load(Ordering::Relaxed),
            bytes_copied: counters.bytes_copied.load(Ordering::Relaxed),
            bytes_sent: counters.bytes_sent.load(Ordering::Relaxed),
            bytes_copied_on_device: counters.bytes_copied_on_device.load(Ordering::Relaxed),
            bytes_staged: counters.bytes_staged.load(Ordering::Relaxed),
            lent_outstanding: links.iter().map(|link| link.lent_outstanding()).sum(),
            region_bytes: self.core.link_options.budget.used(),
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
        self.core.generation.ensure_same_process()?;
        self.core.stop(deadline)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.core.generation.ensure_same_process().is_err() {
            // The threads do not exist in a forked child, and locks may be held for ever: the
            // copy is left as it is.
            let _left = ManuallyDrop::new(Arc::clone(&self.core));
            return;
        }
        let ended = self.core.stop(Duration::ZERO).is_ok();
        self.core.tickets.clear();
        // Nothing is left to do on the I/O thread, and nothing must come from it after the drain.
        self.core.io.shut_down();
        self.core.pulls.releases.drain();
        let Some((callbacks, thread)) = self.callback_thread.lock().take() else {
            return;
        };
        if !ended || thread.thread().id() == std::thread::current().id() {
            return;
        }
        if transport::keeps_memory() {
            // Arrays that lost clients may still read are released there when those have ended.
            callbacks.catch_up();
        } else {
            drop(callbacks);
            let _ = thread.join();
        }
        // Memory of GPUs that it lent from is back with the driver, unless a device is stuck.
        later::wait(later::PATIENCE);
    }
}
