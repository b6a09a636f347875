//! Who is taken for the same user, processes in user namespaces included that have no number for
//! them; and what the others are told.

use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::*;

/// The command as another user. `None` where this process cannot be one.
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

/// What a client reads that the server alone refuses.
const REFUSAL: &str = "the server admits its own user alone";

/// The command, in a user namespace of its own that maps nobody: it reads every user as the
/// overflow uid. `None` where this machine makes none.
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

/// security.md, "shm": a server whose own user reads as the overflow uid takes nobody for the same
/// user; with --any-user it serves everybody.
#[test]
fn a_server_without_a_user_admits_nobody() {
    for (arg, admitted) in [(None, false), (Some("--any-user"), true)] {
        let Some(command) = nobody() else { return };
        let address = address();
        let args: Vec<_> = ["--tpch", "nation"].into_iter().chain(arg).collect();
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

/// The same of a client, which says why.
#[test]
fn a_client_without_a_user_trusts_nobody() {
    let server = Server::start(&["--tpch", "nation"]);
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

/// A client that only the server refuses is told by the server whom it serves, and what would
/// change that; where the system does not let it connect to the socket's path, by the client.
#[test]
fn a_client_of_another_user_is_told_why() {
    let server = Server::start(&["--tpch", "nation"]);
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
    let server = Server::start_at(&path, &["--tpch", "nation"]);
    let Some(mut client) = another() else { return };
    let get = ["get", &server.uri, "nation", "--any-user"];
    let said = text(&client.args(get).output().unwrap().stderr);
    for part in ["a server admits its own user alone", "--any-user"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

/// security.md, "shm": connections of a user who is refused hold little of the server, and not for
/// long, however many they are and whatever they say.
#[test]
fn refused_users_hold_nothing() {
    let server = Server::start(&["--tpch", "nation"]);
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
        // The server may have hung up.
        let _ = peer.write_all(&said);
        peers.push(peer);
    }
    // Of each that is not closed: the socket, and what tells of the end of its process.
    until("most are closed", || open() <= before + 16);
    assert!(run(&["get", &server.uri, "nation"]).status.success());
    for mut peer in peers {
        let mut told = Vec::new();
        // A reset says no more than the end.
        let _ = peer.read_to_end(&mut told);
        assert!(told.is_empty(), "{told:?}");
    }
    until("all are closed", || open() <= before);
}
