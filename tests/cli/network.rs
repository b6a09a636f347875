//! tcp between processes, and between network namespaces that stand for machines: a slow and lossy
//! link, a cut link, and killed processes.

use std::io::{Read as _, Seek as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::Signal;

use crate::support::*;

const LOOPBACK: &str = "tcp://127.0.0.1:";

/// A server at a port that the system chose.
fn start(args: &[&str]) -> Server {
    Server::start_as(dipc(), LOOPBACK, "tcp://127.0.0.1:0", args)
}

/// A table that takes long enough to be interrupted.
pub const LARGE: [&str; 4] = ["--tpch", "lineitem", "--scale", "10"];

/// A running fetch of `LARGE`: the first bytes of rows show that the server has a stream.
pub fn long_fetch(command: Command, uri: &str, folder: &std::path::Path, args: &[&str]) -> Child {
    let mut command = command;
    let output = folder.join("t.arrows");
    let child = command
        .args(["get", uri, "lineitem", "--output", output.to_str().unwrap()])
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("rows are being written", || {
        let sizes = names(folder)
            .into_iter()
            .filter_map(|path| std::fs::metadata(path).ok());
        sizes.map(|metadata| metadata.len()).sum::<u64>() > 0
    });
    child
}

/// The error of a fetch that must fail: one line.
pub fn fail_of(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told.trim_end().lines().count(), 1, "{told}");
    told
}

/// Promise of tcp: at the port of another program, what that says is told at once.
#[test]
fn another_program_is_told_by_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = path_in(&folder, "small.arrow");
    write_arrow(std::path::Path::new(&file), &table(5));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let speaker = std::thread::spawn(move || {
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.write_all(b"220 welcome\r\n");
            // Nothing more comes until the client has gone.
            let _ = socket.read_to_end(&mut Vec::new());
        }
    });
    for args in [&["get", &uri, "t"][..], &["put", &uri, "t", &file]] {
        let told = failure(1, args);
        assert!(told.contains("220 welc"), "{told}");
    }
    speaker.join().unwrap();
}

/// Rule E8: tables arrive with a checksum in each message, in both directions.
#[test]
fn tables_arrive_with_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    let file = path_in(&folder, "small.arrow");
    write_arrow(std::path::Path::new(&file), &table(5_000));
    let server = start(&["--accept", taken.to_str().unwrap()]);
    json(&[
        "put",
        &server.uri,
        "t",
        "--json",
        "--message-checksums",
        &file,
    ]);
    let report = json(&[
        "get",
        &server.uri,
        "t",
        "--json",
        "--message-checksums",
        "--verify",
        &file,
    ]);
    assert_eq!(report["verified"]["equal"], true, "{report}");
}

/// A table over tcp, over one and several connections, equals the served table.
#[test]
fn tables_arrive_over_tcp() {
    let args = ["--tpch", "orders", "--scale", "0.1", "--batch-rows", "5000"];
    let server = start(&args);
    for connections in ["1", "4"] {
        let report = json(&[
            "get",
            &server.uri,
            "orders",
            "--json",
            "--connections",
            connections,
            "--verify",
            "tpch:orders:0.1",
        ]);
        assert_eq!(report["rows"], 150_000);
        assert_eq!(report["verified"]["equal"], true);
        assert_eq!(report["bytes_lent"], 0);
    }
    let (status, _) = server.stop();
    assert!(status.success());
}

/// Unusable addresses have a reason: without a listener, reachable by other machines, or with a
/// port in use.
#[test]
fn addresses_that_cannot_be_used_are_explained() {
    let told = failure(1, &["get", "tcp://127.0.0.1:1", "t"]);
    assert!(
        told.contains("no server listens at tcp://127.0.0.1:1"),
        "{told}"
    );
    let any = "tcp://0.0.0.0:0";
    let told = failure(1, &["serve", "--listen", any, REGION]);
    assert!(told.contains("--allow-remote"), "{told}");
    let server = start(&[REGION]);
    let taken = server.uri.split('?').next().unwrap();
    let told = failure(1, &["serve", "--listen", taken, REGION]);
    assert!(told.contains("is taken"), "{told}");
    for allows in ["--allow-remote", "--allow-remote=tcp"] {
        let args = [allows, REGION];
        let mut log = tempfile::tempfile().unwrap();
        let mut command = dipc();
        command.stderr(log.try_clone().unwrap());
        let remote = Server::start_as(command, "tcp://0.0.0.0:", any, &args);
        let here = remote.uri.replace("0.0.0.0", "127.0.0.1");
        assert!(run(&["get", &here, "region"]).status.success());
        assert!(remote.stop().0.success());
        let mut told = String::new();
        log.rewind().unwrap();
        log.read_to_string(&mut told).unwrap();
        assert!(
            told.contains("other machines can connect to tcp://0.0.0.0:"),
            "{told}"
        );
    }
    let one = ["serve", "--allow-remote=flight", "--listen", any, REGION];
    assert!(failure(1, &one).contains("--allow-remote"));
    let told = failure(
        1,
        &["get", &server.uri, "region", "--set", "tcp.keepalive=x"],
    );
    assert!(told.contains("tcp.keepalive"), "{told}");
}

/// kill -9 of either side in the middle of a stream: the other side gets an error, and goes on.
#[test]
fn a_kill_over_tcp_ends_one_stream() {
    for connections in ["1", "3"] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = start(&[&LARGE[..], &[NATION]].concat());
        let args = ["--connections", connections];
        let mut client = long_fetch(dipc(), &server.uri, folder.path(), &args);
        client.kill().unwrap();
        wait(&mut client);
        assert!(run(&["get", &server.uri, "nation"]).status.success());
        let folder = tempfile::tempdir().unwrap();
        let client = long_fetch(dipc(), &server.uri, folder.path(), &args);
        server.child.kill().unwrap();
        let told = fail_of(client);
        assert!(told.contains("127.0.0.1"), "{told}");
        assert!(names(folder.path()).is_empty());
    }
}

/// Two namespaces that stand for machines, and one between them that forwards packets. The drop
/// removes them.
pub struct Link {
    pub server: String,
    pub client: String,
    between: String,
}

pub const SERVER: &str = "192.0.2.1";

impl Link {
    /// `None` if this user may not make namespaces; prints the reason.
    pub fn new() -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root may make network namespaces");
            return None;
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("dipc-{end}-{}-{number}", std::process::id());
        let link = Self {
            server: name("server"),
            client: name("client"),
            between: name("between"),
        };
        match link.make() {
            Ok(()) => Some(link),
            Err(error) => {
                println!("skipped: no network namespaces can be made here: {error}");
                None
            }
        }
    }

    fn make(&self) -> Result<(), String> {
        for namespace in [&self.server, &self.client, &self.between] {
            ip(&format!("netns add {namespace}"))?;
            ip(&format!("-n {namespace} link set lo up"))?;
        }
        for (end, net, host, other) in [
            (&self.server, "192.0.2", 1, "198.51.100"),
            (&self.client, "198.51.100", 2, "192.0.2"),
        ] {
            let between = &self.between;
            let (near, far) = ("wire", format!("to-{host}"));
            ip(&format!(
                "-n {end} link add {near} type veth peer name {far}"
            ))?;
            ip(&format!("-n {end} link set {far} netns {between}"))?;
            ip(&format!("-n {end} address add {net}.{host}/24 dev {near}"))?;
            ip(&format!("-n {between} address add {net}.254/24 dev {far}"))?;
            ip(&format!("-n {end} link set {near} up"))?;
            ip(&format!("-n {between} link set {far} up"))?;
            ip(&format!("-n {end} route add {other}.0/24 via {net}.254"))?;
        }
        self.pass_on(true)
    }

    /// Switches forwarding on or off. Neither end is told.
    pub fn pass_on(&self, on: bool) -> Result<(), String> {
        let set = format!("sysctl -qw net.ipv4.ip_forward={}", u8::from(on));
        ip(&format!("netns exec {} {set}", self.between))
    }

    /// The command in one of the namespaces.
    pub fn dipc(namespace: &str) -> Command {
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_dipc")])
            .stdin(Stdio::null());
        command
    }

    fn serve(&self, args: &[&str]) -> Server {
        let args = [&["--allow-remote"], args].concat();
        let at = format!("tcp://{SERVER}:4000");
        Server::start_as(Self::dipc(&self.server), &at, &at, &args)
    }

    /// The number of connections of one end.
    pub fn connections(&self, namespace: &str) -> usize {
        let mut command = Command::new("ip");
        let list = ["netns", "exec", namespace, "cat", "/proc/net/tcp"];
        let table = text(&command.args(list).output().unwrap().stdout);
        // State 01 is an established connection.
        let states = table
            .lines()
            .filter_map(|line| line.split_whitespace().nth(3));
        states.filter(|state| *state == "01").count()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client, &self.between] {
            let _ = ip(&format!("netns delete {namespace}"));
        }
    }
}

fn ip(args: &str) -> Result<(), String> {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("ip {args}: {}", text(&output.stderr)))
}

/// Over a link with delay and loss a table arrives equal, over one connection and several.
#[test]
fn tables_arrive_over_a_slow_and_lossy_link() {
    let Some(link) = Link::new() else { return };
    let netem = "tc qdisc add dev wire root netem delay 5ms 2ms loss 1%";
    if let Err(error) = ip(&format!("netns exec {} {netem}", link.server)) {
        println!("skipped: this machine has no netem: {error}");
        return;
    }
    let server = link.serve(&[
        "--tpch",
        "orders",
        "--scale",
        "0.05",
        "--batch-rows",
        "5000",
    ]);
    for connections in ["1", "4"] {
        let output = Link::dipc(&link.client)
            .args(["get", &server.uri, "orders", "--connections", connections])
            .args(["--json", "--verify", "tpch:orders:0.05"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

impl Link {
    /// The server drops its client, serves on, and then stops at once.
    pub fn lets_go_and_stops(&self, server: &mut Server) {
        until("the server has let go of the client", || {
            self.connections(&self.server) == 0
        });
        assert!(server.child.try_wait().unwrap().is_none());
        signal(&server.child, Signal::TERM);
        assert!(wait(&mut server.child).success());
    }
}

/// A cut of the link in the middle of a stream ends the stream at both ends within the time of
/// `tcp.keepalive`, without any closed socket; the server serves on.
#[test]
fn a_cut_link_ends_the_stream_at_both_ends() {
    for connections in ["1", "3"] {
        let Some(link) = Link::new() else { return };
        let short = ["--set", "tcp.keepalive=3"];
        let mut server = link.serve(&[&LARGE[..], &short].concat());
        let folder = tempfile::tempdir().unwrap();
        let args = [&short[..], &["--connections", connections]].concat();
        let client = long_fetch(Link::dipc(&link.client), &server.uri, folder.path(), &args);
        assert!(link.connections(&link.server) > 0);
        link.pass_on(false).unwrap();
        let told = fail_of(client);
        assert!(
            told.contains(SERVER) && told.contains("does not answer"),
            "{told}"
        );
        assert!(names(folder.path()).is_empty());
        link.lets_go_and_stops(&mut server);
    }
}

/// At a port of the range for clients without a listener, a socket can connect to itself. It is not
/// mistaken for a server.
#[test]
fn a_socket_does_not_take_itself_for_a_server() {
    let Some(link) = Link::new() else { return };
    let range = "sysctl -qw net.ipv4.ip_local_port_range=40000\t40001";
    ip(&format!("netns exec {} {range}", link.client)).unwrap();
    for port in ["40000", "40001", "40000", "40001"] {
        let uri = format!("tcp://127.0.0.1:{port}");
        let output = Link::dipc(&link.client)
            .args(["get", &uri, "t", "--timeout", "10s"])
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert!(told.contains("no server listens"), "{told}");
    }
}

/// An unreachable machine: the time to connect applies, and the text says so.
#[test]
fn a_machine_that_is_not_there_is_said() {
    let Some(link) = Link::new() else { return };
    let get = |uri: &str, timeout: &str| {
        let output = Link::dipc(&link.client)
            .args(["get", uri, "t", "--timeout", timeout])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    // No machine of the link has the first address; the second address has no route.
    let told = get("tcp://198.51.100.77:4000", "30s");
    assert!(told.contains("cannot be reached"), "{told}");
    let told = get("tcp://203.0.113.1:4000", "30s");
    assert!(told.contains("no network"), "{told}");
    link.pass_on(false).unwrap();
    let told = get("tcp://192.0.2.1:4000", "200ms");
    assert!(told.contains("within 200ms"), "{told}");
}
