//! What the log says about streams and messages.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::{Level, event_enabled};

use crate::driver::figures::Record;
use crate::driver::wording::{shown, symbol, warn_of_provider};
use crate::proto::{BodyKind, Control, Header, Prefix, PrefixKind, Tags, body_of_tag};
use crate::transport::{Connection, Incoming, Outgoing};

/// A stream, from its first to its last line in the log.
#[derive(Debug)]
pub struct Account {
    /// The name of the stream in the log; `None` if nothing reads the log.
    name: Option<String>,
    /// The request that a server answers with the stream.
    record: Option<Arc<Record>>,
    /// Record batches so far.
    pub batches: u64,
    /// Their rows.
    pub rows: u64,
    /// Bytes of bodies, those of dictionaries included.
    pub bytes: u64,
    /// This host asked for the stream, so it gets the error if the stream fails.
    pub is_asked: bool,
}

impl Account {
    /// Logs that a stream of `ticket` begins. `way` is "to" or "from" the `peer`. `None`: nothing
    /// reads the log.
    pub fn open(way: &str, ticket: &[u8], peer: impl Display) -> Option<Box<Self>> {
        let name = name(way, ticket, peer)?;
        Some(Self::begun(Some(name), None))
    }

    /// The same for a stream with which a server answers a request. The record is informed of the
    /// stream's end.
    pub fn of_request(record: &Arc<Record>, ticket: &[u8], peer: impl Display) -> Box<Self> {
        let name = name("to", ticket, peer);
        Self::begun(name, Some(Arc::clone(record)))
    }

    fn begun(name: Option<String>, record: Option<Arc<Record>>) -> Box<Self> {
        if let Some(name) = &name {
            tracing::info!("{name} begins");
        }
        Box::new(Self {
            name,
            record,
            batches: 0,
            rows: 0,
            bytes: 0,
            is_asked: false,
        })
    }

    /// Counts a message that was sent: a record batch, with its rows, or a dictionary.
    pub fn sent(&mut self, is_batch: bool, rows: usize, body_len: u64) {
        if is_batch {
            self.batches += 1;
            self.rows += rows as u64;
        }
        self.bytes += body_len;
    }

    /// Logs that the stream has ended well.
    pub fn end(&self) {
        if let Some(name) = &self.name {
            tracing::info!("{name} has ended: DIPC_OK after {}", self.figures());
        }
        self.end_record(Ok(()));
    }

    /// Logs that the stream has failed.
    pub fn fail(&self, status: i32, text: &str) {
        if let Some(name) = &self.name {
            let (symbol, figures) = (symbol(status), self.figures());
            tracing::info!("{name} has ended: {symbol} after {figures}: {text}");
        }
        self.end_record(Err((status, text)));
    }

    fn end_record(&self, outcome: Result<(), (i32, &str)>) {
        if let Some(record) = &self.record {
            record.carried(self.batches, self.bytes);
            record.stream_ended(outcome);
        }
    }

    /// Warns that the provider of the stream is at fault.
    pub fn warn_of_provider(&self, status: i32, text: &str) {
        if let Some(name) = self.name.as_ref().filter(|_| !self.is_asked) {
            warn_of_provider(name, status, text);
        }
    }

    fn figures(&self) -> String {
        let (batches, rows) = (
            counted(self.batches, "batch", "es"),
            counted(self.rows, "row", "s"),
        );
        format!("{batches}, {rows}, {}", counted(self.bytes, "byte", "s"))
    }
}

/// The name of a stream in the log; `None` if nothing reads the log.
fn name(way: &str, ticket: &[u8], peer: impl Display) -> Option<String> {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    if !event_enabled!(Level::WARN) {
        return None;
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Some(format!("stream {number} of {} {way} {peer}", shown(ticket)))
}

fn counted(number: u64, one: &str, plural: &str) -> String {
    let plural = if number == 1 { "" } else { plural };
    format!("{number} {one}{plural}")
}

/// Logs a message that is sent over `link`.
pub fn sent(link: &dyn Connection, message: &Outgoing) {
    tell("to", link, || match message {
        Outgoing::Metadata { prefix, header } => metadata(prefix, header.as_deref()),
        Outgoing::Tagged { tag, payload } => tagged(*tag, payload.checked_len()),
        Outgoing::GpuBody { tag, body } => tagged(*tag, Some(body.len())),
        Outgoing::Control { bytes, .. } => control(bytes),
    });
}

/// Logs a message that has come over `link`.
pub fn received(link: &dyn Connection, message: &Incoming) {
    tell("from", link, || match message {
        Incoming::Metadata(bytes) => {
            metadata(bytes, Prefix::split(bytes).ok().map(|(_, header)| header))
        }
        Incoming::Tagged { tag, bytes } => tagged(*tag, Some(bytes.len())),
        Incoming::Body { seq, .. } | Incoming::GpuBody { seq, .. } => {
            format!("packed body {seq}, {} bytes", message.body_len())
        }
        Incoming::Control { bytes, .. } => control(bytes),
    });
}

fn tell(way: &str, link: &dyn Connection, what: impl FnOnce() -> String) {
    if event_enabled!(Level::TRACE) {
        tracing::trace!("{way} {}: {}", link.identity().peer, what());
    }
}

fn metadata(bytes: &[u8], header: Option<&[u8]>) -> String {
    let Ok((Prefix { kind, seq, .. }, _)) = Prefix::split(bytes) else {
        return "a message without a prefix".to_owned();
    };
    if kind != PrefixKind::Metadata {
        return format!("{kind:?} {seq}");
    }
    let header = header.unwrap_or_default();
    let kind =
        Header::parse(header).map_or("not valid".to_owned(), |it| format!("{:?}", it.kind()));
    format!("header {seq}: {kind}, {} bytes", header.len())
}

fn tagged(tag: u64, len: Option<usize>) -> String {
    let len = len.unwrap_or(usize::MAX);
    let known = Tags::DEFAULT;
    let what = match body_of_tag(tag) {
        _ if tag == known.want_data || tag == known.dipc_want => "request".to_owned(),
        _ if known.free_data == Some(tag) => "addresses that go back".to_owned(),
        Some((seq, BodyKind::Packed)) => format!("packed body {seq}"),
        Some((seq, BodyKind::List)) => format!("address list {seq}"),
        None => format!("message with tag {tag:#x}"),
    };
    format!("{what}, {len} bytes")
}

fn control(bytes: &[u8]) -> String {
    let name = match Control::decode(bytes) {
        Ok(Some(Control::Error { seq, .. })) => format!("ERROR {seq}"),
        Ok(Some(control)) => control.name().to_owned(),
        Ok(None) => "of an unknown kind".to_owned(),
        Err(_) => "not valid".to_owned(),
    };
    format!("control message {name}, {} bytes", bytes.len())
}
