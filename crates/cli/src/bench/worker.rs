//! The code of `dipc bench-process`, one of the two processes.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::base::case::{Case, Op};
use super::base::message::{Order, Parent, Ready, Role};
use super::base::streams::allow_descriptors;
use super::ops::{connect, fetching, filtering, idle, latency, machine, opening, putting, shed};
use super::server;
use crate::output::whole;

/// Runs a process until its pipe is closed. Errors go to the command.
pub fn run() -> Result<ExitCode> {
    let parent = Parent;
    let Some(order) = parent.hear::<Order>()? else {
        return Ok(ExitCode::FAILURE);
    };
    match obey(order, &parent) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            parent.answer::<()>(Err(whole(&error)))?;
            // Waits until the command has read the error, so that it does not report the exit
            // status instead.
            while parent.hear::<String>()?.is_some() {}
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn obey(order: Order, parent: &Parent) -> Result<()> {
    let Order { role, case } = order;
    if case.apart {
        keep_apart(&role)?;
    }
    match role {
        Role::Server => server::run(&case, parent),
        Role::Client(ready) => {
            // A fetch does not read the pipe, so it would continue without the command: the system
            // ends it. The server reads the pipe, and then releases its address.
            set_parent_process_death_signal(Some(Signal::KILL))
                .context("cannot follow the command")?;
            measure(&case, &ready, parent)
        }
    }
}

/// Measures the case.
fn measure(case: &Case, ready: &Ready, parent: &Parent) -> Result<()> {
    allow_descriptors();
    match case.op {
        Op::Latency => latency::run(case, ready, parent),
        Op::Connect => connect::run(case, ready, parent),
        Op::Open => opening::run(case, ready, parent),
        Op::Put => putting::run(case, ready, parent),
        Op::Describe => connect::describe(case, ready, parent),
        Op::Shed => shed::run(case, ready, parent),
        Op::Idle => idle::run(case, ready, parent),
        Op::Filter => filtering::run(case, ready, parent),
        Op::Machine => machine::run(case, ready, parent),
        Op::Get | Op::Metadata => fetching::run(case, ready, parent),
    }
}

/// Restricts this process and its later threads to one half of the processors; the server has the
/// first half.
fn keep_apart(role: &Role) -> Result<()> {
    let allowed = sched_getaffinity(None).context("cannot see which processors may be used")?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|&cpu| allowed.is_set(cpu))
        .collect();
    let (first, second) = all.split_at(all.len() / 2);
    ensure!(
        !first.is_empty(),
        "--apart needs two processors; this process may use one"
    );
    let mut own = CpuSet::new();
    let half = match role {
        Role::Server => first,
        Role::Client(_) => second,
    };
    half.iter().for_each(|&cpu| own.set(cpu));
    sched_setaffinity(None, &own).context("cannot choose processors")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::base::case::{Source, Touch, test_case};
    use super::super::base::streams::new_client;
    use super::super::ops::fetching::{Fetched, Fetcher};
    use super::*;

    fn fetch(case: &Case, ready: &Ready) -> Result<Fetched> {
        let client = new_client(case)?;
        let fetcher = Fetcher {
            case,
            ready,
            client: &client,
        };
        fetcher.warm_up()?;
        let mut fetched = fetcher.fetch(&[case.batches])?;
        Ok(fetched.remove(0))
    }

    /// Promise of `--touch sum`: wrong values are an error, and so are batches in another order.
    #[test]
    fn sums_are_checked() {
        for (source, name) in [(Source::Published, "sums-t"), (Source::Provider, "sums-p")] {
            let case = Case {
                source,
                touch: Touch::Sum,
                batches: Some(100),
                ..test_case(name)
            };
            let (server, ready) = server::start(&case).unwrap();
            let fetched = fetch(&case, &ready).unwrap();
            assert_eq!(fetched.batches, 100);
            let mut turned = ready.clone();
            turned.sums.rotate_left(1);
            let mut wrong = ready;
            wrong.sums[1] += 1;
            for (ready, batch) in [(turned, "batch 0"), (wrong, "batch 1")] {
                let error = fetch(&case, &ready).err().unwrap().to_string();
                assert!(error.starts_with(batch), "{error}");
            }
            drop(server);
        }
    }

    /// A published table is fetched repeatedly until the batches suffice; the time limit ends a
    /// fetch too.
    #[test]
    fn tables_are_fetched_until_it_is_enough() {
        let case = Case {
            distinct: Some(3),
            ..test_case("often")
        };
        let (_server, ready) = server::start(&case).unwrap();
        let more = Case {
            batches: Some(case.published() + 1),
            ..case.clone()
        };
        let fetched = fetch(&more, &ready).unwrap();
        assert_eq!(fetched.fetches, 2);
        assert_eq!(fetched.batches, case.published() + 1);
        let timed = Case {
            seconds: Duration::ZERO,
            ..case
        };
        assert!(fetch(&timed, &ready).unwrap().batches < timed.published());
    }
}
