//! Functions that travel, from clients to a server in a process of its own.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

mod calls;
mod chains;
mod failing;
mod leaving;
mod limits;
mod refusals;
mod rows;
mod search;
mod serving;

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use arrow::array::{AsArray as _, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use dipc::{Client, Reader, Result};
use dipc_functions::{Message, Module};

const ROWS: i64 = 1000;
/// Rows of a batch whose buffers a sandbox maps, if they lie in an arena.
const LARGE: i64 = 1 << 18;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Rows numbered from `first`; every tenth number is null.
fn batch(first: i64) -> RecordBatch {
    batch_of(first, ROWS)
}

fn batch_of(first: i64, rows: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter((first..first + rows).map(|n| (n % 10 != 9).then_some(n)));
    let texts = StringArray::from_iter((first..first + rows).map(|n| Some(format!("row {n}"))));
    RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

fn table(batches: i64) -> Vec<RecordBatch> {
    (0..batches).map(|index| batch(index * ROWS)).collect()
}

/// The numbers above `bound` of a table with so many batches.
fn above(bound: i64, batches: i64) -> Vec<i64> {
    (bound + 1..batches * ROWS)
        .filter(|n| n % 10 != 9)
        .collect()
}

fn numbers<'b>(batches: impl IntoIterator<Item = &'b RecordBatch>) -> Vec<i64> {
    let columns = (batches.into_iter()).map(|batch| batch.column(0).as_primitive::<Int64Type>());
    columns
        .flat_map(|column| column.iter().flatten().collect::<Vec<_>>())
        .collect()
}

fn read(reader: Reader) -> Vec<RecordBatch> {
    reader.collect::<Result<_, _>>().unwrap()
}

/// An example module, which tools/build-functions.sh builds.
fn module(name: &str) -> Module {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        if let Some(folder) = std::env::var_os("DIPC_FUNCTIONS_MODULES") {
            return folder.into();
        }
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("modules");
        let built = Command::new(root.join("tools/build-functions.sh"))
            .arg(&folder)
            .status();
        assert!(built.unwrap().success(), "tools/build-functions.sh failed");
        folder
    });
    Module::read(folder.join(format!("{name}.wasm"))).unwrap()
}

fn filter(bound: i64) -> Message {
    Message::new(&module("filter"), "keep", format!("n>{bound}").as_bytes())
}

fn client() -> Client {
    Client::new().unwrap()
}
