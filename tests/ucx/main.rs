//! UCX by itself: what is refused and how, peers that die, the reference's behaviour, and what the
//! host process notices of it. `make test` runs them with the UCX of .tools.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "in tests a panic is how a failure shows"
)]

#[path = "../common/mod.rs"]
mod common;
mod ending;
mod fetched;
mod host;
mod lending;
mod lists;
mod many;
mod messages;
mod pair;
#[path = "../ucx_peer/peer.rs"]
mod peer;
mod reaching;
mod reference;
mod refused;

use std::io::{BufRead, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use dipc::arrow::stream::ArrayReader as _;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{self, AccessOptions, LinkOptions};
use rustix::process::{Pid, Signal, kill_process};

/// Says which part of this program a child process runs, and with what.
const ROLE: &str = "DIPC_UCX_TEST_ROLE";
/// Names UCX's library to libdipc.
const LIBRARY: &str = "DIPC_UCX_LIBRARY";

/// Whether UCX is there; says so where it is not.
fn works() -> bool {
    match transport::by_scheme("ucx").unwrap().available() {
        Ok(()) => true,
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

/// The reference's tests once more with the UCX that the linker finds, one after the other.
#[test]
#[ignore = "UCX before 1.18 can end the peer's process or this one (docs/transports.md)"]
fn with_the_library_of_the_system() {
    if std::env::var_os(LIBRARY).is_none() {
        // This is that run.
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["reference::", "--test-threads=1"])
        .env_remove(LIBRARY)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(!text.contains(" 0 passed"), "{text}");
}

/// Options of a server that may listen.
fn options() -> ServerOptions {
    ServerOptions {
        link: link_options(),
        ..ServerOptions::default()
    }
}

fn link_options() -> LinkOptions {
    LinkOptions {
        access: AccessOptions {
            trusted_network: true,
            ..AccessOptions::default()
        },
        ..LinkOptions::default()
    }
}

fn serving() -> (ServerHandle, String) {
    let server = ServerHandle::new(options()).unwrap();
    let uri = server.listen("ucx://127.0.0.1:0").unwrap();
    (server, uri)
}

fn client() -> Client {
    Client::new(ClientOptions::default()).unwrap()
}

/// A server and a client with these settings.
fn pair(settings: &[(&str, &str)], spin: Duration) -> (ServerHandle, Client) {
    let mut options = ServerOptions { spin, ..options() };
    let mut client = ClientOptions::default();
    for (key, value) in settings {
        options.link.settings.set(key, value).unwrap();
        client.settings.set(key, value).unwrap();
    }
    (
        ServerHandle::new(options).unwrap(),
        Client::new(client).unwrap(),
    )
}

fn serve(server: &ServerHandle, ticket: &str, provider: Box<dyn dipc::server::HostProvider>) {
    server
        .serve(ticket.as_bytes(), provider)
        .map_err(|(error, _)| error)
        .unwrap();
}

/// Waits for something that another thread or process brings about; fails after twenty seconds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "not yet: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// What a child process is started with.
#[derive(Debug)]
struct Role {
    name: String,
    argument: String,
}

/// The part that this process plays, if it is a child's.
fn role() -> Option<Role> {
    let text = std::env::var(ROLE).ok()?;
    let (name, argument) = text.split_once(' ')?;
    Some(Role {
        name: name.to_owned(),
        argument: argument.to_owned(),
    })
}

/// This program in a process of its own, running one test that asks for its [`role`]. Killed when
/// dropped.
struct Other {
    child: Child,
    /// Closed when it shall end.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(test: &str, role: &str, argument: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(ROLE, format!("{role} {argument}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The rest of the next line that begins with `mark`.
    fn line(&mut self, mark: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "the other process ended before it said {mark}");
            // The harness begins a line of its own before.
            if let Some((_, rest)) = line.split_once(mark) {
                return rest.trim().to_owned();
            }
        }
    }

    /// It does nothing from now on, and keeps what it has.
    fn stop(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).unwrap();
    }

    /// Tells it to end, and waits; what it wrote to the standard error output.
    fn ends(&mut self) -> String {
        drop(self.input.take());
        let mut errors = String::new();
        let output = self.child.stderr.as_mut().unwrap();
        output.read_to_string(&mut errors).unwrap();
        assert!(self.child.wait().unwrap().success(), "{errors}");
        errors
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.input.take());
        // Without effect on one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part of a client's process: takes one batch of `t`, says so, and keeps the stream until it
/// is told to end.
fn takes_one(role: &Role, client: &Client) {
    assert_eq!(role.name, "client");
    let uris = [role.argument.as_str()];
    let mut stream = client
        .get(&uris, b"t", &GetOptions::default(), None)
        .unwrap();
    stream.next().unwrap().expect("a batch");
    println!("got=one");
    until_told();
}

/// Waits until the parent closes this process's input.
fn until_told() {
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}
