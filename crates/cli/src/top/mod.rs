//! `dipc top`: the figures of a server as a table, again and again.

mod page;
mod rows;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::output;
use page::{address, fetch, samples};
use rows::Figures;

/// Arguments of `dipc top`.
#[derive(clap::Args)]
pub struct Args {
    /// Where the figures are: what `dipc serve --metrics` prints, or its HOST:PORT
    #[arg(value_name = "ADDRESS")]
    address: String,

    /// Show the figures once, since the server's start, and end
    #[arg(long)]
    once: bool,

    /// How often to show them; those that rise are then for each second
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = crate::parse::timeout)]
    interval: Duration,

    /// Most tickets to show: those with the most bytes come first
    #[arg(long, value_name = "N", default_value = "20")]
    tickets: usize,

    /// How long the server may take to answer; at least 1us
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = crate::parse::timeout)]
    timeout: Duration,

    /// Print JSON, one object on each line, with the figures since the server's start
    #[arg(long)]
    json: bool,
}

/// Runs `dipc top`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let uri = address(&args.address)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime for HTTP")?;
    let is_terminal = io::stdout().is_terminal();
    let mut before: Option<(Figures, Instant)> = None;
    loop {
        let text = match runtime.block_on(fetch(&uri, args.timeout)) {
            Ok(text) => text,
            // The server may come back.
            Err(error) if before.is_some() => {
                output::complain(&format!("{error:#}; asked again"));
                std::thread::sleep(args.interval);
                continue;
            }
            Err(error) => return Err(error),
        };
        let now = Instant::now();
        let figures = Figures::of(samples(&text));
        if args.json {
            output::print_json(&figures)?;
        } else {
            let since = before.as_ref();
            let since = since.map(|(figures, at)| (figures, now.duration_since(*at)));
            let shown = figures.table(since, args.tickets);
            match is_terminal && !args.once {
                true => output::redraw(&shown)?,
                false => output::print(&shown)?,
            }
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = Some((figures, now));
        std::thread::sleep(args.interval);
    }
}
