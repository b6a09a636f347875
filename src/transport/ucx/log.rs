//! UCX's log: in ours, or kept for whoever has just called UCX.

use std::cell::RefCell;

use ucx1_sys::{
    UCS_LOG_LEVEL_DIAG, UCS_LOG_LEVEL_ERROR, UCS_LOG_LEVEL_FATAL, UCS_LOG_LEVEL_INFO,
    UCS_LOG_LEVEL_WARN, ucs_log_level_t,
};

use crate::lines::Lines;

thread_local! {
    /// The lines of the call to UCX that this thread is in; `None` where nobody asked for them.
    static KEPT: RefCell<Option<Vec<LogLine>>> = const { RefCell::new(None) };
}

/// An error or a warning of UCX's.
struct LogLine {
    level: ucs_log_level_t,
    text: String,
}

/// What UCX logged during a call. Its transports refuse a value nowhere else.
pub(super) struct KeptLines(Vec<LogLine>);

/// Takes a line of UCX's log.
pub(super) fn log(level: ucs_log_level_t, _file: &str, _line: u32, text: &str) {
    if !keep(level, text) {
        write(level, text);
    }
}

/// Calls UCX, and keeps the errors and warnings that it logs meanwhile on this thread.
pub(super) fn keep_lines_of<T>(call: impl FnOnce() -> T) -> (T, KeptLines) {
    let before = KEPT.replace(Some(Vec::new()));
    let value = call();
    let lines = KEPT.replace(before);
    (value, KeptLines(lines.unwrap_or_default()))
}

impl KeptLines {
    /// The lines' texts, the first one first.
    pub(super) fn texts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|line| line.text.as_str())
    }

    /// Logs the lines: for finding faults alone where an error tells the same.
    pub(super) fn log(self, is_told: bool) {
        for LogLine { level, text } in self.0 {
            match without_use(&text) {
                // Names and values are sound, or there is an error: another transport is used.
                Some(settings) => tracing::debug!(
                    target: "dipc::ucx",
                    "UCX opens nothing here that has a use for {settings}"
                ),
                None if is_told => tracing::debug!(target: "dipc::ucx", "UCX: {text}"),
                None => write(level, &text),
            }
        }
    }
}

/// Keeps a line, and returns whether it was one to keep. One that is repeated, as for each device,
/// is kept once.
fn keep(level: ucs_log_level_t, text: &str) -> bool {
    if !matches!(level, UCS_LOG_LEVEL_ERROR | UCS_LOG_LEVEL_WARN) {
        return false;
    }
    let keep = |kept: &RefCell<Option<Vec<LogLine>>>| {
        let mut kept = kept.try_borrow_mut().ok()?;
        let lines = kept.as_mut()?;
        if lines.iter().all(|line| line.text != text) {
            let text = text.to_owned();
            lines.push(LogLine { level, text });
        }
        Some(())
    };
    // A thread that ends has none.
    KEPT.try_with(keep).ok().flatten().is_some()
}

/// The settings in the line of UCX before 1.21 about those that no transport that it opened has.
fn without_use(text: &str) -> Option<&str> {
    let rest = text.strip_prefix("invalid configuration")?;
    let (_, settings) = rest.split_once(": ")?;
    Some(settings)
}

/// Logs a line. What UCX calls an error is often a peer's death, which the connection's own error
/// tells: so each level is a step lower here.
///
/// Each peer that goes may bring several lines about.
fn write(level: ucs_log_level_t, text: &str) {
    static ERRORS: Lines = Lines::new();
    static WARNINGS: Lines = Lines::new();
    match level {
        _ if is_of_an_end(text) => tracing::debug!(target: "dipc::ucx", "UCX: {text}"),
        UCS_LOG_LEVEL_FATAL => tracing::error!(target: "dipc::ucx", "UCX: {text}"),
        UCS_LOG_LEVEL_ERROR => {
            ERRORS.say(|more| tracing::warn!(target: "dipc::ucx", "UCX: {text}{more}"));
        }
        UCS_LOG_LEVEL_WARN => {
            WARNINGS.say(|more| tracing::info!(target: "dipc::ucx", "UCX: {text}{more}"));
        }
        UCS_LOG_LEVEL_DIAG | UCS_LOG_LEVEL_INFO => {
            tracing::debug!(target: "dipc::ucx", "UCX: {text}")
        }
        _ => tracing::trace!(target: "dipc::ucx", "UCX: {text}"),
    }
}

/// Whether UCX says no more than that a peer has left, several times for each: its endpoint is
/// closed, or bodies that it sent to a stream that is over are dropped.
fn is_of_an_end(text: &str) -> bool {
    text.contains("error during flush")
        || (text.starts_with("unexpected tag-receive descriptor")
            && text.ends_with("was not matched"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines;

    /// Lines are kept for the call that they belong to, each once, and only errors and warnings;
    /// other threads' and what comes later are logged.
    #[test]
    fn lines_are_kept_for_the_caller() {
        let say = |level, text| log(level, "file.c", 1, text);
        let ((), kept) = keep_lines_of(|| {
            say(UCS_LOG_LEVEL_ERROR, "one");
            say(UCS_LOG_LEVEL_INFO, "of no importance");
            say(UCS_LOG_LEVEL_ERROR, "one");
            say(UCS_LOG_LEVEL_WARN, "two");
            let other = std::thread::spawn(move || keep(UCS_LOG_LEVEL_ERROR, "three"));
            assert!(!other.join().unwrap());
            let ((), inner) = keep_lines_of(|| say(UCS_LOG_LEVEL_WARN, "four"));
            assert_eq!(inner.texts().collect::<Vec<_>>(), ["four"]);
        });
        assert_eq!(kept.texts().collect::<Vec<_>>(), ["one", "two"]);
        assert!(!keep(UCS_LOG_LEVEL_ERROR, "later"));
    }

    /// What UCX says of each peer that leaves is for finding faults alone.
    #[test]
    fn ends_are_not_told() {
        let told = |text| lines::testing::count(|| write(UCS_LOG_LEVEL_WARN, text));
        assert_eq!(told("error during flush: Endpoint timeout"), 0);
        assert_eq!(
            told("unexpected tag-receive descriptor 0x5581 was not matched"),
            0
        );
        assert_eq!(told("failed to create keepalive timer fd"), 1);
    }

    /// Settings for transports that are not opened are no fault of anybody.
    #[test]
    fn settings_without_use_are_told_apart() {
        let one = "invalid configuration: TX_SEG_SIZE=64k";
        assert_eq!(without_use(one), Some("TX_SEG_SIZE=64k"));
        let two = "invalid configurations: A=1,B=2";
        assert_eq!(without_use(two), Some("A=1,B=2"));
        assert_eq!(without_use("network device 'a' is not available"), None);
    }
}
