//! The log of the command.

use std::fs::{self, File};
use std::path::Path;

use super::support::{
    NATION, Server, address, dipc, path_in, run, table, text, write_arrow, write_parquet,
    write_stream,
};

/// `--log`: at debug and trace dependencies log nothing, such as HTTP/2 frames.
#[test]
fn a_dependency_logs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let server = Server::start_flight(&[&path]);
    let got = run(&["--log", "trace", "get", &server.uri, "table"]);
    assert!(got.status.success());
    let told = text(&got.stderr);
    for word in ["frame", "h2", "hyper", "ALPN", "Connection{"] {
        assert!(!told.contains(word), "{word}: {told}");
    }
}

/// `--log debug`: a successful fetch logs its server, and that the stream is served.
#[test]
fn a_good_fetch_is_told() {
    let server = Server::start(&[NATION]);
    let got = run(&["--log", "debug", "get", &server.uri, "nation"]);
    assert!(got.status.success());
    let told = text(&got.stderr);
    let begins = format!(
        "DEBUG connected to {} (pid ",
        server.uri.split('?').next().unwrap()
    );
    for words in [
        &begins,
        "DEBUG pid ",
        "serves the stream",
        " ends: nothing needs it",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// A file that the server cannot open: the error names the server, whose log has a warning, and the
/// stream's begin and end at info.
#[test]
fn a_failure_is_told_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "gone.arrow");
    write_arrow(Path::new(&path), &table(10));
    let log = path_in(&folder, "log");
    let mut command = dipc();
    command.args(["--log", "info"]);
    command.stderr(File::create(&log).unwrap());
    let address = address();
    let server = Server::start_as(command, &address, &address, &[&path]);
    assert!(run(&["get", &server.uri, "gone"]).status.success());
    fs::remove_file(&path).unwrap();
    let failed = run(&["get", &server.uri, "gone"]);
    assert!(!failed.status.success());
    let told = text(&failed.stderr);
    assert!(
        told.contains("the server: ") && told.contains("the table \"gone\""),
        "{told}"
    );
    server.stop();
    let log = fs::read_to_string(log).unwrap();
    for words in [
        "INFO stream 1 of `gone` to pid ",
        "DIPC_OK after 1 batch, 10 rows, ",
        "WARN stream 2 of `gone` to pid ",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

/// The name of a file, what happens to it, and what a client is told.
type Fault = (&'static str, fn(&str), &'static str);

/// Promise of `serve`: a client learns the ticket and the kind of fault of a file that cannot be
/// read, and never where the file is; the operator's log has the path and the cause.
#[test]
fn files_that_cannot_be_read_are_told_without_paths() {
    let faults: [Fault; 4] = [
        ("gone.arrow", remove, "No such file"),
        ("turned.parquet", turn_to_folder, "is a directory"),
        ("damaged.parquet", cut, "begins as a Parquet file"),
        // Opened well, and found to be cut off while it is read.
        ("cut.arrows", cut, "cut off"),
    ];
    for arena in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let kept = folder.path().to_str().unwrap();
        let paths = faults.map(|(name, ..)| path_in(&folder, name));
        for path in &paths {
            let write = match path.rsplit('.').next() {
                Some("parquet") => write_parquet,
                Some("arrows") => write_stream,
                _ => write_arrow,
            };
            write(Path::new(path), &table(1000));
        }
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut command = dipc();
        command.stderr(log.reopen().unwrap());
        let at = address();
        let mut args: Vec<_> = paths.iter().map(String::as_str).collect();
        if arena {
            args.push("--arena");
        }
        let mut by_flight = dipc();
        by_flight.stderr(log.reopen().unwrap());
        // Without a libdipc address of its own that a client could be led to.
        let flight = Server::start_flight_as(by_flight, &args);
        let server = Server::start_as(command, &at, &at, &args);
        for (path, (_, fault, _)) in paths.iter().zip(faults) {
            fault(path);
        }
        for (path, (name, _, kind)) in paths.iter().zip(faults) {
            let (ticket, _) = name.split_once('.').unwrap();
            for uri in [&server.uri, &flight.uri] {
                let got = run(&["get", uri, ticket]);
                assert_eq!(got.status.success(), arena, "{uri}: {}", text(&got.stderr));
                let told = text(&got.stderr);
                assert!(!told.contains(kept), "{told}");
                assert!(
                    arena || (told.contains(ticket) && told.contains(kind)),
                    "{told}"
                );
            }
            let log = fs::read_to_string(log.path()).unwrap();
            let is_told = |line: &str| {
                line.contains("WARN") && line.contains(path.as_str()) && line.contains(kind)
            };
            assert_eq!(log.lines().any(is_told), !arena, "{path}: {log}");
        }
    }
}

fn remove(path: &str) {
    fs::remove_file(path).unwrap();
}

fn turn_to_folder(path: &str) {
    remove(path);
    fs::create_dir(path).unwrap();
}

fn cut(path: &str) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
}

/// A long ticket is short in the logs of both ends.
#[test]
fn a_long_ticket_makes_no_long_line() {
    let folder = tempfile::tempdir().unwrap();
    let log = path_in(&folder, "log");
    let mut command = dipc();
    command.args(["--log", "info"]);
    command.stderr(File::create(&log).unwrap());
    let address = address();
    let server = Server::start_as(command, &address, &address, &[NATION]);
    let ticket = "x".repeat(100_000);
    let failed = run(&["get", &server.uri, &ticket]);
    assert_eq!(failed.status.code(), Some(1));
    // A baseline peer gets no reason: only the log has it.
    let (baseline, _) = server.uri.split_once("&dipc=1").unwrap();
    assert_eq!(run(&["get", baseline, &ticket]).status.code(), Some(1));
    server.stop();
    for told in [text(&failed.stderr), fs::read_to_string(log).unwrap()] {
        assert!(told.contains("the server has no ticket `xxx"), "{told}");
        assert!(told.len() < 2000, "{}", told.len());
    }
}
