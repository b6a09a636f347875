//! Several sockets for one connection: how they are joined, which messages they carry, and how they
//! end.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dipc::error::Status;
use dipc::proto::{BodyKind, ExpectedBody, Tags, body_tag};
use dipc::transport::{
    ConnectOptions, Connection, Incoming, LinkOptions, Listener, Outgoing, Payload,
    ReceivingOptions,
};

use crate::{connect, frame, listen, next, readable, target, until_error};

fn several(connections: u16) -> LinkOptions {
    LinkOptions {
        connect: ConnectOptions {
            connections,
            ..ConnectOptions::default()
        },
        receiving: ReceivingOptions {
            unexpected_bytes: 1000,
            ..ReceivingOptions::default()
        },
        ..LinkOptions::default()
    }
}

/// JOIN, as in `docs/wire.md`.
fn join(group: u128, index: u16, count: u16) -> Vec<u8> {
    let mut bytes = vec![8];
    bytes.extend_from_slice(&group.to_le_bytes());
    bytes.extend_from_slice(&index.to_le_bytes());
    bytes.extend_from_slice(&count.to_le_bytes());
    frame(2, 0, &bytes)
}

fn body(seq: u32, bytes: Vec<u8>) -> Outgoing {
    Outgoing::Tagged {
        tag: body_tag(seq, BodyKind::Packed),
        payload: Payload::Bytes(bytes.into()),
    }
}

/// Accepts `count` sockets, reads the first message of each, and gives their errors.
fn read_parts(listener: &mut dyn Listener, count: u16) -> Vec<dipc::error::Error> {
    (0..count)
        .map(|_| {
            assert!(readable(&listener.fd()));
            let mut part = listener.accept().unwrap().expect("a socket");
            next(part.as_mut()).unwrap_err()
        })
        .collect()
}

/// A connection at the server, and the client's bare sockets.
fn by_hand(count: u16) -> (Box<dyn Connection>, Vec<TcpStream>) {
    let mut listener = listen("tcp://127.0.0.1:0", &several(1)).unwrap();
    let peers: Vec<_> = (0..count)
        .map(|index| {
            let mut peer = TcpStream::connect(target(listener.as_ref())).unwrap();
            peer.write_all(&join(77, index, count)).unwrap();
            peer
        })
        .collect();
    for error in read_parts(listener.as_mut(), count) {
        assert_eq!(error.status(), Status::Disconnected, "{error}");
    }
    assert!(readable(&listener.fd()));
    (listener.accept().unwrap().expect("the whole"), peers)
}

/// Both ends of a libdipc connection.
fn pair(count: u16) -> (Box<dyn Connection>, Box<dyn Connection>) {
    let mut listener = listen("tcp://127.0.0.1:0", &several(1)).unwrap();
    let client = connect(&listener.address(), &several(count)).unwrap();
    read_parts(listener.as_mut(), count);
    assert!(readable(&listener.fd()));
    (listener.accept().unwrap().expect("the whole"), client)
}

/// `docs/wire.md`: bodies are distributed by their numbers; all other messages use the first
/// socket. The sockets form one connection without order, with one descriptor.
#[test]
fn bodies_are_spread_by_their_numbers() {
    let (mut server, mut peers) = by_hand(3);
    assert!(!server.identity().profile.is_ordered && !server.identity().readiness.clone().socket);
    let local = peers[0].local_addr().unwrap().to_string();
    assert!(
        server.identity().peer.contains(&local),
        "{}",
        server.identity().peer
    );
    for seq in 0..6u8 {
        server.send(body(seq.into(), vec![seq; 10])).unwrap();
    }
    server
        .send(Outgoing::Metadata {
            prefix: [1, 9, 0, 0, 0],
            header: Some([7].into()),
        })
        .unwrap();
    for (index, peer) in peers.iter_mut().enumerate() {
        let mut expected = Vec::new();
        for seq in (0..6u8).filter(|seq| usize::from(*seq) % 3 == index) {
            expected.extend(frame(1, seq.into(), &[seq; 10]));
        }
        if index == 0 {
            expected.extend(frame(0, 0, &[1, 9, 0, 0, 0, 7]));
        }
        let mut bytes = vec![0; expected.len()];
        std::io::Read::read_exact(peer, &mut bytes).unwrap();
        assert_eq!(bytes, expected, "socket {index}");
    }
}

/// A message on the wrong socket ends the connection.
#[test]
fn a_message_on_the_wrong_socket_is_refused() {
    for wrong in [
        frame(0, 0, b"metadata"),
        frame(1, Tags::DEFAULT.want_data, b"ticket"),
        frame(1, body_tag(4, BodyKind::Packed), b""),
        frame(2, 0, &[3]),
    ] {
        let (mut server, mut peers) = by_hand(2);
        peers[1].write_all(&wrong).unwrap();
        let (_, error) = until_error(server.as_mut());
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains("socket 1 of 2"), "{error}");
        assert_eq!(server.receive_any().unwrap_err(), error, "an error lasts");
    }
}

/// A socket with a JOIN that fits no group ends alone; the group is joined.
#[test]
fn a_stranger_cannot_get_into_a_group() {
    let mut listener = listen("tcp://127.0.0.1:0", &several(1)).unwrap();
    let send = |bytes: &[u8]| {
        let mut peer = TcpStream::connect(target(listener.as_ref())).unwrap();
        peer.write_all(bytes).unwrap();
        peer
    };
    let _peers = [
        send(&join(5, 0, 2)),
        // The same index, another count, and invalid values.
        send(&join(5, 0, 2)),
        send(&join(5, 1, 3)),
        send(&join(5, 2, 2)),
        send(&join(5, 1, 2)),
    ];
    let errors = read_parts(listener.as_mut(), 5);
    let statuses: Vec<_> = errors.iter().map(dipc::error::Error::status).collect();
    let refused = Status::Protocol;
    assert_eq!(
        statuses,
        [
            Status::Disconnected,
            refused,
            refused,
            refused,
            Status::Disconnected
        ]
    );
    assert!(listener.accept().unwrap().is_some());
}

/// JOIN must be the first message; later it is an unknown control message.
#[test]
fn a_late_join_joins_nothing() {
    let mut listener = listen("tcp://127.0.0.1:0", &several(1)).unwrap();
    let mut peer = TcpStream::connect(target(listener.as_ref())).unwrap();
    peer.write_all(&frame(2, 0, &[3])).unwrap();
    peer.write_all(&join(5, 0, 2)).unwrap();
    assert!(readable(&listener.fd()));
    let mut connection = listener.accept().unwrap().unwrap();
    for kind in [3, 8] {
        let message = next(connection.as_mut()).unwrap();
        assert!(matches!(message, Incoming::Control { bytes, .. } if bytes[0] == kind));
    }
}

/// A large body without its header waits on its own socket, without spinning. The header arrives on
/// the first socket, and then the body.
#[test]
fn a_body_that_waits_does_not_hold_up_its_header() {
    let (mut server, mut client) = pair(3);
    let bytes = vec![9; 5000];
    server.send(body(1, bytes.clone())).unwrap();
    let fd = client.identity().readiness.clone().fd;
    assert!(readable(&fd));
    assert!(client.receive_any().unwrap().is_none());
    assert!(client.waiting().is_none());
    assert!(!crate::readable_within(&fd, 0), "nothing can be read");
    server
        .send(Outgoing::Metadata {
            prefix: [1, 1, 0, 0, 0],
            header: None,
        })
        .unwrap();
    let message = next(client.as_mut()).unwrap();
    assert!(matches!(message, Incoming::Metadata(_)));
    client.post_body(0, ExpectedBody::new(1, 5000, 16));
    let message = next(client.as_mut()).unwrap();
    assert!(matches!(message, Incoming::Body { seq: 1, memory } if memory.as_slice() == bytes));
    // A body that is no longer posted is discarded.
    server.send(body(2, bytes)).unwrap();
    server.send(body(5, vec![1])).unwrap();
    assert!(readable(&fd));
    assert!(client.receive_any().unwrap().is_none());
    client.forget_bodies(0);
    let message = next(client.as_mut()).unwrap();
    assert!(matches!(message, Incoming::Body { seq: 5, .. }));
}

/// The descriptor also shows room to write.
#[test]
fn room_to_write_makes_the_descriptor_readable() {
    let (mut server, mut client) = pair(2);
    let size = 64 << 20;
    client.post_body(0, ExpectedBody::new(1, size as u64, 16));
    server.send(body(1, vec![3; size])).unwrap();
    assert!(!server.flush().unwrap() && server.traffic().queued > 0);
    assert!(!crate::readable_within(
        &server.identity().readiness.clone().fd,
        0
    ));
    let start = Instant::now();
    let memory = loop {
        if let Some(Incoming::Body { memory, .. }) = client.receive_any().unwrap() {
            break memory;
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        if server.traffic().queued > 0 && readable(&server.identity().readiness.clone().fd) {
            server.flush().unwrap();
        }
    };
    assert!(memory.as_slice().iter().all(|byte| *byte == 3));
    assert_eq!(server.traffic().queued, 0);
    assert!(!crate::readable_within(
        &server.identity().readiness.clone().fd,
        0
    ));
}

/// The end of any socket ends the connection, after the messages before it; a reset ends it at
/// once.
#[test]
fn the_end_of_one_socket_ends_the_connection() {
    for reset in [false, true] {
        let (mut server, mut peers) = by_hand(3);
        peers[0].write_all(&frame(2, 0, &[3])).unwrap();
        let gone = peers.remove(1);
        if reset {
            rustix::net::sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        }
        drop(gone);
        let (messages, error) = until_error(server.as_mut());
        assert!(reset || messages.len() == 1);
        assert_eq!(error.status(), Status::Disconnected, "{error}");
        assert_eq!(server.send(body(0, vec![])).unwrap_err(), error);
        drop(server);
        for mut peer in peers {
            let ended = std::io::Read::read(&mut peer, &mut [0]);
            assert!(matches!(ended, Ok(0) | Err(_)));
        }
    }
}

/// A peer that closes all sockets loses no sent message, even if one socket is much slower.
#[test]
fn what_was_sent_on_every_socket_before_the_end_arrives() {
    let (mut server, mut peers) = by_hand(3);
    let mut slow = peers.remove(1);
    drop(peers);
    let mut messages = 0;
    for seq in [1u64, 4, 7] {
        slow.write_all(&frame(1, seq, b"")).unwrap();
        loop {
            // Like the driver: queued bytes are written before a read.
            assert!(server.flush().unwrap());
            if server.receive_any().unwrap().is_some() {
                break;
            }
            assert!(readable(&server.identity().readiness.clone().fd));
        }
        messages += 1;
    }
    drop(slow);
    let (_, error) = until_error(server.as_mut());
    assert_eq!((messages, error.status()), (3, Status::Disconnected));
}
