//! Rules M4, M5, M6, D1, D3, D5, A1 and A4: pairs of headers and bodies.

use super::*;
use crate::proto::Span;
use crate::proto::testing::{Make, batch, schema};

fn header(lengths: &[u64]) -> Header {
    Header::parse(&batch(lengths).0).unwrap()
}

fn window(first: u32) -> Window<()> {
    let mut window = Window::new(first, 1000);
    assert!(
        !window
            .put_header(first, Header::parse(&schema()).unwrap())
            .unwrap()
    );
    assert!(matches!(window.pop(), Some((seq, _, None)) if seq == first));
    window
}

fn packed(len: u64) -> Arrived<()> {
    Arrived::Packed { len, memory: () }
}

fn list(lengths: &[u64]) -> Arrived<()> {
    let spans = lengths.iter().map(|length| Span {
        address: 64 * length,
        length: *length,
    });
    Arrived::List(AddressList::new(spans.collect()).unwrap())
}

fn rule<T: std::fmt::Debug>(result: Result<T, ProtocolError>) -> &'static str {
    result.unwrap_err().rule()
}

/// Rules M4, M6: messages come out in order of numbers for any order of arrival and wrap.
#[test]
fn messages_come_out_in_order() {
    for first in [0, u32::MAX - 2, u32::MAX] {
        let mut window = window(first);
        let seq = |ahead: u32| first.wrapping_add(ahead);
        window.put_end(seq(5)).unwrap();
        for ahead in [4, 2, 1, 3] {
            assert!(window.put_header(seq(ahead), header(&[8])).unwrap());
            assert!(window.pop().is_none() && !window.is_complete());
        }
        for ahead in [3, 4, 2] {
            window.put_body(seq(ahead), packed(64)).unwrap();
            assert!(window.pop().is_none());
        }
        window.put_body(seq(1), packed(64)).unwrap();
        for ahead in 1..5 {
            assert!(!window.is_complete());
            assert_eq!(window.pop().unwrap().0, seq(ahead));
        }
        assert!(window.is_complete() && window.pop().is_none());
        assert_eq!(window.lead(), (0, 0, 0));
        assert_eq!(window.header_bytes, 0);
    }
}

/// Rule D5: a body may come first; its header then waits for no body.
#[test]
fn bodies_may_come_first() {
    let mut window = window(0);
    window.put_body(1, packed(64)).unwrap();
    assert_eq!(window.lead(), (0, 1, 64));
    assert!(!window.put_header(1, header(&[8])).unwrap());
    assert_eq!(window.pop().unwrap().0, 1);
    assert_eq!(window.lead(), (0, 0, 0));
}

/// Rule M4: the first message is the schema; a stream has one schema.
#[test]
fn the_first_message_is_the_schema() {
    let schema = || Header::parse(&schema()).unwrap();
    let mut fresh = Window::<()>::new(7, 0);
    assert_eq!(rule(fresh.put_header(7, header(&[8]))), "M4");
    assert_eq!(rule(fresh.put_header(8, schema())), "M4");
    assert_eq!(rule(fresh.put_end(7)), "M4");
    assert_eq!(rule(window(7).put_header(8, schema())), "M4");
}

/// Rule D1: the schema has no body, in any order of arrival.
#[test]
fn the_schema_has_no_body() {
    let mut before = Window::new(0, 0);
    before.put_body(0, packed(0)).unwrap();
    assert_eq!(
        rule(before.put_header(0, Header::parse(&schema()).unwrap())),
        "D1"
    );
    let mut waiting = Window::new(0, 0);
    waiting
        .put_header(0, Header::parse(&schema()).unwrap())
        .unwrap();
    assert_eq!(rule(waiting.put_body(0, packed(0))), "D1");
    assert_eq!(rule(window(0).put_body(0, packed(0))), "M4");
}

/// Rules M4, D1: no header or body comes twice, early or late.
#[test]
fn duplicates_are_rejected() {
    let mut window = window(0);
    window.put_header(1, header(&[8])).unwrap();
    assert_eq!(rule(window.put_header(1, header(&[8]))), "M4");
    window.put_body(2, packed(64)).unwrap();
    assert_eq!(rule(window.put_body(2, packed(64))), "D1");
    window.put_body(1, packed(64)).unwrap();
    window.pop().unwrap();
    assert_eq!(rule(window.put_header(1, header(&[8]))), "M4");
    assert_eq!(rule(window.put_body(1, packed(64))), "M4");
    window.put_end(3).unwrap();
    assert_eq!(rule(window.put_end(3)), "M5");
}

/// Rule M5: the end has the next number: no message has this number or a later number.
#[test]
fn nothing_comes_after_the_end() {
    let mut ended = window(0);
    ended.put_end(2).unwrap();
    assert_eq!(rule(ended.put_header(2, header(&[8]))), "M5");
    assert_eq!(rule(ended.put_body(3, packed(0))), "M5");
    ended.put_header(1, header(&[8])).unwrap();
    let mut running = window(0);
    running.put_body(3, packed(0)).unwrap();
    assert_eq!(rule(running.put_end(3)), "M5");
    assert_eq!(rule(running.put_end(0)), "M5");
    running.put_end(4).unwrap();
}

/// Rule M6: there is a limit for how far a peer runs ahead, and for the cost of a single number.
#[test]
fn running_ahead_is_bounded() {
    let mut window = window(0);
    assert_eq!(rule(window.put_header(1 + REACH, header(&[8]))), "M6");
    assert_eq!(rule(window.put_body(1 + REACH, packed(0))), "M6");
    assert_eq!(rule(window.put_end(1 + REACH)), "M6");
    assert!(window.slots.is_empty());
    window.put_body(REACH, packed(0)).unwrap();
}

/// Rule D5: bodies before their headers have a limit in bytes, but one is always accepted.
#[test]
fn bodies_without_headers_are_bounded() {
    let mut window = window(0);
    window.put_body(1, packed(5000)).unwrap();
    assert_eq!(rule(window.put_body(2, packed(1))), "D5");
    let mut window = self::window(0);
    window.put_header(2, header(&[100])).unwrap();
    window.put_body(1, packed(1000)).unwrap();
    // A body whose header has come does not count.
    window.put_body(2, packed(128)).unwrap();
    assert_eq!(rule(window.put_body(3, packed(1))), "D5");
}

/// Rules D3, A1, A4: a body that does not fit its header, in any order of arrival.
#[test]
fn bodies_agree_with_their_headers() {
    let compressed = Make {
        compressed: true,
        ..Make::body(crate::proto::HeaderKind::RecordBatch, &[8])
    };
    type Case = (Vec<u8>, fn() -> Arrived<()>, Option<&'static str>);
    let cases: [Case; 9] = [
        (batch(&[8, 0]).0, || packed(64), None),
        (batch(&[8, 0]).0, || packed(63), Some("D3")),
        (batch(&[8, 0]).0, || packed(0), Some("D3")),
        (batch(&[8, 0]).0, || list(&[8, 0]), None),
        (batch(&[8, 0]).0, || list(&[8]), Some("A1")),
        (batch(&[8, 0]).0, || list(&[8, 0, 0]), Some("A1")),
        (batch(&[8, 0]).0, || list(&[0, 8]), Some("A1")),
        (compressed.bytes(), || packed(64), None),
        (compressed.bytes(), || list(&[8]), Some("A4")),
    ];
    for (bytes, body, expected) in cases {
        let header = || Header::parse(&bytes).unwrap();
        let mut first = window(0);
        first.put_header(1, header()).unwrap();
        assert_eq!(
            first.put_body(1, body()).err().map(|error| error.rule()),
            expected
        );
        let mut last = window(0);
        last.put_body(1, body()).unwrap();
        assert_eq!(
            last.put_header(1, header()).err().map(|error| error.rule()),
            expected
        );
    }
}

/// Promise of [`Window::cut`]: dropped bodies come back, and the counts of the rest stay right.
#[test]
fn cutting_gives_the_bodies_back() {
    let mut window = window(0);
    for seq in 1..5 {
        window.put_body(seq, list(&[u64::from(seq)])).unwrap();
    }
    window.put_header(2, header(&[2])).unwrap();
    window.put_header(4, header(&[4])).unwrap();
    assert_eq!(window.cut(3).len(), 2);
    assert_eq!(window.lead(), (0, 1, 16));
    window.put_header(1, header(&[1])).unwrap();
    assert!(window.pop().is_some() && window.pop().is_some());
    assert_eq!((window.lead(), window.header_bytes), ((0, 0, 0), 0));
    assert!(window.cut(0).is_empty());
}
