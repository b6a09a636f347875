//! Output on a terminal: no text of a peer or a file controls the terminal.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, RunArray, StringArray, TimestampSecondArray,
};
use arrow::datatypes::Int64Type;

use crate::support::*;

/// Promise of `--head`: control characters in names and values are escaped, and times of every zone
/// are shown.
#[test]
fn rows_do_not_steer_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrows");
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "n\u{1b}[5m",
            Arc::new(StringArray::from(vec![
                "\u{1b}[31mred\u{9b}0m",
                "\u{202e}abc",
                "日本",
            ])),
        ),
        (
            "utc",
            Arc::new(TimestampSecondArray::from(vec![0, 1, 2]).with_timezone("UTC")),
        ),
        (
            "mars",
            Arc::new(TimestampSecondArray::from(vec![0, 1, i64::MAX]).with_timezone("Mars/X")),
        ),
    ];
    write_stream(
        Path::new(&path),
        &RecordBatch::try_from_iter(columns).unwrap(),
    );
    let server = Server::start(&[&path]);
    let output = run(&["get", &server.uri, "t", "--head", "3"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!shown.contains(steers), "{shown:?}");
    for part in [
        "n\\u{1b}[5m",
        "\\u{1b}[31mred\\u{9b}0m",
        "\\u{202e}abc",
        "日本",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert_eq!(shown.matches("1970-01-01T00:00:01Z").count(), 2, "{shown}");
    // A difference, too.
    let other = path_in(&folder, "other.arrows");
    let column: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
    let table = RecordBatch::try_from_iter([("\u{9b}1m", column)]);
    write_stream(Path::new(&other), &table.unwrap());
    let output = run(&["get", &server.uri, "t", "--verify", &other]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stdout);
    assert!(
        told.contains("NOT equal") && !told.contains(steers),
        "{told:?}"
    );
}

/// Errors, the log and JSON escape control characters in names of files and tickets.
#[test]
fn names_do_not_steer_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let steers = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    let path = path_in(&folder, "\u{1b}[31m\u{9b}m\u{202e}.arrows");
    std::fs::write(&path, b"\xff\xff\xff\xff\x10\0\0\0").unwrap();
    let at = address();
    let output = run(&["serve", "--listen", &at, &path]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(
        told.contains("\\u{202e}.arrows") && !told.contains(steers),
        "{told:?}"
    );

    // A cut stream fails at the client, which has the name from the server.
    write_stream(Path::new(&path), &table(3));
    let whole = std::fs::read(&path).unwrap();
    let ticket = "t\u{9b}1m\u{202e}";
    let server = Server::start(&["--json", &format!("{ticket}={path}")]);
    // The server would refuse it at its start.
    std::fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    for args in [
        &["get", &server.uri, ticket, "--log", "debug"][..],
        &["get", &server.uri, "no\u{202e}ne"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let told = text(&output.stderr);
        assert!(!told.contains(steers), "{told:?}");
    }
    write_stream(Path::new(&path), &table(3));
    let report = run(&["get", &server.uri, ticket, "--json"]);
    assert!(!text(&report.stdout).contains(steers));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["ticket"], ticket);
}

/// Promise of `--checksum`, `--verify`, `--head` and `--output`: each of them completes for run
/// ends past 2^33 rows, with a result or an error of one line.
#[test]
fn long_runs_come_to_an_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrows");
    let ends = Int64Array::from(vec![(1_i64 << 33) + 7]);
    let runs = RunArray::<Int64Type>::try_new(&ends, &Int64Array::from(vec![5])).unwrap();
    let batch = RecordBatch::try_from_iter([("r", Arc::new(runs) as ArrayRef)]).unwrap();
    write_stream(Path::new(&path), &batch);
    let server = Server::start(&[&path]);
    let fails = |args: &[&str], said: &str| {
        let told = failure(1, &[&["get", &server.uri, "t"], args].concat());
        assert!(told.contains(said), "{told}");
    };
    fails(&["--checksum"], "8589934599 values");
    let out = path_in(&folder, "out.parquet");
    fails(&["--output", &out], "Parquet cannot hold column");
    assert!(!Path::new(&out).exists());
    for name in ["out.arrow", "out.arrows"] {
        let out = path_in(&folder, name);
        let args = [
            "get",
            &server.uri,
            "t",
            "--json",
            "--verify",
            &path,
            "--output",
            &out,
        ];
        let report = json(&args);
        assert_eq!(report["rows"], 8_589_934_599_u64);
        assert_eq!(report["verified"]["equal"], true);
        let again = json(&["get", &server.uri, "t", "--json", "--verify", &out]);
        assert_eq!(again["verified"]["equal"], true);
    }
    let shown = text(&run(&["get", &server.uri, "t", "--head", "2"]).stdout);
    assert_eq!(shown.matches("| 5 |").count(), 2, "{shown}");
    failure(2, &["get", &server.uri, "t", "--head", "1000001"]);
}
