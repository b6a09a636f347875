//! The figures for programs: one line of JSON for each case.

use serde::Serialize;

use super::base::case::{Body, Case, Level, Memory, Op, Scheme, Source, Take, Touch, Values, What};
use super::base::message::{Filtering, Latency, Opening, Outcome, Usage};
use crate::report::as_float;

/// A number for each process.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Both<T> {
    pub server: T,
    pub client: T,
}

impl Both<f64> {
    /// The processor time of a measurement.
    fn cpu(outcome: &Outcome, [_, before, after]: [Usage; 3]) -> Self {
        Self {
            server: after.cpu_seconds - before.cpu_seconds,
            client: outcome.cpu_seconds,
        }
    }
}

/// A request that is served, and one that is refused because the server is busy.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct PerRequest {
    pub served: f64,
    pub shed: f64,
}

/// The spread of the streams' rates.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

impl Spread {
    fn of(mut rates: Vec<f64>) -> Option<Self> {
        rates.sort_by(f64::total_cmp);
        Some(Self {
            min: *rates.first()?,
            median: *rates.get(rates.len() / 2)?,
            max: *rates.last()?,
        })
    }
}

/// The figures of one case.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Line {
    Libdipc(Box<TableLine>),
    Machine(MachineLine),
    Filter(FilterLine),
    Open(OpenLine),
}

impl Line {
    /// The figure that orders the lines of one case.
    pub fn key(&self) -> f64 {
        let (latency, rate) = match self {
            Self::Libdipc(line) => (line.latency_ns, Some(line.batches_per_second)),
            Self::Machine(line) => (line.latency_ns, line.bytes_per_second),
            Self::Filter(line) => (None, Some(line.ratio)),
            Self::Open(line) => (None, Some(line.ratio)),
        };
        // Latencies are the result here; the rate is given by the interval.
        let time = latency.map(|latency| as_float(latency.p50));
        time.or(rate).unwrap_or(0.0)
    }
}

/// Figures of the machine without libdipc.
#[derive(Debug, Clone, Serialize)]
pub struct MachineLine {
    pub op: Op,
    pub round: u32,
    pub what: What,
    /// The GPU, if the figure is of a GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    pub size_bytes: u64,
    /// The processes ran on separate processors.
    pub apart: bool,
    pub seconds: f64,
    pub count: u64,
    /// `None` if each step waits for the previous one.
    pub bytes_per_second: Option<f64>,
    pub latency_ns: Option<Latency>,
    pub cpu_seconds: Both<f64>,
}

impl MachineLine {
    pub fn new(case: &Case, round: u32, outcome: &Outcome, server: [Usage; 3]) -> Self {
        let bytes = as_float(outcome.batches * case.batch_bytes());
        Self {
            op: case.op,
            round,
            what: case.what,
            device: case.what.is_gpus().then(|| case.device.to_string()),
            size_bytes: case.batch_bytes(),
            apart: case.apart,
            seconds: outcome.seconds,
            count: outcome.batches,
            bytes_per_second: outcome.latency.is_none().then_some(bytes / outcome.seconds),
            latency_ns: outcome.latency,
            cpu_seconds: Both::cpu(outcome, server),
        }
    }
}

/// Figures of a table that is filtered, at the client and at the server.
#[derive(Debug, Clone, Serialize)]
pub struct FilterLine {
    pub op: Op,
    pub round: u32,
    pub transport: Scheme,
    pub memory: Memory,
    /// How many of 100 rows pass.
    pub passing: f64,
    pub batch_bytes: u64,
    pub columns: u32,
    pub table_rows: u64,
    pub table_bytes: u64,
    pub level: Level,
    /// The processes ran on separate processors.
    pub apart: bool,
    pub seconds: f64,
    pub cpu_seconds: Both<f64>,
    pub at_client: FilterRate,
    pub at_server: FilterRate,
    /// Rows per second filtered at the server, divided by those filtered at the client.
    pub ratio: f64,
}

/// One of the two ways.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FilterRate {
    pub gets: u64,
    /// Rows of the table, including those that did not pass.
    pub rows_per_second: f64,
    /// Rows that passed, of one get.
    pub passed: u64,
    /// Bytes of bodies for one get, lent or sent.
    pub bytes: u64,
}

impl From<&Filtering> for FilterRate {
    fn from(of: &Filtering) -> Self {
        Self {
            gets: of.gets,
            rows_per_second: as_float(of.rows) / of.seconds,
            passed: of.passed / of.gets.max(1),
            bytes: of.bytes / of.gets.max(1),
        }
    }
}

impl FilterLine {
    pub fn new(case: &Case, round: u32, outcome: &Outcome, server: [Usage; 3]) -> Self {
        let filtered = outcome.filtered.unwrap_or_default();
        let at_client = FilterRate::from(&filtered.at_client);
        let at_server = FilterRate::from(&filtered.at_server);
        Self {
            op: case.op,
            round,
            transport: case.transport,
            memory: case.memory,
            passing: case.passing,
            batch_bytes: case.batch_bytes(),
            columns: case.columns,
            table_rows: case.distinct() * case.rows,
            table_bytes: case.distinct() * case.batch_bytes(),
            level: case.level,
            apart: case.apart,
            seconds: outcome.seconds,
            cpu_seconds: Both::cpu(outcome, server),
            at_client,
            at_server,
            ratio: at_server.rows_per_second / at_client.rows_per_second,
        }
    }
}

/// Figures of new streams, of libdipc and of Flight.
#[derive(Debug, Clone, Serialize)]
pub struct OpenLine {
    pub op: Op,
    pub round: u32,
    /// Of libdipc. Flight has TLS over tls, and TCP otherwise.
    pub transport: Scheme,
    pub memory: Memory,
    pub batch_bytes: u64,
    pub columns: u32,
    pub streams: u32,
    pub level: Level,
    /// The processes ran on separate processors.
    pub apart: bool,
    pub seconds: f64,
    /// Of both sides together.
    pub cpu_seconds: Both<f64>,
    pub streams_per_second: f64,
    pub flight_streams_per_second: f64,
    /// Streams per second of libdipc, divided by those of Flight.
    pub ratio: f64,
}

impl OpenLine {
    pub fn new(case: &Case, round: u32, outcome: &Outcome, server: [Usage; 3]) -> Self {
        let opened = outcome.opened.unwrap_or_default();
        let rate = |of: Opening| as_float(of.streams) / of.seconds;
        let (libdipc, flight) = (rate(opened.libdipc), rate(opened.flight));
        Self {
            op: case.op,
            round,
            transport: case.transport,
            memory: case.memory,
            batch_bytes: case.batch_bytes(),
            columns: case.columns,
            streams: case.streams,
            level: case.level,
            apart: case.apart,
            seconds: outcome.seconds,
            cpu_seconds: Both::cpu(outcome, server),
            streams_per_second: libdipc,
            flight_streams_per_second: flight,
            ratio: libdipc / flight,
        }
    }
}

/// Figures of libdipc.
#[derive(Debug, Clone, Serialize)]
pub struct TableLine {
    pub op: Op,
    pub round: u32,
    pub transport: Scheme,
    pub memory: Memory,
    /// The device of the server's batches, and the device that the client asked for.
    pub device: String,
    pub to: String,
    pub touch: Touch,
    /// How the client took batches, in measurements of batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub take: Option<Take>,
    pub source: Source,
    pub body: Body,
    /// Bytes of values in one batch.
    pub batch_bytes: u64,
    pub columns: u32,
    pub values: Values,
    pub rows: u64,
    /// The number of distinct batches.
    pub distinct_batches: u64,
    pub streams: u32,
    /// Number of the client's threads that took batches, in measurements of batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumers: Option<u32>,
    pub connections: u16,
    /// Bytes requested; with a time limit only, the bytes that arrived in time.
    pub total_bytes: u64,
    pub spin: bool,
    pub spin_seconds: f64,
    /// How long the client kept each batch.
    pub consumer_pause_seconds: f64,
    pub window_batches: u64,
    pub window_bytes: u64,
    pub level: Level,
    /// The measurement began without connections or mappings.
    pub cold: bool,
    /// Each stream had a new client, and resumed the TLS session of the one before.
    pub fresh: bool,
    pub resume: bool,
    /// The processes ran on separate processors.
    pub apart: bool,
    /// Hostile connections to the server meanwhile.
    pub hostile: u32,
    pub seconds: f64,
    pub batches: u64,
    /// The number of streams.
    pub fetches: u64,
    pub bytes: u64,
    pub bytes_per_second: f64,
    pub batches_per_second: f64,
    pub latency_ns: Option<Latency>,
    pub cpu_seconds: Both<f64>,
    /// Bytes that the client read in lent memory.
    pub bytes_lent: u64,
    /// Bytes that either side copied on the host.
    pub bytes_copied: u64,
    /// Bytes that either side copied within a GPU or between GPUs.
    pub bytes_copied_on_device: u64,
    /// Bytes that either side copied between the host and a GPU.
    pub bytes_staged: u64,
    /// Bytes received through connections.
    pub bytes_received: u64,
    pub peak_memory_bytes: Both<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams_bytes_per_second: Option<Spread>,
    /// Processor time of the server for one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_cpu_seconds: Option<PerRequest>,
    /// Private memory of each process for each idle stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_memory_bytes: Option<Both<u64>>,
    /// The server's regions for lent copies while streams were idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns_per_column: Option<f64>,
}

impl TableLine {
    /// Whether a GPU took part.
    pub fn has_gpu(&self) -> bool {
        [&self.device, &self.to]
            .iter()
            .any(|place| *place != "host")
    }

    /// The line of a measurement. `server`: its usage before the first stream, at the start and at
    /// the end.
    pub fn new(case: &Case, round: u32, outcome: Outcome, server: [Usage; 3]) -> Self {
        let [first, before, after] = server;
        let grown = before.private_bytes.saturating_sub(first.private_bytes);
        let bytes = outcome.batches * case.batch_bytes();
        let batches = as_float(outcome.batches);
        let columns = as_float(u64::from(case.columns));
        Self {
            op: case.op,
            round,
            transport: case.transport,
            memory: case.memory,
            device: case.device.to_string(),
            to: case.to.to_string(),
            touch: case.touch,
            take: matches!(case.op, Op::Get | Op::Metadata).then_some(case.take),
            source: case.source,
            body: case.body,
            batch_bytes: case.batch_bytes(),
            columns: case.columns,
            values: case.values,
            rows: case.rows,
            distinct_batches: case.distinct(),
            streams: case.streams,
            consumers: matches!(case.op, Op::Get | Op::Metadata).then(|| case.consumers()),
            connections: case.connections,
            total_bytes: case
                .batches
                .map_or(bytes, |batches| batches * case.batch_bytes()),
            spin: !case.spin.is_zero(),
            spin_seconds: case.spin.as_secs_f64(),
            consumer_pause_seconds: case.pause.as_secs_f64(),
            window_batches: case.window_batches,
            window_bytes: case.window_bytes,
            level: case.level,
            cold: case.cold,
            fresh: case.fresh,
            resume: case.resume,
            apart: case.apart,
            hostile: case.hostile,
            seconds: outcome.seconds,
            batches: outcome.batches,
            fetches: outcome.fetches,
            bytes,
            bytes_per_second: as_float(bytes) / outcome.seconds,
            batches_per_second: batches / outcome.seconds,
            latency_ns: outcome.latency,
            cpu_seconds: Both::cpu(&outcome, server),
            bytes_lent: outcome.lent_bytes,
            bytes_copied: outcome.copied_bytes + (after.copied_bytes - first.copied_bytes),
            bytes_copied_on_device: outcome.copied_on_device_bytes
                + (after.copied_on_device_bytes - first.copied_on_device_bytes),
            bytes_staged: outcome.staged_bytes + (after.staged_bytes - first.staged_bytes),
            bytes_received: outcome.received_bytes,
            peak_memory_bytes: Both {
                server: after.peak_bytes,
                client: outcome.peak_bytes,
            },
            streams_bytes_per_second: Spread::of(outcome.rates).filter(|_| case.streams > 1),
            request_cpu_seconds: (case.op == Op::Shed).then(|| PerRequest {
                served: (before.cpu_seconds - first.cpu_seconds) / batches,
                shed: (after.cpu_seconds - before.cpu_seconds) / batches,
            }),
            stream_memory_bytes: outcome.stream_bytes.map(|client| Both {
                server: grown / u64::from(case.streams),
                client,
            }),
            region_bytes: outcome.stream_bytes.map(|_| after.region_bytes),
            ns_per_column: (case.op == Op::Metadata)
                .then(|| outcome.seconds * 1e9 / (batches * columns)),
        }
    }
}
