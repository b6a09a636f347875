//! Bounds the log lines that peers can cause.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Most lines of one kind within ten seconds.
pub const MOST_LINES: u32 = 5;
const LINES_TIME: Duration = Duration::from_secs(10);

/// Counts the lines of one kind.
#[derive(Debug)]
pub struct Lines {
    count: Mutex<LineCount>,
}

#[derive(Debug)]
struct LineCount {
    /// `None` before the first line.
    until: Option<Instant>,
    left: u32,
}

impl Lines {
    /// A counter without lines.
    pub const fn new() -> Self {
        Self {
            count: Mutex::new(LineCount {
                until: None,
                left: 0,
            }),
        }
    }

    /// Calls `log` with a suffix for the line, unless the bound is reached.
    pub fn say(&self, log: impl FnOnce(&str)) {
        let left = {
            // A held lock means many lines: another thread is logging, or was logging when this
            // process was forked.
            let Some(mut count) = self.count.try_lock() else {
                return;
            };
            let now = now();
            if count.until.is_none_or(|until| now >= until) {
                *count = LineCount {
                    until: Some(now + LINES_TIME),
                    left: MOST_LINES,
                };
            }
            if count.left == 0 {
                return;
            }
            count.left -= 1;
            count.left
        };
        if left == 0 {
            let seconds = LINES_TIME.as_secs();
            log(&format!(
                "; more lines of this kind are dropped for up to {seconds} s"
            ));
        } else {
            log("");
        }
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "lines are written below the driver too, whose clock is that of the protocol"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_core::span::{Attributes, Id, Record};
    use tracing_core::{Dispatch, Event, Level, Metadata, Subscriber, dispatcher};

    /// Counts the lines of level INFO and more severe.
    struct Counting(Arc<AtomicUsize>);

    impl Subscriber for Counting {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() <= Level::INFO
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// The number of lines that `run` logs on this thread.
    pub(crate) fn count(run: impl FnOnce()) -> usize {
        let lines = Arc::new(AtomicUsize::new(0));
        let counting = Dispatch::new(Counting(Arc::clone(&lines)));
        // With only one dispatcher, `tracing` would disable a log statement for good if another
        // thread, which has no subscriber, reached it first.
        let _second = Dispatch::new(Counting(Arc::default()));
        dispatcher::with_default(&counting, run);
        lines.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A peer can cause a bounded number of lines only. The last line announces the silence.
    #[test]
    fn lines_are_bounded() {
        let lines = Lines::new();
        let mut suffixes = Vec::new();
        for _ in 0..1000 {
            lines.say(|more| suffixes.push(more.to_owned()));
        }
        assert_eq!(suffixes.len(), MOST_LINES as usize);
        let (last, others) = suffixes.split_last().unwrap();
        assert!(last.contains("are dropped"), "{last}");
        assert!(others.iter().all(String::is_empty));
    }
}
