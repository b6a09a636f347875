//! The `dipc` command with GPUs: tables served from a GPU, and fetched to a GPU.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{fake, places};

/// The command with the fake driver, and with more environment variables.
fn dipc(variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(places::command());
    command
        .stdin(Stdio::null())
        .env("LD_LIBRARY_PATH", fake::folder())
        .envs(variables.iter().copied());
    command
}

/// A server process, killed when dropped.
struct Server {
    child: Child,
    uri: String,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(address: &str, variables: &[(&str, &str)], args: &[&str]) -> Self {
        let mut child = dipc(variables)
            .args(["serve", "--json", "--listen", address])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        // Made before the first answer of the process, so that a bad answer also kills it.
        let uri = String::new();
        let mut server = Self { child, uri, stdout };
        let mut line = String::new();
        server.stdout.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        ready["ready"].as_str().unwrap().clone_into(&mut server.uri);
        server
    }

    /// Stops it by a signal; gives its figures.
    fn stop(mut self) -> Value {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        let stopped: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
        stopped["stopped"].clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that no other test has.
fn address(scheme: &str) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    match scheme {
        "shm" => format!("shm:@dipc-cuda-{}-{number}", std::process::id()),
        _ => format!("{scheme}://127.0.0.1:0"),
    }
}

fn get(variables: &[(&str, &str)], args: &[&str]) -> Output {
    dipc(variables).arg("get").args(args).output().unwrap()
}

/// Fetches to `device` and compares with the generated table; gives the report.
fn fetch(server: &Server, variables: &[(&str, &str)], device: &str, more: &[&str]) -> Value {
    let args = [
        &server.uri,
        TABLE,
        "--json",
        "--device",
        device,
        "--verify",
        EXPECTED,
    ];
    let output = get(variables, &[&args[..], more].concat());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{device}: {told}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verified"]["equal"], true, "{device}: {report}");
    assert_eq!(report["rows"], ROWS, "{device}: {report}");
    report
}

/// A table of numbers, dates and strings.
const TABLE: &str = "orders";
const ROWS: u64 = 15_000;
const EXPECTED: &str = "tpch:orders:0.01";
const SERVED: [&str; 6] = ["--tpch", TABLE, "--scale", "0.01", "--batch-rows", "4000"];

fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {report}"))
}

/// A lower bound of the bytes of the table's bodies.
const MUCH: u64 = 500_000;

/// Promise of `--device`: a table on a GPU comes to the same GPU without a copy, to the host by one
/// copy, to another GPU by one copy between the two, and is equal everywhere.
#[test]
fn tables_on_a_gpu_come_to_where_they_are_wanted() {
    if crate::is_left_out("the GPUs are the fake driver's") {
        return;
    }
    let gpus = [("FAKE_CUDA_DEVICES", "2")];
    let args = [&SERVED[..], &["--device", "cuda:1"]].concat();
    let server = Server::start(&address("shm"), &gpus, &args);

    for device in ["cuda:1", "as-sent"] {
        let report = fetch(&server, &gpus, device, &[]);
        assert_eq!(report["device"], "cuda:1", "{report}");
        assert!(number(&report, "bytes_lent") > MUCH, "{report}");
        for figure in ["bytes_copied", "bytes_copied_on_device", "bytes_staged"] {
            assert_eq!(number(&report, figure), 0, "{device}: {figure}: {report}");
        }
    }
    let report = fetch(&server, &gpus, "cuda:0", &[]);
    assert_eq!(report["device"], "cuda:0", "{report}");
    assert!(number(&report, "bytes_copied_on_device") > MUCH, "{report}");

    // The server copies them to the host; this side copies nothing and needs no driver.
    for (variables, device) in [
        (&gpus[..], "host"),
        (&[("LD_LIBRARY_PATH", "")][..], "host"),
        (&[("LD_LIBRARY_PATH", "")][..], "as-sent"),
    ] {
        let report = fetch(&server, variables, device, &[]);
        assert_eq!(report["device"], "host", "{report}");
        assert_eq!(number(&report, "bytes_copied"), 0, "{report}");
        assert_eq!(number(&report, "bytes_staged"), 0, "{report}");
    }
    let stopped = server.stop();
    assert!(number(&stopped, "bytes_staged") > 3 * MUCH, "{stopped}");
}

/// Promise of `--arena`: on a GPU too, tables are lent without a copy, and `--max-memory` limits
/// their memory.
#[test]
fn tables_in_an_arena_on_a_gpu_are_lent() {
    let args = [&SERVED[..], &["--device", "cuda:0", "--arena"]].concat();
    let server = Server::start(&address("shm"), &[], &args);
    for _ in 0..2 {
        let report = fetch(&server, &[], "cuda:0", &[]);
        assert!(number(&report, "bytes_lent") > MUCH, "{report}");
        for figure in ["bytes_copied", "bytes_copied_on_device", "bytes_staged"] {
            assert_eq!(number(&report, figure), 0, "{figure}: {report}");
        }
    }
    let stopped = server.stop();
    assert!(number(&stopped, "bytes_lent") > 2 * MUCH, "{stopped}");
    assert_eq!(number(&stopped, "bytes_staged"), 0, "{stopped}");
    assert_eq!(number(&stopped, "bytes_copied_on_device"), 0, "{stopped}");

    let at = address("shm");
    let args = [&args[..], &["--max-memory", "1M", "--listen", &at]].concat();
    let output = dipc(&[]).arg("serve").args(args).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("--max-memory"), "{told}");
}

/// Promise of `--device`: over the network tables go through the host at both ends.
#[test]
fn tables_of_gpus_cross_a_network() {
    if crate::is_left_out("the GPUs are the fake driver's") {
        return;
    }
    let gpus = [("FAKE_CUDA_DEVICES", "2")];
    let args = [&SERVED[..], &["--device", "cuda:0"]].concat();
    let server = Server::start(&address("tcp"), &gpus, &args);
    let report = fetch(&server, &gpus, "cuda:1", &[]);
    assert_eq!(report["device"], "cuda:1", "{report}");
    assert!(number(&report, "bytes_received") > MUCH, "{report}");
    assert!(number(&report, "bytes_staged") > MUCH, "{report}");
    for device in ["host", "as-sent"] {
        let report = fetch(&server, &gpus, device, &["--connections", "3"]);
        assert_eq!(report["device"], "host", "{report}");
        assert_eq!(number(&report, "bytes_staged"), 0, "{report}");
    }
    let stopped = server.stop();
    assert!(number(&stopped, "bytes_staged") > 3 * MUCH, "{stopped}");
    assert_eq!(number(&stopped, "bytes_lent"), 0, "{stopped}");
}

/// Promise of `--device`: a table that the server has on the host comes to a GPU too.
#[test]
fn tables_on_the_host_come_to_a_gpu() {
    for (scheme, args) in [("shm", &[][..]), ("shm", &["--arena"]), ("tcp", &[])] {
        let args = [&SERVED[..], args].concat();
        let server = Server::start(&address(scheme), &[], &args);
        let report = fetch(&server, &[], "cuda:0", &[]);
        assert_eq!(report["device"], "cuda:0", "{report}");
        assert!(number(&report, "bytes_staged") > MUCH, "{report}");
        let report = fetch(&server, &[], "as-sent", &[]);
        assert_eq!(report["device"], "host", "{report}");
        let stopped = server.stop();
        assert_eq!(number(&stopped, "bytes_staged"), 0, "{stopped}");
    }
}

/// Promise of `--output` and `--checksum`: they read a table on each device.
#[test]
fn tables_on_a_gpu_are_hashed_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let args = [&SERVED[..], &["--device", "cuda:0"]].concat();
    let server = Server::start(&address("shm"), &[], &args);
    let mut sums = Vec::new();
    for device in ["host", "cuda:0"] {
        let path = folder
            .path()
            .join(format!("{}.arrow", device.replace(':', "-")));
        let path = path.to_str().unwrap();
        let report = fetch(&server, &[], device, &["--checksum", "--output", path]);
        sums.push(report["checksum"].as_str().unwrap().to_owned());
        let again = Server::start(&address("shm"), &[], &[&format!("{TABLE}={path}")]);
        fetch(&again, &[], "host", &[]);
    }
    assert_eq!(sums[0], sums[1]);
    let output = get(&[], &[&server.uri, TABLE, "--device", "cuda:0"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("received, on cuda:0"), "{text}");
}

/// Promise of `--device`: a missing GPU is an error before connecting, and a GPU without room for
/// the table is an error before `ready`.
#[test]
fn gpus_that_are_not_there_are_told() {
    if crate::is_left_out("the GPUs are the fake driver's") {
        return;
    }
    let output = get(&[], &["shm:@nobody", "t", "--device", "cuda:1"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("there is no GPU 1"), "{told}");
    let output = get(
        &[("FAKE_CUDA_DEVICES", "0")],
        &["shm:@nobody", "t", "--device", "cuda:0"],
    );
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("sees no GPU"), "{told}");

    let small = [("FAKE_CUDA_MEMORY", "1048576")];
    let output = dipc(&small)
        .args(["serve", "--listen", &address("shm"), "--device", "cuda:0"])
        .args(SERVED)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("on GPU 0"), "{told}");
    assert!(
        told.contains("cannot serve tpch:orders:0.01 from cuda:0"),
        "{told}"
    );
    assert!(output.stdout.is_empty());
}
