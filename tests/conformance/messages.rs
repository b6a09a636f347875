//! Messages of every class and size, in both directions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dipc::device::BufferRef;
use dipc::error::Status;
use dipc::proto::{AddressList, BodyKind, ExpectedBody, Span, Tags, body_tag};
use dipc::transport::{Incoming, LinkOptions, Outgoing, Payload, ReceivingOptions};
use rustix::event::PollFlags;

use crate::{SUBJECTS, Subject, carry, next, pattern, ready_within, speak_first, wait};

const SIZES: [usize; 5] = [0, 1, 4 << 10, 70 << 10, 20 << 20];

fn metadata(seq: u8, header: Vec<u8>) -> Outgoing {
    Outgoing::Metadata {
        prefix: [1, seq, 0, 0, 0],
        header: Some(header.into()),
    }
}

fn tagged(tag: u64, bytes: Vec<u8>) -> Outgoing {
    Outgoing::Tagged {
        tag,
        payload: Payload::Bytes(bytes.into()),
    }
}

/// One message of each class, in the order metadata, request, body, address list, control.
fn by_class(mut messages: Vec<Incoming>) -> Vec<Incoming> {
    messages.sort_by_key(|message| match message {
        Incoming::Metadata(_) => 0,
        Incoming::Tagged { tag, .. } if *tag == Tags::DEFAULT.dipc_want => 1,
        Incoming::Body { .. } | Incoming::GpuBody { .. } => 2,
        Incoming::Tagged { .. } => 3,
        Incoming::Control { .. } => 4,
    });
    messages
}

/// Rules M2, D1 to D4, E1, E3: every class arrives unchanged, in both directions.
#[test]
fn every_class_arrives_in_every_size() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        for from_server in [true, false] {
            let (server, client) = (pair.server.as_mut(), pair.client.as_mut());
            let (from, to) = if from_server {
                (server, client)
            } else {
                (client, server)
            };
            for size in SIZES {
                let bytes = pattern(size, 7);
                let list = body_tag(9, BodyKind::List);
                let want = Tags::DEFAULT.dipc_want;
                let small = bytes[..size.min(1 << 20)].to_vec();
                let control = bytes[..size.min(64 << 10)].to_vec();
                // A client that reads lent memory through the transport accepts only readable
                // lists.
                let listed = if subject.pulls && from_server {
                    let empty = Span {
                        address: 0,
                        length: 0,
                    };
                    let spans = vec![empty; small.len() / 16];
                    AddressList::new(spans).unwrap().encode().into_vec()
                } else {
                    small.clone()
                };
                to.post_body(0, ExpectedBody::new(9, 1, listed.len() as u64));
                // A server need not accept larger bodies than requests, and a client no requests.
                let (bodies, requests) = match (subject.unposted, from_server) {
                    (true, _) => (bytes.clone(), true),
                    (false, true) => (bytes.clone(), false),
                    (false, false) => (small.clone(), true),
                };
                to.post_body(0, ExpectedBody::new(8, bodies.len() as u64, 16));
                // Longer metadata is not required either.
                let meta = if from_server {
                    bytes.clone()
                } else {
                    bytes[..size.min((1 << 20) - 5)].to_vec()
                };
                let mut messages = vec![
                    metadata(3, meta.clone()),
                    tagged(body_tag(8, BodyKind::Packed), bodies.clone()),
                    tagged(list, listed.clone()),
                    Outgoing::Control {
                        bytes: control.clone(),
                        fd: None,
                    },
                ];
                if requests {
                    messages.insert(1, tagged(want, small.clone()));
                }
                let mut arrived = by_class(carry(from, to, messages)).into_iter();
                let mut next = || arrived.next().unwrap();
                let Incoming::Metadata(arrived_meta) = next() else {
                    panic!("no metadata")
                };
                assert_eq!(arrived_meta[..5], [1, 3, 0, 0, 0]);
                assert!(arrived_meta[5..] == meta);
                if requests {
                    assert!(
                        matches!(next(), Incoming::Tagged { tag, bytes } if tag == want && bytes[..] == small)
                    );
                }
                let Incoming::Body { seq: 8, memory } = next() else {
                    panic!("no body")
                };
                assert!(memory.as_slice() == bodies);
                assert!(
                    matches!(next(), Incoming::Tagged { tag, bytes } if tag == list && bytes[..] == listed)
                );
                assert!(
                    matches!(next(), Incoming::Control { bytes, fd: None } if bytes[..] == control)
                );
                assert!(arrived.next().is_none());
            }
        }
    }
}

/// Rule D3: a body is gathered from its buffers, and its owner is dropped after the send.
#[test]
fn a_gathered_body_arrives_whole_and_lets_its_owner_go() {
    struct Owner(Arc<AtomicBool>, Vec<Vec<u8>>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        // More buffers than one system call takes, some of them empty.
        let runs: Vec<Vec<u8>> = (0..3000).map(|n| pattern(n % 50, 1)).collect();
        let whole = runs.concat();
        let parts = runs.iter().map(|run| BufferRef::of(run)).collect();
        let dropped = Arc::new(AtomicBool::new(false));
        let owner = Box::new(Owner(Arc::clone(&dropped), runs));
        assert_eq!(owner.1.len(), 3000);
        let payload = Payload::Gather { parts, owner };
        let message = Outgoing::Tagged { tag: 1, payload };
        pair.client
            .post_body(0, ExpectedBody::new(1, whole.len() as u64, 16));
        let arrived = carry(pair.server.as_mut(), pair.client.as_mut(), vec![message]);
        let [Incoming::Body { seq: 1, memory }] = &arrived[..] else {
            panic!("{arrived:?}")
        };
        assert!(memory.as_slice() == whole);
        assert!(
            dropped.load(Ordering::Relaxed),
            "{subject:?} keeps the owner"
        );
    }
}

/// The number in a message's bytes.
fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// Messages of one class keep their order, in any mix of classes.
#[test]
fn each_class_keeps_its_order() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        let mut messages = Vec::new();
        for n in 0..600u32 {
            let bytes = n.to_le_bytes().repeat(1 + n as usize * 37 % 3000);
            if n % 4 == 2 && !subject.ordered {
                let announced = ExpectedBody::new(n, bytes.len() as u64, 32);
                pair.server.post_body(0, announced);
            }
            messages.push(match n % 4 {
                0 => metadata(0, bytes),
                1 => tagged(Tags::DEFAULT.want_data, bytes),
                2 => tagged(body_tag(n, BodyKind::Packed), bytes),
                _ => Outgoing::Control { bytes, fd: None },
            });
        }
        let mut seen = [0u32, 1, 2, 3];
        speak_first(pair.server.as_mut(), pair.client.as_mut());
        let mut arrived = carry(pair.client.as_mut(), pair.server.as_mut(), messages);
        if !subject.ordered {
            // Bodies on several paths arrive once each. So do messages if large ones take another
            // path than small ones.
            arrived.sort_by_key(|message| match message {
                Incoming::Body { seq, .. } => Some(*seq),
                Incoming::Metadata(bytes) if !subject.unposted => number(&bytes[5..]),
                Incoming::Tagged { bytes, .. } | Incoming::Control { bytes, .. }
                    if !subject.unposted =>
                {
                    number(bytes)
                }
                _ => None,
            });
        }
        for message in arrived {
            let (class, bytes) = match message {
                Incoming::Metadata(bytes) => (0, bytes[5..].to_vec()),
                Incoming::Tagged { bytes, .. } => (1, bytes.into_vec()),
                Incoming::Body { seq, memory } => {
                    assert_eq!(seq, seen[2]);
                    (2, memory.as_slice().to_vec())
                }
                Incoming::Control { bytes, .. } => (3, bytes.into_vec()),
                Incoming::GpuBody { .. } => panic!("no GPU was named"),
            };
            let n = seen[class];
            assert!(
                bytes == n.to_le_bytes().repeat(1 + n as usize * 37 % 3000),
                "{class} {n}"
            );
            seen[class] += 4;
        }
        assert_eq!(seen, [600, 601, 602, 603]);
    }
}

/// A call never blocks: for a peer that does not read, bytes are queued and arrive later.
#[test]
fn a_peer_that_does_not_read_blocks_nobody() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        for n in 0..64u8 {
            pair.server.send(metadata(n, pattern(1 << 20, n))).unwrap();
        }
        if subject.bounded {
            assert!(!pair.server.flush().unwrap());
            // The system's buffers may take some of the bytes.
            assert!(pair.server.traffic().queued > 20 << 20);
            let fd = pair.server.identity().readiness.clone().fd;
            assert!(
                !ready_within(&fd, PollFlags::OUT, 0),
                "a full socket is not writable"
            );
        }
        let mut seen = [false; 64];
        for expected in 0..64u8 {
            let message = loop {
                pair.server.flush().unwrap();
                if let Some(message) = pair.client.receive_any().unwrap() {
                    break message;
                }
            };
            let Incoming::Metadata(bytes) = message else {
                panic!("{message:?}")
            };
            let n = if subject.ordered { expected } else { bytes[1] };
            assert!(bytes[5..] == pattern(1 << 20, n));
            assert!(!std::mem::replace(&mut seen[usize::from(n)], true), "{n}");
        }
        assert!(seen.iter().all(|seen| *seen));
        assert!(pair.server.flush().unwrap());
        assert_eq!(pair.server.traffic().queued, 0);
    }
}

/// `ConnectionReadiness`: the driver's descriptor wakes it for a message, and only then.
#[test]
fn readiness_follows_the_messages() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        let ready = pair.client.identity().readiness.clone();
        assert!(pair.client.receive_any().unwrap().is_none());
        assert!(!ready_within(&ready.fd, PollFlags::IN, 0));
        assert!(!ready.peer_has_died());
        pair.server.send(metadata(1, vec![1])).unwrap();
        assert!(wait(&ready.fd, PollFlags::IN));
        assert!(matches!(
            next(pair.client.as_mut()).unwrap(),
            Incoming::Metadata(_)
        ));
        assert!(pair.client.receive_any().unwrap().is_none());
        assert!(!ready_within(&ready.fd, PollFlags::IN, 0));
    }
}

/// Rule D8: a body whose length is not the posted one is a protocol error, in both kinds.
#[test]
fn a_body_of_another_length_than_posted_is_refused() {
    for subject in SUBJECTS.into_iter().filter(|subject| subject.posts) {
        for kind in [BodyKind::Packed, BodyKind::List] {
            let mut pair = subject.pair();
            pair.client.post_body(0, ExpectedBody::new(4, 100, 32));
            pair.server
                .send(tagged(body_tag(4, kind), vec![0; 48]))
                .unwrap();
            let error = next(pair.client.as_mut()).unwrap_err();
            assert_eq!(error.status(), Status::Protocol, "{error}");
            assert!(
                error.text().contains("48") && error.text().contains("header"),
                "{error}"
            );
            assert_eq!(
                pair.client.receive_any().unwrap_err(),
                error,
                "an error lasts"
            );
        }
    }
}

/// `Connection::post_body`: posted bodies arrive in any order of sending and at any size, even if
/// the sender waits for each.
#[test]
fn announced_bodies_come_in_any_order() {
    for len in [1 << 10, 1 << 20, 3 << 20] {
        for subject in SUBJECTS.into_iter().filter(|subject| subject.posts) {
            come_in_any_order(subject, len);
        }
    }
}

fn come_in_any_order(subject: Subject, len: usize) {
    let mut pair = subject.pair();
    for seq in 1..=4 {
        pair.client
            .post_body(0, ExpectedBody::new(seq, len as u64, 32));
    }
    for seq in [4, 2, 3, 1] {
        let tag = body_tag(seq, BodyKind::Packed);
        let fill = u8::try_from(seq).unwrap();
        pair.server.send(tagged(tag, vec![fill; len])).unwrap();
        let body = loop {
            pair.server.flush().unwrap();
            if let Some(message) = pair.client.receive_any().unwrap() {
                break message;
            }
        };
        let Incoming::Body { seq: came, memory } = body else {
            panic!("{body:?}")
        };
        assert_eq!(came, seq);
        assert!(memory.as_slice() == vec![fill; len]);
    }
}

/// `Connection::wake`, `Connection::doze`: an awake reader gets messages by reading, and after a
/// doze without messages the descriptor reports them again.
#[test]
fn whoever_looks_can_sleep_again() {
    for subject in SUBJECTS {
        let mut pair = subject.pair();
        let ready = pair.client.identity().readiness.clone();
        for seq in [1, 3] {
            pair.client.wake();
            pair.server.send(metadata(seq, vec![1])).unwrap();
            let looked = loop {
                pair.server.flush().unwrap();
                if let Some(message) = pair.client.receive_any().unwrap() {
                    break message;
                }
            };
            assert!(matches!(looked, Incoming::Metadata(_)), "{looked:?}");
            assert!(pair.client.receive_any().unwrap().is_none());
            assert!(!pair.client.doze());
            assert!(!ready_within(&ready.fd, PollFlags::IN, 0));
            pair.server.send(metadata(seq + 1, vec![1])).unwrap();
            assert!(wait(&ready.fd, PollFlags::IN));
            assert!(matches!(
                next(pair.client.as_mut()).unwrap(),
                Incoming::Metadata(_)
            ));
            assert!(pair.client.receive_any().unwrap().is_none());
        }
    }
}

/// The transports whose bodies delay later messages.
fn in_order() -> impl Iterator<Item = Subject> {
    SUBJECTS
        .into_iter()
        .filter(|subject| subject.posts && subject.ordered)
}

/// `ReceivingOptions::unexpected_bytes`: a larger body waits in the connection until it is posted,
/// and is skipped if its stream ends before.
#[test]
fn a_large_body_waits_until_it_is_posted() {
    for subject in in_order() {
        for posted in [true, false] {
            let options = LinkOptions {
                receiving: ReceivingOptions {
                    unexpected_bytes: 1000,
                    ..ReceivingOptions::default()
                },
                ..LinkOptions::default()
            };
            let mut pair = subject.pair_with(&options);
            let bytes = pattern(5000, 3);
            pair.server.send(tagged(2, bytes[..1000].to_vec())).unwrap();
            pair.server.send(tagged(1, bytes.clone())).unwrap();
            pair.server.send(metadata(1, vec![])).unwrap();
            // A small body is accepted at once.
            assert!(matches!(
                next(pair.client.as_mut()).unwrap(),
                Incoming::Body { seq: 2, .. }
            ));
            assert!(pair.client.receive_any().unwrap().is_none());
            if posted {
                pair.client.post_body(0, ExpectedBody::new(1, 5000, 16));
                let body = next(pair.client.as_mut()).unwrap();
                let Incoming::Body { seq: 1, memory } = body else {
                    panic!("{body:?}")
                };
                assert!(memory.as_slice() == bytes);
            } else {
                pair.client.forget_bodies(0);
            }
            assert!(matches!(
                next(pair.client.as_mut()).unwrap(),
                Incoming::Metadata(_)
            ));
        }
    }
}
