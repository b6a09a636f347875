//! The queries of TPC-H by the command, on four workers and in one process.
//!
//! `DIPC_TPCH_SCALE` sets the scale factor, and `DIPC_TPCH_DIR` a folder for the tables to stay in.
//! `DIPC_TPCH_WORKERS` has the URLs of workers that run already, for the ignored test, and
//! `DIPC_TPCH_CA` the authority of their certificates.

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
    /// A worker that others reach by one scheme alone, or by shared memory and tcp.
    fn start(way: Option<&str>) -> Self {
        let mut command = Command::new(COMMAND);
        command.args(["worker", "--listen", "127.0.0.1:0"]);
        match way {
            Some("shm") => drop(command.args(["--way", "shm"])),
            Some(way) => drop(command.args(["--dipc", &format!("{way}://127.0.0.1:0")])),
            None => {}
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

/// Runs all queries on workers, and compares them with those of one process. Each of the ways must
/// have been taken.
fn all_queries(urls: &str, arguments: &[&str], ways: &[&str]) {
    let own = tempfile::TempDir::new().unwrap();
    let tables = match std::env::var_os("DIPC_TPCH_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => own.path().to_owned(),
    };
    let mut by_way = vec![0; ways.len()];
    for number in 1..=22 {
        let file = file(number);
        let begun = Instant::now();
        let alone = query(&tables, &["--file", &file]);
        let alone_for = begun.elapsed();
        let on = [
            "--workers",
            urls,
            "--scan-bytes",
            "1",
            "--file",
            &file,
            "--explain",
        ];
        let on = query(&tables, &[&on, arguments].concat());
        println!(
            "query {number}: {:?}, alone {alone_for:?}",
            begun.elapsed() - alone_for
        );
        let (result, plan) = on.split_once("\n┌").expect("a distributed plan");
        assert_eq!(result, alone.trim_end(), "query {number}");
        for (way, count) in ways.iter().zip(&mut by_way) {
            let is_of_way = |line: &&str| line.contains(&format!("; {way} "));
            *count += plan.lines().filter(is_of_way).count();
        }
    }
    assert!(
        by_way.iter().all(|stages| *stages >= 22),
        "{ways:?}: {by_way:?} stages"
    );
}

fn urls(workers: &[Worker]) -> String {
    let urls: Vec<_> = workers.iter().map(|worker| &*worker.url).collect();
    urls.join(",")
}

/// All queries on four workers that have one way alone.
fn by_one_way(way: &str) {
    let workers: Vec<_> = (0..4).map(|_| Worker::start(Some(way))).collect();
    all_queries(&urls(&workers), &[], &[way]);
}

/// Promise of the command: the same results as one process, with the shuffles in shared memory.
#[test]
fn queries_on_four_workers_over_shared_memory() {
    by_one_way("shm");
}

/// The same through connections.
#[test]
fn queries_on_four_workers_over_tcp() {
    by_one_way("tcp");
}

/// The same where some workers have shared memory and others not.
#[test]
fn queries_on_four_workers_by_several_ways() {
    let ways = [None, Some("tcp"), None, Some("tcp")];
    let workers: Vec<_> = ways.into_iter().map(Worker::start).collect();
    all_queries(&urls(&workers), &[], &["shm", "tcp"]);
}

/// The same on workers that somebody else has started, over TLS.
#[test]
#[ignore = "needs workers: tools/test-slow.sh tpch starts some in network namespaces"]
fn queries_on_given_workers_over_tls() {
    let urls = std::env::var("DIPC_TPCH_WORKERS").expect("DIPC_TPCH_WORKERS");
    let authority = std::env::var("DIPC_TPCH_CA").expect("DIPC_TPCH_CA");
    all_queries(&urls, &["--tls-ca", &authority], &["tls"]);
}
