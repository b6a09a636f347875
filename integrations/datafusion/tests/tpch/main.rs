//! The queries of TPC-H by the command, on four workers and in one process.
//!
//! `DIPC_TPCH_SCALE` sets the scale factor, and `DIPC_TPCH_DIR` a folder for the tables to stay in.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const COMMAND: &str = env!("CARGO_BIN_EXE_dipc-sql");

/// A worker, until its drop.
struct Worker {
    child: Child,
    url: String,
    _output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(way: &str) -> Self {
        let mut command = Command::new(COMMAND);
        command.args(["worker", "--listen", "127.0.0.1:0"]);
        if way == "tcp" {
            command.args(["--dipc", "tcp://127.0.0.1:0"]);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.by_ref().lines();
        let url = lines.find_map(|line| Some(line.unwrap().split_once("plans at ")?.1.to_owned()));
        Self {
            url: url.expect("the worker's URL"),
            child,
            _output: output,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                if !std::thread::panicking() {
                    assert!(told.unwrap().success() && status.success(), "{status}");
                }
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `dipc-sql query` prints.
fn query(tables: &Path, arguments: &[&str]) -> String {
    let scale = std::env::var("DIPC_TPCH_SCALE").unwrap_or_else(|_| "0.01".to_owned());
    let output = Command::new(COMMAND)
        .args(["query", "--partitions", "4", "--tpch", &scale, "--tpch-dir"])
        .arg(tables)
        .args(arguments)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn file(number: usize) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tpch");
    folder
        .join(format!("q{number}.sql"))
        .to_str()
        .unwrap()
        .to_owned()
}

/// Runs all queries by one way, and compares them with those of one process.
fn all_queries(way: &str) {
    let own = tempfile::TempDir::new().unwrap();
    let tables = match std::env::var_os("DIPC_TPCH_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => own.path().to_owned(),
    };
    let workers: Vec<_> = (0..4).map(|_| Worker::start(way)).collect();
    let urls: Vec<_> = workers.iter().map(|worker| &*worker.url).collect();
    let urls = urls.join(",");
    let mut by_way = 0;
    for number in 1..=22 {
        let file = file(number);
        let alone = query(&tables, &["--file", &file]);
        let on = [
            "--workers",
            &urls,
            "--scan-bytes",
            "1",
            "--file",
            &file,
            "--explain",
        ];
        let on = query(&tables, &on);
        let (result, plan) = on.split_once("\n┌").expect("a distributed plan");
        assert_eq!(result, alone.trim_end(), "query {number}");
        by_way += plan
            .lines()
            .filter(|line| line.contains(&format!("; {way} ")))
            .count();
    }
    assert!(by_way >= 22, "{by_way} stages went by {way}");
}

/// Promise of the command: the same results as one process, with the shuffles in shared memory.
#[test]
fn queries_on_four_workers_over_shared_memory() {
    all_queries("shm");
}

/// The same through connections.
#[test]
fn queries_on_four_workers_over_tcp() {
    all_queries("tcp");
}
