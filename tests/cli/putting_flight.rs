//! Tables that are put by Arrow Flight: `dipc put grpc://…` and `serve --flight --accept`, with
//! each other and with pyarrow.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Signal;

use crate::putting::{assert_equal, begin_stream, files, put_stdin, small_files};
use crate::support::*;

/// A Flight server that takes tables into `folder`, and gives them over shm too.
fn accept(folder: &Path, more: &[&str]) -> (Server, String) {
    let at = address();
    let into = ["--accept", folder.to_str().unwrap(), "--listen", &at];
    (Server::start_flight(&[&into[..], more].concat()), at)
}

/// The peer of pyarrow. `None` if pyarrow is not installed.
fn peer(args: &[&str]) -> Option<Command> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let python = root.join(".tools/venv/bin/python");
    let mut probe = Command::new(&python);
    probe.args(["-c", "import pyarrow.flight"]);
    let probed = probe.stderr(Stdio::null()).status();
    if !probed.is_ok_and(|status| status.success()) {
        println!("skipped: pyarrow, which tools/setup.sh test installs");
        return None;
    }
    let mut command = Command::new(python);
    command
        .arg(root.join("tests/cli/flight_peer.py"))
        .args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Some(command)
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A process of pyarrow that runs until it is killed, and the first line that it said.
struct Running {
    child: Child,
    line: String,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        Self { child, line }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Arrow's golden streams: a name, then a path, and so on. `None` where there are none.
fn golden_streams() -> Option<Vec<String>> {
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("../shared/golden"),
        std::path::PathBuf::from,
    );
    let Ok(entries) = fs::read_dir(root.join("streams")) else {
        println!(
            "skipped: there is no {}; DIPC_GOLDEN names another",
            root.display()
        );
        return None;
    };
    let mut pairs = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        pairs.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        pairs.push(path.to_str().unwrap().to_owned());
    }
    Some(pairs)
}

/// Promise of `serve --flight --accept`: pyarrow's `DoPut` of every type of Arrow's integration
/// tests; the tables are equal, and listed.
#[test]
fn pyarrow_puts_tables() {
    let Some(pairs) = golden_streams() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (server, at) = accept(folder.path(), &[]);
    let args = [
        vec!["put", &server.uri],
        pairs.iter().map(String::as_str).collect(),
    ]
    .concat();
    let Some(mut peer_put) = peer(&args) else {
        return;
    };
    let told = said(&peer_put.output().unwrap());
    let mut names: Vec<_> = told.lines().collect();
    assert_eq!(names.len(), pairs.len() / 2);
    for pair in pairs.chunks(2) {
        assert_equal(&at, &pair[0], &pair[1]);
    }
    let listed = said(&peer(&["list", &server.uri]).unwrap().output().unwrap());
    names.sort_unstable();
    assert_eq!(listed.lines().collect::<Vec<_>>(), names);
}

/// The same for refusals, which pyarrow gets as errors, and for a pyarrow that is killed in
/// mid-table.
#[test]
fn pyarrow_is_refused_or_goes() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let (server, at) = accept(folder.path(), &[&small.own]);
    for (name, part) in [
        ("../t", "is no name for a table"),
        ("", "it is empty"),
        ("own", "from outside the directory"),
    ] {
        let Some(mut refused) = peer(&["refused", &server.uri, name]) else {
            return;
        };
        let told = said(&refused.output().unwrap());
        assert!(told.contains(part), "{name}: {told}");
    }
    let Some(half) = peer(&["half", &server.uri, "t"]) else {
        return;
    };
    let half = Running::start(half);
    assert_eq!(half.line, "begun");
    until("the table is being written", || {
        !files(folder.path()).is_empty()
    });
    drop(half);
    until("nothing is left", || files(folder.path()).is_empty());
    assert!(!run(&["get", &at, "t"]).status.success());
    // A server that takes nothing.
    let server = Server::start_flight(&[&small.own]);
    let refused = peer(&["refused", &server.uri, "t"]).unwrap().output();
    let told = said(&refused.unwrap());
    assert!(told.contains("--accept"), "{told}");
}

/// Promise of `put grpc://`: files go to pyarrow's server, which gives them back equal. Its
/// refusal is an error. It learns that a table was cut off.
#[test]
fn dipc_puts_to_pyarrow() {
    let small = small_files();
    let Some(server) = peer(&["serve"]) else {
        return;
    };
    let server = Running::start(server);
    let uri = server.line.as_str();
    for (name, more) in [("path", &[][..]), ("command", &["--command"])] {
        let files = [&small.three, &small.four];
        let put = ["put", uri, name, files[0], files[1], "--json"];
        let report = json(&[&put[..], more].concat());
        assert_eq!(report["rows"], 70_000);
        assert_eq!(report["result"], "70000 rows are safe");
        let got = json(&[&["get", uri, name, "--json"], more].concat());
        assert_eq!(got["rows"], 70_000);
    }
    assert!(run(&["put", uri, "one", &small.three]).status.success());
    assert_equal(uri, "one", &small.three);
    let told = failure(1, &["put", uri, "refused", &small.three]);
    assert!(told.contains("not wanted"), "{told}");
    let told = failure(1, &["put", "grpc://127.0.0.1:1", "t", &small.three]);
    assert!(told.contains("cannot connect"), "{told}");
    // A table without its end is none for pyarrow.
    for sent in [Signal::KILL, Signal::INT] {
        let mut client = put_stdin(uri, "half");
        let writer = begin_stream(&mut client, 3);
        signal(&client, sent);
        assert!(!client.wait_with_output().unwrap().status.success());
        drop(writer);
        assert!(!run(&["get", uri, "half"]).status.success());
    }
    let mut client = put_stdin(uri, "half");
    drop(begin_stream(&mut client, 3));
    assert!(!client.wait_with_output().unwrap().status.success());
    assert!(!run(&["get", uri, "half"]).status.success());
}

/// `dipc put` and `dipc serve` by Flight alone: equal tables, refusals, and nothing of a client
/// that goes.
#[test]
fn dipc_puts_to_dipc_by_flight() {
    let small = small_files();
    let folder = tempfile::tempdir().unwrap();
    let (server, at) = accept(folder.path(), &[]);
    let report = json(&["put", &server.uri, "t.parquet", &small.four, "--json"]);
    assert_eq!(
        (&report["rows"], &report["result"]),
        (&40_000.into(), &"t".into())
    );
    assert_equal(&at, "t", &small.four);
    assert_equal(&server.uri, "t", &small.four);
    let told = failure(1, &["put", &server.uri, "t", &small.one]);
    assert!(told.contains("there is a table"), "{told}");
    for sent in [Signal::KILL, Signal::INT] {
        let mut client = put_stdin(&server.uri, "half");
        let writer = begin_stream(&mut client, 3);
        until("the table is being written", || {
            files(folder.path()).len() == 2
        });
        signal(&client, sent);
        assert!(!client.wait_with_output().unwrap().status.success());
        until("nothing is left", || files(folder.path()) == ["t.parquet"]);
        drop(writer);
    }
    let mut client = put_stdin(&server.uri, "half");
    drop(begin_stream(&mut client, 3));
    assert!(!client.wait_with_output().unwrap().status.success());
    until("nothing is left", || files(folder.path()) == ["t.parquet"]);
    assert!(failure(2, &["put", &at, "t", &small.one, "--command"]).contains("Flight"));
}

/// Promise of `serve --flight --accept`: the answer to pyarrow's `DoExchange` of every type of
/// Arrow's integration tests is the table as it is served thereafter. Without a table it is the one
/// of the descriptor, and a server that takes nothing says so.
#[test]
fn pyarrow_exchanges_tables() {
    let Some(pairs) = golden_streams() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (server, at) = accept(folder.path(), &[]);
    let args = [
        vec!["exchange", &server.uri],
        pairs.iter().map(String::as_str).collect(),
    ]
    .concat();
    let Some(mut exchange) = peer(&args) else {
        return;
    };
    let told = said(&exchange.output().unwrap());
    assert_eq!(told.lines().count(), pairs.len() / 2);
    for pair in pairs.chunks(2) {
        assert_equal(&at, &pair[0], &pair[1]);
    }
    let asked = |words: &[&str]| said(&peer(words).unwrap().output().unwrap());
    let told = asked(&["refused_exchange", &server.uri, &pairs[0]]);
    assert!(told.contains("there is a table"), "{told}");
    assert!(asked(&["ask", &server.uri, "none"]).contains("no table"));
    let small = small_files();
    let giving = Server::start_flight(&[&small.own]);
    assert_eq!(asked(&["ask", &giving.uri, "own"]).trim(), "5");
    let told = asked(&["refused_exchange", &giving.uri, "t"]);
    assert!(told.contains("--accept"), "{told}");
}

/// Promise of `serve --flight`: Flight's clients learn the rows that libdipc's do, and their
/// criteria are a prefix.
#[test]
fn pyarrow_learns_the_rows() {
    let files = tempfile::tempdir().unwrap();
    let (parquet, arrow) = (path_in(&files, "ta.parquet"), path_in(&files, "tb.arrow"));
    write_parquet(Path::new(&parquet), &table(70));
    write_arrow(Path::new(&arrow), &table(7));
    let folder = tempfile::tempdir().unwrap();
    let (server, at) = accept(folder.path(), &[&parquet, &arrow, "--tpch", "nation"]);
    assert!(run(&["put", &at, "tc", &arrow]).status.success());
    assert!(run(&["put", &at, "u", &arrow]).status.success());
    for (prefix, rows) in [
        ("t", "ta 70 70\ntb 7 7\ntc 7 7\n"),
        // Nobody has counted a generated table.
        ("nation", "nation -1 -1\n"),
    ] {
        let Some(mut peer) = peer(&["rows", &server.uri, prefix]) else {
            return;
        };
        assert_eq!(said(&peer.output().unwrap()), rows);
    }
}

/// Promise of `serve --flight --accept`: a call that its client cancels, or whose deadline passes,
/// is no whole table.
#[test]
fn a_call_that_is_cut_leaves_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let (server, at) = accept(folder.path(), &[]);
    let Some(mut cut) = peer(&["cut", &server.uri, "t"]) else {
        return;
    };
    assert_eq!(said(&cut.output().unwrap()), "cut\n");
    until("nothing is left", || files(folder.path()).is_empty());
    assert_eq!(json(&["ls", &at, "--json"]).as_array().unwrap().len(), 0);
}
