//! How Flight ends: signals, timeouts, kills on either side, too many streams, wrong usage.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use crate::fake_flight::*;
use crate::support::*;

/// A server whose table takes long, without libdipc.
fn large(more: &[&str]) -> Server {
    let tables = ["--tpch", "lineitem", "--scale", "10", NATION];
    Server::start_flight(&[&tables, more].concat())
}

/// A fetch by `DoGet` that runs until it is ended, after its first rows.
fn long_fetch(server: &Server, folder: &Path) -> Child {
    let output = folder.join("t.arrows");
    let child = dipc()
        .args(["get", &server.uri, "lineitem", "--output"])
        .arg(output)
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

fn fail_of(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.lines().last().unwrap().starts_with("dipc: "), "{told}");
    told
}

/// Promise of `serve`: after a signal no call is accepted, and a running `DoGet` continues for the
/// drain time. A second signal cuts it; the client gets an error and leaves no partial file.
#[test]
fn signals_drain_and_then_cut() {
    let folder = tempfile::tempdir().unwrap();
    for (drain, second) in [("60m", true), ("300ms", false)] {
        let mut server = large(&["--drain", drain]);
        let client = long_fetch(&server, folder.path());
        signal(&server.child, Signal::TERM);
        until("no call is taken", || {
            !run(&["get", &server.uri, "nation"]).status.success()
        });
        if second {
            assert!(server.child.try_wait().unwrap().is_none());
            signal(&server.child, Signal::TERM);
        }
        assert!(wait(&mut server.child).success());
        fail_of(client);
        assert!(names(folder.path()).is_empty());
    }
}

/// Promise of `--timeout`: by default a Flight server has the time to connect for its first answer.
/// The system accepts connections for a stopped server.
#[test]
fn a_stopped_server_is_given_up() {
    let server = Server::start_flight(&[NATION]);
    signal(&server.child, Signal::STOP);
    let mut get = dipc();
    get.args(["get", &server.uri, "nation"]);
    get.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut client = get.spawn().unwrap();
    assert_eq!(wait(&mut client).code(), Some(1));
    let told = text(&client.wait_with_output().unwrap().stderr);
    assert!(told.contains("10s") && told.contains("--timeout"), "{told}");
    signal(&server.child, Signal::CONT);
}

/// An idle server stops at once, even while a client keeps its connection.
#[test]
fn a_connection_without_calls_does_not_hold_the_server() {
    let server = Server::start_flight(&[NATION, "--drain", "60m"]);
    assert!(run(&["get", &server.uri, "nation"]).status.success());
    let (status, _) = server.stop();
    assert!(status.success());
}

/// kill -9 of a client in the middle of a `DoGet` ends the reading for it, and its place is free.
/// Until then a further client gets an error that names the limit.
#[test]
fn a_killed_client_frees_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let server = large(&["--max-streams", "1"]);
    let mut client = long_fetch(&server, folder.path());
    let told = failure(75, &["get", &server.uri, "nation"]);
    assert!(told.contains("--max-streams"), "{told}");
    client.kill().unwrap();
    wait(&mut client);
    until("the place is free", || {
        run(&["get", &server.uri, "nation"]).status.success()
    });
}

/// kill -9 of the server in the middle of a `DoGet`: the client reports it, and leaves no partial
/// file.
#[test]
fn a_killed_server_is_an_error_at_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = large(&[]);
    let client = long_fetch(&server, folder.path());
    server.child.kill().unwrap();
    let told = fail_of(client);
    assert!(told.contains(&server.uri), "{told}");
    assert!(names(folder.path()).is_empty());
    wait(&mut server.child);
    let told = failure(1, &["get", &server.uri, "lineitem"]);
    assert!(told.contains("is the Flight server running"), "{told}");
}

/// A file that is missing or damaged at a request is the stream's error; other tables are listed
/// and served.
#[test]
fn a_file_that_is_gone_is_the_streams_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_in(&folder, "table.arrow");
    write_arrow(Path::new(&path), &table(10));
    let server = Server::start_flight(&[&path, NATION]);
    fs::remove_file(&path).unwrap();
    let told = failure(1, &["get", &server.uri, "table"]);
    assert!(told.contains("the table \"table\": No such file"), "{told}");
    assert!(!told.contains("table.arrow"), "{told}");
    assert!(run(&["get", &server.uri, "nation"]).status.success());
}

/// Promise of `get`: SIGINT ends the wait for a silent server: before the answer, and in the middle
/// of a stream.
#[test]
fn an_interrupt_ends_the_wait() {
    // The system accepts its connections, and nothing answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = FakeFlight::start(Answers {
        info: info(vec![endpoint("table", &[])]),
        messages: messages(&table(10)).into_iter().map(Ok).collect(),
        hangs: true,
        ..Answers::default()
    });
    let silent = format!("grpc://{}", listener.local_addr().unwrap());
    for uri in [&silent, &hanging.uri] {
        let folder = tempfile::tempdir().unwrap();
        let out = path_in(&folder, "out.arrows");
        let child = dipc()
            .args(["get", uri, "table", "--output", &out])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let started = Path::new("/proc").join(child.id().to_string()).join("task");
        until("the threads for calls and signals are there", || {
            let threads = names(&started);
            let name = |task: &std::path::PathBuf| fs::read_to_string(task.join("comm"));
            let names: Vec<_> = threads.iter().filter_map(|task| name(task).ok()).collect();
            ["dipc-flight\n", "dipc-signals\n"]
                .iter()
                .all(|name| names.iter().any(|found| found == name))
        });
        signal(&child, Signal::INT);
        interrupted(child, Signal::INT);
        assert!(names(folder.path()).is_empty());
    }
}

/// Promise of `--timeout`: it limits a server that never answers, and a server that becomes silent.
#[test]
fn silence_is_limited_by_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("grpc://{}", listener.local_addr().unwrap());
    let hanging = FakeFlight::start(Answers {
        info: info(vec![endpoint("table", &[])]),
        messages: messages(&table(10)).into_iter().map(Ok).collect(),
        hangs: true,
        ..Answers::default()
    });
    for uri in [&silent, &hanging.uri] {
        let told = failure(1, &["get", uri, "table", "--timeout", "200ms"]);
        assert!(
            told.contains("--timeout") && told.contains(uri.as_str()),
            "{told}"
        );
    }
}

/// A peer without gRPC, at either end, is an error there and has no other effect.
#[test]
fn other_protocols_are_refused() {
    use std::io::{Read as _, Write as _};
    let server = Server::start_flight(&[NATION]);
    let at = server.uri.strip_prefix("grpc://").unwrap();
    for bytes in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0xff; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff",
    ] {
        let mut socket = std::net::TcpStream::connect(at).unwrap();
        // The server may close before it has read all bytes.
        let _ = socket.write_all(bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert!(run(&["get", &server.uri, "nation"]).status.success());

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("grpc://{}", listener.local_addr().unwrap());
    let speaker = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.write_all(b"220 welcome to something else\r\n");
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let told = failure(1, &["get", &uri, "nation"]);
    assert!(told.contains(&uri), "{told}");
    speaker.join().unwrap();
}

/// Exit status 2: wrong usage of Flight. Exit status 1: unusable addresses.
#[test]
fn wrong_usage_is_told() {
    for (args, expected) in [
        (
            &["get", "grpc://127.0.0.1:1", "grpc://127.0.0.1:2", "t"][..],
            "one URI",
        ),
        (&["get", "shm:@nobody", "t", "--command"], "--command"),
        (&["serve", "--flight", "127.0.0.1:0"], "nothing to serve"),
    ] {
        let told = failure(2, args);
        assert!(told.contains(expected), "{args:?}: {told}");
    }
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for (address, expected) in [
        ("0.0.0.0:0", "--allow-remote"),
        ("[::]:0", "--allow-remote"),
        ("127.0.0.1", "HOST:PORT"),
        (&taken, "in use"),
    ] {
        let remote = "--allow-remote=tcp";
        let told = failure(1, &["serve", "--flight", address, remote, NATION]);
        assert!(told.contains(expected) && told.contains(address), "{told}");
    }
    for (uri, expected) in [
        ("grpc://127.0.0.1", "port"),
        ("grpc+tls://127.0.0.1:1", "is the Flight server running"),
        (
            "grpc+unix:///nonexistent/socket",
            "is the Flight server running",
        ),
    ] {
        let told = failure(1, &["get", uri, "t"]);
        assert!(told.contains(expected), "{told}");
    }
}
