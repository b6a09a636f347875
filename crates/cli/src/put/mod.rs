//! `dipc put`: sends a table to a server.

mod rows;

use std::fmt;
use std::io::{IsTerminal as _, stdin};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use dipc::{Cancel, Client, Put, PutOptions, PutStats, StreamStats};
use serde::Serialize;

use rows::Rows;

use crate::accept::TICKET_HEADER;
use crate::display::escape;
use crate::flight::{self, FlightPut, Times};
use crate::get::progress::Progress;
use crate::parse::UsageError;
use crate::report::{bytes_text, counted};
use crate::source::Reading;
use crate::{output, signals};

/// Arguments of `dipc put`.
#[derive(clap::Args)]
pub struct Args {
    /// The server's URI, or that of an Arrow Flight server (grpc://HOST:PORT, grpc+unix:///PATH)
    uri: String,

    /// The name of the table there; a server of --accept writes the format of its ending: .arrow,
    /// .arrows or .parquet
    name: String,

    /// Parquet, Arrow file or Arrow stream files, or tpch:TABLE:SCALE; several with the same
    /// columns are one table. With - an Arrow stream on stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Give a Flight server NAME as a command, not as the path [NAME]
    #[arg(long)]
    command: bool,

    /// Send only these columns, in this order
    #[arg(long, value_name = "NAME,...")]
    columns: Option<String>,

    /// Most rows of a batch; a batch of a Parquet file has fewer if it would exceed --max-message
    #[arg(long, value_name = "N", value_parser = crate::parse::count)]
    batch_rows: Option<NonZeroUsize>,

    /// How long the server may take to accept and answer, and how long it may take nothing later;
    /// at least 1us (without this option 10s to accept and answer, and no limit later)
    #[arg(long, value_name = "TIME", value_parser = crate::parse::timeout)]
    timeout: Option<Duration>,

    /// How long the whole put may take. The command asks a busy server again within this time
    #[arg(long, value_name = "TIME", value_parser = crate::parse::timeout)]
    deadline: Option<Duration>,

    #[command(flatten)]
    trust: crate::trust::ClientTrust,

    /// Most memory that one message of an Arrow file may take beside its body, or a batch of a
    /// Parquet file beside its bytes in the file [default: 512M; at least 64K]
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::message)]
    max_message: Option<u64>,

    /// Connections that carry the stream, if the transport can use several (tcp)
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,

    /// Check each message by a checksum where a network could change it unseen (tcp and ucx)
    #[arg(long)]
    message_checksums: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

const INTERRUPTED: &str = "interrupted before the server had the whole table";

/// The figures of one table.
#[derive(Serialize)]
struct Report {
    name: String,
    rows: u64,
    batches: u64,
    /// Seconds from the request to the server's last word, including the reading of the files.
    seconds: f64,
    bytes_lent: u64,
    bytes_copied: u64,
    bytes_sent: u64,
    /// The ticket under which the server gives the table, if it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    /// The metadata of a Flight server's last result, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} in {}\ntaken in {:.3} s; {} lent, {} copied, {} sent",
            escape(&self.name),
            counted(self.rows, "row", "rows"),
            counted(self.batches, "batch", "batches"),
            self.seconds,
            bytes_text(self.bytes_lent),
            bytes_text(self.bytes_copied),
            bytes_text(self.bytes_sent)
        )?;
        if let Some(ticket) = &self.ticket {
            write!(f, "\nthe server has it as {}", escape(ticket))?;
        }
        match &self.result {
            Some(result) => write!(f, "\nthe server says {}", escape(result)),
            None => Ok(()),
        }
    }
}

/// Runs `dipc put`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let from_stdin = args.files.iter().any(|file| file == "-");
    if from_stdin && stdin().is_terminal() {
        let text = "a terminal has no Arrow stream: give - a pipe or a file on stdin";
        return Err(UsageError(text.to_owned()).into());
    }
    if args.files.iter().filter(|file| *file == "-").count() > 1 {
        let text = "stdin can be read once: give - once";
        return Err(UsageError(text.to_owned()).into());
    }
    if args.command && !flight::is_flight(&args.uri) {
        let text = "--command is for Flight servers: dipc put grpc://HOST:PORT COMMAND FILE";
        return Err(UsageError(text.to_owned()).into());
    }
    // A read waits for the writer of stdin. If its client is dropped, the table fails.
    let cancel = signals::cancelling(from_stdin.then_some(INTERRUPTED))?;
    let reading = Reading {
        batch_rows: args.batch_rows.map(NonZeroUsize::get),
        message_limit: args.max_message,
    };
    let rows = Rows::open(&args.files, args.columns.as_deref(), reading)?;
    let report = send(args, rows, &cancel).map_err(|error| match cancel.is_cancelled() {
        true => anyhow!(INTERRUPTED),
        false => error,
    })?;
    match args.json {
        true => output::print_json(&report)?,
        false => output::print(&report.to_string())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends the rows, and waits until the server has taken them.
fn send(args: &Args, rows: Rows, cancel: &Cancel) -> Result<Report> {
    let start = Instant::now();
    let mut sending = begin(args, &rows.reader.schema(), cancel)?;
    let progress = match !args.json && Progress::is_shown() {
        true => Progress::start(rows.totals),
        false => Progress::hidden(),
    };
    let mut count = 0;
    for next in rows.reader {
        let (batch, metadata) = next.map_err(|error| sending.fail(error))?;
        // Reading can be slower than the server, so it checks for signals too.
        cancel.check()?;
        count += batch.num_rows() as u64;
        sending.push(batch, &metadata)?;
        let stats = sending.stats();
        let mut shown = StreamStats::default();
        shown.rows = count;
        shown.bytes_lent = stats.bytes_lent;
        shown.bytes_received = stats.bytes_copied + stats.bytes_sent;
        progress.show(&shown);
    }
    let (ticket, result) = sending.finish()?;
    progress.clear();
    let stats = sending.stats();
    Ok(Report {
        name: args.name.clone(),
        rows: count,
        batches: stats.batches,
        seconds: start.elapsed().as_secs_f64(),
        bytes_lent: stats.bytes_lent,
        bytes_copied: stats.bytes_copied,
        bytes_sent: stats.bytes_sent,
        ticket,
        result,
    })
}

/// Asks the server to take a table of these columns.
fn begin(args: &Args, schema: &SchemaRef, cancel: &Cancel) -> Result<Sending> {
    if flight::is_flight(&args.uri) {
        let named = (args.name.as_str(), args.command);
        let times = Times::of(args.timeout, args.deadline);
        let put = FlightPut::open(&args.uri, named, schema, (times, &args.trust), cancel)?;
        return Ok(Sending::Flight(Box::new(put)));
    }
    let mut options = PutOptions::new()
        .cancel(cancel)
        .connections(args.connections)
        .checksums(args.message_checksums)
        .headers(args.trust.headers()?)
        .send_secrets(args.trust.send_secrets);
    if let Some(timeout) = args.timeout {
        options = options.connect_timeout(timeout).stall_timeout(timeout);
    }
    if let Some(deadline) = args.deadline {
        options = options.deadline(deadline);
    }
    let client = args.trust.client()?;
    let put = Box::new(client.start_put(&args.uri, &args.name, schema, &options)?);
    Ok(Sending::Libdipc {
        put,
        _client: client,
    })
}

/// A table on its way.
enum Sending {
    Libdipc {
        put: Box<Put>,
        /// Lives as long as its stream.
        _client: Client,
    },
    Flight(Box<FlightPut>),
}

impl Sending {
    /// Sends a batch, and its custom metadata.
    fn push(&mut self, batch: RecordBatch, metadata: &[(String, String)]) -> Result<()> {
        match self {
            Self::Libdipc { put, .. } => {
                let pairs = metadata.iter().map(|(key, value)| (key, value));
                Ok(put.push_with_metadata(batch, pairs)?)
            }
            Self::Flight(put) => Ok(put.push(&batch, metadata)?),
        }
    }

    /// The source has failed: the server learns why, or that the call is cancelled.
    fn fail(&mut self, error: ArrowError) -> anyhow::Error {
        let error = match error {
            ArrowError::ExternalError(cause) => anyhow!("{cause}"),
            other => other.into(),
        };
        if let Self::Libdipc { put, .. } = self {
            put.fail(&output::whole(&error));
        }
        error
    }

    /// Waits until the server has taken the table. Gives the ticket there, or what a Flight server
    /// says.
    fn finish(&mut self) -> Result<(Option<String>, Option<String>)> {
        match self {
            Self::Libdipc { put, .. } => {
                put.finish()?;
                let headers = put.headers();
                let ticket = headers.get(TICKET_HEADER);
                let ticket = ticket.map(|ticket| String::from_utf8_lossy(ticket).into_owned());
                Ok((ticket, None))
            }
            Self::Flight(put) => Ok((None, put.finish()?)),
        }
    }

    fn stats(&self) -> PutStats {
        match self {
            Self::Libdipc { put, .. } => put.stats(),
            Self::Flight(put) => put.stats(),
        }
    }
}
