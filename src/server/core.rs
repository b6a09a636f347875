//! The state that a server's threads share: tickets, connections and streams.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::arrow::EncodeOptions;
use crate::driver::acceptor::{Acceptor, NotServed};
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::driver::end::{EndLink, Host, ServedLimits};
use crate::driver::figures::Record;
use crate::driver::io::IoThread;
use crate::driver::produce::{Counting, ProduceOptions};
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::{QuietTimes, RoleTags, SenderConfig, Timestamp, Uri};
use crate::server::answers::Answers;
use crate::server::authorizing::Authorizing;
use crate::server::connections::{ConnectionBounds, ConnectionTable};
use crate::server::draining::Draining;
use crate::server::errors::{stopped, with_retry};
use crate::server::figures::{Measured, ServerFigures, ServerStats};
use crate::server::options::ServerOptions;
use crate::server::pulls::PullQueues;
use crate::server::streams::StreamTable;
use crate::server::threads::Threads;
use crate::server::tickets::{Entry, Tickets};
use crate::transport::{self, Connection, LinkOptions};

/// How long a stop waits after the cut until the streams' threads have ended.
const GRACE: Duration = Duration::from_millis(500);
/// How long a stop waits for transports to close their connections.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);
/// The longest pause, during a stop, between two looks whether a connection's data has arrived.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

pub(super) struct ServerCore {
    pub(super) options: ServerOptions,
    pub(super) link_options: LinkOptions,
    pub(super) generation: Generation,
    pub(super) io: IoThread,
    pub(super) tickets: Tickets,
    /// `None`: whoever can connect may do everything.
    pub(super) authorizing: Option<Arc<Authorizing>>,
    pub(super) streams: Arc<StreamTable>,
    pub(super) threads: Threads,
    pub(super) listeners: Mutex<Vec<Listening>>,
    pub(super) links: Mutex<ConnectionTable>,
    /// Notified when a connection is removed from `links`.
    pub(super) removed: Condvar,
    pub(super) bounds: ConnectionBounds,
    pub(super) next_link: AtomicU64,
    pub(super) pulls: Arc<PullQueues>,
    pub(super) answers: Answers,
    /// `None` once stopped, so that the callback thread can end.
    pub(super) callbacks: Mutex<Option<Callbacks>>,
    pub(super) figures: ServerFigures,
    /// While the server drains, it refuses requests and tells clients where else to ask.
    pub(super) draining: Draining,
    /// A [`ServerPhase`].
    pub(super) phase: AtomicU8,
    pub(super) me: Weak<Self>,
}

/// How far a server has come.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum ServerPhase {
    Serving,
    /// No new streams begin.
    Stopping,
    /// No new connections are kept either.
    Cutting,
}

pub(super) struct Listening {
    pub(super) acceptor: Arc<Acceptor>,
    pub(super) uri: Uri,
}

impl ServerCore {
    pub(super) fn ensure_running(&self) -> Result<()> {
        self.generation.ensure_same_process()?;
        match self.has_come_to(ServerPhase::Stopping) {
            true => Err(stopped()),
            false => Ok(()),
        }
    }

    fn has_come_to(&self, phase: ServerPhase) -> bool {
        self.phase.load(Ordering::Acquire) >= phase as u8
    }

    pub(super) fn add<T>(
        &self,
        ticket: &[u8],
        replaces: bool,
        thing: T,
        wrap: impl FnOnce(T, Callbacks) -> Entry,
    ) -> Result<(), (Error, T)> {
        match self.callbacks() {
            Ok(callbacks) => self
                .tickets
                .add(ticket, replaces, thing, |thing| wrap(thing, callbacks)),
            Err(error) => Err((error, thing)),
        }
    }

    pub(super) fn links(&self) -> Vec<Arc<EndLink>> {
        self.links.lock().all().cloned().collect()
    }

    /// Keeps a new connection. Called on the I/O thread.
    ///
    /// # Errors
    ///
    /// `Busy`, with the connection, if the server has as many connections as it may; the system's
    /// error if the connection cannot be watched.
    pub(super) fn accepted(
        &self,
        connection: Box<dyn Connection>,
        tags: RoleTags,
    ) -> Result<(), NotServed> {
        let origin = &connection.identity().origin;
        let descriptors = connection.identity().descriptors;
        let place = self.links.lock().ensure_place(origin, self.bounds);
        if let Err(error) = place.map_err(|error| self.draining.refusal().unwrap_or(error)) {
            let peer = &connection.identity().peer;
            let logged = error.clone().context(format_args!("the peer is {peer}"));
            return Err(NotServed {
                refused: Some((connection, with_retry(&error))),
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
            most_queued: self.options.most_queued(),
            streams: self.options.most_streams_per_connection(),
            quiet: QuietTimes {
                request: self.options.request_timeout,
                idle: self.options.idle_timeout,
            },
        };
        let link = EndLink::start(id, connection, config, limits, &self.io, host)
            .map_err(|error| error.context(format_args!("the peer is {peer}")))?;
        self.links.lock().add(&link, descriptors);
        self.figures.opened();
        // The connection may have ended, or missed the cut, before it was added to the list.
        if link.is_closed() || self.has_come_to(ServerPhase::Cutting) {
            link.cut(&stopped());
            self.remove(&link);
        }
        Ok(())
    }

    pub(super) fn remove(&self, link: &EndLink) {
        if self.links.lock().remove(link) {
            self.removed.notify_all();
            self.figures.closed();
        }
    }

    /// Options of the encoder.
    pub(super) fn encode_options(&self) -> EncodeOptions {
        EncodeOptions {
            compression: self.options.compression,
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

    /// The queue of the thread that drops the host's objects, while the server runs.
    pub(super) fn callbacks(&self) -> Result<Callbacks> {
        self.ensure_running()?;
        let callbacks = self.callbacks.lock().clone();
        callbacks.ok_or_else(stopped)
    }

    pub(super) fn stop(&self, deadline: Duration) -> Result<()> {
        let drained_by = clock::after(deadline);
        let before = self
            .phase
            .fetch_max(ServerPhase::Stopping as u8, Ordering::AcqRel);
        if before == ServerPhase::Serving as u8 {
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
        self.phase
            .store(ServerPhase::Cutting as u8, Ordering::Release);
        for link in self.links() {
            link.cut(&stopped());
        }
        let ended = self.streams.wait_idle(clock::after(GRACE));
        self.threads.close();
        self.callbacks.lock().take();
        transport::wait_closed(CLOSE_PATIENCE);
        if ended {
            // Threads own connections between two streams. After a stop that went well, no such
            // thread is left.
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
        let mut waiting = self.links();
        // A connection that ends wakes this thread. No event reports that a peer's system has
        // received all.
        let mut pause = Duration::from_millis(1);
        loop {
            // All are asked, so that a slow client does not delay the others.
            waiting.retain(|link| !link.end_sending() || self.links.lock().has_closed(link));
            let left = clock::until(deadline);
            if waiting.is_empty() || left.is_zero() {
                return;
            }
            self.removed
                .wait_for(&mut self.links.lock(), pause.min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl Measured for ServerCore {
    fn stats(&self) -> ServerStats {
        let streams = self.streams.counts();
        let links = self.links();
        let not_accepted = |it: &Listening| it.acceptor.not_accepted();
        let not_accepted: u64 = self.listeners.lock().iter().map(not_accepted).sum();
        let counted = self.figures.counted();
        ServerStats {
            connections: links.len() as u64,
            streams_active: streams.with_client as u64,
            streams_served: streams.begun,
            lent_outstanding: links.iter().map(|link| link.lent_outstanding()).sum(),
            region_bytes: self.link_options.lending.budget.used(),
            connections_refused: counted.connections_refused + not_accepted,
            ..counted
        }
    }
}
