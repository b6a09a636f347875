//! `dipc get`: fetches a table and reports its cost.
//!
//! The command reads the stream like a C program: through an `ArrowDeviceArrayStream`, whose arrays
//! it imports as record batches.

use std::io::{IsTerminal as _, stderr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use dipc::arrow::stream::{ArrayReader, export_device_stream, to_device};
use dipc::arrow::transfer::to_host;
use dipc::arrow::{BatchReader, OwnedDeviceArray, OwnedSchema};
use dipc::cancel::Cancel;
use dipc::client::{Client, ClientOptions, GetOptions, Stream, StreamStats};
use dipc::device::{DeviceKind, Target as Device, cuda};
use dipc::error::Error;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

use crate::checksum::Checksum;
use crate::report::{Report, Verified, bytes_text};
use crate::sink::{Sink, Target};
use crate::source::{Reader, Reading, Source};
use crate::verify::Verify;
use crate::{UsageError, display, flight, output, signals};

/// Arguments of `dipc get`.
#[derive(clap::Args)]
pub struct Args {
    /// The server's URI (or two: metadata, then data) and the ticket of the table; or the URI of an
    /// Arrow Flight server (grpc://HOST:PORT, grpc+unix:///PATH) and the NAME of the table
    #[arg(value_names = ["URI", "[URI2] TICKET"], num_args = 1..=3, required = true)]
    from: Vec<String>,

    /// Ask a Flight server for the command TICKET, not for the path [TICKET]
    #[arg(long)]
    command: bool,

    /// Use ucx addresses of a Flight server too: their peers can read and write this process's
    /// memory
    #[arg(long)]
    trusted_network: bool,

    /// Print the first N rows as a table (0 to 1000000; 0: only the columns), times of a named zone
    /// in UTC; without --output, --verify and --checksum the rest is not fetched; not with --json
    #[arg(long, value_name = "N", conflicts_with = "json")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    head: Option<u32>,

    /// Write the table to FILE.arrow (Arrow file), .arrows (Arrow stream) or .parquet
    #[arg(long, value_name = "FILE", value_parser = Target::parse)]
    output: Option<Target>,

    /// Compare the table value by value with FILE or tpch:TABLE:SCALE; exit with status 1 if they
    /// differ
    #[arg(long, value_name = "FILE")]
    verify: Option<String>,

    /// Print a hash of the content; batch boundaries do not change it
    #[arg(long)]
    checksum: bool,

    /// Where to put the table: host, cuda:N (a GPU; `dipc info` lists them) or as-sent (the
    /// server's device if this process reaches its memory, otherwise the host). Rows are always
    /// examined on the host
    #[arg(long, value_name = "WHERE", default_value = "host")]
    device: Device,

    /// How long the server may take to accept and answer, and how long it may be silent later; at
    /// least 1us (without this option 10s to accept and answer, and no limit later)
    #[arg(long, value_name = "TIME", value_parser = crate::parse_timeout)]
    timeout: Option<Duration>,

    /// Accept servers of every user, not only of your own
    #[arg(long)]
    any_user: bool,

    /// Most memory that one message may take beside its body (unpacked, copied, or as dictionaries
    /// of the stream), such as 512M; a larger message is an error. At least 64K; without this
    /// option 512M, or 16G for a server of the same user over shm. Also limits a batch of the
    /// Parquet file of --verify
    #[arg(long, value_name = "BYTES", value_parser = crate::parse_message)]
    max_message: Option<u64>,

    /// Connections that carry the stream, if the transport can use several (tcp)
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,

    /// How long to spin for data before sleeping (0: not at all); spinning uses a whole core
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse_duration)]
    spin: Duration,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse_setting)]
    settings: Vec<(String, String)>,

    /// Print JSON; not with --head
    #[arg(long)]
    json: bool,
}

/// Runs `dipc get`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (ticket, uris) = match args.from.as_slice() {
        [uri, second, ticket] => (ticket, vec![uri.as_str(), second.as_str()]),
        [uri, ticket] => (ticket, vec![uri.as_str()]),
        _ => {
            let text = "the TICKET is missing: dipc get URI TICKET".to_owned();
            return Err(UsageError(text).into());
        }
    };
    let by_flight = uris.iter().any(|uri| flight::is_flight(uri));
    if by_flight && uris.len() > 1 {
        let text = "a Flight server has one URI: dipc get grpc://HOST:PORT NAME".to_owned();
        return Err(UsageError(text).into());
    }
    if args.command && !by_flight {
        let text = "--command is for Flight servers: dipc get grpc://HOST:PORT COMMAND".to_owned();
        return Err(UsageError(text).into());
    }
    if by_flight && args.device != Device::Host {
        let text = "a Flight server's tables come to the host: --device is for the URIs that dipc \
                    serve prints";
        return Err(UsageError(text.to_owned()).into());
    }
    // Errors on this side appear before anything is fetched.
    args.device.ensure_available()?;
    let expected = args
        .verify
        .as_ref()
        .map(|spec| -> Result<(String, Reader)> {
            let source = Source::parse(spec)?;
            let reading = Reading {
                message_limit: args.max_message,
                ..Reading::default()
            };
            Ok((source.to_string(), source.reader(reading)?))
        })
        .transpose()?;
    let cancel = Cancel::new()?;
    let first = cancel.clone();
    signals::watch(move || first.cancel(), || std::process::exit(1))?;
    fetch(args, &uris, ticket, expected, &cancel).map_err(|error| {
        if cancel.is_cancelled() && !error.is::<output::Closed>() {
            return anyhow!("interrupted before the end of the table; nothing was written");
        }
        error
    })
}

/// Fetches a table, and does the work of `args` with it.
fn fetch(
    args: &Args,
    uris: &[&str],
    ticket: &str,
    expected: Option<(String, Reader)>,
    cancel: &Cancel,
) -> Result<ExitCode> {
    let start = Instant::now();
    let client = Client::new(ClientOptions {
        any_user: args.any_user,
        settings: crate::settings(&args.settings)?,
        ..ClientOptions::default()
    })?;
    let mut options = GetOptions {
        connections: args.connections,
        spin: args.spin,
        device: args.device,
        message_limit: args.max_message,
        ..GetOptions::default()
    };
    if let Some(timeout) = args.timeout {
        options.connect_timeout = timeout;
        options.stall_timeout = Some(timeout);
    }
    let stream: Box<dyn Counted> = match uris {
        [uri] if flight::is_flight(uri) => Box::new(flight::FlightFetch::open(flight::Request {
            uri,
            name: ticket,
            command: args.command,
            trusted_network: args.trusted_network,
            client,
            options,
            cancel: cancel.clone(),
        })?),
        uris => Box::new(client.get(uris, ticket.as_bytes(), &options, Some(cancel))?),
    };
    let mut fetch = Fetch::new(stream, start.elapsed())?;
    let mut work = Work::new(args, &fetch.schema(), expected)?;
    let progress = Progress::new(args.json);
    let mut stopped = false;
    while !stopped && let Some(batch) = fetch.next()? {
        work.take(&batch, cancel)?;
        progress.show(&fetch.stats());
        stopped = work.is_done();
    }
    progress.clear();

    let mut report = Report {
        ticket: ticket.to_owned(),
        stopped,
        ..Report::default()
    };
    fetch.report(&mut report);
    let head = work.finish(args, &mut report)?;
    report.total_seconds = start.elapsed().as_secs_f64();
    report.complete();
    let equal = report
        .verified
        .as_ref()
        .is_none_or(|verified| verified.equal);
    let text = if args.json {
        output::json(&report)?
    } else {
        format!("{head}{report}")
    };
    match output::print(&text) {
        // The exit status tells whether the tables are equal, even if the output is closed.
        Err(error) if !error.is::<output::Closed>() => Err(error),
        _ if equal => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

/// A stream that counts its cost.
pub trait Counted: ArrayReader {
    /// Figures up to now.
    fn stats(&self) -> StreamStats;

    /// How each endpoint was fetched, if a Flight server gave a choice.
    fn taken(&self) -> Vec<flight::Taken> {
        Vec::new()
    }
}

impl Counted for Stream {
    fn stats(&self) -> StreamStats {
        self.stats()
    }
}

/// The stream's figures and error, noted here because the C struct has neither.
#[derive(Default)]
struct Seen {
    stats: StreamStats,
    /// Time spent in the stream, without the work on its rows.
    waited: Duration,
    /// The device of the last array.
    device: Option<Device>,
    taken: Vec<flight::Taken>,
    error: Option<Error>,
}

/// A stream that notes its figures.
struct Watched {
    stream: Box<dyn Counted>,
    seen: Arc<Mutex<Seen>>,
    /// The fetch waits for arrays on a GPU, so that their copies are part of its time.
    arrivals: Option<cuda::Stream>,
}

impl Watched {
    /// Waits until an array on a GPU is complete.
    fn arrive(&mut self, array: &OwnedDeviceArray) -> dipc::error::Result<()> {
        let raw = array.raw();
        if raw.sync_event.is_null() {
            return Ok(());
        }
        if self.arrivals.is_none() {
            let device = cuda::Device::get(raw.device_id)?;
            self.arrivals = Some(cuda::Stream::new(&device)?);
        }
        let Some(arrivals) = &self.arrivals else {
            return Ok(());
        };
        // SAFETY: by Arrow's interface the array keeps its event until it is released, and all
        // arrays of a stream of libdipc are on one device.
        unsafe { arrivals.wait_for_producer(raw.sync_event) }?;
        arrivals.synchronize()
    }
}

impl ArrayReader for Watched {
    fn schema(&mut self) -> dipc::error::Result<OwnedSchema> {
        self.stream.schema()
    }

    fn next(&mut self) -> dipc::error::Result<Option<OwnedDeviceArray>> {
        let start = Instant::now();
        let outcome = self.stream.next().and_then(|array| {
            if let Some(array) = &array {
                self.arrive(array)?;
            }
            Ok(array)
        });
        let mut seen = self.seen.lock();
        seen.waited += start.elapsed();
        seen.stats = self.stream.stats();
        if let Ok(Some(array)) = &outcome {
            let raw = array.raw();
            seen.device = Device::of(DeviceKind(raw.device_type), raw.device_id).ok();
        }
        if let Ok(None) = outcome {
            seen.taken = self.stream.taken();
        }
        seen.error = outcome.as_ref().err().cloned();
        outcome
    }

    fn device_type(&self) -> i32 {
        self.stream.device_type()
    }
}

/// A stream read through its C struct.
struct Fetch {
    reader: BatchReader,
    seen: Arc<Mutex<Seen>>,
}

impl Fetch {
    fn new(stream: Box<dyn Counted>, waited: Duration) -> Result<Self> {
        let seen = Arc::new(Mutex::new(Seen {
            waited,
            ..Seen::default()
        }));
        let on_host = stream.device_type() == DeviceKind::CPU.0;
        let watched = Watched {
            stream,
            seen: Arc::clone(&seen),
            arrivals: None,
        };
        let mut exported = export_device_stream(Box::new(watched));
        if !on_host {
            // The work on rows takes place on the host, and is no part of the fetch.
            exported = to_device(to_host(exported)?);
        }
        // SAFETY: the stream is one of libdipc's own, which hands out only arrays that it has
        // checked against the schema (rule A8).
        let reader = unsafe { BatchReader::new(exported) }?;
        Ok(Self { reader, seen })
    }

    fn schema(&self) -> SchemaRef {
        arrow::record_batch::RecordBatchReader::schema(&self.reader)
    }

    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let outcome = self.reader.next_batch();
        // The C struct keeps only the text; the stream's own error has status and text.
        outcome.map_err(|error| self.seen.lock().error.take().unwrap_or(error).into())
    }

    fn stats(&self) -> StreamStats {
        self.seen.lock().stats
    }

    fn report(&self, report: &mut Report) {
        let stats = self.stats();
        report.rows = stats.rows;
        report.batches = stats.batches;
        report.bytes_lent = stats.bytes_lent;
        report.bytes_copied = stats.bytes_copied;
        report.bytes_received = stats.bytes_received;
        report.bytes_copied_on_device = stats.bytes_copied_on_device;
        report.bytes_staged = stats.bytes_staged;
        let mut seen = self.seen.lock();
        report.seconds = seen.waited.as_secs_f64();
        report.device = seen.device.map(|device| device.to_string());
        report.taken = std::mem::take(&mut seen.taken);
    }
}

/// The work on the rows.
struct Work {
    head: Vec<RecordBatch>,
    /// Rows of the head that have not come.
    head_rows: usize,
    shows_head: bool,
    schema: SchemaRef,
    sink: Option<Sink>,
    checksum: Option<Checksum>,
    verify: Option<(String, Verify)>,
}

impl Work {
    fn new(args: &Args, schema: &SchemaRef, expected: Option<(String, Reader)>) -> Result<Self> {
        Ok(Self {
            head: Vec::new(),
            head_rows: args.head.map_or(Ok(0), usize::try_from)?,
            shows_head: args.head.is_some(),
            schema: Arc::clone(schema),
            sink: args
                .output
                .as_ref()
                .map(|target| Sink::create(target, schema))
                .transpose()?,
            checksum: args.checksum.then(|| Checksum::new(schema)),
            verify: expected.map(|(name, reader)| (name, Verify::new(schema, reader))),
        })
    }

    fn take(&mut self, batch: &RecordBatch, cancel: &Cancel) -> Result<()> {
        let rows = self.head_rows.min(batch.num_rows());
        if rows > 0 {
            self.head.push(batch.slice(0, rows));
            self.head_rows -= rows;
        }
        if let Some((_, verify)) = &mut self.verify {
            verify.update(batch)?;
        }
        // The work on the rows can be slower than the fetch, so it checks for signals too.
        let check = || cancel.check();
        if let Some(sink) = &mut self.sink {
            sink.write(batch, &check)?;
        }
        if let Some(checksum) = &mut self.checksum {
            checksum.update(batch, &check)?;
        }
        Ok(check()?)
    }

    /// Whether no further batch is of use: the first rows are there, and nothing else is wanted.
    fn is_done(&self) -> bool {
        let is_whole = self.sink.is_some() || self.checksum.is_some() || self.verify.is_some();
        self.shows_head && self.head_rows == 0 && !is_whole
    }

    /// Completes the work; gives the first rows as a text.
    fn finish(self, args: &Args, report: &mut Report) -> Result<String> {
        if let (Some(sink), Some(target)) = (self.sink, &args.output) {
            sink.finish()?;
            report.output = Some(target.to_string());
        }
        report.checksum = self.checksum.map(|checksum| checksum.finish());
        if let Some((against, verify)) = self.verify {
            let difference = verify.finish()?;
            report.verified = Some(Verified {
                against,
                equal: difference.is_none(),
                difference,
            });
        }
        if args.head.is_none() {
            return Ok(String::new());
        }
        let table = display::table(&self.schema, &self.head).context("cannot show the rows")?;
        Ok(format!("{table}\n"))
    }
}

/// A line on a terminal with the rows fetched; the length of a stream is unknown.
struct Progress(ProgressBar);

impl Progress {
    fn new(hidden: bool) -> Self {
        if hidden || !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    fn show(&self, stats: &StreamStats) {
        if !self.0.is_hidden() {
            let bytes = bytes_text(stats.bytes_lent + stats.bytes_received);
            self.0.set_message(format!(
                "{} rows, {bytes}",
                indicatif::HumanCount(stats.rows)
            ));
        }
    }

    fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
