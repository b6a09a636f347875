//! `dipc bench`: measures how fast tables move between two processes of this machine.
//!
//! Both processes run this command ([`worker`]). One serves and one fetches, so that each has its
//! own time and memory. They report their figures by lines of JSON ([`base::message`]).
//!
//! Imports point down only:
//!
//! - this file: starts the processes for each case, and prints what they report
//! - `worker`, over `server`: a process, which does the operation of its case; and the command's
//!   own parts: `options`, `process`, `hostile`, `text` over `line`
//! - `ops`: one operation a file; `opening` stands over `flight`, `machine` over its folder
//! - `base`: cases, messages and the pipe, streams, batches (`table`), their values, times

mod base;
mod hostile;
mod line;
mod ops;
mod options;
mod process;
mod server;
mod text;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use tracing::level_filters::LevelFilter;

use base::case::{Case, Op, Scheme};
use base::certificate::Certificate;
use base::message::{Order, Outcome, Ready, Role, Usage};
use base::streams::allow_descriptors;
use hostile::Hostile;
use line::{FilterLine, Line, MachineLine, OpenLine, TableLine};
pub use options::Args;
pub use process::SUBCOMMAND;
use process::{Interrupt, Worker};
use text::Text;
pub use worker::run as run_process;

use crate::output;

/// Runs `dipc bench`.
pub fn run(args: &Args, log: LevelFilter) -> Result<ExitCode> {
    let mut cases = args.cases()?;
    let certificate = (cases.iter())
        .any(|case| case.transport == Scheme::Tls || case.op == Op::Machine)
        .then(Certificate::new)
        .transpose()?;
    for case in &mut cases {
        case.certificate = certificate.as_ref().map(|it| it.folder().to_owned());
    }
    let bench = Bench {
        log,
        interrupt: Interrupt::install()?,
    };
    let mut text = Text::default();
    let mut rounds: Vec<Vec<Line>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 1..=args.rounds {
        // Each round runs all cases, so that a slow minute of the machine affects all cases.
        for (case, lines) in cases.iter().zip(&mut rounds) {
            let line = bench.measure(case, round)?;
            if args.json {
                output::print(&serde_json::to_string(&line)?)?;
            } else {
                lines.push(line);
            }
            // The median is printed as soon as it is known.
            if round == args.rounds
                && let Some(line) = median(lines)
            {
                output::print(&text.line(line))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The line with the median figure.
fn median(lines: &mut [Line]) -> Option<&Line> {
    lines.sort_by(|a, b| a.key().total_cmp(&b.key()));
    lines.get(lines.len() / 2)
}

struct Bench {
    log: LevelFilter,
    interrupt: Interrupt,
}

impl Bench {
    fn measure(&self, case: &Case, round: u32) -> Result<Line> {
        let mut server = self.start("server", Role::Server, case)?;
        let ready: Ready = server.answer()?;
        let _hostile = match case.hostile {
            0 => None,
            count => {
                allow_descriptors();
                Some(Hostile::start(&ready.uri, count)?)
            }
        };
        let mut client = self.start("client", Role::Client(ready), case)?;
        let outcome = Self::follow(case, round, &mut server, &mut client);
        // The client's error is that the server has gone. The server's own error says more.
        outcome.map_err(|error| match self.interrupt.check() {
            Ok(()) => server
                .ended_badly(Duration::from_millis(200))
                .unwrap_or(error),
            Err(interrupted) => interrupted,
        })
    }

    fn follow(case: &Case, round: u32, server: &mut Worker, client: &mut Worker) -> Result<Line> {
        let () = client.answer()?;
        let first = usage(server)?;
        client.go()?;
        let mut before = first;
        if matches!(case.op, Op::Idle | Op::Shed) {
            // The streams are open, and idle from now on; or the requests were served, and are
            // refused from now on.
            let () = client.answer()?;
            before = usage(server)?;
            client.go()?;
        }
        let outcome: Outcome = client.answer()?;
        let server = [first, before, usage(server)?];
        Ok(match case.op {
            Op::Machine => Line::Machine(MachineLine::new(case, round, &outcome, server)),
            Op::Filter => Line::Filter(FilterLine::new(case, round, &outcome, server)),
            Op::Open => Line::Open(OpenLine::new(case, round, &outcome, server)),
            _ => Line::Libdipc(Box::new(TableLine::new(case, round, outcome, server))),
        })
    }

    fn start(&self, name: &'static str, role: Role, case: &Case) -> Result<Worker> {
        let order = Order {
            role,
            case: case.clone(),
        };
        Worker::start(name, &order, self.log, &self.interrupt)
    }
}

/// The usage of a serving process up to now.
fn usage(server: &mut Worker) -> Result<Usage> {
    server.go()?;
    server.answer()
}
