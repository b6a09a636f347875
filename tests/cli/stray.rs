//! Unexpected descriptors of a peer, whose close never ends: they delay no other peer, and the
//! process can be ended.

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

/// When a process gets the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// It reads the descriptor's message.
    Read,
    /// The descriptor is in the queue of a connection that is closed.
    Unread,
    /// The descriptor came before the connection was accepted.
    Early,
}

/// security.md, "Descriptors": descriptors of a client, at any moment, neither delay other clients
/// nor the server's stop, on systems that bar descriptors and on others. The same for descriptors
/// of a refused user.
#[test]
fn stray_descriptors_hold_no_server_up() {
    for barring in [true, false] {
        for (any_user, refused) in [(None, false), (None, true), (Some("--any-user"), false)] {
            let args: Vec<_> = [NATION].into_iter().chain(any_user).collect();
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
                        // Connections are accepted in order.
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

/// Sends it with a message without effect, or after bytes that end the connection.
fn send(stray: &mut Stray, peer: &UnixStream, moment: Moment) -> rustix::io::Result<usize> {
    if moment == Moment::Unread {
        rustix::io::write(peer, &[0xff; 64])?;
    }
    stray.send(peer, &frame(2, &[200]))
}

/// Stops the process, so that it sees neither of two steps before both are done.
fn while_stopped<R>(child: &Child, step: impl FnOnce() -> R) -> R {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    signal(child, Signal::STOP);
    waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    let result = step();
    signal(child, Signal::CONT);
    result
}

/// The same for descriptors of a server: the client reports an error, and ends.
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
                    // The client may have sent its request already.
                    assert!(sent.is_ok() || moment == Moment::Early, "{sent:?}");
                });
                // The client reports an error for every kind of message.
                let stderr = client.stderr.take().unwrap();
                let said = BufReader::new(stderr).lines().next().unwrap().unwrap();
                assert!(said.starts_with("dipc: "), "{barring} {moment:?}: {said}");
                if stray.is_socket() {
                    assert_eq!(wait(&mut client).code(), Some(1), "{barring} {moment:?}");
                }
                // A process with a stuck file cannot end before the file is gone.
                drop(stray);
                assert_eq!(wait(&mut client).code(), Some(1), "{barring} {moment:?}");
            }
        }
    }
}
