//! The `dipc` command: serves tables to other processes and fetches them.
//!
//! Exit status: 0 done, 1 failed (or not equal, with `get --verify`), 2 wrong usage.

mod bench;
mod calm;
mod checksum;
mod describe;
mod display;
mod documents;
mod flight;
mod get;
mod info;
mod lend;
mod lengths;
mod listening;
mod logging;
mod metrics;
mod output;
mod put;
mod report;
mod serve;
mod service;
mod signals;
mod sink;
mod source;
mod top;
mod tpch;
mod trust;
mod verify;

use std::io;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};
use dipc::error::{Error, Status};
use dipc::server::Server;
use dipc::transport::Settings;
use logging::LogChoice;

/// Moves Apache Arrow tables between processes without serialising them.
#[derive(Parser)]
#[command(
    name = "dipc",
    version,
    author,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Level of the log on stderr: off, error, warn, info, debug or trace; "json" for JSON at info,
    /// or both: debug,json
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn")]
    log: LogChoice,
}

#[derive(Subcommand)]
enum Command {
    /// Serve tables until SIGINT or SIGTERM comes
    Serve(serve::Args),
    /// Fetch a table
    Get(get::Args),
    /// Send a table to a server that takes tables
    Put(put::Args),
    /// List the tables of a server
    Ls(describe::ListArgs),
    /// Show what a table is, without fetching it
    Describe(describe::DescribeArgs),
    /// Show the figures of a server, as `dipc serve --metrics` gives them
    Top(top::Args),
    /// Measure how fast tables move between two processes on this machine
    Bench(Box<bench::Args>),
    /// One of the two processes of a measurement
    #[command(name = bench::SUBCOMMAND, hide = true)]
    BenchProcess,
    /// Write manual pages and shell completions, for packages
    #[command(hide = true)]
    Documents(documents::Args),
    /// Show which transports and devices work here, and why the others do not
    Info(info::Args),
}

/// An error in the command line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// The exit status where a server is busy: the same command may succeed later (EX_TEMPFAIL of
/// sysexits.h).
const BUSY: u8 = 75;

fn main() -> ExitCode {
    calm::install();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version come here too.
        Err(error) => {
            let code = if error.use_stderr() { 2 } else { 0 };
            // A closed stdout or stderr cannot be reported.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    logging::install(cli.log);
    if let Err(error) = signals::survive_file_limit() {
        output::complain(&format!("{error:#}"));
        return ExitCode::FAILURE;
    }
    let (name, outcome) = match cli.command {
        Command::Serve(args) => ("serve", serve::run(&args)),
        Command::Get(args) => ("get", get::run(&args)),
        Command::Put(args) => ("put", put::run(&args)),
        Command::Ls(args) => ("ls", describe::list(&args)),
        Command::Describe(args) => ("describe", describe::describe(&args)),
        Command::Top(args) => ("top", top::run(&args)),
        Command::Bench(args) => ("bench", bench::run(&args, cli.log.level)),
        Command::BenchProcess => (bench::SUBCOMMAND, bench::run_process()),
        Command::Documents(args) => ("documents", documents::run::<Cli>(&args)),
        Command::Info(args) => ("info", info::run(&args)),
    };
    match outcome {
        Ok(code) => code,
        Err(error) if error.is::<output::Closed>() => ExitCode::SUCCESS,
        Err(error) if error.is::<UsageError>() => {
            let mut command = Cli::command();
            // Gives the subcommand its whole name.
            command.build();
            let error = match command.find_subcommand_mut(name) {
                Some(found) => found.error(ErrorKind::MissingRequiredArgument, error),
                None => command.error(ErrorKind::MissingRequiredArgument, error),
            };
            let _ = error.print();
            ExitCode::from(2)
        }
        Err(error) => {
            output::complain(&format!(
                "{}{}",
                output::whole(&error),
                remedy(name, &error)
            ));
            match error.chain().any(is_busy) {
                true => ExitCode::from(BUSY),
                false if name == "serve" => ExitCode::FAILURE,
                false => signals::failure(),
            }
        }
    }
}

/// Whether a server had no room for the request.
fn is_busy(error: &(dyn std::error::Error + 'static)) -> bool {
    (error.downcast_ref::<Error>()).is_some_and(|error| error.status() == Status::Busy)
}

/// Advice for an error of the subcommand `name`: errors of the library do not name options of the
/// command.
fn remedy(name: &str, error: &anyhow::Error) -> &'static str {
    // A server's time limits have other options.
    let is_late = |error: &(dyn std::error::Error + 'static)| {
        (error.downcast_ref::<Error>()).is_some_and(|error| {
            error.status() == Status::Timeout && !error.text().starts_with("the server: ")
        })
    };
    let is_unknown = |error: &(dyn std::error::Error + 'static)| {
        (error.downcast_ref::<Error>()).is_some_and(|error| {
            error.status() == Status::NotFound && error.text().contains("has no ticket")
        })
    };
    if ["get", "describe"].contains(&name) && error.chain().any(is_unknown) {
        "; `dipc ls URI` lists its tickets"
    } else if output::io_kind(error) == Some(io::ErrorKind::FileTooLarge) {
        "; raise the limit on the size of files (ulimit -f)"
    } else if ["get", "put", "ls", "describe"].contains(&name)
        && error.chain().any(is_late)
        && !error
            .chain()
            .any(|part| part.to_string().contains("--timeout"))
    {
        "; --timeout sets this time"
    } else {
        ""
    }
}

/// Reads a time: `5`, `2.5s`, `300ms`, `50us`, `2m`.
fn parse_duration(text: &str) -> Result<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        unit => bail!("{unit:?} is not a unit of time; use us, ms, s or m"),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| anyhow!("{digits:?} is not a number"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|error| anyhow!("{text:?}: {error}"))
}

/// Reads a time limit.
fn parse_timeout(text: &str) -> Result<Duration> {
    match parse_duration(text)? {
        Duration::ZERO => bail!("a time-out of 0 lets nothing come; the least is 1us"),
        timeout => Ok(timeout),
    }
}

/// Reads a number of at least 1.
fn parse_count(text: &str) -> Result<NonZeroUsize> {
    match text.parse::<usize>().map(NonZeroUsize::new) {
        Ok(Some(count)) => Ok(count),
        Ok(None) => bail!("the least is 1"),
        Err(error) => bail!("{text:?} is not a whole number from 1 on: {error}"),
    }
}

/// Reads `NAME=VALUE`.
fn parse_setting(text: &str) -> Result<(String, String)> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => bail!("{text:?} is not NAME=VALUE, as ucx.TLS=tcp"),
    }
}

/// Listens at `uri`; gives the whole URI. A failure names the address.
fn listen(server: &Server, uri: &str) -> Result<String> {
    if uri.starts_with("mem:") {
        bail!("{uri} can be reached within this process alone; use shm:, tcp: or ucx:");
    }
    if uri.starts_with("grpc") {
        bail!("{uri} is an address of Arrow Flight: give HOST:PORT to --flight");
    }
    let address = uri.split('?').next().unwrap_or(uri);
    server.listen(uri).map_err(|error| {
        let names = error.text().contains(address);
        let error = anyhow::Error::from(error);
        match names {
            true => error,
            false => error.context(format!("cannot listen at {address}")),
        }
    })
}

/// The transport settings of the arguments.
fn settings(given: &[(String, String)]) -> dipc::error::Result<Settings> {
    let mut settings = Settings::default();
    for (name, value) in given {
        settings.set(name, value)?;
    }
    Ok(settings)
}

/// Reads a number of bytes: `4096`, `64K`, `512M`, `16G`, in powers of 1024.
fn parse_bytes(text: &str) -> Result<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        unit => bail!("{unit:?} is not a unit of memory; use K, M, G or T"),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| anyhow!("{digits:?} is not a whole number"))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| anyhow!("{text} is more than there is"))
}

/// Least limit for a message: a schema is a message too.
const LEAST_MESSAGE: u64 = 64 << 10;

/// Reads the limit for a message.
fn parse_message(text: &str) -> Result<u64> {
    match parse_bytes(text)? {
        bytes if bytes < LEAST_MESSAGE => bail!("the least is {}K", LEAST_MESSAGE >> 10),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definitions of the arguments have no contradictions.
    #[test]
    fn the_arguments_are_sound() {
        Cli::command().debug_assert();
    }

    /// Times and sizes are read with their units, and refused without a known one.
    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(parse_duration("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(parse_duration("300ms").unwrap(), Duration::from_millis(300));
        assert_eq!(parse_duration("50us").unwrap(), Duration::from_micros(50));
        assert_eq!(parse_duration("2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "s", "-1s", "1h", "nan", "inf", "1e300m"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert_eq!(parse_bytes("64K").unwrap(), 65_536);
        assert_eq!(parse_bytes("2GiB").unwrap(), 2 << 30);
        for bad in ["", "G", "-1", "1.5G", "1X", "99999999999T"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
