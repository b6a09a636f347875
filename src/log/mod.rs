//! Delivery of log events to a callback of the host.
//!
//! The crate logs through `tracing`. A Rust program installs its own subscriber and does not need
//! this module. For C hosts, [`set`] installs a subscriber that puts events into a bounded queue. A
//! separate thread empties the queue: no callback runs on an I/O thread or under a lock of the
//! library. If the queue is full, events are dropped, and their number is logged.

mod spans;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, PoisonError};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::{Error, Result, Status};
use crate::fork::PerProcess;

/// Most events that wait for the callback; further events are dropped and counted.
const QUEUE_EVENTS: usize = 4096;
/// Most bytes of the text of one event. Peers choose a part of the text, of any length.
const TEXT_BYTES: usize = 4096;
/// Marks the end of a shortened text.
const CUT: &str = "…";

/// One event for the callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// The severity.
    pub level: Level,
    /// The module that logged the event.
    pub target: &'static str,
    /// The message, then `name=value` for each field, then the spans around the event with their
    /// fields, in parentheses. Cut after 4 KiB.
    pub text: String,
}

/// Receives the host's log events. The sink's own thread drops it after the last call.
pub trait Sink: Send + 'static {
    /// Takes one event.
    fn log(&self, entry: &LogRecord);
}

/// Sends events of `level` and more severe events to `sink`. `None` stops the delivery. The
/// previous sink gets the events in its queue, and is dropped.
///
/// # Errors
///
/// `Unsupported` if the process has another `tracing` subscriber; `OutOfResources` if no thread can
/// be started. The previous sink stays, and the caller gets the new sink back.
pub fn set<S: Sink>(level: Level, sink: Option<S>) -> Result<(), (Error, Option<S>)> {
    if let Err(error) = install() {
        return Err((error, sink));
    }
    let queue = match sink {
        Some(sink) => Some(start(sink).map_err(|(error, sink)| (error, Some(sink)))?),
        None => None,
    };
    let number = queue.as_ref().map_or(0, |_| level_number(level));
    let previous = {
        let mut current = CURRENT.get().lock();
        LEVEL.store(number, Ordering::Relaxed);
        std::mem::replace(&mut *current, queue)
    };
    if let Some(previous) = previous {
        previous.close();
    }
    // `tracing` caches the interest of each call site.
    tracing::callsite::rebuild_interest_cache();
    Ok(())
}

/// The queue of the current sink. `None` at first in a forked child, because the thread that
/// empties the queue runs in the parent.
static CURRENT: PerProcess<Mutex<Option<Arc<Queue>>>> = PerProcess::new(Mutex::default);
/// The number of the level; 0 is off. Every event reads it, so it needs no lock.
static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The levels, numbered from 1 on.
pub(crate) const LEVELS: [Level; 5] = [
    Level::ERROR,
    Level::WARN,
    Level::INFO,
    Level::DEBUG,
    Level::TRACE,
];

/// The number of a level.
pub(crate) fn level_number(level: Level) -> u8 {
    let known = (1..).zip(LEVELS).find(|(_, known)| *known == level);
    known.map_or(0, |(number, _)| number)
}

fn current_filter() -> LevelFilter {
    let place = usize::from(LEVEL.load(Ordering::Relaxed)).checked_sub(1);
    let level = place.and_then(|place| LEVELS.get(place));
    level.map_or(LevelFilter::OFF, |level| LevelFilter::from_level(*level))
}

/// Makes `Forwarder` the subscriber of the process, once.
fn install() -> Result<()> {
    /// One value for all processes, because a forked child inherits its parent's subscriber.
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    static INSTALLING: PerProcess<Mutex<()>> = PerProcess::new(Mutex::default);
    let _one = INSTALLING.get().lock();
    if !INSTALLED.load(Ordering::Relaxed) {
        tracing::subscriber::set_global_default(Forwarder).map_err(|_| {
            Error::unsupported(
                "this process has a tracing subscriber of its own, which gets the events already",
            )
        })?;
        INSTALLED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Events that wait for one sink.
///
/// The lock is std's: parking_lot keeps waiting threads in a table of the process. In the child of
/// a fork the table would still name the parent's log thread, which always waits, and whose stack
/// the child's threads reuse.
#[derive(Default)]
struct Queue {
    state: std::sync::Mutex<QueuedEntries>,
    changed: std::sync::Condvar,
}

#[derive(Default)]
struct QueuedEntries {
    entries: VecDeque<LogRecord>,
    dropped: u64,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, QueuedEntries> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, entry: LogRecord) {
        let mut waiting = self.lock();
        if waiting.entries.len() >= QUEUE_EVENTS {
            waiting.dropped += 1;
        } else {
            waiting.entries.push_back(entry);
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Waits for the next event; `None` once the queue is closed and empty.
    fn next(&self) -> Option<LogRecord> {
        let mut waiting = self.lock();
        loop {
            if let Some(entry) = take(&mut waiting) {
                return Some(entry);
            }
            if waiting.closed {
                return None;
            }
            waiting = self
                .changed
                .wait(waiting)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn take(waiting: &mut QueuedEntries) -> Option<LogRecord> {
    let entry = waiting.entries.pop_front();
    if entry.is_some() || waiting.dropped == 0 {
        return entry;
    }
    let dropped = std::mem::take(&mut waiting.dropped);
    Some(LogRecord {
        level: Level::WARN,
        target: module_path!(),
        text: format!("{dropped} log events were dropped: the log callback is too slow"),
    })
}

/// Starts the thread that hands events to `sink`.
fn start<S: Sink>(sink: S) -> Result<Arc<Queue>, (Error, S)> {
    let queue = Arc::new(Queue::default());
    // The sink moves through a slot: if the thread does not start, the slot still has the sink.
    let slot = Arc::new(Mutex::new(Some(sink)));
    let (entries, handed) = (Arc::clone(&queue), Arc::clone(&slot));
    let run = move || {
        let sink = handed.lock().take();
        drop(handed);
        if let Some(sink) = sink {
            while let Some(entry) = entries.next() {
                sink.log(&entry);
            }
        }
    };
    match std::thread::Builder::new()
        .name("dipc-log".to_owned())
        .spawn(run)
    {
        // Detached: a join would wait for the host, which may hold a lock that its callback needs.
        Ok(_detached) => Ok(queue),
        Err(source) => {
            let error = Error::new(
                Status::OutOfResources,
                format!("cannot start the thread of the log callback: {source}"),
            );
            let sink = slot.lock().take();
            match sink {
                Some(sink) => Err((error, sink)),
                // Not possible: only the thread that did not start takes the sink.
                None => Ok(queue),
            }
        }
    }
}

/// The subscriber: formats events, with the spans around them, into the queue.
struct Forwarder;

impl Subscriber for Forwarder {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        current_filter() >= *metadata.level() && metadata.target().starts_with("dipc")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(current_filter())
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        spans::open(attributes)
    }

    fn record(&self, id: &span::Id, values: &span::Record<'_>) {
        spans::record(id, values);
    }

    fn clone_span(&self, id: &span::Id) -> span::Id {
        spans::keep(id);
        id.clone()
    }

    fn try_close(&self, id: span::Id) -> bool {
        spans::let_go(&id)
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        // The lock is released here: formatting is slow, and may log.
        let Some(queue) = CURRENT.get().lock().clone() else {
            return;
        };
        let mut text = Text::default();
        event.record(&mut text);
        if let Some(around) = spans::around(event) {
            // An error means that the text is full.
            let _ = text.fields.write_str(&around);
        }
        let metadata = event.metadata();
        queue.push(LogRecord {
            level: *metadata.level(),
            target: metadata.target(),
            text: text.whole(),
        });
    }

    fn enter(&self, id: &span::Id) {
        spans::enter(id);
    }

    fn exit(&self, id: &span::Id) {
        spans::exit(id);
    }
}

/// The fields of an event, as text.
#[derive(Default)]
struct Text {
    message: Bounded,
    fields: Bounded,
}

impl Text {
    fn whole(self) -> String {
        let mut text = self.message;
        let _ = text.write_str(&self.fields.text);
        text.is_cut |= self.fields.is_cut;
        if text.is_cut {
            text.text.push_str(CUT);
        }
        text.text
    }
}

/// Text of at most [`TEXT_BYTES`]; the rest is dropped.
#[derive(Clone, Default)]
struct Bounded {
    text: String,
    is_cut: bool,
}

impl std::fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        if !self.is_cut {
            let room = TEXT_BYTES.saturating_sub(self.text.len());
            let taken = more.floor_char_boundary(room);
            self.text.push_str(&more[..taken]);
            self.is_cut = taken < more.len();
        }
        // The error makes the formatter stop.
        if self.is_cut {
            Err(std::fmt::Error)
        } else {
            Ok(())
        }
    }
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // An error means that the text is full.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests;
