//! The program whose instructions `run.sh` counts: building headers, reading headers, one step of a
//! receiver and one of a sender. Prints the name and the number of runs of each case. valgrind
//! counts the instructions inside [`measured`] and writes a figure at each return.

#![allow(
    clippy::unwrap_used,
    reason = "as in a test, a panic is how a failure shows"
)]

#[path = "../../benches/common/mod.rs"]
mod common;

use std::hint::black_box;

use common::machines::{ReceiverStep, SenderStep};
use common::{Arrived, Kind, Produced, table};
use dipc::arrow::{EncodeOptions, Encoder};

/// Runs before the count, in which lists grow and symbols are bound.
const WARM: usize = 3;
const RUNS: usize = 10;

/// valgrind counts only in this function.
#[inline(never)]
fn measured(case: &mut dyn FnMut()) {
    for _ in 0..RUNS {
        case();
    }
}

fn count(name: &str, mut case: impl FnMut()) {
    // An argument selects the cases whose name contains it, for a profile.
    if std::env::args()
        .nth(1)
        .is_some_and(|part| !name.contains(&part))
    {
        return;
    }
    for _ in 0..WARM {
        case();
    }
    measured(&mut case);
    println!("{name} {RUNS}");
}

fn main() {
    for kind in Kind::ALL {
        headers(kind, 100);
    }
    // The fixed cost of a message, and the cost of many columns.
    for columns in [1, 1000] {
        headers(Kind::Int64, columns);
    }
    let produced = Produced::new(&table(Kind::Int64, 10));
    let arrived = Arrived::new(&produced);
    let mut receiver = ReceiverStep::new(&arrived);
    count("receiver step/int64/10", || {
        black_box(receiver.run());
    });
    let mut sender = SenderStep::new(&arrived);
    count("sender step/int64/10", || sender.run());
}

/// Counts the building and the reading of a batch's header.
fn headers(kind: Kind, columns: usize) {
    let name = kind.name();
    let produced = Produced::new(&table(kind, columns));
    let mut encoder = Encoder::new(&produced.schema, EncodeOptions::default()).unwrap();
    count(&format!("header build/{name}/{columns}"), || {
        // SAFETY: the encoder, which may hold the array, is dropped before `produced`.
        black_box(encoder.encode(unsafe { produced.again() }, None)).ok();
    });
    let mut arrived = Arrived::new(&produced);
    count(&format!("header read/{name}/{columns}"), || {
        black_box(arrived.read());
    });
}
