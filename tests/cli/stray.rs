//! Descriptors that a peer sends where none may come, and whose closing never ends: nobody else is
//! held up, and the process can be ended.

#[path = "stray/fuse.rs"]
mod fuse;
#[path = "stray/sending.rs"]
mod sending;

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::support::*;
use sending::*;

/// When a process has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// It reads the message that the descriptor came with.
    Read,
    /// It is in the queue of a connection that is closed.
    Unread,
    /// It came before the connection was accepted.
    Early,
}

/// security.md, "Descriptors": whatever a client sends, whenever it does, other clients are served
/// and the server can be stopped; where the system bars descriptors, and where not. Nor do those
/// of a user who is refused.
#[test]
fn stray_descriptors_hold_no_server_up() {
    for barring in [true, false] {
        for (any_user, refused) in [(None, false), (None, true), (Some("--any-user"), false)] {
            let args: Vec<_> = ["--tpch", "nation"].into_iter().chain(any_user).collect();
            let address = address();
            let command = if barring {
                dipc()
            } else {
                without_barring(dipc())
            };
            let mut server = Server::start_as(command, &address, &address, &args);
            let mut left = Vec::new();
            for moment in [Moment::Read, Moment::Unread, Moment::Early] {
                for mut stray in [Some(Stray::socket()), Stray::file()].into_iter().flatten() {
                    let Some(peer) = connect(&address, refused) else {
                        continue;
                    };
                    if moment == Moment::Read {
                        // Connections are accepted in their order.
                        assert!(run(&["get", &server.uri, "nation"]).status.success());
                    }
                    let sent = while_stopped(&server.child, || send(&mut stray, &peer, moment));
                    match sent {
                        Err(Errno::PERM) => assert!(barring, "nothing bars it"),
                        Ok(_) => assert!(!barring || !system_bars(), "it was let in"),
                        Err(errno) => panic!("{errno}"),
                    }
                    left.push((peer, stray));
                    let output = run(&["get", &server.uri, "nation", "--timeout", "60s"]);
                    let said = text(&output.stderr);
                    assert!(
                        said.is_empty(),
                        "{barring} {any_user:?} {refused} {moment:?}: {said}"
                    );
                }
            }
            signal(&server.child, Signal::TERM);
            assert_eq!(wait(&mut server.child).code(), Some(0));
        }
    }
}

/// Sends it with a message that means nothing, or behind bytes that end the connection.
fn send(stray: &mut Stray, peer: &UnixStream, moment: Moment) -> rustix::io::Result<usize> {
    if moment == Moment::Unread {
        rustix::io::write(peer, &[0xff; 64])?;
    }
    stray.send(peer, &frame(2, &[200]))
}

/// So that both of two steps are done before the process sees the first.
fn while_stopped<R>(child: &Child, step: impl FnOnce() -> R) -> R {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    signal(child, Signal::STOP);
    waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    let result = step();
    signal(child, Signal::CONT);
    result
}

/// The same of a server that sends them to a client: the client says what is wrong, and ends.
#[test]
fn stray_descriptors_hold_no_client_up() {
    // REGION, and an unknown control message.
    let region = [&[5, 1, 0][..], &4096_u64.to_le_bytes()].concat();
    for barring in [true, false] {
        for (moment, message) in [
            (Moment::Read, &region[..]),
            (Moment::Read, &[200]),
            (Moment::Unread, &[200]),
            (Moment::Early, &[200]),
        ] {
            for mut stray in [Some(Stray::socket()), Stray::file()].into_iter().flatten() {
                let address = address();
                let name = address.strip_prefix("shm:@").unwrap();
                let name = SocketAddr::from_abstract_name(name).unwrap();
                let listener = UnixListener::bind_addr(&name).unwrap();
                let mut command = if barring {
                    dipc()
                } else {
                    without_barring(dipc())
                };
                let mut client = command
                    .args(["get", &address, "t", "--timeout", "2s"])
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap();
                let (mut peer, _) = listener.accept().unwrap();
                if moment != Moment::Early {
                    // The request.
                    assert!(peer.read(&mut [0; 4096]).unwrap() > 0);
                }
                while_stopped(&client, || {
                    if moment == Moment::Unread {
                        rustix::io::write(&peer, &[0xff; 64]).unwrap();
                    }
                    let sent = stray.send(&peer, &frame(2, message));
                    // The client may have asked already.
                    assert!(sent.is_ok() || moment == Moment::Early, "{sent:?}");
                });
                // It says what is wrong, whatever it has been sent.
                let stderr = client.stderr.take().unwrap();
                let said = BufReader::new(stderr).lines().next().unwrap().unwrap();
                assert!(said.starts_with("dipc: "), "{barring} {moment:?}: {said}");
                if stray.is_socket() {
                    assert_eq!(wait(&mut client).code(), Some(1), "{barring} {moment:?}");
                }
                // A process that has a stuck file cannot end before it is gone.
                drop(stray);
                assert_eq!(wait(&mut client).code(), Some(1), "{barring} {moment:?}");
            }
        }
    }
}
