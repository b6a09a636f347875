//! `dipc get`: fetches a table and reports its cost.

mod columns;
mod condition;
pub mod progress;
mod stream;
mod work;

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use dipc::arrow::schema_from_c;
use dipc::cancel::Cancel;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::device::Target as Device;
use dipc::{Selection, Status};

pub use columns::Columns;
use condition::Condition;
use progress::{Progress, Totals};
pub use stream::Counted;
use stream::Fetch;
use work::Work;
pub use work::narrow;

use crate::parse::{self, UsageError};
use crate::report::Report;
use crate::sink::Target;
use crate::source::{Reader, Reading, Source};
use crate::{flight, output, signals};

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

    /// Use ucx addresses of a Flight server, or of parts, too: their peers can read and write this
    /// process's memory
    #[arg(long)]
    trusted_network: bool,

    /// Print the first N rows as a table (0 to 1000000; 0: only the columns), times of a named zone
    /// in UTC; without --output, --verify and --checksum the rest is not fetched; not with --json
    #[arg(long, value_name = "N", conflicts_with = "json")]
    #[arg(value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    head: Option<u32>,

    /// Write the table to FILE.arrow (Arrow file), .arrows (Arrow stream), .parquet or .csv. With -
    /// an Arrow stream goes to stdout, and the report to stderr
    #[arg(long, value_name = "FILE", value_parser = Target::parse)]
    output: Option<Target>,

    /// Fetch only these columns, in this order. Servers that send whole tables alone, as those of
    /// Flight do, still send all of them; what is shown, written, compared and hashed has these
    #[arg(long, value_name = "NAME,...")]
    columns: Option<String>,

    /// Fetch only rows for which CONDITION is true, an expression of SQL such as "price > 2.5 AND
    /// name LIKE 'a%'". The server evaluates it, before --offset and --limit
    #[arg(long = "where", value_name = "CONDITION", conflicts_with = "verify")]
    #[arg(allow_hyphen_values = true, value_parser = Condition::parse)]
    condition: Option<Condition>,

    /// Skip the first N rows of the table; the server does not send them
    #[arg(long, value_name = "N", default_value = "0", conflicts_with_all = ["parts", "verify"])]
    offset: u64,

    /// Fetch at most N rows; the server does not send the others
    #[arg(long, value_name = "N", conflicts_with_all = ["parts", "verify"])]
    limit: Option<u64>,

    /// Fetch the parts of the table, several at once: the endpoints that `dipc describe` shows,
    /// which may be on other servers. Rows come in any order, unless the server says that it
    /// matters
    #[arg(long)]
    parts: bool,

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
    #[arg(long, value_name = "TIME", value_parser = crate::parse::timeout)]
    timeout: Option<Duration>,

    /// How long the whole stream may take. The command asks a busy server again within this time
    #[arg(long, value_name = "TIME", value_parser = crate::parse::timeout)]
    deadline: Option<Duration>,

    /// Accept servers of every user, not only of your own
    #[arg(long)]
    any_user: bool,

    #[command(flatten)]
    trust: crate::trust::ClientTrust,

    /// Most memory that one message may take beside its body (unpacked, copied, or as dictionaries
    /// of the stream), such as 512M; a larger message is an error. At least 64K; without this
    /// option 512M, or 16G for a server of the same user over shm. Also limits a batch of the
    /// Parquet file of --verify
    #[arg(long, value_name = "BYTES", value_parser = crate::parse::message)]
    max_message: Option<u64>,

    /// Connections that carry the stream, if the transport can use several (tcp)
    #[arg(long, value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    connections: u16,

    /// How long to spin for data before sleeping (0: not at all); spinning uses a whole core
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = crate::parse::duration)]
    spin: Duration,

    /// Check each message by a checksum where a network could change it unseen (tcp and ucx)
    #[arg(long)]
    message_checksums: bool,

    /// Set an option of one transport, such as ucx.TLS=tcp; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = crate::parse::setting)]
    settings: Vec<(String, String)>,

    /// Print JSON; not with --head
    #[arg(long)]
    json: bool,
}

const INTERRUPTED: &str = "interrupted before the end of the table";

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
    let to_stdout = args.output.as_ref().is_some_and(Target::is_stdout);
    if to_stdout && stdout().is_terminal() {
        let text = "a terminal cannot show an Arrow stream: give --output - a pipe or a file";
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
    let interrupted = move || {
        first.cancel();
        if to_stdout {
            // A write waits for the reader of stdout, whatever happens meanwhile.
            thread::sleep(Duration::from_secs(1));
            output::complain(INTERRUPTED);
            signals::give_up();
        }
    };
    signals::watch(interrupted, signals::give_up)?;
    fetch(args, &uris, ticket, expected, &cancel).map_err(|error| {
        if !cancel.is_cancelled() || error.is::<output::Closed>() {
            return error;
        }
        match to_stdout {
            true => anyhow!(INTERRUPTED),
            false => anyhow!("{INTERRUPTED}; nothing was written"),
        }
    })
}

impl Args {
    /// Whether the first rows are all that is wanted of the table.
    fn wants_head_alone(&self) -> bool {
        let wants_all = self.output.is_some() || self.verify.is_some() || self.checksum;
        self.head.is_some() && !wants_all
    }

    /// The part of the table that is asked for, of those rows that pass `filter`. A text that cannot
    /// name columns is no error: it may name a column whose name has a comma, which only the work on
    /// the rows finds.
    fn selection(&self, filter: Option<Vec<u8>>) -> dipc::Result<Selection> {
        let mut selection = Selection::new();
        if let Some(filter) = filter {
            selection.set_filter(filter)?;
        }
        selection.set_rows(self.offset, self.limit);
        if let Some(names) = &self.columns {
            let _ = selection.set_columns(names.split(','));
        }
        Ok(selection)
    }
}

/// The message of `--where`, for which the server tells the columns.
fn ask_filter(
    condition: &Condition,
    (client, options): (&Client, &GetOptions),
    (uris, ticket): (&[&str], &str),
    cancel: &Cancel,
) -> Result<Vec<u8>> {
    let described = client.describe(uris, ticket.as_bytes(), options, Some(cancel));
    let (described, _) = described.context("--where needs the table's columns")?;
    let Some(schema) = described.schema()? else {
        bail!("--where needs the table's columns, and the server does not tell them");
    };
    condition
        .message(&schema_from_c(&schema)?)
        .context("--where")
}

/// Asks the server how large the selection is. The answer is for the progress alone, so a server
/// that is slow or does not know is no failure.
fn ask_totals(
    (client, options): (&Client, &GetOptions),
    (uris, ticket): (&[&str], &str),
    selection: &Selection,
    cancel: &Cancel,
) -> Totals {
    const PATIENCE: Duration = Duration::from_secs(3);
    let options = GetOptions {
        connect_timeout: options.connect_timeout.min(PATIENCE),
        deadline: Some(PATIENCE),
        ..options.clone()
    };
    let answer = client.describe(uris, ticket.as_bytes(), &options, Some(cancel));
    answer.map_or(Totals::default(), |(described, _)| Totals {
        rows: described
            .rows
            .filter(|_| selection.filter().is_none())
            .map(|rows| {
                let left = rows.saturating_sub(selection.first_row());
                selection.rows().map_or(left, |most| most.min(left))
            }),
        bytes: described.bytes.filter(|_| selection.is_all()),
    })
}

/// Asks for the selection of `options`. Where the server cannot select the columns, asks for all of
/// them: the work on the rows leaves out the others, or says which there are.
pub fn ask_selected<T>(
    options: &GetOptions,
    ask: impl Fn(&GetOptions) -> dipc::Result<T>,
) -> dipc::Result<T> {
    let selection = &options.selection;
    match ask(options) {
        Err(error)
            if selection.columns().is_some()
                && matches!(
                    error.status(),
                    Status::Unsupported | Status::InvalidArgument
                ) =>
        {
            let mut rows = Selection::new();
            if let Some(filter) = selection.filter() {
                rows.set_filter(filter)?;
            }
            rows.set_rows(selection.first_row(), selection.rows());
            ask(&GetOptions {
                selection: rows,
                ..options.clone()
            })
        }
        asked => asked,
    }
}

/// Asks a server of libdipc for the table.
fn open(
    args: &Args,
    (client, options): (&Client, &GetOptions),
    (uris, ticket): (&[&str], &str),
    selection: Selection,
    cancel: &Cancel,
) -> dipc::Result<Box<dyn Counted>> {
    let ask = |options: &GetOptions| -> dipc::Result<Box<dyn Counted>> {
        let ticket = ticket.as_bytes();
        Ok(match args.parts {
            true => Box::new(client.get_parts(uris, ticket, options, Some(cancel))?),
            false => Box::new(client.get(uris, ticket, options, Some(cancel))?),
        })
    };
    let options = GetOptions {
        selection,
        ..options.clone()
    };
    ask_selected(&options, ask)
}

/// Asks a Flight server for the table.
fn open_flight(args: &Args, request: flight::Request<'_>) -> Result<Box<dyn Counted>> {
    let asked = flight::Asked::of(request)?;
    let filter = (args.condition.as_ref())
        .map(|condition| {
            let schema = asked
                .schema()
                .context("--where needs the table's columns")?;
            condition.message(&schema).context("--where")
        })
        .transpose()?;
    let selection = args.selection(filter)?;
    Ok(Box::new(asked.fetch(selection, args.columns.as_deref())?))
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
        settings: parse::settings(&args.settings)?,
        tls: args.trust.options(),
        ..ClientOptions::default()
    })?;
    let mut options = GetOptions {
        connections: args.connections,
        checksums: args.message_checksums,
        spin: args.spin,
        device: args.device,
        message_limit: args.max_message,
        trusted_network: args.trusted_network,
        headers: args.trust.headers()?,
        send_secrets: args.trust.send_secrets,
        deadline: args.deadline,
        ..GetOptions::default()
    };
    if let Some(timeout) = args.timeout {
        options.connect_timeout = timeout;
        options.stall_timeout = Some(timeout);
    }
    let shows_progress = !args.json && !args.wants_head_alone() && Progress::is_shown();
    let mut totals = Totals::default();
    let stream: Box<dyn Counted> = match uris {
        [uri] if flight::is_flight(uri) => {
            let request = flight::Request {
                uri,
                name: ticket,
                command: args.command,
                trusted_network: args.trusted_network,
                client,
                options,
                trust: &args.trust,
                cancel: cancel.clone(),
            };
            open_flight(args, request)?
        }
        uris => {
            let from = (&client, &options);
            let condition = args.condition.as_ref();
            let filter = condition
                .map(|it| ask_filter(it, from, (uris, ticket), cancel))
                .transpose()?;
            let selection = args.selection(filter)?;
            if shows_progress {
                totals = ask_totals(from, (uris, ticket), &selection, cancel);
            }
            open(args, from, (uris, ticket), selection, cancel)?
        }
    };
    if args.condition.is_none() {
        totals.rows = totals.rows.or(stream.total_rows());
    }
    let mut fetch = Fetch::new(stream, start.elapsed())?;
    let mut work = Work::new(args, &fetch.schema(), expected)?;
    let progress = match shows_progress {
        true => Progress::start(totals),
        false => Progress::hidden(),
    };
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
    let printed = match args.output.as_ref().is_some_and(Target::is_stdout) {
        true => output::print_aside(&text),
        false => output::print(&text),
    };
    match printed {
        // The exit status tells whether the tables are equal, even if the output is closed.
        Err(error) if !error.is::<output::Closed>() => Err(error),
        _ if equal => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}
