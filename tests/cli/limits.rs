//! Limits on file sizes and on descriptors lead to an error or a fallback, never to a signal
//! (SIGXFSZ).

use std::fs::{DirEntry, read_dir};
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::proto::{Credit, Uri};
use dipc::transport;

use crate::support::*;

const TABLE: [&str; 4] = ["--tpch", "lineitem", "--scale", "0.01"];

/// The command in a shell with a file size limit of `blocks`, of 512 or 1,024 bytes each.
fn limited(blocks: u32) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"ulimit -f "$0"; exec "$@""#])
        .arg(blocks.to_string())
        .arg(env!("CARGO_BIN_EXE_dipc"));
    command
}

fn serve(blocks: u32, args: &[&str]) -> Server {
    let address = address();
    let args = [&TABLE[..], args].concat();
    Server::start_as(limited(blocks), &address, &address, &args)
}

/// A server lends bodies that fit into its files, and sends the others.
#[test]
fn a_server_with_small_files_serves() {
    for (blocks, args) in [
        (1000, &[][..]),
        (100, &[]),
        (1, &["--log", "debug"]),
        (20_000, &["--arena", "--batch-rows", "1000"]),
    ] {
        let server = serve(blocks, args);
        for _ in 0..2 {
            let output = run(&["get", &server.uri, "lineitem"]);
            assert!(
                output.status.success(),
                "{blocks}: {}",
                text(&output.stderr)
            );
        }
    }
}

/// A larger file than the limit is an error of one line.
#[test]
fn a_file_past_the_limit_is_said() {
    let server = Server::start(&TABLE);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let address = address();
    let arena = ["serve", "--listen", &address, "--arena"];
    let (arrow, parquet) = (path("t.arrow"), path("t.parquet"));
    for args in [
        &["get", &server.uri, "lineitem", "--output", &arrow][..],
        &["get", &server.uri, "lineitem", "--output", &parquet],
        &[&arena[..], &TABLE[..]].concat(),
    ] {
        let output = limited(100).args(args).output().unwrap();
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {line}");
        assert_eq!(line.trim_end().lines().count(), 1, "{line}");
        assert!(line.contains("ulimit -f"), "{line}");
    }
}

/// UCX's shared memory needs files; without room it is not used.
#[test]
fn a_ucx_client_with_small_files_fetches() {
    if let Err(error) = transport::by_scheme("ucx").and_then(|transport| transport.available()) {
        println!("skipped: {error}");
        return;
    }
    let args = [&TABLE[..], &["--trusted-network"]].concat();
    let begins = "ucx://127.0.0.1:";
    let server = Server::start_as(limited(100), begins, "ucx://127.0.0.1:0", &args);
    let output = limited(100)
        .args(["get", &server.uri, "lineitem"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// The descriptor limit of a server that shall have too few.
const MOST_OPEN: usize = 64;

/// The server's descriptors below its limit; it may have inherited others.
fn count_open(server: &Server) -> usize {
    let fds = read_dir(format!("/proc/{}/fd", server.child.id())).unwrap();
    let number = |fd: std::io::Result<DirEntry>| text(fd.unwrap().file_name().as_bytes()).parse();
    let numbers = fds.map(|fd| number(fd).unwrap());
    numbers.filter(|number: &usize| *number < MOST_OPEN).count()
}

/// Uses up a server's descriptors except `left`, by connections that live as long as the result.
fn use_up(server: &Server, uri: &str, left: usize) -> Vec<TcpStream> {
    let address = Uri::parse(uri).unwrap().address;
    let mut taken = Vec::new();
    loop {
        let open = count_open(server);
        if open + left >= MOST_OPEN {
            return taken;
        }
        taken.push(TcpStream::connect(&address).unwrap());
        until("it is accepted", || count_open(server) > open);
    }
}

/// A server with few descriptors, and the URIs of both its listeners.
fn with_few_descriptors() -> (Server, String, String) {
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"ulimit -n "$0"; exec "$@""#])
        .arg(MOST_OPEN.to_string())
        .arg(env!("CARGO_BIN_EXE_dipc"));
    let shm = address();
    let args = [NATION, "--listen", "tcp://127.0.0.1:0"];
    // By default it would keep fewer connections than it has descriptors.
    let args = [&args[..], &["--max-connections", "1000"]].concat();
    let mut server = Server::start_as(command, &shm, &shm, &args);
    let line = server.line();
    let tcp = line.strip_prefix("ready ").unwrap().to_owned();
    let shm = server.uri.clone();
    (server, shm, tcp)
}

/// A client with several connections gets an error that names descriptors if the server has too few
/// for them, at any number of free ones. The server serves again once it has some.
#[test]
fn a_client_without_a_servers_descriptors_is_told_of_them() {
    let mut refusals = 0;
    for left in [0, 1, 3, 5, 7] {
        let (server, _, tcp) = with_few_descriptors();
        let taken = use_up(&server, &tcp, left);
        let get = ["get", &tcp, "nation", "--connections", "4"];
        let output = run(&[&get[..], &["--timeout", "2s"]].concat());
        let said = text(&output.stderr);
        if !output.status.success() {
            assert!(said.contains("the server"), "{left}: {said}");
            assert!(said.contains("file descriptor"), "{left}: {said}");
            refusals += 1;
        }
        drop(taken);
        until("it serves again", || run(&get).status.success());
    }
    // Each of four sockets takes a descriptor, and their joined connection two.
    assert_eq!(refusals, 4);
}

/// A client of a listener without descriptors, which waits in vain, names their lack as a cause.
#[test]
fn clients_of_every_listener_without_descriptors_are_told_of_them() {
    let (server, shm, tcp) = with_few_descriptors();
    let _taken = use_up(&server, &tcp, 0);
    for uri in [&shm, &tcp] {
        let said = text(&run(&["get", uri, "nation", "--timeout", "1s"]).stderr);
        assert!(said.contains("no file descriptor left"), "{said}");
    }
}

/// Promise of `--deadline`: a client of a busy server asks again until there is a place.
#[test]
fn a_client_with_a_deadline_waits_for_a_place() {
    let args = ["--max-streams", "1", "--batch-rows", "1000"];
    let server = Server::start(&[&TABLE[..], &args].concat());
    let client = Client::new(ClientOptions::default()).unwrap();
    let narrow = GetOptions {
        window: Credit {
            batches: 1,
            bytes: 1,
        },
        ..GetOptions::default()
    };
    let held = client.get(&[&server.uri], b"lineitem", &narrow, None);
    let held = held.unwrap();
    // A script can tell that it may try again.
    let told = failure(75, &["get", &server.uri, "lineitem"]);
    assert!(told.contains("max_streams"), "{told}");
    let mut waits = dipc()
        .args(["get", &server.uri, "lineitem", "--deadline", "60s"])
        .args(["--log", "debug"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(waits.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("asked again soon")));
    drop(held);
    log.for_each(drop);
    assert!(wait(&mut waits).success());
}
