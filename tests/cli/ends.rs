//! How processes end: signals, kill -9 on either side, a full disk.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::Signal;

use crate::support::*;

/// A fetch that runs until it is ended: the table is large, and slow to write.
fn long_fetch(server: &Server, folder: &Path) -> Child {
    let output = folder.join("t.parquet");
    let child = dipc()
        .args([
            "get",
            &server.uri,
            "lineitem",
            "--output",
            output.to_str().unwrap(),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("rows are being written", || {
        let sizes = names(folder)
            .into_iter()
            .filter_map(|path| fs::metadata(path).ok());
        sizes.map(|metadata| metadata.len()).sum::<u64>() > 0
    });
    child
}

fn large() -> Server {
    Server::start(&["--tpch", "lineitem", "--scale", "10", NATION])
}

fn fail_of(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    text(&output.stderr)
}

/// Promise of `serve`: SIGINT and SIGTERM end it with status 0, and its socket is gone.
#[test]
fn signals_stop_a_server_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    for stop in [Signal::TERM, Signal::INT] {
        let path = path_in(&folder, "socket");
        let mut server = Server::start_at(&format!("shm:{path}"), &[NATION]);
        assert!(run(&["get", &server.uri, "nation"]).status.success());
        assert!(fs::metadata(&path).unwrap().file_type().is_socket());
        signal(&server.child, stop);
        assert_eq!(wait(&mut server.child).code(), Some(0));
        assert!(!Path::new(&path).exists());
    }
}

/// Promise of `serve`: after a signal running streams have until the deadline; a second signal cuts
/// them, and the client gets an error.
#[test]
fn a_second_signal_cuts_what_is_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = large();
    let client = long_fetch(&server, folder.path());
    signal(&server.child, Signal::TERM);
    until("others are refused", || {
        !run(&["ls", &server.uri]).status.success()
    });
    assert!(
        server.child.try_wait().unwrap().is_none(),
        "a stream is under way"
    );
    let start = Instant::now();
    signal(&server.child, Signal::TERM);
    wait(&mut server.child);
    assert!(start.elapsed().as_secs() < 5);
    assert!(fail_of(client).starts_with("dipc: "));
}

/// A killed server leaves its socket; the next start takes it over. A live server's address is
/// refused.
#[test]
fn a_stale_socket_is_taken_over_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "socket");
    let at = format!("shm:{path}");
    let mut server = Server::start_at(&at, &[NATION]);
    let told = failure(1, &["serve", "--listen", &at, NATION]);
    assert!(told.contains(&path), "{told}");
    server.child.kill().unwrap();
    wait(&mut server.child);
    assert!(Path::new(&path).exists());
    failure(1, &["get", &server.uri, "nation"]);
    let next = Server::start_at(&at, &[NATION]);
    assert!(run(&["get", &next.uri, "nation"]).status.success());
}

/// kill -9 of a client in the middle of a stream: the next one is served.
#[test]
fn a_killed_client_does_not_stop_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = large();
    let mut client = long_fetch(&server, folder.path());
    client.kill().unwrap();
    wait(&mut client);
    assert!(run(&["get", &server.uri, "nation"]).status.success());
    let (status, _) = server.stop();
    assert!(status.success());
}

/// kill -9 of the server in the middle of a stream: the client reports it, and leaves no partial
/// file.
#[test]
fn a_killed_server_is_an_error_at_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = large();
    let client = long_fetch(&server, folder.path());
    server.child.kill().unwrap();
    let told = fail_of(client);
    assert!(
        told.starts_with("dipc: ") && told.trim_end().lines().count() == 1,
        "{told}"
    );
    assert!(names(folder.path()).is_empty());
}

/// Promise of `get`: SIGINT ends a fetch with an error, and leaves no partial file.
#[test]
fn an_interrupt_cancels_a_fetch() {
    let folder = tempfile::tempdir().unwrap();
    let server = large();
    let client = long_fetch(&server, folder.path());
    signal(&client, Signal::INT);
    interrupted(client, Signal::INT);
    assert!(names(folder.path()).is_empty());
    assert!(run(&["get", &server.uri, "nation"]).status.success());
}

/// The same before the server's answer.
#[test]
fn an_interrupt_ends_the_wait_for_a_server() {
    let server = Server::start(&[NATION]);
    signal(&server.child, Signal::STOP);
    for sent in [Signal::INT, Signal::TERM] {
        let client = dipc()
            .args(["get", &server.uri, "nation", "--timeout", "100s"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let tasks = format!("/proc/{}/task", client.id());
        until("it catches signals, and waits", || {
            let name = |task: &PathBuf| fs::read_to_string(task.join("comm"));
            let tasks = names(Path::new(&tasks));
            let mut threads = tasks.iter().filter_map(|task| name(task).ok());
            threads.any(|name| name == "dipc-signals\n")
        });
        signal(&client, sent);
        interrupted(client, sent);
    }
}

/// Promise of `--output`: a full disk is an error, and leaves no partial file. A file size limit
/// stands for the disk.
#[test]
fn a_full_disk_leaves_no_half_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["--tpch", "lineitem", "--scale", "0.01"]);
    for name in ["t.arrow", "t.arrows", "t.parquet"] {
        let output = Command::new("sh")
            .args(["-c", r#"trap '' XFSZ; ulimit -f 64; exec "$@""#, "sh"])
            .args([
                env!("CARGO_BIN_EXE_dipc"),
                "get",
                &server.uri,
                "lineitem",
                "--output",
            ])
            .arg(folder.path().join(name))
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(name), "{told}");
        assert!(names(folder.path()).is_empty());
    }
}

/// Promise of `get --timeout`: the kernel accepts a connection for a stopped server, which stays
/// silent: the text blames the server, not the data.
#[test]
fn a_stopped_server_is_told_of() {
    for address in [address(), "tcp://127.0.0.1:0".to_owned()] {
        let scheme = address.split(':').next().unwrap();
        let server = Server::start_as(dipc(), scheme, &address, &[NATION]);
        signal(&server.child, Signal::STOP);
        let told = failure(1, &["get", "--timeout", "1s", &server.uri, "nation"]);
        assert!(told.contains("has not answered within 1s"), "{told}");
        assert!(told.ends_with("; --timeout sets this time\n"), "{told}");
        signal(&server.child, Signal::CONT);
        assert!(run(&["get", &server.uri, "nation"]).status.success());
    }
}
