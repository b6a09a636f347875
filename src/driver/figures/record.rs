//! A request that a server serves, from its arrival to its end: its figures, its tracing span and
//! its line in the audit log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::{Level, Span, event_enabled};

use super::{Counters, Labels, StreamStats, nanos, place_of};
use crate::driver::clock;
use crate::driver::wording::{readable, shown, symbol, warn_of_provider};
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, Timestamp, Verb};
use crate::transport::PeerOrigin;

/// The header that carries a trace from the client (W3C Trace Context).
const TRACEPARENT: &str = "traceparent";
/// Bytes of the header of a trace; the header of a later version may be longer.
const TRACEPARENT_BYTES: usize = 55;

/// Who asks for what.
#[derive(Debug)]
pub struct Asker<'a> {
    /// What is asked for.
    pub verb: Verb,
    /// The ticket, or the descriptor.
    pub ticket: &'a [u8],
    /// Headers of the request.
    pub headers: &'a Headers,
    /// A description of the client.
    pub peer: &'a str,
    /// The peer as data.
    pub origin: &'a PeerOrigin,
    /// The name that the authorizer has given the client.
    pub principal: Option<String>,
    /// When the request came.
    pub at: Timestamp,
}

/// A request under way. One that is dropped before its end has failed.
#[derive(Debug)]
pub struct Record {
    verb: Verb,
    ticket: Vec<u8>,
    peer: String,
    origin: PeerOrigin,
    principal: Option<String>,
    at: Timestamp,
    labels: Arc<Labels>,
    label: Mutex<String>,
    /// Where the request is counted, once its stream has begun.
    counters: OnceLock<Arc<Counters>>,
    batches: AtomicU64,
    bytes: AtomicU64,
    is_over: AtomicBool,
    /// The span ends when the record is dropped.
    span: Span,
}

/// The trace that a request belongs to.
fn traceparent(headers: &Headers) -> Option<&str> {
    let value = std::str::from_utf8(headers.get(TRACEPARENT)?).ok()?;
    // The header comes from the peer and goes into logs, so it is checked.
    let is_trace = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    (value.len() == TRACEPARENT_BYTES && value.bytes().all(is_trace)).then_some(value)
}

/// The span of a request.
fn span(asker: &Asker<'_>) -> Span {
    let span = tracing::info_span!(
        target: "dipc::request",
        "request",
        verb = asker.verb.name(),
        ticket = shown(asker.ticket),
        peer = asker.peer,
        traceparent = Empty,
    );
    if let Some(trace) = traceparent(asker.headers) {
        span.record("traceparent", trace);
    }
    span
}

impl Record {
    /// A request that is about to be served, and its label unless the host names another.
    pub fn new(labels: &Arc<Labels>, label: String, asker: Asker<'_>) -> Arc<Self> {
        Arc::new(Self {
            span: span(&asker),
            verb: asker.verb,
            ticket: asker.ticket.to_vec(),
            peer: asker.peer.to_owned(),
            origin: asker.origin.clone(),
            principal: asker.principal,
            at: asker.at,
            labels: Arc::clone(labels),
            label: Mutex::new(label),
            counters: OnceLock::new(),
            batches: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        })
    }

    /// When the request came.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Enters the span of a stream of the request, on the thread that serves it.
    pub fn enter_stream(&self) -> EnteredSpan {
        let parent = &self.span;
        match self.verb.has_source() {
            true => tracing::info_span!(target: "dipc::stream", parent: parent, "put").entered(),
            false => {
                tracing::info_span!(target: "dipc::stream", parent: parent, "stream").entered()
            }
        }
    }

    /// Counts the request under another label.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the stream has begun, and is counted already.
    pub fn set_label(&self, label: String) -> Result<()> {
        let mut set = self.label.lock();
        if self.counters.get().is_some() {
            let text = "the stream has begun under its label: set the label first";
            return Err(Error::invalid_argument(text));
        }
        *set = label;
        Ok(())
    }

    /// Where the request is counted. The label cannot change from now on.
    pub fn counters(&self) -> &Arc<Counters> {
        if let Some(counters) = self.counters.get() {
            return counters;
        }
        let label = self.label.lock();
        self.counters.get_or_init(|| {
            let counters = self.labels.find(&label);
            if let Some(served) = &counters.served
                && let Some(requests) = served.requests.get(place_of(self.verb))
            {
                requests.fetch_add(1, Relaxed);
            }
            counters
        })
    }

    /// Counts what a client has sent between two looks at its stream.
    pub fn received(&self, before: &StreamStats, now: &StreamStats) {
        let batches = now.batches.saturating_sub(before.batches);
        let all = |stats: &StreamStats| stats.bytes_lent + stats.bytes_received;
        let bytes = all(now).saturating_sub(all(before));
        self.carried(batches, bytes);
        if let Some(served) = &self.counters().served {
            served.batches_received.fetch_add(batches, Relaxed);
            let rows = now.rows.saturating_sub(before.rows);
            served.rows_received.fetch_add(rows, Relaxed);
            served.bytes_received.fetch_add(bytes, Relaxed);
        }
    }

    /// Counts what a stream of the request has carried.
    pub fn carried(&self, batches: u64, bytes: u64) {
        self.batches.fetch_add(batches, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Records the end of a stream to the client. In an exchange this is not the end of the
    /// request.
    pub fn stream_ended(&self, outcome: Result<(), (i32, &str)>) {
        if !self.verb.has_source() {
            self.end(outcome);
        }
    }

    /// Warns if a client's table was not taken because of a fault of the host. In an exchange the
    /// account of the stream warns.
    pub fn warn_of_taker(&self, status: i32, text: &str) {
        let is_of_client = matches!(
            Status::from_code(status),
            Some(Status::InvalidData | Status::Protocol | Status::Disconnected | Status::Cancelled)
        );
        if self.verb == Verb::Put && !is_of_client {
            let what = format!("a put of {} from {}", shown(&self.ticket), self.peer);
            warn_of_provider(what, status, text);
        }
    }

    /// The request has ended. Only the first call counts.
    pub fn end(&self, outcome: Result<(), (i32, &str)>) {
        if self.is_over.swap(true, Relaxed) {
            return;
        }
        let bytes = self.bytes.load(Relaxed);
        if let Some(served) = &self.counters().served {
            served.request_bytes.observe(bytes);
            match outcome {
                Ok(()) => {
                    served.finished.fetch_add(1, Relaxed);
                }
                Err((status, _)) => served.failed.count(status),
            }
        }
        let (status, text) = match outcome {
            Ok(()) => ("DIPC_OK", ""),
            Err((status, text)) => (symbol(status), text),
        };
        let asked = (self.verb, self.ticket.as_slice());
        let who = (self.peer.as_str(), &self.origin, self.principal.as_deref());
        let done = Audited {
            batches: self.batches.load(Relaxed),
            bytes,
            time: clock::since(self.at),
            status,
            text,
        };
        self.span.in_scope(|| audit("has ended", asked, who, &done));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let (status, text) = (Status::Provider.code(), "the request was dropped");
        if !self.is_over.load(Relaxed) {
            self.warn_of_taker(status, text);
        }
        self.end(Err((status, text)));
    }
}

/// What became of a request.
struct Audited<'a> {
    batches: u64,
    bytes: u64,
    time: Duration,
    status: &'static str,
    text: &'a str,
}

/// Logs that a request is refused, for an audit.
pub fn audit_refusal(asker: &Asker<'_>, error: &Error) {
    if !event_enabled!(target: "dipc::audit", Level::INFO) {
        return;
    }
    let text = error.to_string();
    let refused = Audited {
        batches: 0,
        bytes: 0,
        time: clock::since(asker.at),
        status: error.status().symbol(),
        text: &text,
    };
    let who = (asker.peer, asker.origin, asker.principal.as_deref());
    span(asker).in_scope(|| audit("is refused", (asker.verb, asker.ticket), who, &refused));
}

/// Writes the line of one request.
fn audit(
    what: &str,
    (verb, ticket): (Verb, &[u8]),
    (peer, origin, principal): (&str, &PeerOrigin, Option<&str>),
    done: &Audited<'_>,
) {
    if !event_enabled!(target: "dipc::audit", Level::INFO) {
        return;
    }
    let Audited {
        batches,
        bytes,
        status,
        text,
        ..
    } = done;
    let ticket = readable(ticket);
    let subject = origin.certificate.as_ref().map(|it| it.subject.as_str());
    let colon = if text.is_empty() { "" } else { ": " };
    tracing::info!(
        target: "dipc::audit",
        verb = verb.name(),
        ticket,
        peer,
        uid = origin.process.map(|process| process.uid),
        subject,
        principal,
        batches,
        bytes,
        time_ns = nanos(done.time),
        status,
        "a request for `{ticket}` of {peer} {what}: {status}{colon}{text}",
    );
}
