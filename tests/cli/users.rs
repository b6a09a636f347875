//! The test for the same user, also in user namespaces that do not map a user; and the errors for
//! others.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::*;

/// The command as another user. `None` if this process cannot be one.
fn another() -> Option<Command> {
    let other = || {
        let mut command = dipc();
        command.uid(OTHER_USER);
        command
    };
    match other().arg("--version").output() {
        Ok(output) if output.status.success() => Some(other()),
        result => {
            eprintln!("skipped: the command does not run as another user: {result:?}");
            None
        }
    }
}

/// The text for a client that only the server refuses.
const REFUSAL: &str = "the server admits its own user alone";

/// The command in a user namespace without a map, where every user reads as the overflow uid.
/// `None` if this machine has no user namespaces.
fn nobody() -> Option<Command> {
    let unmapped = |mut command: Command| {
        let unshare = || {
            // SAFETY: gives the calling process another user namespace; no memory is involved.
            match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: `unshare` makes a system call and allocates nothing, as a forked child may.
        unsafe { command.pre_exec(unshare) };
        command
    };
    match unmapped(Command::new("true")).status() {
        Ok(status) if status.success() => Some(unmapped(dipc())),
        other => {
            eprintln!("skipped: no user namespace is made here: {other:?}");
            None
        }
    }
}

/// security.md, "shm": a server whose own user reads as the overflow uid accepts no peer as the
/// same user; with --any-user it serves all.
#[test]
fn a_server_without_a_user_admits_nobody() {
    for (arg, admitted) in [(None, false), (Some("--any-user"), true)] {
        let Some(command) = nobody() else { return };
        let address = address();
        let args: Vec<_> = [NATION].into_iter().chain(arg).collect();
        let server = Server::start_as(command, &address, &address, &args);
        let output = run(&["get", &server.uri, "nation"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.success(), admitted, "{said}");
        assert!(admitted || said.contains(REFUSAL), "{said}");
        assert!(
            admitted || said.contains("stands for all such users"),
            "{said}"
        );
    }
}

/// The same for a client, with a reason.
#[test]
fn a_client_without_a_user_trusts_nobody() {
    let server = Server::start(&[NATION]);
    for (arg, admitted) in [(None, false), (Some("--any-user"), true)] {
        let Some(mut command) = nobody() else { return };
        let output = command
            .args(["get", &server.uri, "nation"])
            .args(arg)
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.success(), admitted, "{said}");
        assert!(
            admitted || said.contains("stands for all such users"),
            "{said}"
        );
    }
}

/// A client that only the server refuses gets the reason and the remedy from the server. If the
/// system refuses the socket's path, the client's own error has them.
#[test]
fn a_client_of_another_user_is_told_why() {
    let server = Server::start(&[NATION]);
    let Some(mut client) = another() else { return };
    let get = ["get", &server.uri, "nation", "--any-user"];
    let output = client.args(get).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in [REFUSAL, "54321", "--any-user", "dipc_server_options_set"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let folder = tempfile::tempdir().unwrap();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everyone).unwrap();
    let path = format!("shm:{}", path_in(&folder, "socket"));
    let server = Server::start_at(&path, &[NATION]);
    let Some(mut client) = another() else { return };
    let get = ["get", &server.uri, "nation", "--any-user"];
    let said = text(&client.args(get).output().unwrap().stderr);
    for part in ["a server admits its own user alone", "--any-user"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// security.md, "shm": connections of a refused user take little of the server, for a short time,
/// for any number of connections and messages.
#[test]
fn refused_users_hold_nothing() {
    let server = Server::start(&[NATION]);
    let name = server.uri.strip_prefix("shm:@").unwrap();
    let name = name.split('?').next().unwrap();
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let fds = format!("/proc/{}/fd", server.child.id());
    let open = || std::fs::read_dir(&fds).unwrap().count();
    let before = open();
    let mut peers = Vec::new();
    for number in 0..100_u8 {
        let Some(mut peer) = connect_as_another(&address) else {
            return;
        };
        // A request for a ring, a message of no use, the start of one, or nothing.
        let ring = [[1, 0, 0, 0, 0, 0, 0, 0], [0; 8], [2, 0, 0, 0, 0, 0, 0, 0]].concat();
        let said = match number % 4 {
            0 => [&ring[..], &[10]].concat(),
            1 => [&ring[..], &[200]].concat(),
            2 => ring[..20].to_vec(),
            _ => Vec::new(),
        };
        // The server may have closed the connection.
        let _ = peer.write_all(&said);
        peers.push(peer);
    }
    // Two descriptors for each open connection: the socket, and the pidfd of its process.
    until("most are closed", || open() <= before + 16);
    assert!(run(&["get", &server.uri, "nation"]).status.success());
    for mut peer in peers {
        let mut told = Vec::new();
        // A reset means the same as an end.
        let _ = peer.read_to_end(&mut told);
        assert!(told.is_empty(), "{told:?}");
    }
    until("all are closed", || open() <= before);
}
