//! The spans that events are in, as text after the events.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, span};

use super::Bounded;
use crate::fork::PerProcess;

/// The spans that exist.
#[derive(Default)]
struct Spans(Mutex<HashMap<u64, OpenSpan>>);

/// A forked child begins without its parent's spans, because a thread of the parent may have held
/// their lock at the fork.
static SPANS: PerProcess<Spans> = PerProcess::new(Spans::default);
static NUMBER: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// The spans that this thread is in. The last one was entered last.
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct OpenSpan {
    /// The text of the spans around it, and its own.
    text: Bounded,
    references: usize,
}

/// Writes fields after a span's name.
struct Fields<'a>(&'a mut Bounded);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // An error means that the text is full.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// The span that this thread has entered last.
fn current() -> Option<u64> {
    // A thread that ends has lost the variable, and has no current span.
    let last = ENTERED.try_with(|entered| entered.try_borrow().ok()?.last().copied());
    last.ok().flatten()
}

pub(super) fn open(attributes: &span::Attributes<'_>) -> span::Id {
    let parent = match attributes.parent() {
        Some(parent) => Some(parent.into_u64()),
        None if attributes.is_contextual() => current(),
        None => None,
    };
    let mut spans = SPANS.get().0.lock();
    let around = parent.and_then(|parent| spans.get(&parent));
    let mut text = around.map_or_else(Bounded::default, |around| around.text.clone());
    let colon = if text.text.is_empty() { "" } else { ": " };
    let _ = write!(text, "{colon}{}", attributes.metadata().name());
    attributes.record(&mut Fields(&mut text));
    let id = NUMBER.fetch_add(1, Ordering::Relaxed);
    let references = 1;
    spans.insert(id, OpenSpan { text, references });
    span::Id::from_u64(id)
}

pub(super) fn record(id: &span::Id, values: &span::Record<'_>) {
    if let Some(span) = SPANS.get().0.lock().get_mut(&id.into_u64()) {
        values.record(&mut Fields(&mut span.text));
    }
}

pub(super) fn keep(id: &span::Id) {
    if let Some(span) = SPANS.get().0.lock().get_mut(&id.into_u64()) {
        span.references += 1;
    }
}

/// Returns whether the span is over.
pub(super) fn let_go(id: &span::Id) -> bool {
    let mut spans = SPANS.get().0.lock();
    let Some(span) = spans.get_mut(&id.into_u64()) else {
        return true;
    };
    span.references -= 1;
    let is_over = span.references == 0;
    if is_over {
        spans.remove(&id.into_u64());
    }
    is_over
}

pub(super) fn enter(id: &span::Id) {
    let _ = ENTERED.try_with(|entered| {
        if let Ok(mut entered) = entered.try_borrow_mut() {
            entered.push(id.into_u64());
        }
    });
}

pub(super) fn exit(id: &span::Id) {
    let _ = ENTERED.try_with(|entered| {
        if let Ok(mut entered) = entered.try_borrow_mut()
            && let Some(place) = entered.iter().rposition(|it| *it == id.into_u64())
        {
            entered.remove(place);
        }
    });
}

/// The spans around an event: ` (request verb=get …: stream)`.
pub(super) fn around(event: &Event<'_>) -> Option<Arc<str>> {
    let id = match event.parent() {
        Some(parent) => Some(parent.into_u64()),
        None if event.is_contextual() => current(),
        None => None,
    }?;
    let spans = SPANS.get().0.lock();
    let span = spans.get(&id)?;
    Some(format!(" ({})", span.text.text).into())
}

#[cfg(test)]
pub(super) fn count() -> usize {
    SPANS.get().0.lock().len()
}
