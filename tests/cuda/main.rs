//! The CUDA layer over the fake driver (`tests/fake_cuda`). Each test runs this program again, with
//! the driver in LD_LIBRARY_PATH, because a process has one driver; the parent needs none.
//!
//! With `DIPC_TEST_CUDA_DRIVER=system` the children use the system's driver and a GPU, as in `make
//! gpu-check`. Tests that control the fake driver are skipped then.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a test fails by panicking, in its helpers too"
)]

mod arenas;
#[path = "../common/asleep.rs"]
mod asleep;
mod bench;
mod command;
mod cuts;
mod decoding;
mod decoding_faults;
mod decoding_places;
mod decoding_wrong;
mod errors;
mod fake;
mod fetching;
mod gathering;
mod headers;
mod hostile;
mod info;
mod kills;
mod lending;
mod lending_order;
mod lent_kinds;
mod lent_reader;
mod loading;
mod moving;
mod places;
mod processes;
mod producer;
mod putting;
mod raw_client;
mod resets;
mod serving;
mod streams;
mod tables;
mod ucx;
mod unopened;
mod values;
mod waits;

use std::path::Path;
use std::process::{Command, ExitStatus};

/// The case of the child.
const CASE: &str = "DIPC_TEST_CUDA_CASE";

/// The driver of the children: `system`, or the fake driver.
const DRIVER: &str = "DIPC_TEST_CUDA_DRIVER";
/// The exit status of a child that needs the fake driver and has another.
const NEEDS_THE_FAKE: i32 = 77;

/// Whether the children use the system's driver.
fn has_the_systems_driver() -> bool {
    std::env::var_os(DRIVER).is_some_and(|driver| driver == "system")
}

/// Whether to skip a test that the system's driver may not support; prints a line.
fn is_left_out(why: &str) -> bool {
    if has_the_systems_driver() {
        println!("skipped: {why}");
    }
    has_the_systems_driver()
}

type Case = (&'static str, fn());

/// Every case, by name.
fn cases() -> impl Iterator<Item = &'static Case> {
    loading::CASES
        .iter()
        .chain(streams::CASES)
        .chain(values::CASES)
        .chain(processes::CASES)
        .chain(errors::CASES)
        .chain(headers::CASES)
        .chain(serving::CASES)
        .chain(putting::CASES)
        .chain(lending::CASES)
        .chain(lending_order::CASES)
        .chain(kills::CASES)
        .chain(lent_kinds::CASES)
        .chain(lent_reader::CASES)
        .chain(hostile::CASES)
        .chain(arenas::CASES)
        .chain(decoding::CASES)
        .chain(decoding_places::CASES)
        .chain(fetching::CASES)
        .chain(decoding_wrong::CASES)
        .chain(decoding_faults::CASES)
        .chain(moving::CASES)
        .chain(gathering::CASES)
        .chain(ucx::CASES)
        .chain(unopened::CASES)
        .chain(waits::CASES)
        .chain(resets::CASES)
        .chain(cuts::CASES)
}

/// This program, to run the case `name` with the driver in `folder`.
fn child_of(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CASE, name)
        // A fault must end the child, under a sanitizer too.
        .env("ASAN_OPTIONS", with("ASAN_OPTIONS", "handle_segv=0"))
        .env("TSAN_OPTIONS", with("TSAN_OPTIONS", "handle_segv=0"))
        .env("LD_LIBRARY_PATH", folder);
    command
}

/// An environment variable with an option added.
fn with(variable: &str, option: &str) -> String {
    match std::env::var(variable) {
        Ok(options) => format!("{options}:{option}"),
        Err(_) => option.to_owned(),
    }
}

/// Runs a case in a new process, and asserts its success.
fn run_in(name: &str, folder: &Path, variables: &[(&str, &str)]) {
    run_for_text(name, folder, variables);
}

/// [`run_in`], with the case's output; `None` if it was skipped.
fn run_for_text(name: &str, folder: &Path, variables: &[(&str, &str)]) -> Option<String> {
    let fakes_variable = |(name, _): &(&str, &str)| name.starts_with("FAKE_CUDA_");
    if has_the_systems_driver()
        && (folder != fake::folder() || variables.iter().any(fakes_variable))
    {
        println!("skipped: {name} needs a fake driver of its own");
        return None;
    }
    let (status, text) = outcome(name, folder, variables);
    if has_the_systems_driver() && status.code() == Some(NEEDS_THE_FAKE) {
        println!("skipped: the rest of {name}, which asks the fake driver for something");
        return None;
    }
    assert!(status.success(), "{name}: {status}: {text}");
    assert!(text.contains("test result: ok. 1 passed"), "{name}: {text}");
    Some(text)
}

/// [`run`], and prints the lines with `mark`.
fn run_and_show(name: &str, variables: &[(&str, &str)], mark: &str) {
    let text = run_for_text(name, fake::folder(), variables).unwrap_or_default();
    for line in text.lines().filter(|line| line.contains(mark)) {
        println!("{line}");
    }
}

/// [`run_in`] with the usual fake driver.
fn run(name: &str, variables: &[(&str, &str)]) {
    run_in(name, fake::folder(), variables);
}

fn outcome(name: &str, folder: &Path, variables: &[(&str, &str)]) -> (ExitStatus, String) {
    let output = child_of(name, folder)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status, String::from_utf8_lossy(&text).into_owned())
}

/// For cases that hold streams: a panic ends the process at once, because drops would wait for the
/// streams.
fn end_on_panic() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        std::process::exit(101);
    }));
}

/// The entry of the child processes.
#[test]
#[ignore = "run by the other tests, with the variables that it needs"]
fn child() {
    let Some(wanted) = std::env::var_os(CASE) else {
        eprintln!("skipped: this is for the other tests, which set {CASE}");
        return;
    };
    let (_, case) = cases()
        .find(|(name, _)| wanted == **name)
        .expect("a case of this name");
    case();
}
