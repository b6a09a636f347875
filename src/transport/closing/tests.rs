//! Tests of what is closed by whom, as where the system cannot bar descriptors.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::*;
use crate::proto::Uri;
use crate::transport::shm::Shm;
use crate::transport::{LinkOptions, Listener, Transport};

/// How long anything here may take before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A TCP socket whose close does not end while the other end does not read.
fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // The bytes are more than the other end has room for.
    sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    sockopt::set_socket_linger(&near, Some(Duration::from_secs(1000))).unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 4096]).is_ok() {}
    (near.into(), far)
}

/// Sends `fd`, of which the receiver is the only holder then.
fn send(peer: &UnixStream, bytes: &[u8], fd: OwnedFd) {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = [IoSlice::new(bytes)];
    rustix::net::sendmsg(peer, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Does `step` on a thread for which the system cannot bar descriptors; fails where it does not
/// come to its end.
fn in_time<R: Send + 'static>(step: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        rights::CANNOT_BAR.set(true);
        let _ = done.send(step());
    });
    is_done
        .recv_timeout(PATIENCE)
        .expect("it waits, or has failed")
}

/// security.md, "Descriptors": dropping a connection does not wait because of what is unread in it,
/// nor because of what it was sent; and the peer learns of the end at once.
#[test]
fn a_drop_does_not_wait_for_what_a_peer_sent() {
    let (near, far) = lingering();
    let (ours, mut peer) = UnixStream::pair().unwrap();
    send(&peer, b"unread", near);
    in_time(move || drop(Socket::new(ours.into())));
    let mut rest = Vec::new();
    // A peer that left something unread may be told of a reset.
    let _ = std::io::Read::read_to_end(&mut peer, &mut rest);
    assert!(rest.is_empty());
    let (near, other_far) = lingering();
    in_time(move || drop(Foreign::new(near, 12345)));
    drop((far, other_far));
}

/// The same for a listener with connections that nobody has accepted; its name is free.
#[test]
fn a_listener_does_not_wait_for_what_it_did_not_accept() {
    let name = format!("dipc-closing-{}", std::process::id());
    let uri = Uri::parse(&format!("shm:@{name}")).unwrap();
    let listen = {
        let uri = uri.clone();
        move || Shm.listen(&uri, &LinkOptions::default()).unwrap()
    };
    let listener = in_time(listen.clone());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let mut left = Vec::new();
    for _ in 0..8 {
        let (near, far) = lingering();
        let peer = UnixStream::connect_addr(&address).unwrap();
        send(&peer, b"early", near);
        left.push((peer, far));
    }
    let again = in_time(move || {
        drop(listener);
        listen()
    });
    // One connection as any other: what was early is read, and ends it.
    let (near, far) = lingering();
    let peer = UnixStream::connect_addr(&address).unwrap();
    send(&peer, b"early", near);
    let error = in_time(move || {
        let mut again: Box<dyn Listener> = again;
        let mut connection = again.accept().unwrap().expect("a connection");
        connection.receive().unwrap_err()
    });
    assert!(error.text().contains("descriptor"), "{error}");
    drop((left, far));
}

/// Everything that a peer sent is closed in the end.
#[test]
fn what_does_not_wait_is_closed() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(Foreign::new(writer.into(), 23456));
    let end = in_time(move || {
        let mut reader = reader;
        std::io::Read::read(&mut reader, &mut [0]).unwrap()
    });
    assert_eq!(end, 0);
}

/// Only so many descriptors of one user may be open, and other users are not delayed by them.
#[test]
fn a_user_of_whom_too_much_is_open_is_refused() {
    const USER: u32 = 34567;
    let mut far = Vec::new();
    let mut is_refused = false;
    for _ in 0..100 {
        let (near, other) = lingering();
        far.push(other);
        let (ours, peer) = UnixStream::pair().unwrap();
        send(&peer, b"unread", near);
        in_time(move || {
            let socket = Socket::new(ours.into());
            socket.belongs_to(USER);
        });
        is_refused = closer::ensure_room(USER).is_err();
        if is_refused {
            break;
        }
    }
    assert!(is_refused);
    assert!(closer::ensure_room(USER + 1).is_ok());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(Foreign::new(writer.into(), USER + 1));
    in_time(move || {
        let mut reader = reader;
        assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    });
    // What is closed in the end is not counted any more.
    drop(far);
    in_time(|| {
        while closer::ensure_room(USER).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}
