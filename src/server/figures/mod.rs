//! Figures of a server, of each label, and of the process.

mod process;
mod stats;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub use process::process_stats;
pub(super) use process::{Measured, enlist, retire};
pub use stats::ServerStats;
pub(super) use text::{Limits, written};

use crate::driver::end::EndLink;
use crate::driver::figures::{Asker, ByStatus, Labels, audit_refusal};
use crate::driver::wording::shown;
use crate::error::{Error, Status};
use crate::lines::Lines;
use crate::proto::ArrivedRequest;

/// What a server counts besides its streams.
#[derive(Default)]
pub(super) struct ServerFigures {
    pub(super) labels: Arc<Labels>,
    opened: AtomicU64,
    closed: AtomicU64,
    /// Connections that were not accepted by listeners that are closed now.
    not_accepted: AtomicU64,
    refused: ByStatus,
}

impl ServerFigures {
    /// Counts a connection that the server keeps.
    pub(super) fn opened(&self) {
        self.opened.fetch_add(1, Relaxed);
    }

    /// Counts a connection that is over.
    pub(super) fn closed(&self) {
        self.closed.fetch_add(1, Relaxed);
    }

    /// Adds up the connections that a closed listener did not accept.
    pub(super) fn not_accepted(&self, connections: u64) {
        self.not_accepted.fetch_add(connections, Relaxed);
    }

    /// Counts and logs that a request is refused.
    pub(super) fn note_refusal(&self, asker: &Asker<'_>, error: &Error) {
        // Each kind of line has its own limit, so one kind cannot suppress the other.
        static BUSY: Lines = Lines::new();
        static FORBIDDEN: Lines = Lines::new();
        self.refused.count(error.status().code());
        audit_refusal(asker, error);
        let lines = match error.status() {
            Status::Busy => &BUSY,
            Status::Permission => &FORBIDDEN,
            // A client may rightly ask again until the ticket exists, so this is not logged.
            _ => return,
        };
        let status = error.status().symbol();
        lines.say(|more| {
            let (ticket, peer) = (shown(asker.ticket), asker.peer);
            tracing::warn!("a request for {ticket} of {peer} is refused: {status}: {error}{more}");
        });
    }

    /// What was counted so far, without what exists now.
    pub(super) fn counted(&self) -> ServerStats {
        let streams = self.labels.sums();
        let mut stats = ServerStats {
            batches: streams.batches,
            bytes_lent: streams.bytes_lent,
            bytes_copied: streams.bytes_copied,
            bytes_sent: streams.bytes_sent,
            bytes_copied_on_device: streams.bytes_copied_on_device,
            bytes_staged: streams.bytes_staged,
            connections_opened: self.opened.load(Relaxed),
            connections_closed: self.closed.load(Relaxed),
            connections_refused: self.not_accepted.load(Relaxed),
            streams,
            ..ServerStats::default()
        };
        self.refused.add_to(&mut stats.refused);
        stats
    }
}

/// Who asks, as far as the request and its connection show it.
pub(super) fn asker<'a>(
    link: &'a EndLink,
    asked: &'a ArrivedRequest,
    principal: Option<String>,
) -> Asker<'a> {
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
