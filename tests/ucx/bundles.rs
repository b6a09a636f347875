//! Bundles: several small messages in one (docs/wire.md, "Several messages in one, over UCX").

use std::sync::Arc;
use std::time::{Duration, Instant};

use dipc::device::{BufferRef, HostBuffer};
use dipc::error::Status;
use dipc::proto::{BodyKind, body_tag};
use dipc::transport::{Incoming, Outgoing, Payload};

use crate::pair::{Pair, metadata};
use crate::works;

/// A packed body of `length` bytes, all of them `seq`.
fn body(seq: u8, length: usize) -> Outgoing {
    let bytes = Arc::new(vec![seq; length]);
    Outgoing::Tagged {
        tag: body_tag(u32::from(seq), BodyKind::Packed),
        payload: Payload::Gather {
            parts: vec![BufferRef::of(&bytes)],
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

/// Both ends, once the server has heard that bundles may come: UCX keeps no order between that and
/// the end of connecting.
fn bundling() -> Pair {
    bundling_with(&[])
}

/// The same with these settings.
fn bundling_with(settings: &[(&str, &str)]) -> Pair {
    let mut pair = Pair::with(settings, "");
    pair.server.send(control()).unwrap();
    assert!(matches!(pair.next().unwrap(), Incoming::Control { .. }));
    let start = Instant::now();
    loop {
        pair.server.queue(metadata(0)).unwrap();
        let waits = pair.server.queued().bytes > 0;
        pair.server.flush().unwrap();
        assert!(matches!(pair.next().unwrap(), Incoming::Metadata(_)));
        if waits {
            return pair;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "no bundles");
    }
}

/// The next message of the client's, which is a body.
fn next_body(pair: &mut Pair) -> (u32, HostBuffer) {
    match pair.next().unwrap() {
        Incoming::Body { seq, memory } => (seq, memory),
        message => panic!("{message:?}"),
    }
}

/// Whether the client gets anything within a few milliseconds.
fn hears(pair: &mut Pair) -> bool {
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(20) {
        if pair.turn().unwrap().is_some() {
            return true;
        }
    }
    false
}

/// docs/wire.md: small messages of a server wait for each other and leave together, in order; the
/// client has each as if it had come by itself, also where its body was announced before. Longer
/// ones do not wait.
#[test]
fn small_messages_leave_together() {
    if !works() {
        return;
    }
    let mut pair = bundling();
    for seq in 1..=3 {
        pair.server.queue(metadata(seq)).unwrap();
        pair.server.queue(body(seq, 100)).unwrap();
    }
    assert!(pair.server.queued().bytes > 300);
    assert!(!hears(&mut pair), "nothing has left");
    // The receive for this one is posted, and not needed.
    pair.client.post_body(1, 100, 32);
    pair.server.flush().unwrap();
    for seq in 1..=3 {
        let message = pair.next().unwrap();
        assert!(
            matches!(&message, Incoming::Metadata(bytes) if bytes[..] == [1, seq, 0, 0, 0]),
            "{message:?}"
        );
        let (number, memory) = next_body(&mut pair);
        assert_eq!(number, u32::from(seq));
        assert_eq!(memory.as_slice(), [seq; 100]);
        assert_eq!(memory.as_slice().as_ptr() as usize % 64, 0, "rule A2");
        if seq > 1 {
            // As the driver does with each header; it has come already.
            pair.client.post_body(number, 100, 32);
        }
    }
    // Longer ones, and one that is too long for a bundle: what waits goes before it, and it does
    // not wait.
    for (seq, length) in [(4, 16_000), (5, 250_000), (6, 600_000)] {
        pair.server.queue(metadata(seq)).unwrap();
        pair.server.queue(body(seq, length)).unwrap();
        if length == 16_000 {
            assert!(pair.server.queued().bytes > 16_000);
            assert!(!hears(&mut pair), "nothing has left");
        }
        if length < 600_000 {
            pair.server.flush().unwrap();
        }
        let message = pair.next().unwrap();
        assert!(matches!(message, Incoming::Metadata(_)), "{message:?}");
        pair.client.post_body(u32::from(seq), length as u64, 32);
        let (number, memory) = next_body(&mut pair);
        assert_eq!((number, memory.len()), (u32::from(seq), length));
        assert!(memory.as_slice().iter().all(|byte| *byte == seq));
    }
    assert!(pair.server.flush().unwrap());
    assert_eq!(pair.server.queued().bytes, 0);
}

/// docs/wire.md: where everything goes over tcp, longer messages wait, too; where UCX takes memory
/// as well, none wait.
#[test]
fn longer_messages_leave_together_over_tcp() {
    if !works() {
        return;
    }
    for (transports, waits) in [("tcp", true), ("posix,tcp", false)] {
        let mut pair = bundling_with(&[("ucx.TLS", transports)]);
        for (seq, length) in [(1, 600_000), (2, 100_000)] {
            pair.server.queue(metadata(seq)).unwrap();
            pair.server.queue(body(seq, length)).unwrap();
            if seq == 2 {
                assert_eq!(hears(&mut pair), !waits, "{transports}");
            }
            pair.server.flush().unwrap();
            pair.client.post_body(u32::from(seq), length as u64, 32);
            let (number, memory) = loop {
                match pair.next().unwrap() {
                    Incoming::Body { seq, memory } => break (seq, memory),
                    Incoming::Metadata(_) => {}
                    message => panic!("{message:?}"),
                }
            };
            assert_eq!((number, memory.len()), (u32::from(seq), length));
        }
    }
}

/// Numbers restart with every stream (rule E4): a body of a stream that was cut does not stand for
/// one of the next.
#[test]
fn a_stream_that_was_cut_leaves_no_early_body() {
    if !works() {
        return;
    }
    let mut pair = bundling();
    for _ in 0..2 {
        pair.server.queue(metadata(1)).unwrap();
        pair.server.queue(body(1, 10)).unwrap();
        pair.server.flush().unwrap();
        for _ in 0..2 {
            pair.next().unwrap();
        }
        pair.client.forget_bodies();
    }
    pair.client.post_body(1, 9000, 32);
    pair.server.send(body(1, 9000)).unwrap();
    let message = pair.next().unwrap();
    assert!(
        matches!(&message, Incoming::Body { seq: 1, memory } if memory.len() == 9000),
        "{message:?}"
    );
}

/// Rule D8: a body in a bundle has the length that its header announces, too.
#[test]
fn a_body_of_another_length_is_refused() {
    if !works() {
        return;
    }
    let mut pair = bundling();
    pair.client.post_body(1, 101, 32);
    pair.server.queue(metadata(1)).unwrap();
    pair.server.queue(body(1, 100)).unwrap();
    pair.server.flush().unwrap();
    // What came before the end is handed out first.
    assert!(matches!(pair.next().unwrap(), Incoming::Metadata(_)));
    let error = pair.refusal();
    assert_eq!(error.status(), Status::Protocol);
    assert!(error.text().contains("announces 101"), "{error}");
}

/// Section E: a baseline peer never sees a bundle, so nothing waits for one.
#[test]
fn a_baseline_peer_gets_each_message_by_itself() {
    if !works() {
        return;
    }
    let mut pair = Pair::by("?want_data=1099511627776");
    pair.client.post_body(1, 100, 32);
    pair.server.queue(metadata(1)).unwrap();
    assert!(matches!(pair.next().unwrap(), Incoming::Metadata(_)));
    pair.server.queue(body(1, 100)).unwrap();
    assert!(matches!(
        pair.next().unwrap(),
        Incoming::Body { seq: 1, .. }
    ));
}

/// "unless it is a body that lies in several runs of memory": UCX would send those two at a time.
#[test]
fn a_body_in_runs_is_put_together_although_alone() {
    if !works() {
        return;
    }
    let mut pair = bundling();
    let column = Arc::new([7_u8; 24]);
    let parts = vec![BufferRef::of(&column[..]); 600];
    let body = Outgoing::Tagged {
        tag: body_tag(3, BodyKind::Packed),
        payload: Payload::Gather {
            parts,
            owner: Box::new(column),
        },
    };
    pair.server.queue(body).unwrap();
    pair.server.flush().unwrap();
    // By itself it would wait until it is posted.
    let (seq, memory) = next_body(&mut pair);
    assert_eq!((seq, memory.as_slice()), (3, &[7; 24 * 600][..]));
}

/// Rule E1: a client with a bare address says nothing of our extension but its request until the
/// server has spoken; then what was held back leaves.
#[test]
fn a_client_asks_once_its_server_has_spoken() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    pair.client.send(control()).unwrap();
    for seq in 0..3 {
        // Where the client had asked, this one would wait.
        pair.server.queue(metadata(seq)).unwrap();
        assert!(matches!(pair.next().unwrap(), Incoming::Metadata(_)));
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            assert!(pair.server.receive().unwrap().is_none());
            pair.client.flush().unwrap();
        }
    }
    pair.server.send(control()).unwrap();
    // Without a turn of the server, which what was held back reaches.
    let start = Instant::now();
    while !matches!(
        pair.client.receive().unwrap(),
        Some(Incoming::Control { .. })
    ) {
        pair.server.flush().unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "nothing is heard"
        );
    }
    let start = Instant::now();
    while pair.server.receive().unwrap().is_none() {
        pair.client.flush().unwrap();
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "nothing is heard"
        );
    }
}
