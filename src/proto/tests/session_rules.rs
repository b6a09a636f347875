//! What the rules of the public protocol, and those of requests, mean at a session.

use super::*;
use crate::proto::testing::{batch, schema};
use crate::proto::{AddressList, OutBody, Prefix, PrefixKind, Selection, Span, encode_frees};

const NOW: Timestamp = Timestamp::from_nanos(0);

fn take(session: &mut TestSession, message: InMessage<Bytes, &'static str>) {
    let handled = hand_in(session, NOW, message).unwrap();
    assert!(matches!(handled, Handled::Done | Handled::Expect(_)));
}

fn message(kind: PrefixKind, seq: u32, header: &[u8]) -> InMessage<Bytes, &'static str> {
    let prefix = Prefix { kind, seq }.encode();
    InMessage::Metadata([&prefix[..], header].concat().into())
}

fn transmits(session: &mut TestSession) -> Vec<Transmit<&'static str>> {
    std::iter::from_fn(|| Some(session.poll_transmit()?.1)).collect()
}

fn lent(length: u64, hold: &'static str) -> OutBody<&'static str, &'static str> {
    let spans = vec![Span {
        address: 64,
        length,
    }];
    OutBody::Lent {
        spans: spans.into(),
        hold,
        in_place: true,
    }
}

/// A server whose client has asked with `request`, and that has sent the schema.
fn serving(request: &Request) -> TestSession {
    let mut session = server_of(true);
    handle_tagged(&mut session, tags().dipc_want, &request.encode());
    assert_eq!(events(&mut session).len(), 1);
    session.first_mut().sender().accept(INFO).unwrap();
    session.first_mut().sender().send_schema(schema()).unwrap();
    session
}

/// A client to whose get the server has answered, with the schema.
fn reading() -> TestSession {
    let mut session = client();
    receives(&mut session, Verb::Get);
    transmits(&mut session);
    control(&mut session, &Control::Stream(INFO, Headers::new())).unwrap();
    take(&mut session, metadata(0));
    events(&mut session);
    session
}

/// Rules M2 to M5: a metadata message is a prefix and a header, numbered from the schema's 0 on;
/// the end is a prefix with the next number.
#[test]
fn metadata_messages_are_numbered_headers() {
    let mut session = serving(&asks_to(Verb::Get));
    let (header, len) = batch(&[]);
    let body = OutBody::Packed { len, payload: "" };
    let sender = session.first_mut().sender();
    sender.send_batch(header.clone(), len, body).unwrap();
    sender.end().unwrap();
    let mut sent = Vec::new();
    for transmit in transmits(&mut session) {
        if let Transmit::Metadata { prefix, header } = transmit {
            sent.push((prefix, header.map(|header| header.to_vec())));
        }
    }
    let expected = [
        ([1, 0, 0, 0, 0], Some(schema())),
        ([1, 1, 0, 0, 0], Some(header)),
        ([0, 2, 0, 0, 0], None),
    ];
    assert_eq!(sent, expected);
}

/// Rules M5, M6: an end that comes before an earlier message waits for that message.
#[test]
fn an_end_waits_for_earlier_messages() {
    let mut session = reading();
    take(&mut session, message(PrefixKind::EndOfStream, 2, &[]));
    assert!(!session.first().incoming().unwrap().is_complete());
    take(
        &mut session,
        message(PrefixKind::Metadata, 1, &batch(&[]).0),
    );
    take(&mut session, body(1, 0));
    let stream = session.first_mut().incoming_mut().unwrap();
    assert_eq!(stream.next_message().unwrap().0.seq, 1);
    assert!(stream.is_complete());
}

/// Rule M7: a header may lie at any address.
#[test]
fn headers_may_be_misaligned() {
    for pad in 0..8 {
        let mut session = client();
        receives(&mut session, Verb::Get);
        control(&mut session, &Control::Stream(INFO, Headers::new())).unwrap();
        let prefix = PrefixKind::Metadata;
        let prefix = Prefix {
            kind: prefix,
            seq: 0,
        }
        .encode();
        let bytes = [&vec![0; pad][..], &prefix, &schema()].concat();
        session
            .handle(NOW, 0, InMessage::Metadata(&bytes[pad..]))
            .unwrap();
        events(&mut session);
        let header = session.first().incoming().unwrap().schema().unwrap();
        assert_eq!(header.bytes(), schema());
    }
}

/// Rules D1 to D4: a body is tagged by its number and its kind, an empty one too; an address list
/// has its total, its count and a pair for each buffer.
#[test]
fn bodies_are_tagged_by_number_and_kind() {
    let mut session = serving(&asks_to(Verb::Get));
    let sender = session.first_mut().sender();
    let (header, len) = batch(&[]);
    let payload = "empty";
    let packed = OutBody::Packed { len, payload };
    sender.send_batch(header, len, packed).unwrap();
    let (header, len) = batch(&[100]);
    sender.send_batch(header, len, lent(100, "hold")).unwrap();
    let bodies = transmits(&mut session).into_iter();
    let bodies = bodies.filter(|it| matches!(it, Transmit::Body { .. } | Transmit::List { .. }));
    let list = [100, 1, 64, 100_u64].map(u64::to_le_bytes).concat();
    let expected = [
        Transmit::Body {
            tag: 1,
            packed: "empty",
        },
        Transmit::List {
            tag: 1 << 56 | 2,
            bytes: list.into(),
        },
    ];
    assert_eq!(bodies.collect::<Vec<_>>(), expected);
}

/// Rule D6: a tag with other bits ends the stream, and so does a tag whose kind is one bit too low.
#[test]
fn tags_with_foreign_bits_are_a_fault() {
    for tag in [1 << 40 | 1, 1 << 55 | 1] {
        let mut session = reading();
        let bytes = AddressList::new(Vec::new()).unwrap().encode();
        take(&mut session, InMessage::Tagged { tag, bytes });
        let error = session.first_mut().incoming_mut().unwrap().error().unwrap();
        assert_eq!(error.rule(), Some("D6"), "{error}");
    }
}

/// Rule D8: a header says which receives its body needs, of either kind.
#[test]
fn a_header_announces_its_body() {
    let mut session = reading();
    let (header, packed) = batch(&[100, 0]);
    let message = message(PrefixKind::Metadata, 1, &header);
    let expected = ExpectedBody::new(1, packed, 16 + 2 * 16);
    let handled = hand_in(&mut session, NOW, message).unwrap();
    assert_eq!(handled, Handled::Expect(expected));
    assert_eq!(events(&mut session), []);
}

/// Rules D7, F1, F3: lent memory is held until the client names its address as often as it was
/// lent. To name it once more is a fault.
#[test]
fn addresses_come_back_as_often_as_they_were_lent() {
    let request = Request {
        features: 0,
        ..asks_to(Verb::Get)
    };
    let mut session = serving(&request);
    let free_data = tags().free_data.unwrap();
    let (header, len) = batch(&[100]);
    for hold in ["first", "second"] {
        let sender = session.first_mut().sender();
        let header = header.clone();
        sender.send_batch(header, len, lent(100, hold)).unwrap();
    }
    assert_eq!(events(&mut session), []);
    handle_tagged(&mut session, free_data, &encode_frees(&[64]));
    assert_eq!(events(&mut session), [SessionEvent::Freed("first")]);
    handle_tagged(&mut session, free_data, &encode_frees(&[64]));
    assert_eq!(events(&mut session), [SessionEvent::Freed("second")]);
    let (tag, bytes) = (free_data, encode_frees(&[64]).into());
    let error = hand_in(&mut session, NOW, InMessage::Tagged { tag, bytes }).unwrap_err();
    assert_eq!(error.rule(), Some("F3"), "{error}");
}

/// Rule F6: a connection that serves only the arrays of its last stream still hears of the peer's
/// memory, and is not ended.
#[test]
fn a_retired_connection_serves_its_arrays() {
    let mut session = reading();
    session.first_mut().retire();
    let gone = Control::RegionGone { id: 7 };
    let handled = control(&mut session, &gone).unwrap();
    assert_eq!(handled, Handled::Memory(Box::new(gone)));
    assert!(!session.nothing_came(None).unwrap());
}

/// Rules M1, E1: a baseline server gets only the ticket, another server gets the whole request.
#[test]
fn the_request_is_the_first_message() {
    for extension in [false, true] {
        let side = SideConfig {
            tags: tags(),
            extension,
        };
        let receiver = Receiver::new(ReceiverConfig::new(asks_to(Verb::Get), side)).unwrap();
        let mut session = client();
        let stream = IncomingStream::new(receiver, true);
        session.first_mut().begin_receiving(NOW, stream).unwrap();
        session.first_mut().incoming_mut().unwrap().start(NOW);
        let (tag, bytes) = match extension {
            true => (tags().dipc_want, asks_to(Verb::Get).encode()),
            false => (tags().want_data, b"t".to_vec()),
        };
        let bytes = bytes.into();
        assert_eq!(transmits(&mut session), [Transmit::Request { tag, bytes }]);
    }
}

/// Rule E6: the requests of a stream with two connections have one stream id.
#[test]
fn both_requests_of_a_stream_name_it() {
    let request = Request {
        stream_id: 77,
        ..asks_to(Verb::Get)
    };
    let side = |role| SideConfig::extended(Tags::default_for(role));
    let config = ReceiverConfig {
        data: Some(side(Role::Data)),
        ..ReceiverConfig::new(request, side(Role::Metadata))
    };
    let mut session = client();
    let stream = IncomingStream::new(Receiver::new(config).unwrap(), true);
    session.first_mut().begin_receiving(NOW, stream).unwrap();
    session.first_mut().incoming_mut().unwrap().start(NOW);
    let mut asked = Vec::new();
    for transmit in transmits(&mut session) {
        if let Transmit::Request { bytes, .. } = transmit {
            asked.push(bytes.to_vec());
        }
    }
    for work in session
        .first_mut()
        .incoming_mut()
        .unwrap()
        .take_bodies_work()
    {
        if let BodiesWork::Request { bytes, .. } = work {
            asked.push(bytes);
        }
    }
    let ids = asked
        .iter()
        .map(|bytes| Request::decode(bytes).unwrap().stream_id);
    assert_eq!(ids.collect::<Vec<_>>(), [77, 77]);
}

/// Rule E4: on a connection whose last stream still comes in, the next request waits for its end.
#[test]
fn a_request_while_a_stream_runs_waits_for_its_end() {
    let mut session = asked(Verb::Put);
    receives(&mut session, Verb::Put);
    session.first_mut().sender().fail(-5, "no").unwrap();
    let stream = session.first_mut().incoming_mut().unwrap();
    stream.cancel();
    stream.leave(NOW, Duration::from_secs(60));
    take(&mut session, metadata(0));
    take(&mut session, message(PrefixKind::EndOfStream, 1, &[]));
    // The host has not read the end.
    handle_tagged(&mut session, tags().dipc_want, &asks_to(Verb::Get).encode());
    assert_eq!(events(&mut session), [SessionEvent::LeftOver]);
    assert!(session.first().has_waiting());
    session.first_mut().end_receiving();
    let waiting = session.first_mut().take_waiting().unwrap();
    assert_eq!(waiting.request.verb, Verb::Get);
    session.first_mut().sender().accept(INFO).unwrap();
}

/// Rules Q1, Q7: each request on a connection comes to the host with its own headers and deadline.
/// Headers of the answer reach the client.
#[test]
fn each_request_has_its_own_headers() {
    let mut session = server_of(true);
    for name in ["ada", "bob"] {
        let mut request = asks_to(Verb::Get);
        request.headers.add("user", name).unwrap();
        request.deadline = Some(Duration::from_secs(5));
        handle_tagged(&mut session, tags().dipc_want, &request.encode());
        let Some((_, SessionEvent::Requested(arrived))) = session.poll_event(|| NOW) else {
            panic!("no request");
        };
        assert_eq!(arrived.request.headers, request.headers);
        assert_eq!(arrived.request.deadline, request.deadline);
        session
            .first_mut()
            .add_answer_headers(&request.headers)
            .unwrap();
        session.first_mut().sender().refuse(-5, "no").unwrap();
        let Some((_, Transmit::Control { bytes, .. })) = session.poll_transmit() else {
            panic!("no answer");
        };
        let stream = IncomingStream::new(
            Receiver::new(ReceiverConfig::new(request, SideConfig::extended(tags()))).unwrap(),
            true,
        );
        let mut client = client();
        client.first_mut().begin_receiving(NOW, stream).unwrap();
        take(&mut client, InMessage::Control(bytes.into()));
        let headers = client.first().incoming().unwrap().answer_headers();
        assert_eq!(headers.get("user"), Some(name.as_bytes()));
    }
}

/// Rule Q6: the answers to describe and list cross as any other stream.
#[test]
fn descriptions_and_lists_are_streams() {
    for verb in [Verb::Describe, Verb::List] {
        let mut session = serving(&asks_to(verb));
        session.first_mut().sender().end().unwrap();
        let sent = transmits(&mut session);
        assert!(matches!(
            &sent[..],
            [
                Transmit::Control { .. },
                Transmit::Metadata { .. },
                Transmit::Metadata { header: None, .. }
            ]
        ));
        assert_eq!(session.first().state(), SenderState::Idle);
    }
}

/// Rule Q12: the host hears of a selection with its request. A client that sends a selection with
/// another verb gets a text, and the host hears nothing.
#[test]
fn a_selection_comes_with_its_request() {
    let selecting = |verb| {
        let mut selection = Selection::default();
        selection.set_rows(5, Some(7));
        Request {
            selection,
            ..asks_to(verb)
        }
    };
    let mut session = server_of(true);
    let request = selecting(Verb::Get);
    handle_tagged(&mut session, tags().dipc_want, &request.encode());
    let Some((_, SessionEvent::Requested(arrived))) = session.poll_event(|| NOW) else {
        panic!("no request");
    };
    assert_eq!(arrived.request.selection, request.selection);

    let mut session = server_of(true);
    let bytes = selecting(Verb::List).encode();
    handle_tagged(&mut session, tags().dipc_want, &bytes);
    assert_eq!(events(&mut session), []);
    assert_eq!(sent(&mut session), ["ERROR"]);
    assert_eq!(session.first().state(), SenderState::Idle);
}
