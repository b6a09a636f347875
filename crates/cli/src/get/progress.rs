//! Progress on a terminal.

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use dipc::StreamStats;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::report::bytes_text;

/// The size of a table, as far as it is known.
#[derive(Default, Clone, Copy)]
pub struct Totals {
    /// Rows.
    pub rows: Option<u64>,
    /// Bytes of bodies.
    pub bytes: Option<u64>,
}

/// A line on the terminal of stderr with the rows and bytes fetched, and a bar if the total is
/// known.
pub struct Progress {
    line: ProgressBar,
    totals: Totals,
}

impl Progress {
    /// Whether stderr shows a line.
    pub fn is_shown() -> bool {
        stderr().is_terminal()
    }

    /// A line that shows nothing.
    pub fn hidden() -> Self {
        Self {
            line: ProgressBar::hidden(),
            totals: Totals::default(),
        }
    }

    /// Shows the line.
    pub fn start(totals: Totals) -> Self {
        let (line, template) = match totals.rows.or(totals.bytes) {
            Some(total) => (
                ProgressBar::new(total),
                "{elapsed_precise} {wide_bar} {percent}% {msg}, {eta} left",
            ),
            None => (
                ProgressBar::new_spinner(),
                "{spinner} {elapsed_precise} {msg}",
            ),
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            line.set_style(style);
        }
        let progress = Self { line, totals };
        progress.show(&StreamStats::default());
        progress.line.enable_steady_tick(Duration::from_millis(100));
        progress
    }

    /// Shows the figures up to now.
    pub fn show(&self, stats: &StreamStats) {
        if self.line.is_hidden() {
            return;
        }
        let bytes = stats.bytes_lent + stats.bytes_received;
        self.line.set_position(match self.totals.rows {
            Some(_) => stats.rows,
            None => bytes,
        });
        let of = |total: Option<String>| total.map(|total| format!(" of {total}"));
        self.line.set_message(format!(
            "{}{} rows, {}{}",
            HumanCount(stats.rows),
            of(self.totals.rows.map(|rows| HumanCount(rows).to_string())).unwrap_or_default(),
            bytes_text(bytes),
            of(self.totals.bytes.map(bytes_text)).unwrap_or_default(),
        ));
    }

    /// Removes the line.
    pub fn clear(&self) {
        self.line.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
