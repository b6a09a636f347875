//! Peers that break the rules, or stop in the middle: each ends only its own connection, with a
//! reason.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::error::Status;
use dipc::proto::{BodyKind, Control, Span, Tags, body_tag};
use dipc::server::{ServerHandle, ServerOptions};
use dipc::transport::{Incoming, Outgoing};
use rustix::net::sockopt;

use crate::common::{counting, read_all};
use crate::{bare_peer, frame, next, until_error};

/// Asserts the error after `bytes` from a peer.
fn ends_in(bytes: &[u8], text: &str) {
    let (mut connection, mut peer) = bare_peer();
    peer.write_all(&frame(0, 0, b"before")).unwrap();
    peer.write_all(bytes).unwrap();
    let (messages, error) = until_error(connection.as_mut());
    assert!(matches!(&messages[..], [Incoming::Metadata(bytes)] if bytes[..] == *b"before"));
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains(text), "{error}");
    assert_eq!(
        connection.receive_any().unwrap_err(),
        error,
        "an error lasts"
    );
}

/// Bytes of people and scanners at an open port: the error names each.
#[test]
fn garbage_is_refused() {
    ends_in(b"GET /lineitem HTTP/1.1\r\nHost: x\r\n\r\n", "GET /lin");
    ends_in(
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03padding and more",
        "does not speak this protocol",
    );
    ends_in(b"SSH-2.0-OpenSSH_9.6p1 Debian\r\n", "SSH-2.0-");
    let mut huge = frame(0, 0, b"");
    huge[5] = 0x80;
    ends_in(&huge, "140737488355328 bytes");
    // Messages that only a server may send.
    let mut long = frame(0, 0, b"");
    long[..8].copy_from_slice(&(256_u64 << 20).to_le_bytes());
    ends_in(&long, "the limit is 1048576");
    ends_in(&frame(9, 0, b"x"), "class 9");
    ends_in(&frame(2, 0, &vec![0; (64 << 10) + 1]), "control");
}

/// A peer that ends in the middle of a message is disconnected; its whole messages arrive.
#[test]
fn an_end_in_the_middle_of_a_message_is_said() {
    let (mut connection, mut peer) = bare_peer();
    let from = peer.local_addr().unwrap().to_string();
    peer.write_all(&frame(0, 0, b"whole")).unwrap();
    peer.write_all(&frame(0, 0, b"cut off")[..28]).unwrap();
    drop(peer);
    let (messages, error) = until_error(connection.as_mut());
    assert_eq!(messages.len(), 1);
    assert_eq!(error.status(), Status::Disconnected);
    assert!(error.text().contains("middle of a message"), "{error}");
    assert!(error.text().contains(&from), "{error}");
}

/// A reset and an end have different texts.
#[test]
fn a_reset_is_said_to_be_one() {
    let (mut connection, mut peer) = bare_peer();
    peer.write_all(&frame(0, 0, b"whole")).unwrap();
    assert!(matches!(
        next(connection.as_mut()),
        Ok(Incoming::Metadata(_))
    ));
    // The close of a socket with linger time 0 resets its connection.
    sockopt::set_socket_linger(peer.as_fd(), Some(Duration::ZERO)).unwrap();
    drop(peer);
    let (_, error) = until_error(connection.as_mut());
    assert_eq!(error.status(), Status::Disconnected, "{error}");
    assert!(error.text().contains("reset"), "{error}");
    let later = connection.flush().unwrap_err();
    assert_eq!(later.status(), Status::Disconnected, "{later}");
}

/// Nothing is lent over tcp: regions and address lists are refused.
#[test]
fn regions_and_address_lists_are_refused() {
    let (mut connection, mut peer) = bare_peer();
    let region = Control::Region {
        id: 1,
        handle: vec![0; 8],
    };
    peer.write_all(&frame(2, 0, &region.encode())).unwrap();
    let message = next(connection.as_mut()).unwrap();
    assert!(matches!(message, Incoming::Control { fd: None, .. }));
    for result in [
        connection.with_regions(|it| it.map(1, &[0; 8], None)),
        connection.with_regions(|it| it.unmap(1)).map(drop),
    ] {
        assert_eq!(result.unwrap_err().status(), Status::Protocol);
    }
    let span = |address, length| Span { address, length };
    let mut resolve = |span| connection.with_regions(|it| it.resolve(0, 1, vec![span]));
    let error = resolve(span(1 << 48, 8)).err().unwrap();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert_eq!(resolve(span(0, 0)).unwrap().buffers.len(), 1);
    assert!(connection.pool().is_none());
}

/// `Connection::receive`: a sender that notices the end of its peer can read the peer's last
/// messages at once.
#[test]
fn last_words_are_read_by_who_cannot_answer() {
    let (mut connection, mut peer) = bare_peer();
    peer.write_all(&frame(0, 0, b"first")).unwrap();
    let first = next(connection.as_mut()).unwrap();
    assert!(matches!(first, Incoming::Metadata(bytes) if bytes[..] == *b"first"));
    let message = || Outgoing::Control {
        bytes: vec![0x7f],
        fd: None,
    };
    connection.send(message()).unwrap();
    peer.write_all(&frame(0, 0, b"last")).unwrap();
    // Unread bytes make this a reset.
    drop(peer);
    while connection.send(message()).is_ok() {}
    let last = connection.receive_any().unwrap();
    assert!(matches!(last, Some(Incoming::Metadata(bytes)) if bytes[..] == *b"last"));
    let (more, error) = until_error(connection.as_mut());
    assert!(more.is_empty());
    assert_eq!(error.status(), Status::Disconnected, "{error}");
}

/// A server with peers that stop in the middle of a request, announce more than they send, send
/// bodies, or do not read: each occupies only its socket, and the others are served.
#[test]
fn peers_that_stop_in_the_middle_hold_up_nobody() {
    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen("tcp://127.0.0.1:0").unwrap();
    server
        .serve(b"t", counting(10, 1_000))
        .map_err(|(error, _)| error)
        .unwrap();
    let target = uri.trim_start_matches("tcp://").split('?').next().unwrap();
    let want = Tags::DEFAULT.want_data;
    let mut largest = frame(0, 0, b"");
    largest[..8].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    let beginnings = [
        frame(1, want, b"lineitem")[..10].to_vec(),
        frame(1, want, b"lineitem")[..27].to_vec(),
        largest,
        vec![],
    ];
    let stuck: Vec<_> = (0..100)
        .map(|n| {
            let mut peer = TcpStream::connect(target).unwrap();
            peer.write_all(&beginnings[n % beginnings.len()]).unwrap();
            peer
        })
        .collect();
    // Endless requests of a peer that never reads.
    let mut greedy = TcpStream::connect(target).unwrap();
    greedy.set_nonblocking(true).unwrap();
    let request = frame(1, want, &[b'x'; 1000]);
    let refused = (0..1000)
        .map(|_| greedy.write(&request))
        .find(Result::is_err);
    drop(refused);
    // Only a server may send bodies.
    let mut confused = TcpStream::connect(target).unwrap();
    let body = frame(1, body_tag(1, BodyKind::Packed), &[0; 100]);
    confused.write_all(&body).unwrap();
    confused
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let ended = confused.read(&mut [0]);
    assert!(
        matches!(ended, Ok(0))
            || ended.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset)
    );
    let client = Client::new(ClientOptions::default()).unwrap();
    for _ in 0..3 {
        let mut stream = client
            .get(&[&uri], b"t", &GetOptions::default(), None)
            .unwrap();
        assert_eq!(read_all(&mut stream).unwrap().len(), 10);
    }
    assert!(server.stats().connections >= 100);
    let start = Instant::now();
    drop(stuck);
    while server.stats().connections > 2 {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{:?}",
            server.stats()
        );
        std::thread::yield_now();
    }
}
