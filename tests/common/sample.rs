//! Tests that make many connections try some of their cases in `make test`, and all cases in `make
//! test-slow`, which sets `DIPC_WHOLE`.

#![allow(dead_code, reason = "each test binary uses its own part")]

/// `make test` tries one of so many cases.
const ONE_OF: usize = 4;

fn step() -> usize {
    match std::env::var_os("DIPC_WHOLE") {
        Some(_) => 1,
        None => ONE_OF,
    }
}

/// The cases to try: each fourth, and the last.
pub fn sampled<T>(cases: Vec<T>) -> Vec<T> {
    let (step, last) = (step(), cases.len().saturating_sub(1));
    let cases = cases.into_iter().enumerate();
    cases
        .filter(|(index, _)| index % step == 0 || *index == last)
        .map(|(_, case)| case)
        .collect()
}

/// The number of rounds of a test with `all` rounds in `make test-slow`.
pub fn rounds(all: usize) -> usize {
    all.div_ceil(step())
}
