//! Tables of every format, and generated tables, with and without an arena.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{IpcWriteOptions, StreamWriter};

use crate::support::*;

/// Promise of `serve`: Parquet, Arrow file and Arrow stream files arrive equal, under any name,
/// with and without an arena; equal content has equal hashes.
#[test]
fn files_of_every_format_arrive_equal() {
    let folder = tempfile::tempdir().unwrap();
    let batch = table(5000);
    type Write = fn(&Path, &RecordBatch);
    let write: [(&str, Write); 3] = [
        ("a.txt", write_parquet),
        ("b.parquet", write_arrow),
        ("c", write_stream),
    ];
    let paths = write.map(|(name, write)| {
        let path = path_in(&folder, name);
        write(Path::new(&path), &batch);
        path
    });
    for options in [&["--batch-rows", "700"][..], &["--arena"], &[]] {
        let files = paths.each_ref().map(String::as_str);
        let server = Server::start(&[options, &files].concat());
        let mut hashes = Vec::new();
        for (ticket, path) in ["a", "b", "c"].into_iter().zip(&paths) {
            let report = json(&[
                "get",
                &server.uri,
                ticket,
                "--json",
                "--checksum",
                "--verify",
                path,
            ]);
            assert_eq!(report["rows"], 5000);
            assert_eq!(report["verified"]["equal"], true);
            hashes.push(report["checksum"].clone());
        }
        assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    }
}

/// Promise of `--output`: a fetched file can be served again and is still equal.
#[test]
fn files_written_are_equal_to_what_was_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(3000));
    let server = Server::start(&[&path, "--batch-rows", "999"]);
    for name in ["out.arrow", "out.arrows", "out.parquet"] {
        let out = path_in(&folder, name);
        let report = json(&["get", &server.uri, "table", "--json", "--output", &out]);
        assert_eq!(report["output"], out.as_str());
        let again = Server::start(&[&format!("again={out}")]);
        let report = json(&["get", &again.uri, "again", "--json", "--verify", &path]);
        assert_eq!(report["verified"]["equal"], true, "{name}");
    }
}

/// Promise of `--arena`: bodies are lent and nothing is copied, at either end; without it the
/// server copies lent bodies once. A generated table equals the same table generated here.
#[test]
fn tables_in_an_arena_are_not_copied() {
    for arena in [true, false] {
        let mut args = vec![
            "--tpch", "lineitem", "--tpch", "nation", "--scale", "0.01", "--json",
        ];
        args.extend(["--batch-rows", "10000"]);
        args.extend(arena.then_some("--arena"));
        let server = Server::start(&args);
        let report = json(&[
            "get",
            &server.uri,
            "lineitem",
            "--json",
            "--verify",
            "tpch:lineitem:0.01",
        ]);
        assert_eq!(report["verified"]["equal"], true);
        let lent = report["bytes_lent"].as_u64().unwrap();
        assert!(lent > 5_000_000, "{report}");
        assert_eq!(report["bytes_copied"], 0);
        assert_eq!(report["bytes_received"], 0);
        assert_eq!(report["rows"], 60_175);
        assert_eq!(report["batches"], 7);
        let (status, printed) = server.stop();
        assert!(status.success());
        let stopped: serde_json::Value = serde_json::from_str(&printed).unwrap();
        let stopped = &stopped["stopped"];
        let copied = stopped["bytes_copied"].as_u64().unwrap();
        assert_eq!(copied > 0, !arena, "{stopped}");
        assert_eq!(stopped["streams"], 1);
    }
}

/// Rule A5 at the command: a table without rows arrives, and a small table arrives as bytes.
#[test]
fn empty_and_small_tables_arrive() {
    let folder = tempfile::tempdir().unwrap();
    for rows in [0, 1] {
        let path = path_in(&folder, "t.arrow");
        write_arrow(Path::new(&path), &table(rows));
        let server = Server::start(&[&path]);
        let report = json(&["get", &server.uri, "t", "--json", "--verify", &path]);
        assert_eq!(report["rows"], rows);
        assert_eq!(report["verified"]["equal"], true);
    }
}

/// Promise of `--verify`: a different table gives exit status 1, and the first difference is named,
/// also if stdout is closed.
#[test]
fn a_table_that_differs_is_told() {
    let server = Server::start(&[NATION]);
    let output = run(&["get", &server.uri, "nation", "--verify", "tpch:region:1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("NOT equal to tpch:region:1: columns differ"));

    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "t.arrow");
    write_arrow(Path::new(&path), &table(100));
    let shorter = path_in(&folder, "shorter.arrow");
    write_arrow(Path::new(&shorter), &table(90));
    let server = Server::start(&[&path]);
    let args = ["get", &server.uri, "t", "--verify", &shorter];
    assert!(text(&run(&args).stdout).contains("more rows than the 90 expected"));

    let mut child = dipc().args(args).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child).code(), Some(1));
}

/// Promise of `--head`: rows as a table, then the figures. A closed stdout is no failure.
#[test]
fn the_first_rows_are_shown() {
    let server = Server::start(&[REGION]);
    let shown = text(&run(&["get", &server.uri, "region", "--head", "2"]).stdout);
    assert!(shown.contains("| 0           | AFRICA"), "{shown}");
    assert!(
        shown.contains("AMERICA") && !shown.contains("ASIA"),
        "{shown}"
    );
    assert!(
        shown.contains("region: the first 5 rows in 1 batch,"),
        "{shown}"
    );

    // The rest is not fetched, unless more is wanted of it.
    let large = Server::start(&["--tpch", "nation", "--batch-rows", "5"]);
    let shown = text(&run(&["get", &large.uri, "nation", "--head", "6"]).stdout);
    assert!(
        shown.contains("nation: the first 10 rows in 2 batches,"),
        "{shown}"
    );
    let whole = ["get", &large.uri, "nation", "--head", "6", "--checksum"];
    let shown = text(&run(&whole).stdout);
    assert!(shown.contains("nation: 25 rows in 5 batches,"), "{shown}");

    let mut child = dipc()
        .args(["get", &server.uri, "region", "--head", "5"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(wait(&mut child).code(), Some(0));
    let mut complaints = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut complaints)
        .unwrap();
    assert_eq!(complaints, "");
}

/// Many clients fetch one ticket at once, each the whole table.
#[test]
fn many_clients_are_served_at_once() {
    let server = Server::start(&[
        "--tpch",
        "orders",
        "--scale",
        "0.01",
        "--batch-rows",
        "1000",
    ]);
    let spawn = |_| {
        let args = ["get", &server.uri, "orders", "--json", "--checksum"];
        dipc().args(args).stdout(Stdio::piped()).spawn().unwrap()
    };
    let clients: Vec<_> = (0..8).map(spawn).collect();
    let reports: Vec<serde_json::Value> = clients
        .into_iter()
        .map(|client| serde_json::from_slice(&client.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    for report in &reports {
        assert_eq!(report["rows"], 15_000);
        assert_eq!(report["checksum"], reports[0]["checksum"]);
    }
}

/// Several listeners of one server: one line for each, and each serves every ticket.
#[test]
fn every_listener_serves_every_ticket() {
    let (first, second) = (address(), address());
    let server = Server::start_at(&first, &["--listen", &second, REGION]);
    until("the second listener is there", || {
        run(&["get", &second, "region"]).status.success()
    });
    assert!(run(&["get", &server.uri, "region"]).status.success());
    let (status, rest) = server.stop();
    assert!(status.success());
    assert!(rest.starts_with(&format!("ready {second}")), "{rest}");
}

/// `--max-message` also limits files: served files, and files of `--verify`.
#[test]
fn files_have_a_limit_for_each_message() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros.arrows");
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 1 << 20]));
    let batch = RecordBatch::try_from_iter([("n", zeros)]).unwrap();
    let options = IpcWriteOptions::default()
        .try_with_compression(Some(CompressionType::ZSTD))
        .unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = StreamWriter::try_new_with_options(file, &batch.schema(), options).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    let path = path.to_str().unwrap();

    let small = Server::start(&[path, "--max-message", "1M"]);
    let told = failure(1, &["get", &small.uri, "zeros"]);
    assert!(told.contains("--max-message"), "{told}");
    let server = Server::start(&[path]);
    let get = ["get", &server.uri, "zeros", "--verify", path];
    assert!(run(&get).status.success());
    let told = failure(1, &[&get[..], &["--max-message", "1M"]].concat());
    assert!(
        told.contains("cannot read the table to compare with"),
        "{told}"
    );
}
