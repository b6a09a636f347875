//! Figures of a server and of its tickets, as rows.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::page::Sample;
use crate::display::{escape, width};
use crate::report::bytes_text;

/// Most characters of a ticket.
const TICKET_WIDTH: usize = 40;

/// The figures of a page.
#[derive(Debug, Default, Serialize)]
pub struct Figures {
    connections: f64,
    streams: f64,
    lent_buffers: f64,
    region_bytes: f64,
    connections_refused: f64,
    requests_refused: f64,
    tickets: BTreeMap<String, OfTicket>,
}

/// The figures of one ticket, or of another label.
#[derive(Debug, Default, Serialize)]
struct OfTicket {
    requests: f64,
    finished: f64,
    failed: f64,
    batches: f64,
    rows: f64,
    bytes_lent: f64,
    bytes_copied: f64,
    bytes_sent: f64,
    bytes_received: f64,
    first_batch_seconds: Quantiles,
    hand_over_seconds: Quantiles,
}

/// Bounds that half of the values, and 99 of 100 values, do not exceed.
#[derive(Debug, Default, Serialize)]
struct Quantiles {
    p50: Option<f64>,
    p99: Option<f64>,
    #[serde(skip)]
    buckets: Vec<(f64, f64)>,
}

impl Quantiles {
    fn complete(&mut self) {
        self.buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        let count = self.buckets.last().map_or(0.0, |(_, count)| *count);
        let bound = |part: f64| {
            let mut reached = self.buckets.iter().filter(|(_, count)| *count >= part);
            let bound = reached.next().map(|(bound, _)| *bound);
            // JSON has no infinity, and the last bound says nothing.
            bound.filter(|bound| count > 0.0 && bound.is_finite())
        };
        (self.p50, self.p99) = (bound(count * 0.5), bound(count * 0.99));
    }
}

impl Figures {
    /// The figures of a page. Others are left out.
    pub fn of(samples: impl Iterator<Item = Sample>) -> Self {
        let mut figures = Self::default();
        for sample in samples {
            figures.add(&sample);
        }
        for ticket in figures.tickets.values_mut() {
            ticket.first_batch_seconds.complete();
            ticket.hand_over_seconds.complete();
        }
        figures
    }

    fn add(&mut self, sample: &Sample) {
        let Some(name) = sample.name.strip_prefix("dipc_") else {
            return;
        };
        let of_server = match name {
            "connections" => &mut self.connections,
            "streams" => &mut self.streams,
            "lent_buffers" => &mut self.lent_buffers,
            "region_bytes" => &mut self.region_bytes,
            "connections_refused_total" => &mut self.connections_refused,
            "requests_refused_total" => &mut self.requests_refused,
            _ => return self.add_of_ticket(name, sample),
        };
        *of_server += sample.value;
    }

    fn add_of_ticket(&mut self, name: &str, sample: &Sample) {
        let Some(label) = sample.labels.get("ticket") else {
            return;
        };
        let ticket = self.tickets.entry(label.clone()).or_default();
        let way = sample.labels.get("way").map_or("", String::as_str);
        let bound = sample.labels.get("le").and_then(|le| le.parse().ok());
        let figure = match (name, way, bound) {
            ("requests_total", ..) => &mut ticket.requests,
            ("requests_finished_total", ..) => &mut ticket.finished,
            ("requests_failed_total", ..) => &mut ticket.failed,
            ("batches_sent_total" | "batches_received_total", ..) => &mut ticket.batches,
            ("rows_sent_total" | "rows_received_total", ..) => &mut ticket.rows,
            ("bytes_total", "lent", _) => &mut ticket.bytes_lent,
            ("bytes_total", "copied" | "copied_on_device" | "staged", _) => {
                &mut ticket.bytes_copied
            }
            ("bytes_total", "sent", _) => &mut ticket.bytes_sent,
            ("bytes_total", "received", _) => &mut ticket.bytes_received,
            ("first_batch_seconds_bucket", _, Some(bound)) => {
                let buckets = &mut ticket.first_batch_seconds.buckets;
                return buckets.push((bound, sample.value));
            }
            ("batch_hand_over_seconds_bucket", _, Some(bound)) => {
                let buckets = &mut ticket.hand_over_seconds.buckets;
                return buckets.push((bound, sample.value));
            }
            _ => return,
        };
        *figure += sample.value;
    }

    /// A table of the server's figures and of at most `most` tickets. With earlier figures, those
    /// that rise are for each second since then.
    pub fn table(&self, before: Option<(&Self, Duration)>, most: usize) -> String {
        let mut table = format!(
            "connections {}  streams {}  lent buffers {}  regions {}  refused: connections {}, \
             requests {}\n",
            self.connections,
            self.streams,
            self.lent_buffers,
            bytes(self.region_bytes),
            self.connections_refused,
            self.requests_refused,
        );
        let per = if before.is_some() { "/s" } else { "" };
        let titles = [
            "requests", "batches", "rows", "lent", "copied", "sent", "received",
        ];
        let titles = titles.map(|title| format!("{title}{per}"));
        let fixed = ["failed", "first p50", "p99", "batch p50", "p99"].map(str::to_owned);
        let mut lines = vec![line("ticket".to_owned(), titles, fixed)];
        let none = OfTicket::default();
        let since = |label: &str| {
            let (figures, time) = before?;
            let seconds = time.as_secs_f64().max(f64::MIN_POSITIVE);
            Some((figures.tickets.get(label).unwrap_or(&none), seconds))
        };
        let mut tickets: Vec<_> = self.tickets.iter().collect();
        tickets.sort_by(|(_, one), (_, other)| other.bytes().total_cmp(&one.bytes()));
        for (label, ticket) in tickets.iter().take(most) {
            let rate = |figure: fn(&OfTicket) -> f64| match since(label) {
                Some((before, seconds)) => (figure(ticket) - figure(before)).max(0.0) / seconds,
                None => figure(ticket),
            };
            let risen = [
                number(rate(|it| it.requests)),
                number(rate(|it| it.batches)),
                number(rate(|it| it.rows)),
                bytes(rate(|it| it.bytes_lent)),
                bytes(rate(|it| it.bytes_copied)),
                bytes(rate(|it| it.bytes_sent)),
                bytes(rate(|it| it.bytes_received)),
            ];
            let fixed = [
                number(ticket.failed),
                time(ticket.first_batch_seconds.p50),
                time(ticket.first_batch_seconds.p99),
                time(ticket.hand_over_seconds.p50),
                time(ticket.hand_over_seconds.p99),
            ];
            lines.push(line(shortened(label), risen, fixed));
        }
        for line in &lines {
            for (at, cell) in line.iter().enumerate() {
                let width = width(lines.iter().map(|line| line[at].as_str()));
                match at {
                    0 => table.push_str(&format!("{cell:<width$}")),
                    _ => table.push_str(&format!("  {cell:>width$}")),
                }
            }
            table.push('\n');
        }
        if tickets.len() > most {
            table.push_str(&format!("and {} more\n", tickets.len() - most));
        }
        table
    }
}

impl OfTicket {
    fn bytes(&self) -> f64 {
        self.bytes_lent + self.bytes_copied + self.bytes_sent + self.bytes_received
    }
}

/// The cells of one line.
fn line(ticket: String, risen: [String; 7], fixed: [String; 5]) -> Vec<String> {
    let cells = std::iter::once(ticket).chain(risen);
    cells.chain(fixed).collect()
}

fn shortened(label: &str) -> String {
    let label = escape(label);
    match label.char_indices().nth(TICKET_WIDTH) {
        Some((end, _)) => format!("{}…", &label[..end]),
        None => label.into_owned(),
    }
}

fn number(value: f64) -> String {
    match value {
        value if value.fract() == 0.0 || value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of bytes, to be shown"
)]
fn bytes(value: f64) -> String {
    bytes_text(value.max(0.0) as u64)
}

/// A time that a bound says.
fn time(seconds: Option<f64>) -> String {
    match seconds {
        None => "-".to_owned(),
        Some(seconds) if seconds < 1e-3 => format!("{:.0} µs", seconds * 1e6),
        Some(seconds) if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        Some(seconds) => format!("{seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::samples;
    use super::*;

    const PAGE: &str = "dipc_connections 3
dipc_requests_refused_total{status=\"DIPC_ERR_BUSY\"} 2
dipc_requests_refused_total{status=\"DIPC_ERR_NOT_FOUND\"} 5
dipc_requests_total{ticket=\"t\",verb=\"get\"} 4
dipc_requests_total{ticket=\"t\",verb=\"describe\"} 1
dipc_bytes_total{ticket=\"t\",way=\"lent\"} 2048
dipc_bytes_total{ticket=\"t\",way=\"received\"} 1024
dipc_first_batch_seconds_bucket{ticket=\"t\",le=\"0.001\"} 98
dipc_first_batch_seconds_bucket{ticket=\"t\",le=\"0.002\"} 99
dipc_first_batch_seconds_bucket{ticket=\"t\",le=\"+Inf\"} 100
dipc_requests_total{ticket=\"\u{1b}[2J\",verb=\"get\"} 1
";

    /// Samples of one figure are added up, and times are the bounds of their buckets.
    #[test]
    fn a_page_becomes_rows() {
        let figures = Figures::of(samples(PAGE));
        assert_eq!((figures.connections, figures.requests_refused), (3.0, 7.0));
        let ticket = &figures.tickets["t"];
        assert_eq!((ticket.requests, ticket.bytes_lent), (5.0, 2048.0));
        let quantiles = &ticket.first_batch_seconds;
        assert_eq!((quantiles.p50, quantiles.p99), (Some(0.001), Some(0.002)));
        let table = figures.table(None, 1);
        assert!(table.contains("1.0 ms  2.0 ms"), "{table}");
        assert!(table.ends_with("and 1 more\n"), "{table}");
        assert!(!figures.table(None, 9).contains('\u{1b}'));
    }

    /// Counters are shown as rates per second. After a restart of the server no rate is negative.
    #[test]
    fn rates_are_for_each_second() {
        let before = Figures::of(samples("dipc_requests_total{ticket=\"t\"} 1\n"));
        let table = Figures::of(samples(PAGE)).table(Some((&before, Duration::from_secs(2))), 1);
        let row: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(row[..2], ["t", "2"], "{table}");
        let table = before.table(
            Some((&Figures::of(samples(PAGE)), Duration::from_secs(2))),
            1,
        );
        let row: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(row[..2], ["t", "0"], "{table}");
    }
}
