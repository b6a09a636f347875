//! Lending: the peer sees lent memory, unchanged for as long as it keeps the memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dipc::arena::{self, Arena, ArenaOptions};
use dipc::device::{BufferRef, DeviceKind};
use dipc::proto::{AddressList, BodyKind, Control, ExpectedBody, Span, body_tag};
use dipc::transport::{
    BodyPolicy, Connection, Incoming, Lease, Lender as _, LendingOptions, LinkOptions,
    MemoryBudget, Outgoing, Payload, Placement, RegionPool, Resolved, Unmapped,
};

use crate::{Pair, SUBJECTS, Subject, pattern};

fn lending() -> impl Iterator<Item = Subject> {
    SUBJECTS.into_iter().filter(|subject| subject.lends)
}

fn regional() -> impl Iterator<Item = Subject> {
    SUBJECTS.into_iter().filter(|subject| subject.regions)
}

fn lend(lender: &Arc<RegionPool>, buffers: &[BufferRef]) -> Lease {
    match Arc::clone(lender)
        .place(buffers, None, BodyPolicy::Auto)
        .unwrap()
    {
        Placement::Lent(lease) => lease,
        Placement::Packed => panic!("not lent"),
    }
}

/// Announces the lender's new regions to the client, like the driver.
fn announce(client: &mut dyn Connection, lender: &RegionPool) {
    for notice in &lender.take_news() {
        let fd = notice.fd.as_ref().map(|fd| fd.try_clone().unwrap());
        client
            .regions()
            .unwrap()
            .map(notice.id, &notice.handle, fd)
            .unwrap();
    }
}

/// Options with which `subject` lends copies too.
fn copying(subject: Subject) -> LinkOptions {
    LinkOptions {
        lending: LendingOptions {
            body: if subject.pulls {
                BodyPolicy::Lent
            } else {
                BodyPolicy::Auto
            },
            ..LendingOptions::default()
        },
        ..LinkOptions::default()
    }
}

/// Resolves the memory of a list. If the client must read it first, sends the list, like the
/// driver.
fn resolve(subject: Subject, pair: &mut Pair, spans: &[Span]) -> Resolved {
    if subject.pulls {
        let list = AddressList::new(spans.to_vec()).unwrap();
        let bytes = list.encode();
        let tag = body_tag(1, BodyKind::List);
        (pair.client).post_body(0, ExpectedBody::new(1, list.total, bytes.len() as u64));
        let payload = Payload::Bytes(bytes.clone());
        pair.server.send(Outgoing::Tagged { tag, payload }).unwrap();
        let start = Instant::now();
        let came = loop {
            // The server must take part in the read.
            assert!(pair.server.receive_any().unwrap().is_none());
            // Metadata of the test may arrive meanwhile.
            if let Some(Incoming::Tagged { tag, bytes }) = pair.client.receive_any().unwrap() {
                break (tag, bytes);
            }
            assert!(start.elapsed() < Duration::from_secs(30), "no list");
        };
        assert_eq!(came, (tag, bytes));
    }
    let found = pair
        .client
        .regions()
        .unwrap()
        .resolve(0, 1, spans.to_vec())
        .unwrap();
    assert_eq!(found.pulled, subject.pulls);
    found
}

fn read(subject: Subject, pair: &mut Pair, spans: &[Span]) -> Vec<Vec<u8>> {
    let found = resolve(subject, pair, spans);
    // SAFETY: `found.owner` is alive, and nothing lent is written in these tests.
    found
        .buffers
        .iter()
        .map(|buffer| unsafe { buffer.as_slice() }.to_vec())
        .collect()
}

fn arena() -> Arena {
    Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap()
}

/// Rules D4, A1: buffers at any place arrive equal; empty buffers are (0, 0).
#[test]
fn lent_buffers_arrive_equal() {
    for subject in lending() {
        let mut pair = subject.pair_with(&copying(subject));
        let lender = pair.server.pool().expect("it lends");
        for size in [5000, 70 << 10, 20 << 20] {
            let (one, two) = (pattern(size, 1), pattern(777, 2));
            let buffers = [BufferRef::of(&one), BufferRef::EMPTY, BufferRef::of(&two)];
            let lease = lend(&lender, &buffers);
            assert_eq!(
                lease.spans[1],
                Span {
                    address: 0,
                    length: 0
                }
            );
            announce(pair.client.as_mut(), &lender);
            let seen = read(subject, &mut pair, &lease.spans);
            assert!(seen == [one, vec![], two]);
        }
    }
}

/// A body of at most `inline_bytes`, or beyond the limit of lent memory, travels as bytes. After a
/// return bodies are lent again.
#[test]
fn past_the_limit_bodies_travel_as_bytes() {
    for subject in lending() {
        let options = LinkOptions {
            lending: LendingOptions {
                lent_limit: 100_000,
                ..copying(subject).lending
            },
            ..copying(subject)
        };
        let pair = subject.pair_with(&options);
        let lender = pair.server.pool().unwrap();
        let packed = |len: usize| {
            let bytes = vec![1; len];
            matches!(
                Arc::clone(&lender)
                    .place(&[BufferRef::of(&bytes)], None, BodyPolicy::Auto)
                    .unwrap(),
                Placement::Packed
            )
        };
        // With the policy to lend always, a server lends small bodies too.
        assert!(packed(4096) != subject.pulls && !packed(4097));
        let bytes = vec![1; 60_000];
        let lease = lend(&lender, &[BufferRef::of(&bytes)]);
        assert!(packed(60_000));
        drop(lease);
        assert!(!packed(60_000));
        lender.set_client(10_000, 1, &[]);
        assert!(packed(60_000) && !packed(9_000));
    }
}

/// Promise: memory of an arena is not copied, at any size.
#[test]
fn arena_memory_is_not_copied() {
    for subject in regional() {
        let mut pair = subject.pair_with(&copying(subject));
        let lender = pair.server.pool().unwrap();
        let arena = arena();
        for size in [5000usize, 100 << 20] {
            let block = arena.alloc(size).unwrap();
            // SAFETY: the block has `size` bytes and is this test's alone.
            unsafe { block.as_ptr().write_bytes(5, size) };
            let buffer = BufferRef {
                data: block.as_ptr(),
                len: size,
            };
            let lease = lend(&lender, &[buffer, buffer]);
            assert_eq!((lease.copied, lease.borrowed), (0, 2 * size as u64));
            announce(pair.client.as_mut(), &lender);
            let found = resolve(subject, &mut pair, &lease.spans);
            assert!(subject.pulls || found.buffers[0].data == found.buffers[1].data);
            // SAFETY: `found.owner` is alive and nobody writes any more.
            let bytes = unsafe { found.buffers[0].as_slice() };
            assert!(bytes.iter().all(|byte| *byte == 5));
            drop(lease);
            // SAFETY: nobody uses the block any more.
            unsafe { arena.dealloc(block) }.unwrap();
        }
    }
}

/// "Our transports": if the client has to read lent memory through the transport, a server lends
/// only with the policy to lend always.
#[test]
fn where_lists_are_read_nothing_is_lent_unasked() {
    for subject in regional().filter(|subject| subject.pulls) {
        assert!(subject.pair().server.pool().is_none());
        let asked = subject.pair_with(&copying(subject));
        assert!(asked.server.pool().is_some());
    }
}

/// Memory is reused only after the peer has returned it.
#[test]
fn memory_is_used_again_only_after_its_return() {
    for subject in regional() {
        let mut pair = subject.pair_with(&copying(subject));
        let lender = pair.server.pool().unwrap();
        let mut leases = Vec::new();
        for n in 0..20u8 {
            let bytes = pattern(50_000, n);
            let lease = lend(&lender, &[BufferRef::of(&bytes)]);
            announce(pair.client.as_mut(), &lender);
            leases.push(lease);
        }
        for (n, lease) in (0..).zip(&leases) {
            assert!(
                read(subject, &mut pair, &lease.spans) == [pattern(50_000, n)],
                "{n}"
            );
        }
        let returned = leases.remove(7).spans[0].address;
        let bytes = pattern(50_000, 77);
        assert_eq!(
            lend(&lender, &[BufferRef::of(&bytes)]).spans[0].address,
            returned
        );
    }
}

/// Rule E3: idle regions are retired, and their ids are reused after the acknowledgement; arrays
/// keep their region.
#[test]
fn idle_regions_are_retired() {
    for subject in regional() {
        // Room for one region, and for the listener's memory for baseline peers.
        let budget = Arc::new(MemoryBudget::new(2 << 20));
        let options = LinkOptions {
            lending: LendingOptions {
                region_idle: Duration::ZERO,
                region_bytes: 1 << 20,
                budget: Arc::clone(&budget),
                ..copying(subject).lending
            },
            ..copying(subject)
        };
        let mut pair = subject.pair_with(&options);
        let lender = pair.server.pool().unwrap();
        let before = budget.used();
        for n in 0..5 {
            let bytes = pattern(50_000, n);
            let lease = lend(&lender, &[BufferRef::of(&bytes)]);
            announce(pair.client.as_mut(), &lender);
            let found = resolve(subject, &mut pair, &lease.spans);
            drop(lease);
            assert_eq!(lender.retire_idle(), (vec![1], None));
            assert_eq!(
                pair.client.regions().unwrap().unmap(1).unwrap(),
                Unmapped::Now
            );
            lender.region_forgotten(1);
            // Memory that the peer maps counts, even if the peer says that it is returned.
            assert_eq!(budget.used() > before, found.shared);
            // SAFETY: `found.owner` is alive, and the region's owner has released it.
            assert!(unsafe { found.buffers[0].as_slice() } == bytes);
            drop(found);
            assert_eq!(budget.used(), before);
        }
    }
}

/// Rule F4: after a cut lent memory is never written again, and nothing more is lent; holds may be
/// dropped at any time.
#[test]
fn a_cut_leaves_lent_memory_unchanged() {
    for subject in regional() {
        let mut pair = subject.pair_with(&copying(subject));
        let lender = pair.server.pool().unwrap();
        let arena = arena();
        let block = arena.alloc(50_000).unwrap();
        // SAFETY: the block has 50 000 bytes and is this test's alone.
        unsafe { block.as_ptr().write_bytes(5, 50_000) };
        let borrowed = BufferRef {
            data: block.as_ptr(),
            len: 50_000,
        };
        let copied = pattern(50_000, 1);
        let lease = lend(&lender, &[borrowed, BufferRef::of(&copied)]);
        announce(pair.client.as_mut(), &lender);
        let found = resolve(subject, &mut pair, &lease.spans);
        pair.client.close(None);
        // The end of the connection also ends its lending.
        drop(pair.server);
        assert!(matches!(
            Arc::clone(&lender)
                .place(&[borrowed], None, BodyPolicy::Auto)
                .unwrap(),
            Placement::Packed
        ));
        drop((lease, lender));
        // SAFETY: this side uses the block no more.
        unsafe { arena.dealloc(block) }.unwrap();
        let mut others = Vec::new();
        for _ in 0..4 {
            let other = arena.alloc(50_000).unwrap();
            // SAFETY: the block has 50 000 bytes and is this test's alone.
            unsafe { other.as_ptr().write_bytes(6, 50_000) };
            others.push(other);
        }
        // SAFETY: `found.owner` is alive, and this test shows that nobody writes.
        let seen = found
            .buffers
            .iter()
            .map(|buffer| unsafe { buffer.as_slice() });
        assert!(seen.eq([vec![5; 50_000].as_slice(), &copied]));
        for other in others {
            // SAFETY: nobody uses the block any more.
            unsafe { arena::dealloc(other) }.unwrap();
        }
    }
}

/// Rule E3: a REGION message brings its descriptor, at any place in a full queue.
#[test]
fn a_region_message_brings_its_descriptor() {
    for subject in regional() {
        let options = LinkOptions {
            lending: LendingOptions {
                region_bytes: 1 << 20,
                ..copying(subject).lending
            },
            ..copying(subject)
        };
        let mut pair = subject.pair_with(&options);
        pair.client.begin_stream(0, 0);
        let lender = pair.server.pool().unwrap();
        let mut leases = Vec::new();
        for n in 0..6u8 {
            // One region for each body, and between them more bytes than a socket takes at once.
            let bytes = pattern((3 << 20) + usize::from(n), n);
            let lease = lend(&lender, &[BufferRef::of(&bytes)]);
            let news = lender.take_news();
            let [notice] = &news[..] else {
                panic!("{} regions", news.len())
            };
            let region = Control::Region {
                id: notice.id,
                handle: notice.handle.clone(),
            };
            let (bytes, fd) = (region.encode(), notice.fd.clone());
            let filler = Outgoing::Metadata {
                prefix: [1, 0, 0, 0, 0],
                header: Some(vec![n; 300_000].into()),
            };
            pair.server.send(filler).unwrap();
            pair.server.send(Outgoing::Control { bytes, fd }).unwrap();
            leases.push(lease);
        }
        let mut regions = 0;
        while regions < leases.len() {
            pair.server.flush().unwrap();
            let Some(message) = pair.client.receive_any().unwrap() else {
                continue;
            };
            let Incoming::Control { bytes, fd } = message else {
                continue;
            };
            let Some(Control::Region { id, handle }) = Control::decode(&bytes).unwrap() else {
                panic!("not a region");
            };
            assert_eq!(fd.is_some(), !subject.pulls);
            pair.client.regions().unwrap().map(id, &handle, fd).unwrap();
            regions += 1;
        }
        for (n, lease) in (0..).zip(&leases) {
            let found = resolve(subject, &mut pair, &lease.spans);
            // SAFETY: `found.owner` is alive, and nothing lent is written in this test.
            let seen = unsafe { found.buffers[0].as_slice() };
            assert!(seen == pattern((3 << 20) + usize::from(n), n), "{n}");
        }
    }
}
