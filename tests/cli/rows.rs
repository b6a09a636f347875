//! Rows that cost no bytes: a few bytes that claim any number of them end in an error or in the
//! right answer, and other clients go on.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeBinaryArray, FixedSizeListArray, Int64Array, NullArray,
    RecordBatchOptions, RunArray, StringArray, StructArray, new_empty_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::record_batch::RecordBatch;

use crate::putting::{assert_equal, begin_stream, put_stdin};
use crate::support::*;

/// A batch of each kind whose rows take no memory, with its name.
fn free(rows: usize) -> Vec<(&'static str, RecordBatch)> {
    let item = |of| Arc::new(Field::new("item", of, true));
    let list = |rows| -> ArrayRef {
        let values = new_empty_array(&DataType::Int8);
        let item = item(DataType::Int8);
        Arc::new(FixedSizeListArray::try_new_with_length(item, 0, values, None, rows).unwrap())
    };
    let bytes = FixedSizeBinaryArray::try_new_with_len(0, Buffer::from(&[]), None, rows).unwrap();
    let ends = Int64Array::from(vec![i64::try_from(rows).unwrap()]);
    let runs = RunArray::<Int64Type>::try_new(&ends, &StringArray::from(vec!["x"])).unwrap();
    let nulls: ArrayRef = Arc::new(NullArray::new(rows));
    let inner: ArrayRef = Arc::new(runs.clone());
    let structs = StructArray::from(vec![
        (item(DataType::Null), nulls.clone()),
        (item(inner.data_type().clone()), inner),
    ]);
    let columns: [(&str, ArrayRef); 6] = [
        ("nulls", nulls),
        ("runs", Arc::new(runs)),
        ("lists", list(rows)),
        ("bytes", Arc::new(bytes)),
        ("empty", Arc::new(StructArray::new_empty_fields(rows, None))),
        ("structs", Arc::new(structs)),
    ];
    let batch = |(name, column)| {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", column, true)]);
        (name, batch.unwrap())
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options);
    let none = ("none", none.unwrap());
    columns.into_iter().map(batch).chain([none]).collect()
}

/// A server that takes tables into `folder`, with this much address space, in KiB.
fn accept(folder: &Path, memory: Option<u32>) -> Server {
    let at = address();
    let memory = memory.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -v "$0"; exec "$@""#, &memory]);
    command.arg(env!("CARGO_BIN_EXE_dipc"));
    Server::start_as(command, &at, &at, &["--accept", folder.to_str().unwrap()])
}

/// Promise of filters: of rows that cost no bytes a server evaluates as many as documented, in
/// bounded memory, and refuses more; another client's table, begun before, is taken.
#[test]
fn a_filter_of_rows_without_bytes_ends_no_server() {
    let sources = tempfile::tempdir().unwrap();
    for memory in [None, Some(4 << 20)] {
        let folder = tempfile::tempdir().unwrap();
        let server = accept(folder.path(), memory);
        let mut other = put_stdin(&server.uri, "other");
        let mut writer = begin_stream(&mut other, 3);
        for rows in [(64 << 20) + 1, (1 << 32) - 1, 1 << 62] {
            for (kind, batch) in free(rows) {
                let name = format!("{kind}-{rows}");
                let path = path_in(&sources, &format!("{name}.arrow"));
                write_arrow(Path::new(&path), &batch);
                let put = run(&["put", &server.uri, &name, &path]);
                assert!(put.status.success(), "{name}: {}", text(&put.stderr));
                let condition = match kind {
                    "none" => "TRUE",
                    _ => "c IS NULL",
                };
                let said = failure(1, &["get", &server.uri, &name, "--where", condition]);
                assert!(said.contains("take no memory"), "{name}: {said}");
                assert!(said.contains(&rows.to_string()), "{name}: {said}");
                writer.write(&table(1000)).unwrap();
            }
        }
        writer.finish().unwrap();
        drop(writer);
        assert!(other.wait().unwrap().success());
        let report = json(&["get", &server.uri, "other", "--json"]);
        assert_eq!(report["rows"], 24_000);
    }
}

/// Promise of filters: rows within the limit are evaluated, whatever their kind.
#[test]
fn a_filter_of_fewer_rows_without_bytes_is_evaluated() {
    let sources = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), Some(4 << 20));
    let rows = 1 << 20;
    for (kind, batch) in free(rows) {
        let path = path_in(&sources, &format!("{kind}.arrow"));
        write_arrow(Path::new(&path), &batch);
        assert!(run(&["put", &server.uri, kind, &path]).status.success());
        let (condition, expected) = match kind {
            "none" => ("TRUE", rows),
            "nulls" => ("c IS NULL", rows),
            _ => ("c IS NULL", 0),
        };
        let get = ["get", &server.uri, kind, "--where", condition, "--json"];
        assert_eq!(json(&get)["rows"], expected, "{kind}");
        assert_equal(&server.uri, kind, &path);
    }
}

/// Promise of `serve --accept` and of `get`: a table of rows without bytes is taken as it is by
/// formats that hold it so; a format that writes value by value refuses it, and leaves nothing.
#[test]
fn conversions_of_rows_without_bytes_end() {
    let sources = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let server = accept(folder.path(), Some(4 << 20));
    for (kind, batch) in free((1 << 32) - 1) {
        let path = path_in(&sources, &format!("{kind}.arrow"));
        write_arrow(Path::new(&path), &batch);
        let parquet = format!("{kind}-p.parquet");
        run(&["put", &server.uri, &parquet, &path]);
        assert!(run(&["put", &server.uri, kind, &path]).status.success());
        for ending in ["parquet", "csv"] {
            let output = path_in(&sources, &format!("{kind}.{ending}"));
            let get = ["get", &server.uri, kind, "--output", &output];
            assert!(!run(&get).status.success(), "{kind}");
            assert!(!Path::new(&output).exists());
        }
        let part = ["--offset", "4000000000", "--limit", "3", "--head", "3"];
        let get = [&["get", &server.uri, kind][..], &part].concat();
        assert!(run(&get).status.success(), "{kind}");
    }
    let left = crate::putting::files(folder.path());
    assert!(left.iter().all(|name| name.ends_with(".arrow")), "{left:?}");
}
