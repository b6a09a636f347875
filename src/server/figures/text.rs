//! Figures in Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write as _};
use std::sync::Arc;

use super::stats::ServerStats;
use crate::driver::figures::{Counters, HistogramSums, STATUSES, StreamSums, upper_bound};
use crate::error::Status;
use crate::proto::Verb;

/// Nanoseconds of a second: histograms of times are in seconds here.
const SECOND: f64 = 1e9;
/// Buckets of a time: each power of two from a microsecond to a minute.
const TIMES: Buckets = Buckets {
    first: 10,
    last: 36,
    step: 1,
};
/// Buckets of bytes: every second power of two from 256 bytes to a tebibyte.
const SIZES: Buckets = Buckets {
    first: 8,
    last: 40,
    step: 2,
};

/// The verbs that have figures.
const VERBS: [Verb; 6] = [
    Verb::Get,
    Verb::Put,
    Verb::Exchange,
    Verb::Describe,
    Verb::List,
    Verb::Unknown(0),
];

/// The upper bounds of a histogram: 2^`first`, and so on in steps of 2^`step` up to 2^`last`.
#[derive(Clone, Copy)]
struct Buckets {
    first: u32,
    last: u32,
    step: usize,
}

/// Figures of a server: each with its name, its kind and its help.
const OF_SERVER: &str = "\
connections gauge Connections open now.
connections_opened_total counter Connections accepted.
connections_closed_total counter Accepted connections that are over.
connections_refused_total counter Connections that were not accepted.
streams gauge Streams under way with a client.
lent_buffers gauge Buffers that clients have and have not given back.
region_bytes gauge Bytes of shared memory for copies.";

/// Figures of bounds.
const OF_LIMITS: &str = "\
connections_limit gauge Most connections at a time.
streams_limit gauge Most streams at a time.
region_bytes_limit gauge Most bytes of shared memory for copies.";

/// Figures of a label.
const OF_LABEL: &str = "\
requests_finished_total counter Requests that have ended well.
batches_sent_total counter Record batches sent.
rows_sent_total counter Rows of the batches sent.
rows_read_total counter Rows of the batches that tables and providers gave.
batches_received_total counter Record batches that clients sent.
rows_received_total counter Rows that clients sent.";

/// Histograms of a label.
const HISTOGRAMS: &str = "\
first_batch_seconds histogram Time from a request until its first batch was sent.
batch_hand_over_seconds histogram Time from when a batch was there until the connection had it, \
of one in 64.
request_bytes histogram Bytes of bodies that a request carried.";

/// One histogram of a label.
type HistogramOf = fn(&StreamSums) -> &HistogramSums;

/// The text of one scrape.
#[derive(Default)]
struct Page(String);

/// Bounds on some of the figures.
#[derive(Default)]
pub struct Limits {
    pub connections: u64,
    pub streams: u64,
    pub region_bytes: u64,
}

/// The text of a server's figures.
pub fn written(stats: &ServerStats, limits: &Limits, labels: &[(String, Arc<Counters>)]) -> String {
    let mut page = Page::default();
    page.about("build_info gauge The library that serves.");
    let version = [("version", env!("CARGO_PKG_VERSION").to_owned())];
    page.line("build_info", "", &version, 1);
    page.of_server(stats);
    page.all(
        OF_LIMITS,
        [limits.connections, limits.streams, limits.region_bytes],
    );
    let labels = labels.iter().map(|(label, counters)| {
        let mut sums = StreamSums::default();
        sums.add(counters);
        (label.as_str(), sums)
    });
    page.of_labels(&labels.collect::<Vec<_>>());
    page.0
}

impl Page {
    /// Begins a figure. `spec` has its name, kind and help. Returns the name.
    fn about<'a>(&mut self, spec: &'a str) -> &'a str {
        let mut parts = spec.splitn(3, ' ');
        let [name, kind, help] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let _ = writeln!(
            self.0,
            "# HELP dipc_{name} {help}\n# TYPE dipc_{name} {kind}"
        );
        name
    }

    fn line(&mut self, name: &str, part: &str, labels: &[(&str, String)], value: impl Display) {
        let _ = write!(self.0, "dipc_{name}{part}");
        for (at, (label, text)) in labels.iter().enumerate() {
            let open = if at == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{}\"", escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    /// Figures without labels.
    fn all<const N: usize>(&mut self, specs: &str, values: [u64; N]) {
        for (spec, value) in specs.lines().zip(values) {
            let name = self.about(spec);
            self.line(name, "", &[], value);
        }
    }

    fn of_server(&mut self, stats: &ServerStats) {
        let values = [
            stats.connections,
            stats.connections_opened,
            stats.connections_closed,
            stats.connections_refused,
            stats.streams_active,
            stats.lent_outstanding,
            stats.region_bytes,
        ];
        self.all(OF_SERVER, values);
        let name =
            self.about("requests_refused_total counter Requests that were refused, by status.");
        self.by_status(name, None, &stats.refused);
    }

    fn of_labels(&mut self, labels: &[(&str, StreamSums)]) {
        let name = self.about("requests_total counter Requests that were begun, by verb.");
        for (label, sums) in labels {
            for verb in VERBS {
                let count = sums.requests_of(verb);
                if count > 0 {
                    let verb = match verb {
                        Verb::Unknown(_) => "unknown",
                        known => known.name(),
                    };
                    let labels = [ticket(label), ("verb", verb.to_owned())];
                    self.line(name, "", &labels, count);
                }
            }
        }
        let counts: [fn(&StreamSums) -> u64; 6] = [
            |sums| sums.finished,
            |sums| sums.batches,
            |sums| sums.rows,
            |sums| sums.rows_read,
            |sums| sums.batches_received,
            |sums| sums.rows_received,
        ];
        for (spec, count) in OF_LABEL.lines().zip(counts) {
            let name = self.about(spec);
            for (label, sums) in labels {
                self.line(name, "", &[ticket(label)], count(sums));
            }
        }
        let name = self.about(
            "requests_failed_total counter Requests that failed after their begin, by status.",
        );
        for (label, sums) in labels {
            self.by_status(name, Some(label), &sums.failed);
        }
        let name = self.about("bytes_total counter Bytes of bodies, by the way that they took.");
        for (label, sums) in labels {
            for (way, bytes) in [
                ("lent", sums.bytes_lent),
                ("copied", sums.bytes_copied),
                ("sent", sums.bytes_sent),
                ("copied_on_device", sums.bytes_copied_on_device),
                ("staged", sums.bytes_staged),
                ("received", sums.bytes_received),
            ] {
                self.line(name, "", &[ticket(label), ("way", way.to_owned())], bytes);
            }
        }
        let histograms: [(HistogramOf, Buckets, f64); 3] = [
            (|sums| &sums.first_batch, TIMES, SECOND),
            (|sums| &sums.hand_over, TIMES, SECOND),
            (|sums| &sums.request_bytes, SIZES, 1.0),
        ];
        for (spec, (of, bounds, unit)) in HISTOGRAMS.lines().zip(histograms) {
            let name = self.about(spec);
            for (label, sums) in labels {
                self.histogram(name, label, of(sums), bounds, unit);
            }
        }
    }

    fn by_status(&mut self, name: &str, label: Option<&str>, counts: &[u64; STATUSES]) {
        for status in Status::ALL {
            let place = usize::try_from(status.code().unsigned_abs()).ok();
            let mut count = place.and_then(|it| counts.get(it)).copied().unwrap_or(0);
            if *status == Status::Provider {
                // Statuses that hosts made up: clients are told this status instead.
                count += counts[0];
            }
            if count > 0 {
                let status = ("status", status.symbol().to_owned());
                match label {
                    Some(label) => self.line(name, "", &[ticket(label), status], count),
                    None => self.line(name, "", &[status], count),
                }
            }
        }
    }

    /// Writes a histogram. Its bounds are those of `bounds` at which the library has a bound,
    /// divided by `unit`.
    fn histogram(
        &mut self,
        name: &str,
        label: &str,
        sums: &HistogramSums,
        bounds: Buckets,
        unit: f64,
    ) {
        if sums.count == 0 {
            return;
        }
        let mut buckets = sums.buckets.iter().enumerate();
        let mut below = 0;
        for power in (bounds.first..=bounds.last).step_by(bounds.step) {
            let bound = 1_u64 << power;
            for (index, count) in buckets.by_ref() {
                below += count;
                if upper_bound(index) >= bound {
                    break;
                }
            }
            let le = in_unit(bound, unit).to_string();
            self.line(name, "_bucket", &[ticket(label), ("le", le)], below);
        }
        let infinite = ("le", "+Inf".to_owned());
        self.line(name, "_bucket", &[ticket(label), infinite], sums.count);
        self.line(name, "_sum", &[ticket(label)], in_unit(sums.sum, unit));
        self.line(name, "_count", &[ticket(label)], sums.count);
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "Prometheus' figures are floating-point numbers"
)]
fn in_unit(value: u64, unit: f64) -> f64 {
    value as f64 / unit
}

fn ticket(label: &str) -> (&'static str, String) {
    ("ticket", label.to_owned())
}

/// The value of a label: backslashes, quotes and ends of lines are escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn page(label: &str) -> String {
        let counters = Counters::of_server();
        counters.bytes_lent.store(7, Relaxed);
        let served = counters.served.as_ref().unwrap();
        for nanos in [1000, 1024, 1025, 1 << 20, u64::MAX >> 20] {
            served.first_batch.observe(nanos);
        }
        served.failed.count(Status::Busy.code());
        served.failed.count(4711);
        served.failed.count(Status::Provider.code());
        let mut stats = ServerStats::default();
        stats.refused[5] = 3;
        written(
            &stats,
            &Limits::default(),
            &[(label.to_owned(), Arc::new(counters))],
        )
    }

    /// Promise: buckets count all values up to their bounds, in seconds; the last has all.
    #[test]
    fn buckets_are_cumulative() {
        let page = page("t");
        let bucket = |le: &str| {
            let line = format!("dipc_first_batch_seconds_bucket{{ticket=\"t\",le=\"{le}\"}} ");
            let found = page.lines().find_map(|it| it.strip_prefix(&line));
            found.unwrap_or_else(|| panic!("{line}: {page}")).to_owned()
        };
        assert_eq!(bucket("0.000001024"), "2");
        assert_eq!(bucket("0.000002048"), "3");
        assert_eq!(bucket("0.001048576"), "4");
        assert_eq!(bucket("+Inf"), "5");
        assert!(page.contains("dipc_first_batch_seconds_count{ticket=\"t\"} 5\n"));
    }

    /// Promise: statuses have their names, and a status that the host made up counts as a
    /// provider's failure.
    #[test]
    fn statuses_have_names() {
        let page = page("t");
        for line in [
            "dipc_requests_refused_total{status=\"DIPC_ERR_NOT_FOUND\"} 3\n",
            "dipc_requests_failed_total{ticket=\"t\",status=\"DIPC_ERR_BUSY\"} 1\n",
            "dipc_requests_failed_total{ticket=\"t\",status=\"DIPC_ERR_PROVIDER\"} 2\n",
            "dipc_bytes_total{ticket=\"t\",way=\"lent\"} 7\n",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    /// Promise: a ticket cannot end its line, or its quotes.
    #[test]
    fn labels_are_escaped() {
        let page = page("a\"b\\c\nd");
        assert!(
            page.contains("{ticket=\"a\\\"b\\\\c\\nd\",way=\"lent\"} 7\n"),
            "{page}"
        );
    }
}
