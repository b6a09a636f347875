//! Address lists as a client takes them: early ones, wrong ones.

use std::sync::Arc;

use dipc::device::BufferRef;
use dipc::error::{Result, Status};
use dipc::proto::{AddressList, BodyKind, ExpectedBody, Span, body_tag};
use dipc::transport::{
    BodyPolicy, Incoming, Lease, Lender as _, Outgoing, Payload, Placement, RegionNotice,
};

use crate::pair::{Pair, metadata};
use crate::works;

impl Pair {
    /// Lends `bytes`, without a word to the client.
    fn lend(&self, bytes: &[u8]) -> Lease {
        let lender = self.server.pool().unwrap();
        match lender
            .place(&[BufferRef::of(bytes)], None, BodyPolicy::Auto)
            .unwrap()
        {
            Placement::Lent(lease) => lease,
            Placement::Packed => panic!("not lent"),
        }
    }

    /// What the server has to tell of its new region.
    fn news(&self) -> RegionNotice {
        let mut news = self.server.pool().unwrap().take_news();
        assert_eq!(news.len(), 1);
        news.remove(0)
    }

    fn announce(&mut self) -> Result<()> {
        let notice = self.news();
        self.learn(&notice)
    }

    fn learn(&mut self, notice: &RegionNotice) -> Result<()> {
        self.client
            .regions()
            .unwrap()
            .map(notice.id, &notice.handle, None)
    }

    /// Posts the body of message 1 and sends a list for it.
    fn send(&mut self, packed: u64, spans: &[Span]) {
        self.send_as(1, packed, spans);
    }

    fn send_as(&mut self, seq: u32, packed: u64, spans: &[Span]) {
        let bytes = AddressList::new(spans.to_vec()).unwrap().encode();
        (self.client).post_body(0, ExpectedBody::new(seq, packed, bytes.len() as u64));
        let outgoing = Outgoing::Tagged {
            tag: body_tag(seq, BodyKind::List),
            payload: Payload::Bytes(bytes),
        };
        self.server.send(outgoing).unwrap();
    }
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 % 251) as u8).collect()
}

/// Section E, "Our transports": on UCX a list may come before the REGION message of what it names;
/// it waits for that, and other messages do not wait for it.
#[test]
fn a_list_waits_for_its_region() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let lent = bytes(100_000);
    let lease = pair.lend(&lent);
    pair.send(100_000, &lease.spans);
    // Behind the list, and not held up by it.
    for number in 0..50 {
        pair.server.send(metadata(number)).unwrap();
    }
    for _ in 0..50 {
        let message = pair.next().unwrap();
        assert!(matches!(message, Incoming::Metadata(_)), "{message:?}");
    }
    pair.announce().unwrap();
    let message = pair.next().unwrap();
    assert!(matches!(message, Incoming::Tagged { .. }), "{message:?}");
    let found = pair
        .client
        .regions()
        .unwrap()
        .resolve(0, 1, lease.spans.to_vec())
        .unwrap();
    // SAFETY: `found.owner` is alive, and nobody writes.
    assert!(unsafe { found.buffers[0].as_slice() } == lent);
    assert_eq!(found.buffers[0].data as usize % 64, 0);
    assert!(found.pulled && !found.shared);
    // What was read is handed out once.
    assert!(
        pair.client
            .regions()
            .unwrap()
            .resolve(0, 1, lease.spans.to_vec())
            .is_err()
    );
}

/// Rules A1, A8: a list that names more than its header announces, or memory outside its region, is
/// refused before anything is allocated or read.
#[test]
fn lists_that_reach_too_far_are_refused() {
    if !works() {
        return;
    }
    let lent = bytes(5000);
    let span = |lease: &Lease, skip: u64, length: u64| Span {
        address: lease.spans[0].address + skip,
        length,
    };
    let cases = [
        ("names 5001 bytes; its header announces 5000", 0, 5001),
        ("past region", 1 << 20, 5000),
        ("past region", (1 << 20) - 100, 5000),
    ];
    for (text, skip, length) in cases {
        let mut pair = Pair::new();
        let lease = pair.lend(&lent);
        pair.announce().unwrap();
        pair.send(5000, &[span(&lease, skip, length)]);
        let error = pair.refusal();
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains(text), "{error}");
    }
}

/// Rule U2: plain addresses need the key of the URI.
#[test]
fn a_plain_address_without_a_key_is_refused() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let lent = bytes(5000);
    let plain = Span {
        address: lent.as_ptr() as u64,
        length: 5000,
    };
    pair.send(5000, &[plain]);
    let error = pair.refusal();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains("remote_handle"), "{error}");
}

/// Rule E3: handles that are none, ids in use and regions that were never announced are refused.
#[test]
fn regions_that_make_no_sense_are_refused() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let _lease = pair.lend(&bytes(5000));
    let notice = pair.news();
    let handle = notice.handle.clone();
    let mut overlong = handle.clone();
    overlong[8..16].fill(0xff);
    let cases = [
        (7, &handle[..15], "15 bytes"),
        (7, &handle[..16], "is empty"),
        (7, &overlong[..], "past the end of all memory"),
        (0, &handle[..], "id 0"),
    ];
    for (id, handle, text) in cases {
        let error = pair
            .client
            .regions()
            .unwrap()
            .map(id, handle, None)
            .unwrap_err();
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains(text), "{error}");
    }
    pair.learn(&notice).unwrap();
    assert!(pair.learn(&notice).unwrap_err().text().contains("twice"));
    let error = pair.client.regions().unwrap().unmap(9).unwrap_err();
    assert!(error.text().contains("never announced"), "{error}");
}

/// Rule A1: empty buffers name nothing and are not read.
#[test]
fn a_list_of_empty_buffers_is_there_at_once() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let empty = Span {
        address: 0,
        length: 0,
    };
    pair.send(0, &[empty; 3]);
    pair.next().unwrap();
    let found = pair
        .client
        .regions()
        .unwrap()
        .resolve(0, 1, vec![empty; 3])
        .unwrap();
    assert!(found.buffers.iter().all(|buffer| buffer.len == 0));
}

/// A stream that is over is not waited for: its lists are forgotten, also those being read, and the
/// next one's are read.
#[test]
fn lists_of_a_stream_that_is_over_are_forgotten() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let lent = Arc::new(bytes(8 << 20));
    let lease = pair.lend(&lent);
    pair.announce().unwrap();
    pair.send(8 << 20, &lease.spans);
    // It is on its way, or being read.
    let message = pair.turn().unwrap();
    let read = matches!(message, Some(Incoming::Tagged { .. }));
    assert!(read || message.is_none(), "{message:?}");
    pair.client.forget_bodies(0);
    assert!(
        pair.client
            .regions()
            .unwrap()
            .resolve(0, 1, lease.spans.to_vec())
            .is_err()
    );
    let next = bytes(6000);
    let lease = pair.lend(&next);
    let news = pair.server.pool().unwrap().take_news();
    for notice in &news {
        pair.learn(notice).unwrap();
    }
    pair.send_as(2, 6000, &lease.spans);
    let message = pair.next().unwrap();
    assert!(matches!(message, Incoming::Tagged { .. }), "{message:?}");
    assert!(
        pair.client
            .regions()
            .unwrap()
            .resolve(0, 1, lease.spans.to_vec())
            .is_err()
    );
    let found = pair
        .client
        .regions()
        .unwrap()
        .resolve(0, 2, lease.spans.to_vec())
        .unwrap();
    // SAFETY: `found.owner` is alive, and nobody writes.
    assert!(unsafe { found.buffers[0].as_slice() } == next);
}
