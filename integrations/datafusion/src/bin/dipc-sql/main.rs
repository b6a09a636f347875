//! `dipc-sql`: runs SQL on worker processes that shuffle over libdipc.
//!
//! ```sh
//! dipc-sql worker --listen 127.0.0.1:7000 &
//! dipc-sql worker --listen 127.0.0.1:7010 &
//! dipc-sql query --workers http://127.0.0.1:7000,http://127.0.0.1:7010 \
//!     --tpch 0.1 --scan-bytes 1000000 --explain \
//!     "SELECT l_shipmode, count(*) FROM lineitem GROUP BY l_shipmode"
//! ```
//!
//! Exit status: 0 done, 1 failed, 2 wrong usage.

mod bench;
mod query;
mod session;
mod stages;
mod tpch;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Queries allocate on many threads and free on others.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs SQL on worker processes that shuffle over libdipc.
#[derive(Parser)]
#[command(name = "dipc-sql", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs parts of queries for others, until a signal
    Worker(worker::Args),
    /// Runs queries and prints their results
    Query(query::Args),
    /// Measures libdipc beside the engine's own channel
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dipc-sql: {}", brief(&error));
            ExitCode::FAILURE
        }
    }
}

/// What failed, and its causes. DataFusion and its transport say some of them again and again.
fn brief(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        let cause = cause.split("\ncaused by\n").take(2).collect::<Vec<_>>();
        let cause = cause.join(": ").replace("External error: ", "");
        if !text.contains(&cause) {
            let colon = if text.is_empty() { "" } else { ": " };
            text = format!("{text}{colon}{cause}");
        }
    }
    text
}

fn run(command: Command) -> Result<()> {
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    match command {
        Command::Worker(args) => runtime.block_on(worker::run(args)),
        Command::Query(args) => runtime.block_on(query::run(args)),
        Command::Bench(args) => runtime.block_on(bench::run(args)),
    }
}

/// Each stream takes some file descriptors, and a shuffle has many streams.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    // With the old limit a large shuffle says what it lacks.
    let _ = setrlimit(Resource::Nofile, raised);
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use clap::CommandFactory as _;
    use datafusion::common::DataFusionError;

    use super::*;

    /// Promise of clap: options and groups have names of their own.
    #[test]
    fn options_are_declared_soundly() {
        Cli::command().debug_assert();
    }

    /// Promise of the command: an error says each cause once.
    #[test]
    fn errors_are_brief() {
        let lost = dipc::Error::new(dipc::Status::Disconnected, "worker 2: it has gone");
        let error = anyhow::Error::new(DataFusionError::External(lost.into()));
        assert_eq!(brief(&error), "worker 2: it has gone");
        let error = Err::<(), _>(error).context("query 3").unwrap_err();
        assert_eq!(brief(&error), "query 3: worker 2: it has gone");
    }
}
