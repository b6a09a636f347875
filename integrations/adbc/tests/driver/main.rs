//! The driver as a driver manager loads it, against servers in other processes.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests stop where something is not as expected"
)]

mod abi;
mod asking;
mod catalog;
mod ingesting;
mod options;
mod serving;
mod trust;

use std::path::PathBuf;
use std::sync::Arc;

use adbc_core::options::{AdbcVersion, OptionDatabase, OptionValue};
use adbc_core::{Connection as _, Database as _, Driver as _, Statement as _};
use adbc_driver_manager::{ManagedConnection, ManagedDatabase, ManagedDriver, ManagedStatement};
use arrow::array::{Int64Array, RecordBatch, RecordBatchReader, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("number", DataType::Int64, false),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Rows from `first` on. Some texts are null.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let numbers = Int64Array::from_iter_values(first..first + rows);
    let texts = (first..first + rows).map(|n| (n % 7 != 0).then(|| format!("row {n}")));
    let texts = StringArray::from_iter(texts);
    RecordBatch::try_new(schema(), vec![Arc::new(numbers), Arc::new(texts)]).unwrap()
}

/// A table of `count` batches, each large enough to be lent.
fn table(count: i64) -> Vec<RecordBatch> {
    (0..count).map(|n| batch(n * 20_000, 20_000)).collect()
}

fn texts(values: impl IntoIterator<Item = String>) -> RecordBatch {
    let texts = StringArray::from_iter_values(values);
    RecordBatch::try_from_iter([("text", Arc::new(texts) as _)]).unwrap()
}

/// Columns from `c0` on, or the last one first if it is turned. Each value tells its column and its
/// row.
fn many(columns: i64, is_turned: bool) -> RecordBatch {
    let column = |place| {
        let number = if is_turned {
            columns - 1 - place
        } else {
            place
        };
        let values = Int64Array::from_iter_values((0..8).map(|row| number * 10 + row));
        (format!("c{number}"), Arc::new(values) as _)
    };
    RecordBatch::try_from_iter((0..columns).map(column)).unwrap()
}

/// Cargo builds the shared library beside the tests.
fn library() -> PathBuf {
    let deps = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    deps.join("libadbc_driver_dipc.so")
}

fn driver() -> ManagedDriver {
    ManagedDriver::load_dynamic_from_filename(library(), None, AdbcVersion::V110).unwrap()
}

fn options(uri: &str, others: &[(&str, &str)]) -> Vec<(OptionDatabase, OptionValue)> {
    let others = others
        .iter()
        .map(|(name, value)| (OptionDatabase::from(*name), (*value).into()));
    std::iter::once((OptionDatabase::Uri, uri.into()))
        .chain(others)
        .collect()
}

fn database(uri: &str, others: &[(&str, &str)]) -> ManagedDatabase {
    driver()
        .new_database_with_opts(options(uri, others))
        .unwrap()
}

fn connect(uri: &str, others: &[(&str, &str)]) -> ManagedConnection {
    database(uri, others).new_connection().unwrap()
}

fn query(connection: &mut ManagedConnection, text: &str) -> ManagedStatement {
    let mut statement = connection.new_statement().unwrap();
    statement.set_sql_query(text).unwrap();
    statement
}

fn all(results: impl RecordBatchReader) -> Vec<RecordBatch> {
    results.collect::<Result<_, _>>().unwrap()
}
