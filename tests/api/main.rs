//! The Rust API, as a program of a user has it: without unsafe code, with the items of the crate's
//! root alone, and with the server in a process of its own.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

mod arrays;
mod crossing;
mod memory;
mod middleware;
mod nonblocking;
mod parts;
mod pulled;
mod requests;
mod selecting;
mod serving;

use std::sync::Arc;

use arrow::array::{Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// Where the server of a test listens, for each transport of this machine.
const PLACES: [&str; 2] = ["shm:@dipc-api-", "tcp://127.0.0.1:0"];

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Rows numbered from `first`.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(first..first + rows);
    let texts = (first..first + rows).map(|n| (n % 7 != 0).then(|| format!("row {n}")));
    let texts = StringArray::from_iter(texts);
    RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

/// The table `count` batches long.
fn table(count: i64) -> Vec<RecordBatch> {
    (0..count).map(|index| batch(index * 1000, 1000)).collect()
}
