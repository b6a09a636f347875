//! ucx between processes: cut networks, ports of killed servers, wrong settings, and too few
//! descriptors. With each UCX of the machine.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::network::{LARGE, Link, SERVER, fail_of, long_fetch};
use crate::sample::rounds;
use crate::support::*;

const LOOPBACK: &str = "ucx://127.0.0.1:";
const TRUSTED: &str = "--trusted-network";

/// The command with that UCX, ready for arguments.
fn with(library: &Path) -> Command {
    let mut command = dipc();
    command.env("DIPC_UCX_LIBRARY", library);
    command
}

/// A server at a port that the system chose.
fn start(library: &Path, args: &[&str]) -> Server {
    let args = [&[TRUSTED], args].concat();
    Server::start_as(with(library), LOOPBACK, "ucx://127.0.0.1:0", &args)
}

fn get(library: &Path, args: &[&str]) -> Output {
    with(library).arg("get").args(args).output().unwrap()
}

/// Runs a command that must end soon.
fn ended(command: &mut Command) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Without effect on an ended process.
    let _ = child.kill();
    child.wait_with_output().unwrap()
}

/// The error of a command that must fail with one line. UCX may log its own lines before it.
fn refused(output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let own = |line: &&str| line.starts_with("dipc: ");
    let lines: Vec<_> = said.lines().filter(own).collect();
    assert_eq!(lines.len(), 1, "{said}");
    let line = lines[0];
    assert_said_once(line);
    line.to_owned()
}

/// Serves `LARGE` over the link. A client counts as dead after three seconds of silence.
fn serve_over(link: &Link, library: &Path) -> Server {
    let mut command = Link::dipc(&link.server);
    command.env("DIPC_UCX_LIBRARY", library);
    let at = format!("ucx://{SERVER}:4000");
    let args = [&LARGE[..], &SHORT, &[TRUSTED]].concat();
    Server::start_as(command, &at, &at, &args)
}

const SHORT: [&str; 2] = ["--set", "ucx.keepalive=3"];

fn fetch_over(link: &Link, library: &Path, uri: &str, folder: &Path) -> Child {
    let mut command = Link::dipc(&link.client);
    command.env("DIPC_UCX_LIBRARY", library);
    long_fetch(command, uri, folder, &SHORT)
}

/// A cut of the network in the middle of a stream ends the stream at both ends within the time of
/// `ucx.keepalive`, without any close; the server goes on.
#[test]
fn a_cut_network_is_noticed_over_ucx() {
    for library in ucx_libraries() {
        let Some(link) = Link::new() else { return };
        let mut server = serve_over(&link, &library);
        let folder = tempfile::tempdir().unwrap();
        let client = fetch_over(&link, &library, &server.uri, folder.path());
        assert!(link.connections(&link.server) > 0);
        link.pass_on(false).unwrap();
        let told = fail_of(client);
        assert!(told.contains(SERVER), "{told}");
        link.lets_go_and_stops(&mut server);
    }
}

/// The same while nothing moves, because the client does not read. A client that is only stopped is
/// not disconnected, because its system answers.
#[test]
fn a_cut_network_is_noticed_over_ucx_while_nothing_moves() {
    for library in ucx_libraries() {
        let Some(link) = Link::new() else { return };
        let server = serve_over(&link, &library);
        let folder = tempfile::tempdir().unwrap();
        let client = fetch_over(&link, &library, &server.uri, folder.path());
        signal(&client, Signal::STOP);
        // Twice the time limit of a silent peer.
        std::thread::sleep(Duration::from_secs(6));
        assert!(link.connections(&link.server) > 0);
        link.pass_on(false).unwrap();
        until("the server has let go of the client", || {
            link.connections(&link.server) == 0
        });
        signal(&client, Signal::CONT);
        let told = fail_of(client);
        assert!(told.contains(SERVER), "{told}");
    }
}

/// `ucx.keepalive` is a number of seconds.
#[test]
fn the_patience_over_ucx_is_a_number() {
    let told = failure(
        1,
        &["get", "ucx://127.0.0.1:1", "t", "--set", "ucx.keepalive=x"],
    );
    assert!(told.contains("ucx.keepalive"), "{told}");
}

/// A client that gives up during connecting ends by itself, at any state of the connection.
#[test]
fn clients_give_up_while_they_connect() {
    for library in ucx_libraries() {
        let server = start(&library, &[REGION]);
        let give_up = || {
            for _ in 0..rounds(20) {
                let clients = [20, 60, 120, 240].map(|most| {
                    let timeout = format!("{}ms", fastrand::u64(10..most));
                    let args = ["get", &server.uri, "region", "--timeout", &timeout];
                    let mut get = with(&library);
                    get.args(args).stdout(Stdio::null()).stderr(Stdio::null());
                    get.spawn().unwrap()
                });
                for mut client in clients {
                    let status = wait(&mut client);
                    assert!(status.code().is_some(), "{status}");
                }
            }
        };
        std::thread::scope(|scope| {
            let clients = scope.spawn(give_up);
            // A server that stops repeatedly leaves a connection at any point.
            while !clients.is_finished() {
                signal(&server.child, Signal::STOP);
                std::thread::sleep(Duration::from_micros(fastrand::u64(500..60_000)));
                signal(&server.child, Signal::CONT);
                std::thread::sleep(Duration::from_micros(fastrand::u64(500..20_000)));
            }
        });
    }
}

/// A server that is killed while a client is connected can be started again at once at the same
/// port. If a setting forbids this to UCX, the text names the setting.
#[test]
fn a_killed_server_listens_again_at_once() {
    for library in ucx_libraries() {
        let mut server = start(&library, &LARGE);
        let folder = tempfile::tempdir().unwrap();
        let client = long_fetch(with(&library), &server.uri, folder.path(), &[]);
        // The client does not close its end, so the system keeps the server's end.
        signal(&client, Signal::STOP);
        server.child.kill().unwrap();
        wait(&mut server.child);
        let at = server.uri.split('?').next().unwrap();
        let again = ["serve", "--listen", at, TRUSTED, NATION];
        let mut refusing = with(&library);
        refusing.env("UCX_TCP_CM_REUSEADDR", "n");
        let told = refused(&ended(refusing.args(again)));
        assert!(told.contains("UCX_TCP_CM_REUSEADDR=y"), "{told}");
        let set = ["--set", "ucx.TCP_CM_REUSEADDR=n"];
        let told = refused(&ended(with(&library).args(again).args(set)));
        assert!(told.contains("UCX_TCP_CM_REUSEADDR=y"), "{told}");
        let server = Server::start_as(with(&library), at, at, &[TRUSTED, NATION]);
        assert!(get(&library, &[&server.uri, "nation"]).status.success());
        // A live listener keeps the address.
        let told = refused(&ended(with(&library).args(again)));
        assert!(
            told.contains("is taken") && !told.contains("UCX_"),
            "{told}"
        );
        signal(&client, Signal::CONT);
        fail_of(client);
    }
}

/// A value that UCX refuses is an error that names it, at both ends.
#[test]
fn settings_that_ucx_does_not_take_are_named() {
    for library in ucx_libraries() {
        let server = start(&library, &[REGION, "--set", "ucx.TCP_CM_REUSEADDR=y"]);
        let uri = server.uri.as_str();
        let listen = ["serve", "--listen", "ucx://127.0.0.1:0", TRUSTED];
        let listen = [&listen[..], &[REGION]].concat();
        for setting in ["ucx.RNDV_THRESH=abc", "ucx.TLS=nosuch"] {
            let told = refused(&get(&library, &[uri, "region", "--set", setting]));
            assert!(told.contains(setting), "{told}");
            let told = refused(&ended(
                with(&library).args(&listen).args(["--set", setting]),
            ));
            assert!(told.contains(setting), "{told}");
        }
        for setting in [
            "ucx.TCP_TX_SEG_SIZE=32k",
            "ucx.RNDV_THRESH=64k",
            "ucx.LOG_LEVEL=error",
        ] {
            let output = get(&library, &[uri, "region", "--set", setting]);
            assert!(
                output.status.success(),
                "{setting}: {}",
                text(&output.stderr)
            );
        }
    }
}

/// An unusable address has a reason in the text, as over tcp.
#[test]
fn an_address_that_cannot_be_listened_at_is_told() {
    for library in ucx_libraries() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        for (address, told) in [
            ("192.0.2.1:0".to_owned(), "is no address of this machine"),
            (format!("127.0.0.1:{port}"), "is taken already"),
        ] {
            let at = format!("ucx://{address}");
            let args = ["serve", "--listen", &at, TRUSTED, REGION];
            let said = refused(&ended(with(&library).args(args)));
            assert!(said.contains(told) && said.contains(&at), "{said}");
        }
    }
}

/// The command under a limit of open files.
fn limited(library: &Path, limit: u32) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -c 0; ulimit -n {limit}; exec \"$@\"");
    command
        .args(["-c", &script, "sh", env!("CARGO_BIN_EXE_dipc")])
        .env("DIPC_UCX_LIBRARY", library)
        .stdin(Stdio::null());
    command
}

/// UCX ends the process if it finds no file descriptor, so both ends count them before.
#[test]
fn few_descriptors_are_an_error() {
    for library in ucx_libraries() {
        let server = start(&library, &[NATION]);
        let says_so = |output: &Output| {
            let told = refused(output);
            assert!(
                told.contains("open files") || told.contains("descriptor"),
                "{told}"
            );
        };
        for limit in [8, 10, 12, 14, 16, 20, 24, 28, 32, 36, 40, 48] {
            let client = limited(&library, limit)
                .args(["get", &server.uri, "nation"])
                .output()
                .unwrap();
            if !client.status.success() {
                says_so(&client);
            }
        }
        for limit in [12, 16, 20, 24, 28] {
            let listening = limited(&library, limit)
                .args(["serve", "--listen", "ucx://127.0.0.1:0", TRUSTED, NATION])
                .output();
            says_so(&listening.unwrap());
        }
    }
}

/// A server at its limit goes on: further clients wait, and are served when there is room.
#[test]
fn a_server_without_descriptors_goes_on() {
    for library in ucx_libraries() {
        let mut server = Server::start_as(
            limited(&library, 64),
            LOOPBACK,
            "ucx://127.0.0.1:0",
            &[TRUSTED, NATION],
        );
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let mut command = with(&library);
                command.args(["get", &server.uri, "nation"]);
                command.stdout(Stdio::null()).stderr(Stdio::piped());
                command.spawn().unwrap()
            })
            .collect();
        for client in clients {
            let output = client.wait_with_output().unwrap();
            assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
        }
        assert!(server.child.try_wait().unwrap().is_none());
        until("a client is served", || {
            get(&library, &[&server.uri, "nation"]).status.success()
        });
        assert!(server.child.try_wait().unwrap().is_none());
    }
}
