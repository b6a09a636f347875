//! The `dipc` command in separate processes: its tables, its output, and its end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod cases;
#[path = "../common/certificates.rs"]
mod certificates;
mod conditions;
mod describing;
mod ends;
mod fake_flight;
mod figures;
mod flight;
mod flight_asking;
mod flight_ends;
mod holding;
mod limits;
mod logs;
mod network;
mod outputs;
mod putting;
mod putting_ends;
mod putting_flight;
mod rows;
#[path = "../common/sample.rs"]
mod sample;
mod service;
mod stray;
mod support;
mod tables;
mod terminal;
mod trust;
mod ucx;
mod usage;
mod users;
