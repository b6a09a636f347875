//! Messages between the two ends of a connection: bodies in any order, and those that are refused;
//! control messages that wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dipc::device::BufferRef;
use dipc::error::Status;
use dipc::proto::{BodyKind, ExpectedBody, body_tag};
use dipc::transport::{Incoming, Outgoing, Payload};

use crate::pair::{Pair, metadata};
use crate::works;

/// A packed body of `length` bytes, all of them `seq`, in two runs.
pub fn body(seq: u8, length: usize) -> Outgoing {
    let bytes = Arc::new(vec![seq; length]);
    let half = length / 2;
    Outgoing::Tagged {
        tag: body_tag(u32::from(seq), BodyKind::Packed),
        payload: Payload::Gather {
            parts: vec![BufferRef::of(&bytes[half..]), BufferRef::of(&bytes[..half])],
            owner: Box::new(bytes),
        },
    }
}

/// A control message of an unknown kind: it shows that its sender has our extension.
fn control() -> Outgoing {
    Outgoing::Control {
        bytes: vec![0xFF],
        fd: None,
    }
}

/// Rule D8: whether a body comes before its header or behind it, in whatever order, each arrives
/// whole in aligned memory (rule A2).
#[test]
fn bodies_come_in_any_order() {
    if !works() {
        return;
    }
    let lengths = [(1, 100), (2, 700_000), (3, 60_000), (4, 3 << 20), (5, 0)];
    for early in [false, true] {
        let mut pair = Pair::new();
        let expect = |pair: &mut Pair| {
            for (seq, length) in lengths {
                pair.client
                    .post_body(0, ExpectedBody::new(u32::from(seq), length as u64, 32));
            }
        };
        if !early {
            expect(&mut pair);
        }
        for (seq, length) in lengths.iter().rev() {
            pair.server.send(body(*seq, *length)).unwrap();
        }
        if early {
            assert!(pair.turn().unwrap().is_none());
            expect(&mut pair);
        }
        let mut came: Vec<_> = (0..lengths.len())
            .map(|_| match pair.next().unwrap() {
                Incoming::Body { seq, memory } => {
                    assert!(memory.as_slice().iter().all(|byte| u32::from(*byte) == seq));
                    assert_eq!(memory.as_slice().as_ptr() as usize % 64, 0);
                    (seq as u8, memory.len())
                }
                other => panic!("{other:?}"),
            })
            .collect();
        came.sort_unstable();
        assert_eq!(came, lengths);
    }
}

/// Rule D8: a body of another length than its header announces is refused.
#[test]
fn a_body_of_another_length_is_refused() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    pair.client.post_body(0, ExpectedBody::new(1, 101, 32));
    pair.server.send(body(1, 100)).unwrap();
    let error = pair.refusal();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains("announces 101"), "{error}");
}

/// `Connection::queue`: a message that no peer would take is not the peer's fault, and harms
/// nothing.
#[test]
fn a_message_that_is_too_long_is_refused_here() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let bytes = vec![0xFF; (64 << 10) + 1];
    let refused = pair.server.queue(0, Outgoing::Control { bytes, fd: None });
    let error = refused.unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument, "{error}");
    pair.server.send(metadata(0)).unwrap();
    assert!(matches!(pair.next().unwrap(), Incoming::Metadata(_)));
}

/// Rule E1: a client with a bare address says nothing of our extension but its request until the
/// server has spoken; then what was held back leaves.
#[test]
fn a_client_speaks_once_its_server_has_spoken() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    pair.client.send(control()).unwrap();
    pair.server.send(metadata(0)).unwrap();
    assert!(matches!(pair.next().unwrap(), Incoming::Metadata(_)));
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(20) {
        assert!(pair.server.receive_any().unwrap().is_none());
        pair.client.flush().unwrap();
    }
    pair.server.send(control()).unwrap();
    // Without a turn of the server, which what was held back reaches.
    let waits = |start: Instant| assert!(start.elapsed() < Duration::from_secs(30), "no message");
    while pair.client.receive_any().unwrap().is_none() {
        pair.server.flush().unwrap();
        waits(start);
    }
    while pair.server.receive_any().unwrap().is_none() {
        pair.client.flush().unwrap();
        waits(start);
    }
}
