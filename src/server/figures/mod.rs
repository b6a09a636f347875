//! Figures of a server, of each label, and of the process.

mod text;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::authorizing::Allowed;
use super::core::ServerCore;
use super::tickets::Entry;
use super::{Server, ServerStats};
use crate::driver::end::EndLink;
use crate::driver::figures::{
    Asker, ByStatus, HANDLER, LIST, Labels, Record, StreamSums, audit_refusal, label_of,
};
use crate::driver::wording::shown;
use crate::error::{Error, Result, Status};
use crate::fork::PerProcess;
use crate::lines::Lines;
use crate::proto::ArrivedRequest;
use crate::proto::Verb;

/// What a server counts besides its streams.
#[derive(Default)]
pub(super) struct ServerFigures {
    labels: Arc<Labels>,
    opened: AtomicU64,
    closed: AtomicU64,
    /// By listeners that are closed.
    not_accepted: AtomicU64,
    refused: ByStatus,
}

impl ServerFigures {
    /// A connection is kept.
    pub(super) fn opened(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    /// A connection is over.
    pub(super) fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// A listener is closed that did not accept so many connections.
    pub(super) fn not_accepted(&self, connections: u64) {
        self.not_accepted.fetch_add(connections, Relaxed);
    }
}

/// Who asks, as far as the request and its connection tell.
fn asker<'a>(link: &'a EndLink, asked: &'a ArrivedRequest, principal: Option<String>) -> Asker<'a> {
    Asker {
        verb: asked.request.verb,
        ticket: &asked.request.ticket,
        headers: &asked.request.headers,
        peer: link.peer(),
        origin: link.origin(),
        principal,
        at: asked.at,
    }
}

impl ServerCore {
    /// The record of a request that `entry` answers.
    pub(super) fn record(
        &self,
        link: &EndLink,
        asked: &ArrivedRequest,
        entry: &Entry,
        allowed: &Allowed,
    ) -> Arc<Record> {
        let request = &asked.request;
        let label = match (&allowed.label, request.verb) {
            (Some(label), _) => label.clone(),
            (None, Verb::Get | Verb::Describe) if self.tickets.has(&request.ticket) => {
                label_of(&request.ticket)
            }
            (None, Verb::List) if matches!(entry, Entry::Published(_)) => LIST.to_owned(),
            // A client chooses these tickets: they make no labels.
            (None, _) => HANDLER.to_owned(),
        };
        let asker = asker(link, asked, allowed.principal.clone());
        Record::new(&self.figures.labels, label, asker)
    }

    /// Counts and logs that a request is refused.
    pub(super) fn note_refusal(
        &self,
        link: &EndLink,
        asked: &ArrivedRequest,
        principal: Option<String>,
        error: &Error,
    ) {
        // Those of one kind drop none of the other.
        static BUSY: Lines = Lines::new();
        static FORBIDDEN: Lines = Lines::new();
        self.figures.refused.count(error.status().code());
        audit_refusal(&asker(link, asked, principal), error);
        let lines = match error.status() {
            Status::Busy => &BUSY,
            Status::Permission => &FORBIDDEN,
            // A client may well ask until there is a ticket.
            _ => return,
        };
        let status = error.status().symbol();
        lines.say(|more| {
            let (ticket, peer) = (shown(&asked.request.ticket), link.peer());
            tracing::warn!("a request for {ticket} of {peer} is refused: {status}: {error}{more}");
        });
    }

    /// Figures of the server.
    fn stats(&self) -> ServerStats {
        let (active, served) = self.streams.counts();
        let links = self.links();
        let streams = self.figures.labels.sums();
        let listeners = self.listeners.lock();
        let not_accepted = listeners.iter().map(|it| it.acceptor.not_accepted());
        let not_accepted: u64 = not_accepted.sum();
        drop(listeners);
        let mut stats = ServerStats {
            connections: links.len() as u64,
            streams_active: active as u64,
            streams_served: served,
            batches: streams.batches,
            bytes_lent: streams.bytes_lent,
            bytes_copied: streams.bytes_copied,
            bytes_sent: streams.bytes_sent,
            bytes_copied_on_device: streams.bytes_copied_on_device,
            bytes_staged: streams.bytes_staged,
            lent_outstanding: links.iter().map(|link| link.lent_outstanding()).sum(),
            region_bytes: self.link_options.lending.budget.used(),
            connections_opened: self.figures.opened.load(Relaxed),
            connections_closed: self.figures.closed.load(Relaxed),
            connections_refused: not_accepted + self.figures.not_accepted.load(Relaxed),
            streams,
            ..ServerStats::default()
        };
        self.figures.refused.add_to(&mut stats.refused);
        stats
    }
}

impl Server {
    /// Figures of the server.
    pub fn stats(&self) -> ServerStats {
        self.core.stats()
    }

    /// Figures of the streams with one label: a ticket's, the host's
    /// ([`Request::set_label`](super::Request::set_label)), [`HANDLER`], [`LIST`] or
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
        let limits = text::Limits {
            connections: self.core.bounds.most() as u64,
            streams: options.max_streams as u64,
            region_bytes: options.link.lending.budget.limit(),
        };
        text::written(&self.stats(), &limits, &self.core.figures.labels.all())
    }
}

/// The servers of this process, and the figures of those that are gone.
#[derive(Default)]
struct Servers {
    running: Vec<Weak<ServerCore>>,
    gone: ServerStats,
}

static SERVERS: PerProcess<Mutex<Servers>> = PerProcess::new(Mutex::default);

/// From now on a server counts for the process.
pub(super) fn enlist(core: &Arc<ServerCore>) {
    SERVERS.get().lock().running.push(Arc::downgrade(core));
}

/// Takes a stopped server off the list. Its counts stay in those of the process.
pub(super) fn retire(core: &Arc<ServerCore>) {
    let mut servers = SERVERS.get().lock();
    let before = servers.running.len();
    (servers.running).retain(|it| !std::ptr::eq(it.as_ptr(), Arc::as_ptr(core)));
    if servers.running.len() < before {
        let mut stats = core.stats();
        // What exists now, and goes with the server.
        (stats.connections, stats.streams_active) = (0, 0);
        (stats.lent_outstanding, stats.region_bytes) = (0, 0);
        add(&mut servers.gone, &stats);
    }
}

/// Figures of all servers of this process, those that are gone included.
pub fn process_stats() -> ServerStats {
    let servers = SERVERS.get().lock();
    let mut sums = servers.gone;
    // `retire` waits for the lock, so that none of these is the last reference.
    for core in servers.running.iter().filter_map(Weak::upgrade) {
        add(&mut sums, &core.stats());
    }
    sums
}

fn add(sums: &mut ServerStats, more: &ServerStats) {
    sums.connections += more.connections;
    sums.streams_active += more.streams_active;
    sums.streams_served += more.streams_served;
    sums.batches += more.batches;
    sums.bytes_lent += more.bytes_lent;
    sums.bytes_copied += more.bytes_copied;
    sums.bytes_sent += more.bytes_sent;
    sums.bytes_copied_on_device += more.bytes_copied_on_device;
    sums.bytes_staged += more.bytes_staged;
    sums.lent_outstanding += more.lent_outstanding;
    sums.region_bytes += more.region_bytes;
    sums.connections_opened += more.connections_opened;
    sums.connections_closed += more.connections_closed;
    sums.connections_refused += more.connections_refused;
    for (sum, count) in sums.refused.iter_mut().zip(&more.refused) {
        *sum += count;
    }
    sums.streams.add_sums(&more.streams);
}
