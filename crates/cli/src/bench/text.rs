//! The figures for people: a table for each kind of measurement.

use super::base::case::{Op, Scheme, Take, Touch};
use super::line::{FilterLine, Line, MachineLine, OpenLine, TableLine};
use crate::report::{as_float, bytes_text};

/// The lines of one table, after a head with their common conditions.
#[derive(Default)]
pub struct Text {
    head: String,
}

/// A column: its title and its width.
type TextColumn = (&'static str, usize);

impl Text {
    /// The text of one line, after the head if a new table begins.
    pub fn line(&mut self, line: &Line) -> String {
        let (common, cells) = match line {
            Line::Libdipc(line) => (common(line), cells(line)),
            Line::Machine(line) => {
                let gpu = line.device.as_ref().map(|device| format!(", {device}"));
                let gpu = gpu.unwrap_or_default();
                let common = format!("the machine{gpu}, without libdipc");
                (common, machine(line))
            }
            Line::Filter(line) => (of_filter(line), filter(line)),
            Line::Open(line) => (of_open(line), open(line)),
        };
        let (columns, cells): (Vec<TextColumn>, Vec<String>) = cells.into_iter().unzip();
        let titles = columns.iter().map(|(title, _)| (*title).to_owned());
        let head = format!("{common}\n{}", row(&columns, titles));
        let row = row(&columns, cells.into_iter());
        if head == self.head {
            return row;
        }
        let gap = if self.head.is_empty() { "" } else { "\n" };
        let text = format!("{gap}{head}\n{row}");
        self.head = head;
        text
    }
}

fn row(columns: &[TextColumn], cells: impl Iterator<Item = String>) -> String {
    let padded = columns
        .iter()
        .zip(cells)
        .map(|((_, width), cell)| format!("{cell:>width$}"));
    padded.collect::<Vec<_>>().join("  ")
}

fn apart(is_so: bool) -> &'static str {
    match is_so {
        true => ", processes on processors of their own",
        false => "",
    }
}

/// The conditions of a figure.
fn common(line: &TableLine) -> String {
    let TableLine {
        op,
        transport,
        source,
        level,
        window_batches,
        window_bytes,
        ..
    } = line;
    let window = bytes_size(*window_bytes);
    let source = match op {
        Op::Put => "sent by the client".to_owned(),
        _ => source.to_string(),
    };
    let mut text = format!(
        "{op} over {transport}: {source}, level {level}, window {window_batches} batches and \
         {window}"
    );
    if line.has_gpu() {
        text.push_str(&format!(", from {} to {}", line.device, line.to));
        text.push_str(match (&*line.to, line.touch) {
            ("host", _) => "",
            (_, Touch::None) => " (a stream waits for each batch)",
            (_, Touch::Sum) => " (summed after a download)",
        });
    }
    if line.spin {
        // Whole nanoseconds, without floating-point noise.
        let micros = (line.spin_seconds * 1e9).round() / 1e3;
        text.push_str(&format!(", spinning for {micros} us"));
    }
    if line.streams > 1 && *op != Op::Idle {
        text.push_str(&format!(", {} streams at once", line.streams));
        match line.consumers {
            Some(1) => text.push_str(" on one thread"),
            Some(few) if few < line.streams => text.push_str(&format!(" on {few} threads")),
            _ => {}
        }
    }
    if line.take == Some(Take::TryNext) {
        text.push_str(", in an event loop");
    }
    if line.connections > 1 {
        text.push_str(&format!(", {} connections", line.connections));
    }
    if line.fresh {
        text.push_str(match line.resume {
            true => ", new clients that resume a TLS session",
            false => ", new clients",
        });
    }
    text.push_str(apart(line.apart));
    if line.cold {
        text.push_str(", cold");
    }
    text
}

/// The conditions of a comparison.
fn of_filter(line: &FilterLine) -> String {
    let apart = apart(line.apart);
    format!(
        "filter over {}: a table of {} in batches of {} with {} columns, level {}{apart}",
        line.transport,
        bytes_size(line.table_bytes),
        bytes_size(line.batch_bytes),
        line.columns,
        line.level
    )
}

fn filter(line: &FilterLine) -> Vec<(TextColumn, String)> {
    let millions = |rate: f64| significant(rate / 1e6);
    vec![
        (("memory", 6), line.memory.to_string()),
        (("passing", 8), format!("{} %", line.passing)),
        (
            ("client Mrows/s", 14),
            millions(line.at_client.rows_per_second),
        ),
        (("moved", 11), bytes_text(line.at_client.bytes)),
        (
            ("server Mrows/s", 14),
            millions(line.at_server.rows_per_second),
        ),
        (("moved", 11), bytes_text(line.at_server.bytes)),
        (("ratio", 6), significant(line.ratio)),
    ]
}

/// The conditions of a comparison with Flight.
fn of_open(line: &OpenLine) -> String {
    let apart = apart(line.apart);
    let flight = match line.transport {
        Scheme::Tls => "tls",
        Scheme::Shm | Scheme::Tcp | Scheme::Ucx => "tcp",
    };
    format!(
        "open over {}: new streams of one batch, {} at once, level {}{apart}; beside Flight's \
         DoGet over {flight}",
        line.transport, line.streams, line.level
    )
}

fn open(line: &OpenLine) -> Vec<(TextColumn, String)> {
    vec![
        (("memory", 6), line.memory.to_string()),
        (("batch", 8), bytes_size(line.batch_bytes)),
        (("columns", 7), line.columns.to_string()),
        (("streams/s", 9), significant(line.streams_per_second)),
        (
            ("Flight's/s", 10),
            significant(line.flight_streams_per_second),
        ),
        (("ratio", 6), significant(line.ratio)),
    ]
}

fn machine(line: &MachineLine) -> Vec<(TextColumn, String)> {
    let rate = line.bytes_per_second.map(|rate| significant(rate / 1e9));
    let none = || "-".to_owned();
    let micros = |time: Option<u64>| time.map_or_else(none, micros);
    vec![
        (("what", 17), line.what.to_string()),
        (("size", 8), bytes_size(line.size_bytes)),
        (("GB/s", 8), rate.unwrap_or_else(none)),
        (
            ("p50 us", 7),
            micros(line.latency_ns.map(|times| times.p50)),
        ),
        (
            ("p99 us", 7),
            micros(line.latency_ns.map(|times| times.p99)),
        ),
    ]
}

fn micros(nanoseconds: u64) -> String {
    significant(as_float(nanoseconds) / 1e3)
}

fn cells(line: &TableLine) -> Vec<(TextColumn, String)> {
    let mut cells = vec![
        (("memory", 6), line.memory.to_string()),
        (("touch", 5), line.touch.to_string()),
        (("batch", 8), bytes_size(line.batch_bytes)),
        (("columns", 7), line.columns.to_string()),
    ];
    let batches = as_float(line.batches);
    if matches!(line.op, Op::Get | Op::Put) {
        cells.push((("GB/s", 8), significant(line.bytes_per_second / 1e9)));
    }
    if matches!(line.op, Op::Get | Op::Put | Op::Metadata) {
        cells.push((("batches/s", 9), significant(line.batches_per_second)));
        cells.push((("us/batch", 8), significant(line.seconds * 1e6 / batches)));
    }
    if let Some(nanoseconds) = line.ns_per_column {
        cells.push((("ns/column", 9), significant(nanoseconds)));
    }
    if line.has_gpu() {
        // Shares of the bytes of values: lent, and copied by place.
        let share = |bytes| {
            format!(
                "{:.0} %",
                as_float(bytes) / as_float(line.bytes.max(1)) * 100.0
            )
        };
        cells.push((("lent", 6), share(line.bytes_lent)));
        cells.push((("copied on host", 14), share(line.bytes_copied)));
        cells.push((("on device", 9), share(line.bytes_copied_on_device)));
        cells.push((("staged", 6), share(line.bytes_staged)));
    }
    if let Some(spread) = line.streams_bytes_per_second {
        let share = |rate| significant(rate / 1e9);
        cells.push((("slowest", 8), share(spread.min)));
        cells.push((("median", 8), share(spread.median)));
    }
    if let Some(latency) = line.latency_ns {
        cells.push((("p50 us", 7), micros(latency.p50)));
        cells.push((("p99 us", 7), micros(latency.p99)));
        cells.push((("p99.9", 7), micros(latency.p99_9)));
        cells.push((("max", 7), micros(latency.max)));
    }
    if let Some(cost) = line.request_cpu_seconds {
        let micros = |seconds: f64| significant(seconds * 1e6);
        cells.push((("us/served", 9), micros(cost.served)));
        cells.push((("us/shed", 7), micros(cost.shed)));
        cells.push((("shed/served", 11), significant(cost.shed / cost.served)));
    }
    if let Some(memory) = line.stream_memory_bytes {
        cells.push((("streams", 7), line.streams.to_string()));
        cells.push((("server/stream", 13), bytes_text(memory.server)));
        cells.push((("client/stream", 13), bytes_text(memory.client)));
    }
    // Shares of one core. The sum of both can exceed one core.
    let share = |seconds: f64| format!("{:.1} %", seconds / line.seconds * 100.0);
    cells.push((("server CPU", 10), share(line.cpu_seconds.server)));
    cells.push((("client CPU", 10), share(line.cpu_seconds.client)));
    let peak = line.peak_memory_bytes;
    cells.push((("server peak", 11), bytes_text(peak.server)));
    cells.push((("client peak", 11), bytes_text(peak.client)));
    cells
}

/// A number to three digits, without an exponent.
fn significant(number: f64) -> String {
    let digits = match number.abs() {
        size if size < 0.9995 => 3,
        size if size < 9.995 => 2,
        size if size < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$}")
}

/// Bytes in the units of the options, if they are a whole number of units.
fn bytes_size(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS
        .into_iter()
        .find(|(_, shift)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((unit, shift)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} B"),
    }
}
