//! The code of `dipc bench-process`, one of the two processes.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::message::{Order, Parent, Role};
use super::{client, server};
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
            client::run(&case, &ready, parent)
        }
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
