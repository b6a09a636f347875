//! Who is taken for the same user: processes in user namespaces that have no number for them.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::support::*;

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
        assert_eq!(
            output.status.success(),
            admitted,
            "{}",
            text(&output.stderr)
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
