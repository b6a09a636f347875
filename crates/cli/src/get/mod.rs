//! `dipc get`: fetches a table and reports its cost.

mod args;
mod condition;
pub mod progress;
mod stream;
mod work;

use std::io::{IsTerminal as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use dipc::{Cancel, Client, GetOptions, Selection, Target as Device};

pub use args::Args;
use condition::Condition;
use progress::{Progress, Totals};
use stream::Fetch;
use work::Work;
pub use work::narrow;

use crate::fetched::{Counted, ask_selected};
use crate::flight::{self, Times};
use crate::parse::UsageError;
use crate::report::Report;
use crate::sink::Target;
use crate::source::{Reader, Reading, Source};
use crate::{output, signals};

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
    // A write waits for the reader of stdout.
    let cancel = signals::cancelling(to_stdout.then_some(INTERRUPTED))?;
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

/// The message of `--where`, for which the server tells the columns.
fn ask_filter(
    condition: &Condition,
    (client, options): (&Client, &GetOptions),
    (uris, ticket): (&[&str], &str),
) -> Result<Vec<u8>> {
    let described = client.describe_with(uris.to_vec(), ticket, options);
    let described = described.context("--where needs the table's columns")?;
    let Some(schema) = described.table_schema()? else {
        bail!("--where needs the table's columns, and the server does not tell them");
    };
    condition.message(&schema).context("--where")
}

/// Asks the server how large the selection is. The answer is for the progress alone, so a server
/// that is slow or does not know is no failure.
fn ask_totals(
    (client, options): (&Client, &GetOptions),
    (uris, ticket): (&[&str], &str),
    selection: &Selection,
) -> Totals {
    const PATIENCE: Duration = Duration::from_secs(3);
    let options = options.clone().deadline(PATIENCE);
    let answer = client.describe_with(uris.to_vec(), ticket, &options);
    answer.map_or(Totals::default(), |described| Totals {
        rows: described
            .total_rows()
            .filter(|_| selection.filter().is_none())
            .map(|rows| {
                let left = rows.saturating_sub(selection.first_row());
                selection.rows().map_or(left, |most| most.min(left))
            }),
        bytes: described.total_bytes().filter(|_| selection.is_all()),
    })
}

/// Asks a server of libdipc for the table.
fn open(
    args: &Args,
    (client, options): (&Client, &GetOptions),
    (uris, ticket): (&[&str], &str),
    selection: &Selection,
) -> dipc::Result<Box<dyn Counted>> {
    let stream = ask_selected(selection, |selection| {
        let options = options.clone().selection(selection);
        match args.parts {
            true => client.get_parts(uris.to_vec(), ticket, &options),
            false => client.get_with(uris.to_vec(), ticket, &options),
        }
    })?;
    Ok(Box::new(stream))
}

/// Asks a Flight server for the table.
fn open_flight(
    args: &Args,
    (uri, name): (&str, &str),
    how: flight::How,
    cancel: &Cancel,
) -> Result<Box<dyn Counted>> {
    let times = Times::of(args.timeout, args.deadline);
    let named = (name, args.command);
    let asked = flight::Asked::of(uri, named, (times, &args.trust), cancel, how)?;
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
    let client = args.trust.client()?;
    let mut options = GetOptions::new()
        .cancel(cancel)
        .connections(args.connections)
        .checksums(args.message_checksums)
        .spin(args.spin)
        .device(args.device)
        .trusted_network(args.trusted_network)
        .headers(args.trust.headers()?)
        .send_secrets(args.trust.send_secrets);
    if let Some(limit) = args.max_message {
        options = options.message_limit(limit);
    }
    if let Some(timeout) = args.timeout {
        options = options.connect_timeout(timeout).stall_timeout(timeout);
    }
    if let Some(deadline) = args.deadline {
        options = options.deadline(deadline);
    }
    let shows_progress = !args.json && !args.wants_head_alone() && Progress::is_shown();
    let mut totals = Totals::default();
    let stream: Box<dyn Counted> = match uris {
        [uri] if flight::is_flight(uri) => {
            let how = flight::How {
                trusted_network: args.trusted_network,
                client,
                options,
                message_limit: args.max_message,
            };
            open_flight(args, (uri, ticket), how, cancel)?
        }
        uris => {
            let from = (&client, &options);
            let condition = args.condition.as_ref();
            let filter = condition
                .map(|it| ask_filter(it, from, (uris, ticket)))
                .transpose()?;
            let selection = args.selection(filter)?;
            if shows_progress {
                totals = ask_totals(from, (uris, ticket), &selection);
            }
            open(args, from, (uris, ticket), &selection)?
        }
    };
    if args.condition.is_none() {
        totals.rows = totals.rows.or(stream.total_rows());
    }
    let mut fetch = Fetch::new(stream, start.elapsed());
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
