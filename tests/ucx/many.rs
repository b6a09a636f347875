//! Many streams on one connection (section S): tags and headers that name them, and bodies of
//! streams that nobody wants.

use std::time::{Duration, Instant};

use dipc::arrow::stream::ArrayReader as _;
use dipc::client::{Answer, GetOptions, Pending, Stream};
use dipc::error::Status;
use dipc::proto::{BodyKind, ExpectedBody, Verb, body_tag};
use dipc::server::ServerHandle;
use dipc::transport::{BodyPolicy, Incoming, Outgoing, Payload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::{batch, counting, export, export_schema, in_arena, read_all, schema};
use crate::lending::{arena, lending, server};
use crate::messages::body;
use crate::pair::{Pair, metadata};
use crate::{client, eventually, options, serve, works};

impl Pair {
    /// The next message of the client's, with the number of its stream.
    fn next_of_any(&mut self) -> (u32, Incoming) {
        let start = Instant::now();
        loop {
            assert!(self.server.receive().unwrap().is_none());
            if let Some(message) = self.client.receive().unwrap() {
                return message;
            }
            assert!(start.elapsed().as_secs() < 30, "no message");
        }
    }

    fn next_body(&mut self) -> (u32, u32, usize) {
        match self.next_of_any() {
            (number, Incoming::Body { seq, memory }) => {
                let fill = memory.as_slice().first().copied();
                assert!(fill.is_none_or(|fill| u32::from(fill) == seq));
                (number, seq, memory.len())
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Rule S2: messages of each class name their stream, up to the highest number that a tag has,
/// short and long.
#[test]
fn messages_name_their_streams() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    let highest = (1 << 24) - 1;
    for number in [0, 1, 300, highest] {
        pair.client.begin_stream(number, 0);
        for length in [10, 300_000] {
            let header = Some(vec![7_u8; length].into());
            let prefix = [0, 1, 0, 0, 0];
            let long = Outgoing::Metadata { prefix, header };
            pair.server.queue(number, long).unwrap();
            let (came, message) = pair.next_of_any();
            assert!(matches!(&message, Incoming::Metadata(bytes) if bytes.len() == length + 5));
            assert_eq!(came, number);
        }
        let bytes = vec![0xFF; 50_000];
        let control = Outgoing::Control { bytes, fd: None };
        pair.server.queue(number, control).unwrap();
        let (came, message) = pair.next_of_any();
        assert!(matches!(message, Incoming::Control { .. }), "{message:?}");
        assert_eq!(came, number);
        for (seq, length) in [(1, 100), (2, 3 << 20)] {
            let announced = ExpectedBody::new(seq.into(), length as u64, 32);
            pair.client.post_body(number, announced);
            pair.server.queue(number, body(seq, length)).unwrap();
            assert_eq!(pair.next_body(), (number, seq.into(), length));
        }
    }
}

/// Rule D8: bodies of two streams with the same sequence number are each received for their own,
/// whichever header comes first.
#[test]
fn bodies_find_their_streams() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    for number in [1, 2] {
        pair.client.begin_stream(number, 0);
    }
    pair.server.queue(1, body(5, 1000)).unwrap();
    pair.server.queue(2, body(5, 2000)).unwrap();
    assert!(pair.turn().unwrap().is_none());
    pair.client.post_body(2, ExpectedBody::new(5, 2000, 32));
    assert_eq!(pair.next_body(), (2, 5, 2000));
    pair.client.post_body(1, ExpectedBody::new(5, 1000, 32));
    assert_eq!(pair.next_body(), (1, 5, 1000));
}

/// Rule S3: bodies of a stream that nobody wants any more are handed over without their bytes, so
/// that they can be counted, wherever they have come to; lists have theirs. Those of others are
/// whole.
#[test]
fn unwanted_bodies_come_without_bytes() {
    if !works() {
        return;
    }
    let lengths = [(1, 100), (2, 3 << 20), (3, 4 << 20), (4, 5 << 20)];
    for announced in [true, false] {
        let mut pair = Pair::new();
        for number in [1, 2] {
            pair.client.begin_stream(number, 0);
        }
        for (seq, length) in lengths {
            pair.server.queue(1, body(seq, length)).unwrap();
            pair.server.queue(2, body(seq, length)).unwrap();
            if announced {
                let body = ExpectedBody::new(seq.into(), length as u64, 32);
                pair.client.post_body(1, body);
            }
        }
        // What is being received comes whole.
        pair.client.forget_bodies(1);
        for (seq, length) in lengths {
            let body = ExpectedBody::new(seq.into(), length as u64, 32);
            pair.client.post_body(2, body);
        }
        let late = [1, 4 << 20];
        for length in late {
            pair.server.queue(1, body(9, length)).unwrap();
        }
        let bytes = vec![3; 32];
        let list = Outgoing::Tagged {
            tag: body_tag(8, BodyKind::List),
            payload: Payload::Bytes(bytes.into()),
        };
        pair.server.queue(1, list).unwrap();
        let (mut whole, mut counted, mut lists) = (Vec::new(), 0, 0);
        while whole.len() < lengths.len() || counted < lengths.len() + late.len() || lists == 0 {
            match pair.next_of_any() {
                (1, Incoming::Body { seq, memory }) => {
                    let is_empty = memory.as_slice().is_empty();
                    assert!(is_empty || (announced && seq < 9), "{seq}");
                    counted += 1;
                }
                (1, Incoming::Tagged { tag, bytes }) => {
                    assert_eq!(tag, body_tag(8, BodyKind::List));
                    assert_eq!(bytes[..], [3; 32]);
                    lists += 1;
                }
                (2, Incoming::Body { seq, memory }) => whole.push((seq as u8, memory.len())),
                other => panic!("{other:?}"),
            }
        }
        whole.sort_unstable();
        assert_eq!(whole, lengths);
    }
}

/// Rules D6, S7: a body of a stream that has not begun is refused, and so is a second body of one
/// message.
#[test]
fn bodies_of_no_stream_are_refused() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    pair.client.begin_stream(1, 0);
    pair.server.queue(2, body(1, 100)).unwrap();
    let error = pair.refusal();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains("bits 32 to 55"), "{error}");
    let mut pair = Pair::new();
    for _ in 0..2 {
        pair.server.queue(0, body(1, 100)).unwrap();
    }
    let error = pair.refusal();
    assert!(error.text().contains("two bodies of message 1"), "{error}");
}

/// Requests keep their order, though a long one comes by another way than a short one.
#[test]
fn requests_keep_their_order() {
    if !works() {
        return;
    }
    let mut pair = Pair::new();
    pair.server.send(metadata(0)).unwrap();
    pair.next().unwrap();
    let lengths: Vec<_> = (0..60).map(|at| 1 + at * 7919 % 5 * 100_000).collect();
    for (at, length) in lengths.iter().enumerate() {
        let tag = dipc::proto::Tags::DEFAULT.dipc_want;
        let payload = Payload::Bytes(vec![at as u8; *length].into());
        pair.client
            .queue(0, Outgoing::Tagged { tag, payload })
            .unwrap();
    }
    let start = Instant::now();
    for (at, length) in lengths.into_iter().enumerate() {
        let message = loop {
            assert!(pair.client.receive().unwrap().is_none());
            if let Some(message) = pair.server.receive_any().unwrap() {
                break message;
            }
            assert!(start.elapsed().as_secs() < 30, "no message");
        };
        let Incoming::Tagged { bytes, .. } = message else {
            panic!("{message:?}");
        };
        assert_eq!((bytes[0] as usize, bytes.len()), (at, length));
    }
}

/// Streams that share a connection read lent memory, each its own, and those that are left
/// meanwhile give theirs back.
#[test]
fn lent_memory_of_many_streams_goes_back() {
    if !works() {
        return;
    }
    let arena = arena();
    let (server, uri): (ServerHandle, String) = server(lending(BodyPolicy::Lent));
    let tables: Vec<Vec<_>> = (0..8_i64)
        .map(|table| {
            (0..20)
                .map(|at| batch(table * 1_000_000 + at * 5000, 5000))
                .collect()
        })
        .collect();
    for (number, table) in tables.iter().enumerate() {
        let arrays = table.iter().map(|batch| export(&in_arena(&arena, batch)));
        let ticket = number.to_string();
        let published = server.publish(
            ticket.as_bytes(),
            export_schema(&schema()),
            arrays.collect(),
        );
        published.map_err(|(error, _)| error).unwrap();
    }
    let client = client();
    for _ in 0..3 {
        let ask = |number: usize| -> Pending {
            let ticket = (number % tables.len()).to_string();
            let options = GetOptions::default();
            client
                .start(Verb::Get, &[&uri], ticket.as_bytes(), &options, None)
                .unwrap()
        };
        let asked: Vec<_> = (0..40).map(ask).collect();
        for (number, pending) in asked.into_iter().enumerate() {
            let mut stream = stream(&pending);
            match number % 5 {
                0 => {
                    for _ in 0..number / 5 {
                        stream.next().unwrap().expect("a batch");
                    }
                }
                _ => {
                    let table = &tables[number % tables.len()];
                    assert_eq!(&read_all(&mut stream).unwrap(), table);
                }
            }
        }
        eventually("everything is given back", || {
            let stats = server.stats();
            stats.lent_outstanding == 0 && stats.streams_active == 0
        });
    }
    assert_eq!(client.stats().connections_made, 1);
}

/// Rule S2: a server one of whose tags could be the tag of a body with a number carries one stream
/// on each connection.
#[test]
fn tags_without_room_for_numbers_share_nothing() {
    if !works() {
        return;
    }
    let server = ServerHandle::new(options()).unwrap();
    let want_data = 0x0101_0000_0000_0001_u64;
    let uri = server
        .listen(&format!("ucx://127.0.0.1:0?want_data={want_data}"))
        .unwrap();
    serve(&server, "t", counting(5, 1000));
    let client = client();
    let wanted = GetOptions::default();
    let ask = |_| {
        client
            .start(Verb::Get, &[&uri], b"t", &wanted, None)
            .unwrap()
    };
    let asked: Vec<_> = (0..3).map(ask).collect();
    let mut streams: Vec<_> = asked.iter().map(stream).collect();
    for stream in &mut streams {
        assert_eq!(read_all(stream).unwrap().len(), 5);
    }
    assert_eq!(client.stats().connections_made, 3);
}

fn stream(pending: &Pending) -> Stream {
    loop {
        match pending.try_answer(|_| true).unwrap() {
            Some(Answer::Stream(stream)) => return *stream,
            Some(_) => panic!("an answer of another kind"),
            None => {
                let time = Timespec::try_from(Duration::from_secs(30)).unwrap();
                let mut polled = [PollFd::from_borrowed_fd(
                    pending.fd().unwrap(),
                    PollFlags::IN,
                )];
                assert!(poll(&mut polled, Some(&time)).unwrap() > 0, "no answer");
            }
        }
    }
}
