//! `dipc serve` under a service manager (docs/operation.md): what it tells, the sockets it is
//! given, and how it hands its clients on.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Signal;

use crate::certificates::Authority;
use crate::support::*;

const SERVE: [&str; 2] = ["serve", NATION];

/// A server whose first lines name its addresses.
struct Served {
    child: Child,
    stdout: BufReader<ChildStdout>,
    uris: Vec<String>,
}

impl Served {
    fn start(mut command: Command, addresses: usize) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let uris = Vec::new();
        let mut served = Self {
            child,
            stdout,
            uris,
        };
        for _ in 0..addresses {
            let mut line = String::new();
            served.stdout.read_line(&mut line).unwrap();
            let uri = line.trim_end().strip_prefix("ready ");
            assert!(uri.is_some(), "{line}");
            served.uris.push(uri.unwrap().to_owned());
        }
        served
    }

    fn ends_well(&mut self) {
        signal(&self.child, Signal::TERM);
        assert!(wait(&mut self.child).success());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(uri: &str, table: &str) -> bool {
    run(&["get", uri, table]).status.success()
}

/// The next word to the service manager.
fn hear(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 4096];
    let len = manager.recv(&mut bytes).unwrap();
    text(&bytes[..len])
}

/// Over a path and over an abstract name: READY comes when the server takes requests, RELOADING and
/// READY around SIGHUP, which without files to read changes nothing, and STOPPING at the first
/// signal. Each has a status for people.
#[test]
fn the_manager_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let name = format!("dipc-notify-{}", std::process::id());
    let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
    for (manager, address) in [
        (
            UnixDatagram::bind(&path).unwrap(),
            path.display().to_string(),
        ),
        (
            UnixDatagram::bind_addr(&abstract_address).unwrap(),
            format!("@{name}"),
        ),
    ] {
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut command = dipc();
        let at = crate::support::address();
        command.args(SERVE).args(["--listen", &at]);
        command.env("NOTIFY_SOCKET", &address);
        let mut server = Served::start(command, 1);
        assert_eq!(hear(&manager), "READY=1\nSTATUS=tables: 1");
        for _ in 0..2 {
            signal(&server.child, Signal::HUP);
            let told = hear(&manager);
            let micros = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
            assert!(micros.is_some(), "{told}");
            assert!(micros.unwrap().parse::<u64>().unwrap() > 0);
            assert_eq!(hear(&manager), "READY=1\nSTATUS=read its files again");
        }
        assert!(get(&server.uris[0], "nation"));
        signal(&server.child, Signal::TERM);
        assert_eq!(
            hear(&manager),
            "STOPPING=1\nSTATUS=drains 0 streams, for at most 10s"
        );
        assert!(wait(&mut server.child).success());
    }
    // A manager that cannot be told is no reason not to serve.
    let mut command = dipc();
    let at = address();
    command.args(SERVE).args(["--listen", &at]);
    command.env("NOTIFY_SOCKET", "/nowhere/at/all");
    Served::start(command, 1).ends_well();
}

/// The command with these sockets as a service manager hands them over: from descriptor 3 on.
fn activated(sockets: &[&OwnedFd], names: &str) -> Command {
    let mut command = Command::new("sh");
    let count = sockets.len();
    let script =
        format!("LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES={names} exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_dipc")]);
    let numbers: Vec<_> = sockets.iter().map(|socket| socket.as_raw_fd()).collect();
    let pass = move || {
        // First away from the numbers that they get.
        let mut away = [0; 8];
        for (place, number) in away.iter_mut().zip(&numbers) {
            // SAFETY: the descriptor is open in this process, a copy of its parent.
            *place = unsafe { libc::fcntl(*number, libc::F_DUPFD_CLOEXEC, 100) };
        }
        for (target, number) in (3..).zip(&away[..numbers.len()]) {
            // SAFETY: no memory is involved, and nothing of this process uses the numbers.
            if unsafe { libc::dup2(*number, target) } < 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: only calls that are safe after a fork, and no allocation.
    unsafe { command.pre_exec(pass) };
    command
}

/// Sockets of a manager are served without a word of their addresses. A client that comes before
/// the server waits in the socket, and the next server takes the same socket over.
#[test]
fn given_sockets_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let unix = OwnedFd::from(UnixListener::bind(&path).unwrap());
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let at_port = format!("tcp://{}?", tcp.local_addr().unwrap());
    let tcp = OwnedFd::from(tcp);
    let mut early = None;
    for round in 0..2 {
        let mut command = activated(&[&unix, &tcp], "tables:port");
        command.args(SERVE);
        let mut server = Served::start(command, 2);
        let (by_shm, by_tcp) = (&server.uris[0], &server.uris[1]);
        let place = format!("shm:{}?", path.display());
        assert!(by_shm.starts_with(&place), "{by_shm}");
        assert!(by_tcp.starts_with(&at_port), "{by_tcp}");
        if let Some(mut early) = early.take() {
            assert!(wait(&mut early).success());
        }
        assert!(get(by_shm, "nation") && get(by_tcp, "nation"));
        // The system names the server to clients, and not who made the socket.
        let logged = run(&["get", by_shm, "nation", "--log", "debug"]);
        let pid = format!("pid {},", server.child.id());
        assert!(text(&logged.stderr).contains(&pid), "{pid}");
        let known = by_shm.clone();
        server.ends_well();
        assert!(path.exists());
        if round == 0 {
            early = Some(dipc().args(["get", &known, "nation"]).spawn().unwrap());
            // It has connected once the system says that somebody waits.
            until("a client waits", || {
                let waits = rustix::event::PollFlags::IN;
                let mut polled = [rustix::event::PollFd::new(&unix, waits)];
                let now = rustix::event::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                rustix::event::poll(&mut polled, Some(&now)).unwrap() == 1
            });
        }
    }
}

/// With a certificate a TCP socket speaks TLS, unless its name says otherwise.
#[test]
fn given_tcp_sockets_speak_tls_with_a_certificate() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("127.0.0.1");
    let [secret, plain] =
        [(); 2].map(|()| OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap()));
    let mut command = activated(&[&secret, &plain], "any:tcp");
    command.args(SERVE);
    command.arg("--tls-cert").arg(&certificate);
    command.arg("--tls-key").arg(&key);
    let mut server = Served::start(command, 2);
    assert!(
        server.uris[0].starts_with("tls://127.0.0.1:"),
        "{:?}",
        server.uris
    );
    assert!(
        server.uris[1].starts_with("tcp://127.0.0.1:"),
        "{:?}",
        server.uris
    );
    let ca = authority.ca();
    let trusts = [
        "get",
        &server.uris[0],
        "nation",
        "--tls-ca",
        ca.to_str().unwrap(),
    ];
    assert!(run(&trusts).status.success());
    assert!(get(&server.uris[1], "nation"));
    server.ends_well();
}

/// Sockets for another process are not this one's, and what cannot be served ends the start.
#[test]
fn wrong_sockets_end_the_start() {
    let wide = OwnedFd::from(TcpListener::bind("0.0.0.0:0").unwrap());
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    for (socket, text) in [
        (&wide, "allow-remote"),
        (&file, "descriptor 3 of LISTEN_FDS is no socket"),
    ] {
        let mut command = activated(&[socket], "x");
        let output = command.args(SERVE).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = crate::support::text(&output.stderr);
        assert!(
            told.contains(text) && told.contains("descriptor 3"),
            "{told}"
        );
    }
    for (pid, count, code, text) in [
        ("1", "1", 2, "nowhere to listen"),
        ("$$", "many", 1, "LISTEN_FDS"),
        ("$$", "60", 1, "is not open"),
    ] {
        let script = format!("LISTEN_PID={pid} LISTEN_FDS={count} exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_dipc")]);
        let output = command.args(SERVE).output().unwrap();
        let told = crate::support::text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(text), "{told}");
    }
}

/// A stream that is under way until its client is ended.
fn held(uri: &str) -> Child {
    let mut get = dipc();
    get.args(["get", uri, "lineitem", "--output", "-"]);
    let mut child = get
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut some = [0; 1000];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut some)
        .unwrap();
    child
}

/// Promise of `--drain` and `--redirect`: while a stream is under way after the first signal, new
/// clients get their tables from the server that it names; without one they hear why they get
/// nothing. The stream ends as it would, and then the server.
#[test]
fn a_server_that_drains_sends_clients_on() {
    let other = Server::start(&[NATION]);
    let tables = ["--tpch", "lineitem", "--scale", "0.1", NATION];
    for redirects in [&["--redirect", other.uri.as_str()][..], &[]] {
        let mut server = Server::start(&[&tables[..], &["--drain", "60m"], redirects].concat());
        let mut client = held(&server.uri);
        signal(&server.child, Signal::TERM);
        let sent_on = !redirects.is_empty();
        if sent_on {
            until("the other server serves", || {
                let output = run(&["get", &server.uri, "nation", "--log", "info"]);
                assert!(output.status.success());
                text(&output.stderr).contains("is asked instead")
            });
        } else {
            until("the server drains", || !get(&server.uri, "nation"));
            let told = failure(75, &["get", &server.uri, "nation"]);
            assert!(told.contains("the server drains before it stops"), "{told}");
        }
        assert!(server.child.try_wait().unwrap().is_none());
        let mut rest = client.stdout.take().unwrap();
        std::io::copy(&mut rest, &mut std::io::sink()).unwrap();
        assert!(wait(&mut client).success());
        assert!(wait(&mut server.child).success());
    }
    let told = failure(
        2,
        &["serve", NATION, "--listen", "shm:@x", "--redirect", "x"],
    );
    assert!(told.contains("--redirect"), "{told}");
}

/// The service manager's own tool has the same words for it.
#[test]
fn systemd_socket_activate_starts_it() {
    if Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: systemd-socket-activate is not there");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let mut activate = Command::new("systemd-socket-activate");
    activate.arg(format!("--listen={}", path.display()));
    activate.arg(env!("CARGO_BIN_EXE_dipc")).args(SERVE);
    let mut server = activate
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the socket is there", || Path::new(&path).exists());
    assert!(get(&format!("shm:{}", path.display()), "nation"));
    signal(&server, Signal::TERM);
    assert!(wait(&mut server).success());
}
