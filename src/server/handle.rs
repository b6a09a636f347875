//! The server as the host holds it: its start, the pull form, and its stop.

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::answers::Answers;
use super::authorizing::{Asking, Authorizing};
use super::connections::ConnectionBounds;
use super::core::{ServerCore, ServerPhase};
use super::draining::Draining;
use super::figures::{self, Limits, Measured, ServerFigures, ServerStats};
use super::options::ServerOptions;
use super::pulls::PullQueues;
use super::request::ServerRequest;
use super::threads::Threads;
use super::tickets::Tickets;

use crate::cancel::Cancel;
use crate::device::cuda::later;
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::driver::figures::StreamSums;
use crate::driver::io::IoThread;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::transport::{self, MemoryBudget};

/// A server. Any thread may call it. Its drop cuts every stream, and does not wait for host
/// callbacks that still run.
pub struct ServerHandle {
    pub(super) core: Arc<ServerCore>,
    /// The sender in the pair keeps the thread from ending.
    callback_thread: Mutex<Option<(Callbacks, JoinHandle<()>)>>,
}

impl ServerHandle {
    /// Makes a server without tickets. It has an I/O thread and a callback thread.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub fn new(mut options: ServerOptions) -> Result<Self> {
        let io = IoThread::start("dipc-server-io", options.spin)?;
        let (callbacks, callback_thread) = Callbacks::start()?;
        let pulls = Arc::new(PullQueues::new()?);
        let mut link_options = options.link.clone();
        // Clients send bodies only within a stream of their own, which has its own limit.
        link_options.receiving.unexpected_bytes = 0;
        link_options.lending.budget = Arc::new(MemoryBudget::new(options.max_bytes));
        link_options.receiving.partial = Arc::new(MemoryBudget::new(options.max_request_bytes));
        link_options.lending.body = options.body;
        link_options.lending.region_idle = link_options.lending.idle_time();
        // What is read from the files, now and later, is for this server alone.
        link_options.tls = link_options.tls.with(|_| ());
        let by_pull = options.authorizes_by_pull;
        let asking = (options.authorizer.take().map(Asking::Call))
            .or_else(|| by_pull.then(|| Asking::Pull(Arc::downgrade(&pulls))));
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
            threads: Threads::new(Weak::clone(me) as Weak<ServerCore>),
            listeners: Mutex::default(),
            links: Mutex::default(),
            removed: Condvar::new(),
            bounds,
            next_link: AtomicU64::new(1),
            pulls,
            answers: Answers::default(),
            callbacks: Mutex::new(Some(callbacks.clone())),
            figures: ServerFigures::default(),
            draining: Draining::default(),
            phase: AtomicU8::new(ServerPhase::Serving as u8),
            me: Weak::clone(me),
        });
        figures::enlist(Weak::clone(&core.me) as Weak<ServerCore>);
        Ok(Self {
            core,
            callback_thread: Mutex::new(Some((callbacks, callback_thread))),
        })
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
    ) -> Result<Option<ServerRequest>> {
        let deadline = timeout.map(clock::after);
        loop {
            self.core.ensure_running()?;
            if let Some(cancel) = cancel {
                cancel.check()?;
            }
            if let Some(request) = self.core.pulls.next() {
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

    /// Figures of the server.
    pub fn stats(&self) -> ServerStats {
        self.core.stats()
    }

    /// Figures of the streams with one label: a ticket's, the host's
    /// ([`ServerRequest::set_label`]), [`HANDLER`](super::HANDLER), [`LIST`](super::LIST) or
    /// [`OTHER`](super::OTHER).
    ///
    /// # Errors
    ///
    /// `NotFound`: nothing was counted under this label.
    pub fn label_stats(&self, label: &str) -> Result<StreamSums> {
        self.core.figures.labels.sums_of(label).ok_or_else(|| {
            let text = format!("the server has no figures for the label {label:?}");
            Error::new(Status::NotFound, text)
        })
    }

    /// The figures in Prometheus' text format, version 0.0.4.
    pub fn stats_text(&self) -> String {
        let options = &self.core.options;
        let limits = Limits {
            connections: self.core.bounds.most() as u64,
            streams: options.max_streams as u64,
            region_bytes: options.link.lending.budget.limit(),
        };
        figures::written(&self.stats(), &limits, &self.core.figures.labels.all())
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

impl Drop for ServerHandle {
    fn drop(&mut self) {
        if self.core.generation.ensure_same_process().is_err() {
            // A forked child has no threads, and locks may be held for ever: the copy is leaked.
            let _left = ManuallyDrop::new(Arc::clone(&self.core));
            return;
        }
        let ended = self.core.stop(Duration::ZERO).is_ok();
        figures::retire(&*self.core);
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
            // Lost clients may still read some arrays. The callback thread releases these when the
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
