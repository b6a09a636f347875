//! The `dipc` command: serves tables to other processes and fetches them.
//!
//! Exit status: 0 done, 1 failed (or not equal, with `get --verify`), 2 wrong usage.

mod accept;
mod access;
mod bench;
mod calm;
mod checksum;
mod columns;
mod describe;
mod display;
mod documents;
mod fetched;
mod flight;
mod get;
mod growth;
mod info;
mod lend;
mod lengths;
mod lines;
mod listening;
mod logging;
mod metrics;
mod output;
mod parse;
mod put;
mod rebuild;
mod report;
mod serve;
mod served;
mod service;
mod signals;
mod sink;
mod soundness;
mod source;
mod tables;
mod top;
mod trust;
mod verify;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};
use dipc::{Error, Status};

use logging::LogChoice;
use parse::UsageError;

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
    } else if ["get", "put", "ls", "describe"].contains(&name) && error.chain().any(is_late) {
        let says = |text: &str| error.chain().any(|part| part.to_string().contains(text));
        match () {
            () if says("--timeout") || says("--deadline") => "",
            () if says("within its deadline of") => "; --deadline sets this time",
            () => "; --timeout sets this time",
        }
    } else {
        ""
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
}
