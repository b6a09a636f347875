//! Rules M1, M4 to M6, D5, D8, U2, E1 to E5 and E7 at the consuming side. `receiver_table.rs` has
//! the table of states and events, and `link.rs` has random schedules against a sender.

use std::time::Duration;

use super::*;
use crate::error::Status;
use crate::proto::StreamInfo;
use crate::proto::testing::{batch, dictionary, schema};
use crate::proto::{
    AddressList, BODY_KIND_LIST, BODY_KIND_PACKED, BodyKind, Bytes, Credit, FEATURE_HEADERS,
    FEATURE_RETURN, Prefix, PrefixKind, Request, Role, Span, Tags, VERSION, Verb, body_tag,
};

#[path = "receiver_networks.rs"]
mod networks;
#[path = "receiver_table.rs"]
mod table;

/// In these tests, the memory of a body is a name.
type TestReceiver = Receiver<&'static str>;

const INFO: StreamInfo = StreamInfo {
    version: VERSION,
    features: 0,
    device_type: 1,
    device_id: -1,
    body_kinds: BODY_KIND_PACKED | BODY_KIND_LIST,
};
const NOW: Timestamp = Timestamp::from_nanos(1_000);
const STALL: Duration = Duration::from_secs(1);

fn config(extension: bool, separate: bool) -> ReceiverConfig {
    let side = |role| SideConfig {
        tags: Tags::default_for(role),
        extension,
    };
    let both = if separate { Role::Metadata } else { Role::Both };
    let credit = Credit {
        batches: 4,
        bytes: 1024,
    };
    ReceiverConfig {
        data: separate.then(|| side(Role::Data)),
        stall_timeout: Some(STALL),
        ..ReceiverConfig::new(Request::new("ticket", credit), side(both))
    }
}

fn started(config: ReceiverConfig) -> TestReceiver {
    let mut receiver = Receiver::new(config).unwrap();
    receiver.start(NOW);
    receiver
}

/// An accepted stream with its schema; outputs drained.
fn streaming(extension: bool, separate: bool) -> TestReceiver {
    let mut receiver = started(config(extension, separate));
    if extension {
        receiver
            .handle_control(NOW, Side::Metadata, &stream())
            .unwrap();
    }
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    drain(&mut receiver);
    receiver
}

/// An accepted stream of a server that does not count the bytes of bodies lent in place.
fn spared() -> TestReceiver {
    let mut receiver = started(config(true, false));
    let info = StreamInfo {
        features: FEATURE_IN_PLACE,
        ..INFO
    };
    receiver
        .handle_control(
            NOW,
            Side::Metadata,
            &Control::Stream(info, Headers::new()).encode(),
        )
        .unwrap();
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    drain(&mut receiver);
    receiver
}

fn drain(receiver: &mut TestReceiver) -> (Vec<ReceiverTransmit>, Vec<ReceiverEvent>) {
    let transmits = std::iter::from_fn(|| receiver.poll_transmit()).collect();
    (
        transmits,
        std::iter::from_fn(|| receiver.poll_event()).collect(),
    )
}

fn stream() -> Vec<u8> {
    Control::Stream(INFO, Headers::new()).encode()
}

fn metadata(seq: u32, header: &[u8]) -> Vec<u8> {
    [
        &Prefix {
            kind: PrefixKind::Metadata,
            seq,
        }
        .encode(),
        header,
    ]
    .concat()
}

fn end(seq: u32) -> Vec<u8> {
    Prefix {
        kind: PrefixKind::EndOfStream,
        seq,
    }
    .encode()
    .to_vec()
}

fn error_at(seq: u32) -> Vec<u8> {
    let status = Status::Provider.code();
    Control::Error {
        status,
        seq,
        text: "out of luck".into(),
        headers: Headers::new(),
    }
    .encode()
}

fn list(address: u64, length: u64) -> Bytes {
    AddressList::new(vec![Span { address, length }])
        .unwrap()
        .encode()
}

/// A record batch of one buffer: 100 bytes, 128 with padding.
fn put_header(receiver: &mut TestReceiver, seq: u32) -> Result<(), Error> {
    receiver.handle_metadata(NOW, &metadata(seq, &batch(&[100]).0))
}

fn put_packed(receiver: &mut TestReceiver, seq: u32) -> Result<(), Error> {
    let body = InBody::Packed {
        len: 128,
        memory: "memory",
    };
    receiver.handle_body(NOW, body_tag(seq, BodyKind::Packed), body)
}

fn put_list(receiver: &mut TestReceiver, seq: u32, address: u64) -> Result<(), Error> {
    let bytes = list(address, 100);
    receiver.handle_body(NOW, body_tag(seq, BodyKind::List), InBody::List(&bytes))
}

fn rule(result: Result<(), Error>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    format!("rule {}", error.rule().unwrap())
}

/// Rules M1, E1: a public peer gets the ticket alone, our server gets our request.
#[test]
fn requests() {
    for (extension, separate) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = config(extension, separate);
        let mut receiver = started(config.clone());
        receiver.start(NOW);
        let expected: Vec<_> = [
            (Side::Metadata, Some(config.metadata)),
            (Side::Data, config.data),
        ]
        .into_iter()
        .filter_map(|(side, config)| config.map(|config| (side, config.tags)))
        .map(|(side, tags)| match extension {
            true => {
                let bytes = config.request.encode();
                ReceiverTransmit::Tagged {
                    side,
                    tag: tags.dipc_want,
                    bytes,
                }
            }
            false => {
                let bytes = b"ticket".to_vec();
                ReceiverTransmit::Tagged {
                    side,
                    tag: tags.want_data,
                    bytes,
                }
            }
        })
        .collect();
        assert_eq!(drain(&mut receiver).0, expected);
    }
}

/// Rules U4, E1: the receiver refuses a configuration that no peer can answer.
#[test]
fn bad_configurations_are_refused() {
    let mut bad = config(true, true);
    bad.data = Some(SideConfig {
        tags: Tags {
            want_data: 1,
            ..Tags::DEFAULT
        },
        extension: false,
    });
    assert_eq!(
        TestReceiver::new(bad).unwrap_err().status(),
        Status::InvalidUri
    );
    let mut bad = config(true, false);
    bad.request.min_version = 4;
    assert_eq!(
        TestReceiver::new(bad).unwrap_err().status(),
        Status::InvalidArgument
    );
}

/// Rule Q1: the receiver keeps the headers of the answers, STREAM's first, and those of one ERROR
/// only. A server may not send headers if the request did not name the feature.
#[test]
fn headers_of_answers_are_kept() {
    let headers = |value: &str| {
        let mut headers = Headers::new();
        headers.add("k", value).unwrap();
        headers
    };
    let mut receiver = started(config(true, false));
    let stream = Control::Stream(INFO, headers("1")).encode();
    receiver
        .handle_control(NOW, Side::Metadata, &stream)
        .unwrap();
    let error = Control::Error {
        status: -1,
        seq: 0,
        text: "no".to_owned(),
        headers: headers("2"),
    };
    receiver
        .handle_control(NOW, Side::Metadata, &error.encode())
        .unwrap_err();
    let values: Vec<_> = receiver.answer_headers().iter().collect();
    assert_eq!(values, [("k", &b"1"[..]), ("k", b"2")]);

    // Further headers would take memory without a limit.
    for _ in 0..2 {
        receiver
            .handle_control(NOW, Side::Metadata, &error.encode())
            .unwrap();
    }
    assert_eq!(receiver.answer_headers().len(), 2);

    let mut receiver = started(config(true, false));
    let later = Control::Error {
        status: -1,
        seq: 9,
        text: "no".to_owned(),
        headers: headers("2"),
    };
    for _ in 0..3 {
        receiver
            .handle_control(NOW, Side::Metadata, &later.encode())
            .unwrap();
    }
    assert_eq!(receiver.answer_headers().len(), 1);

    let mut config = config(true, false);
    config.request.features &= !FEATURE_HEADERS;
    let mut receiver = started(config);
    assert_eq!(
        rule(receiver.handle_control(NOW, Side::Metadata, &stream)),
        "rule Q1"
    );
}

/// Rule Q8: a client takes advice from a server that refuses its request, and from no other.
#[test]
fn a_refusal_advises() {
    let advice = crate::error::Advice {
        elsewhere: vec!["tcp://b:1".to_owned()],
        ..Default::default()
    };
    let refusal = Control::Error {
        status: Status::Busy.code(),
        seq: 0,
        text: "later".to_owned(),
        headers: Headers::of_advice(&advice),
    };
    for accepts in [false, true] {
        let mut receiver = started(config(true, false));
        if accepts {
            let stream = Control::Stream(INFO, Headers::new()).encode();
            receiver
                .handle_control(NOW, Side::Metadata, &stream)
                .unwrap();
        }
        let error = receiver
            .handle_control(NOW, Side::Metadata, &refusal.encode())
            .unwrap_err();
        assert_eq!(error.text(), "the server: later");
        let expected = (!accepts).then_some(&advice);
        assert_eq!(error.advice(), expected);
    }
}

/// Rules Q1 and Q12: a baseline server gets no request with verbs, headers or a selection. The
/// client alone keeps a deadline.
#[test]
fn baseline_servers_are_asked_for_tables_alone() {
    let mut asked = config(false, false);
    asked.request.deadline = Some(Duration::from_secs(1));
    TestReceiver::new(asked.clone()).unwrap();
    asked.request.verb = Verb::Put;
    let error = TestReceiver::new(asked).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    let mut asked = config(false, false);
    asked.request.headers.add("k", "v").unwrap();
    let error = TestReceiver::new(asked).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
    let mut asked = config(false, false);
    asked.request.selection.set_rows(1, None);
    let error = TestReceiver::new(asked).unwrap_err();
    assert_eq!(error.status(), Status::Unsupported);
}

/// Rule Q12: a client refuses a selection for a verb other than get, and sends no request.
#[test]
fn a_selection_goes_with_a_get_alone() {
    let mut asked = config(true, false);
    asked.request.selection.set_rows(1, None);
    TestReceiver::new(asked.clone()).unwrap();
    asked.request.verb = Verb::Describe;
    let error = TestReceiver::new(asked).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
}

/// Rule Q1: past its deadline the stream ends with a timeout, and the server gets a CANCEL; also
/// while messages wait for the consumer.
#[test]
fn a_stream_ends_at_its_deadline() {
    for waiting in [false, true] {
        let mut asked = config(true, false);
        asked.stall_timeout = None;
        // Connecting has taken some of the time that the program gave.
        asked.request.deadline = Some(Duration::from_secs(3));
        asked.given_deadline = Some(Duration::from_secs(4));
        let mut receiver = started(asked);
        receiver
            .handle_control(NOW, Side::Metadata, &stream())
            .unwrap();
        receiver
            .handle_metadata(NOW, &metadata(0, &schema()))
            .unwrap();
        if waiting {
            put_header(&mut receiver, 1).unwrap();
            put_packed(&mut receiver, 1).unwrap();
        }
        drain(&mut receiver);
        let deadline = NOW.saturating_add(Duration::from_secs(3));
        assert_eq!(receiver.poll_timeout(), Some(deadline));
        receiver.handle_timeout(deadline);
        let error = receiver.error().unwrap();
        assert_eq!(error.status(), Status::Timeout);
        assert!(error.text().contains("deadline of 4s"), "{error}");
        let (transmits, _) = drain(&mut receiver);
        assert!(
            transmits.iter().any(|transmit| matches!(
                transmit,
                ReceiverTransmit::Control { bytes, .. }
                    if matches!(Control::decode(bytes), Ok(Some(Control::Cancel { .. })))
            )),
            "{transmits:?}"
        );
    }
}

/// Rule E2: the answer counts before the schema, even if a transport delivers it later.
#[test]
fn nothing_is_handed_out_before_the_answer() {
    let mut receiver = started(config(true, false));
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    put_header(&mut receiver, 1).unwrap();
    put_packed(&mut receiver, 1).unwrap();
    receiver.handle_metadata(NOW, &end(2)).unwrap();
    assert_eq!(receiver.state(), ReceiverState::Requested);
    assert!(receiver.next_message().is_none());
    drain(&mut receiver);
    receiver
        .handle_control(NOW, Side::Metadata, &stream())
        .unwrap();
    let (_, events) = drain(&mut receiver);
    assert!(matches!(
        events[..],
        [ReceiverEvent::Stream { .. }, ReceiverEvent::Schema(_)]
    ));
    assert_eq!(receiver.state(), ReceiverState::Ended);
    assert_eq!(receiver.next_message().unwrap().seq, 1);
    assert!(receiver.is_complete() && receiver.is_over_on_wire());
}

/// Rule E2: an answer outside the limits of the request.
#[test]
fn answers_keep_to_the_request() {
    for info in [
        StreamInfo { version: 4, ..INFO },
        StreamInfo {
            features: 4,
            ..INFO
        },
    ] {
        let mut receiver = started(config(true, false));
        let bytes = Control::Stream(info, Headers::new()).encode();
        assert_eq!(
            rule(receiver.handle_control(NOW, Side::Metadata, &bytes)),
            "rule E2"
        );
    }
    let mut receiver = streaming(true, false);
    assert_eq!(
        rule(receiver.handle_control(NOW, Side::Metadata, &stream())),
        "rule E2"
    );
    // Bodies have the kinds that the answer named.
    let mut receiver = started(config(true, false));
    let info = StreamInfo {
        body_kinds: BODY_KIND_PACKED,
        ..INFO
    };
    let bytes = Control::Stream(info, Headers::new()).encode();
    receiver
        .handle_control(NOW, Side::Metadata, &bytes)
        .unwrap();
    put_packed(&mut receiver, 1).unwrap();
    assert_eq!(rule(put_list(&mut receiver, 2, 64)), "rule E2");
}

/// Rule D8: a header before its body names the receives to post; a header after its body does not.
#[test]
fn bodies_are_expected_once() {
    let mut receiver = streaming(false, false);
    put_header(&mut receiver, 2).unwrap();
    put_packed(&mut receiver, 1).unwrap();
    put_header(&mut receiver, 1).unwrap();
    let (_, events) = drain(&mut receiver);
    assert!(matches!(
        events[..],
        [ReceiverEvent::Expect(ExpectedBody {
            seq: 2,
            packed: 128,
            list: 32
        })]
    ));
}

/// Rule U2: without free_data no list may come. Rule D2: the tag names the kind of the body.
#[test]
fn kinds_of_bodies_are_checked() {
    let mut config = config(false, false);
    config.metadata.tags.free_data = None;
    let mut receiver = started(config);
    assert_eq!(rule(put_list(&mut receiver, 1, 64)), "rule U2");
    for (kind, packed) in [(BodyKind::Packed, false), (BodyKind::List, true)] {
        let mut receiver = streaming(false, false);
        let bytes = list(64, 100);
        let body = match packed {
            true => InBody::Packed {
                len: 128,
                memory: "memory",
            },
            false => InBody::List(&bytes),
        };
        assert_eq!(
            rule(receiver.handle_body(NOW, body_tag(1, kind), body)),
            "rule D2"
        );
    }
    let mut receiver = streaming(false, false);
    assert_eq!(
        rule(receiver.handle_body(NOW, 1 << 55, InBody::List(&[]))),
        "rule D6"
    );
}

/// Rule M6: a stream is complete when its end and all earlier messages have come. A missing body
/// keeps the stream open.
#[test]
fn the_end_waits_for_what_is_missing() {
    for separate in [false, true] {
        let mut receiver = streaming(false, separate);
        receiver.handle_metadata(NOW, &end(3)).unwrap();
        put_packed(&mut receiver, 2).unwrap();
        put_header(&mut receiver, 1).unwrap();
        put_header(&mut receiver, 2).unwrap();
        assert_eq!(receiver.state(), ReceiverState::Streaming);
        assert_eq!(receiver.batches_here(), 0);
        assert!(receiver.next_message().is_none());
        put_list(&mut receiver, 1, 64).unwrap();
        assert_eq!(receiver.state(), ReceiverState::Ended);
        assert_eq!(receiver.batches_here(), 2);
        let first = receiver.next_message().unwrap();
        assert_eq!(receiver.batches_here(), 1);
        assert_eq!(
            (first.seq, first.body),
            (
                1,
                Body::Lent(vec![Span {
                    address: 64,
                    length: 100
                }])
            )
        );
        assert!(!receiver.is_complete());
        assert_eq!(
            receiver.next_message().unwrap().body,
            Body::Packed("memory")
        );
        assert!(receiver.is_complete());
    }
}

/// Rule A5: a schema alone is a complete stream.
#[test]
fn a_schema_alone_is_a_stream() {
    let mut receiver = streaming(true, false);
    receiver.handle_metadata(NOW, &end(1)).unwrap();
    assert!(receiver.is_complete() && receiver.poll_timeout().is_none());
}

fn credits(receiver: &mut TestReceiver) -> Vec<(Side, Credit)> {
    drain(receiver)
        .0
        .into_iter()
        .filter_map(|transmit| match transmit {
            ReceiverTransmit::Control { side, bytes } => match Control::decode(&bytes) {
                Ok(Some(Control::Credit { credit, .. })) => Some((side, credit)),
                other => panic!("{other:?}"),
            },
            ReceiverTransmit::Tagged { .. } => None,
        })
        .collect()
}

/// Rule E5: credit counts taken messages, in totals. Both connections get it when half the window
/// is free, or when the consumer is about to sleep.
#[test]
fn credit_counts_what_was_taken() {
    for separate in [false, true] {
        let mut receiver = streaming(true, separate);
        for seq in 1..5 {
            put_header(&mut receiver, seq).unwrap();
            put_packed(&mut receiver, seq).unwrap();
        }
        receiver.flush_credit();
        assert_eq!(credits(&mut receiver), []);
        let both = |batches, bytes| {
            let credit = Credit { batches, bytes };
            let mut expected = vec![(Side::Metadata, credit)];
            expected.extend(separate.then_some((Side::Data, credit)));
            expected
        };
        receiver.next_message().unwrap();
        assert_eq!(credits(&mut receiver), []);
        receiver.next_message().unwrap();
        assert_eq!(credits(&mut receiver), both(6, 1024 + 256));
        receiver.next_message().unwrap();
        receiver.flush_credit();
        receiver.flush_credit();
        assert_eq!(credits(&mut receiver), both(7, 1024 + 384));
    }
    // A public peer gets no credit.
    let mut receiver = streaming(false, false);
    put_header(&mut receiver, 1).unwrap();
    put_packed(&mut receiver, 1).unwrap();
    receiver.next_message().unwrap();
    receiver.flush_credit();
    assert_eq!(drain(&mut receiver).0, []);
}

/// Rule E5: half of the window's bytes count like half of its batches; a dictionary uses bytes.
#[test]
fn dictionaries_are_credited_by_their_bytes() {
    let mut receiver = streaming(true, false);
    let (header, len) = dictionary(&[512]);
    receiver
        .handle_metadata(NOW, &metadata(1, &header))
        .unwrap();
    let body = InBody::Packed {
        len,
        memory: "memory",
    };
    receiver.handle_body(NOW, 1, body).unwrap();
    receiver.next_message().unwrap();
    assert_eq!(
        credits(&mut receiver),
        [(
            Side::Metadata,
            Credit {
                batches: 4,
                bytes: 1536
            }
        )]
    );
}

/// Rule E5, feature in place: a peer that the limit of bytes did not stop gets credit by batches
/// alone. Another peer gets credit at half the window's bytes.
#[test]
fn what_is_lent_in_place_is_credited_by_batches() {
    for (arrived, told_after) in [(2, 1), (4, 2)] {
        let mut receiver = spared();
        for seq in 1..=arrived {
            let header = metadata(seq, &batch(&[512]).0);
            receiver.handle_metadata(NOW, &header).unwrap();
            let (tag, bytes) = (body_tag(seq, BodyKind::List), list(0x1000, 512));
            (receiver.handle_body(NOW, tag, InBody::List(&bytes))).unwrap();
        }
        for taken in 1..=told_after {
            assert_eq!(
                credits(&mut receiver),
                [],
                "{arrived} arrived, {taken} taken"
            );
            receiver.next_message().unwrap();
        }
        let (batches, bytes) = (4 + told_after, 1024 + 512 * told_after);
        let credit = Credit { batches, bytes };
        assert_eq!(credits(&mut receiver), [(Side::Metadata, credit)]);
    }
}

/// Rule E5: a peer that sends without credit is at fault. A peer that uses its last byte, or sends
/// one message of any size when nothing is outstanding, is not.
#[test]
fn sending_without_credit_is_an_error() {
    let mut receiver = streaming(true, false);
    for seq in 1..5 {
        put_header(&mut receiver, seq).unwrap();
    }
    assert_eq!(rule(put_header(&mut receiver, 5)), "rule E5");

    let mut receiver = streaming(true, false);
    let big = |seq| metadata(seq, &batch(&[4096]).0);
    receiver.handle_metadata(NOW, &big(1)).unwrap();
    assert_eq!(rule(receiver.handle_metadata(NOW, &big(2))), "rule E5");

    let mut receiver = streaming(true, false);
    for seq in 1..4 {
        receiver.handle_metadata(NOW, &big(seq)).unwrap();
        receiver
            .handle_body(
                NOW,
                u64::from(seq),
                InBody::Packed {
                    len: 4096,
                    memory: "m",
                },
            )
            .unwrap();
        receiver.next_message().unwrap();
    }
    // Feature in place: headers may pass the window of bytes, packed bodies may not.
    let mut receiver = spared();
    for seq in 1..4 {
        receiver.handle_metadata(NOW, &big(seq)).unwrap();
    }
    let body = InBody::Packed {
        len: 4096,
        memory: "m",
    };
    receiver.handle_body(NOW, 1, body).unwrap();
    let body = InBody::Packed {
        len: 4096,
        memory: "m",
    };
    assert_eq!(rule(receiver.handle_body(NOW, 2, body)), "rule E5");

    // A public peer counts no credit: the driver stops reading instead.
    let mut receiver = streaming(false, false);
    for seq in 1..100 {
        assert_eq!(receiver.may_read(Side::Metadata), seq <= 4);
        put_header(&mut receiver, seq).unwrap();
        put_packed(&mut receiver, seq).unwrap();
    }
}

/// Promise of `may_read`: no connection runs far ahead of the other.
#[test]
fn neither_connection_runs_far_ahead() {
    let mut receiver = streaming(false, true);
    for seq in 1..6 {
        assert!(receiver.may_read(Side::Metadata));
        put_header(&mut receiver, seq).unwrap();
    }
    assert!(!receiver.may_read(Side::Metadata) && receiver.may_read(Side::Data));
    let mut receiver = streaming(false, true);
    for seq in 1..10 {
        assert_eq!(receiver.may_read(Side::Data), seq <= 5);
        put_packed(&mut receiver, seq).unwrap();
    }
    assert!(receiver.may_read(Side::Metadata));
}

/// Promise of [`Receiver`]: a failure that the server announces comes after the messages before its
/// number.
#[test]
fn an_announced_failure_comes_in_order() {
    let mut receiver = streaming(true, false);
    put_header(&mut receiver, 1).unwrap();
    receiver
        .handle_control(NOW, Side::Metadata, &error_at(3))
        .unwrap();
    put_header(&mut receiver, 2).unwrap();
    put_list(&mut receiver, 1, 64).unwrap();
    put_list(&mut receiver, 2, 256).unwrap();
    // A message from the ERROR's number on does not count, but its body is freed.
    put_list(&mut receiver, 4, 512).unwrap();
    assert_eq!(receiver.abandoned(), [Return::Addresses(vec![512])]);
    assert_eq!(receiver.next_message().unwrap().seq, 1);
    assert_eq!(
        (receiver.state(), receiver.error()),
        (ReceiverState::Streaming, None)
    );
    assert_eq!(receiver.next_message().unwrap().seq, 2);
    assert_eq!(receiver.state(), ReceiverState::Failed);
    let error = receiver.error().unwrap();
    assert_eq!(
        (error.status(), error.text()),
        (Status::Provider, "the server: out of luck")
    );
    // Rule E4: the connection may carry the next stream.
    assert!(receiver.is_over_on_wire() && receiver.abandoned().is_empty());
}

/// Promise of [`Receiver`]: if both connections send ERROR, the first ERROR gives the reason and
/// the lowest number counts.
#[test]
fn of_two_failures_the_first_says_why() {
    let mut receiver = streaming(true, true);
    put_header(&mut receiver, 1).unwrap();
    put_list(&mut receiver, 1, 64).unwrap();
    put_header(&mut receiver, 2).unwrap();
    drain(&mut receiver);
    receiver
        .handle_control(NOW, Side::Metadata, &error_at(3))
        .unwrap();
    let status = Status::Cancelled.code();
    let other = Control::Error {
        status,
        seq: 2,
        text: "too".into(),
        headers: Headers::new(),
    }
    .encode();
    receiver.handle_control(NOW, Side::Data, &other).unwrap();
    assert_eq!(drain(&mut receiver).0, []);
    assert_eq!(receiver.next_message().unwrap().seq, 1);
    let error = receiver.error().unwrap();
    assert_eq!(error.text(), "the server: out of luck");
    assert_eq!(error.cause().unwrap().text(), "out of luck");
}

/// Rule E4: if earlier messages are already taken, ERROR fails the stream at once, and the other
/// connection gets CANCEL.
#[test]
fn an_error_on_one_connection_cancels_the_other() {
    for (side, other) in [(Side::Metadata, Side::Data), (Side::Data, Side::Metadata)] {
        let mut receiver = streaming(true, true);
        let error = receiver
            .handle_control(NOW, side, &error_at(1))
            .unwrap_err();
        assert_eq!(error.status(), Status::Provider);
        assert_eq!(receiver.state(), ReceiverState::Failed);
        let bytes = Control::Cancel { stream: 0 }.encode();
        assert_eq!(
            drain(&mut receiver).0,
            [ReceiverTransmit::Control { side: other, bytes }]
        );
    }
}

/// Rule E7: a public peer refuses by a cut, and the text gives the possible reason. A cut after
/// ERROR adds nothing to ERROR.
#[test]
fn cuts_say_what_they_can() {
    let cut = Error::disconnected("end of file");
    let text = |receiver: &TestReceiver| receiver.error().unwrap().text().to_owned();
    let mut receiver = started(config(false, false));
    receiver.handle_disconnect(Side::Metadata, &cut);
    assert!(
        text(&receiver).contains("ticket may be unknown"),
        "{}",
        text(&receiver)
    );
    assert_eq!(receiver.error().unwrap().status(), Status::Disconnected);

    let mut receiver = streaming(true, false);
    receiver.handle_disconnect(Side::Metadata, &cut);
    assert_eq!(
        text(&receiver),
        "the connection ended before the stream did: end of file"
    );

    let mut receiver = streaming(true, false);
    put_header(&mut receiver, 1).unwrap();
    receiver
        .handle_control(NOW, Side::Metadata, &error_at(2))
        .unwrap();
    receiver.handle_disconnect(Side::Metadata, &cut);
    assert_eq!(text(&receiver), "the server: out of luck");
}

/// Promise of `handle_disconnect`: a complete stream stays valid. Separate bodies may still come
/// once the metadata is complete.
#[test]
fn a_cut_after_the_end_changes_nothing() {
    let cut = Error::disconnected("end of file");
    let mut receiver = streaming(true, false);
    put_header(&mut receiver, 1).unwrap();
    put_packed(&mut receiver, 1).unwrap();
    receiver.handle_metadata(NOW, &end(2)).unwrap();
    receiver.handle_disconnect(Side::Metadata, &cut);
    assert!(receiver.next_message().is_some() && receiver.is_complete());

    let mut receiver = streaming(true, true);
    put_header(&mut receiver, 1).unwrap();
    receiver.handle_metadata(NOW, &end(2)).unwrap();
    receiver.handle_disconnect(Side::Metadata, &cut);
    assert_eq!(receiver.state(), ReceiverState::Streaming);
    put_packed(&mut receiver, 1).unwrap();
    assert_eq!(receiver.state(), ReceiverState::Ended);
}

/// Rules E4, F3: CANCEL is sent once. Unseen lent bodies are freed, also later ones. The answer
/// makes the connection free for the next stream.
#[test]
fn cancelling_frees_what_nobody_will_see() {
    for answer in [true, false] {
        let mut receiver = streaming(true, false);
        put_header(&mut receiver, 1).unwrap();
        put_list(&mut receiver, 1, 64).unwrap();
        put_list(&mut receiver, 2, 256).unwrap();
        receiver.cancel();
        receiver.cancel();
        let bytes = Control::Cancel { stream: 0 }.encode();
        let cancel = ReceiverTransmit::Control {
            side: Side::Metadata,
            bytes,
        };
        let (transmits, events) = drain(&mut receiver);
        assert_eq!(transmits, [cancel]);
        assert!(events.is_empty() && receiver.next_message().is_none());
        let mut abandoned = receiver.abandoned();
        abandoned.sort_unstable_by_key(|body| format!("{body:?}"));
        let one = |address| Return::Addresses(vec![address]);
        assert_eq!(abandoned, [256, 64].map(one));
        put_header(&mut receiver, 3).unwrap();
        put_list(&mut receiver, 3, 512).unwrap();
        assert_eq!(receiver.abandoned(), [Return::Addresses(vec![512])]);
        assert!(!receiver.is_over_on_wire());
        match answer {
            true => receiver
                .handle_control(NOW, Side::Metadata, &error_at(4))
                .unwrap(),
            false => receiver.handle_metadata(NOW, &end(4)).unwrap(),
        }
        assert!(receiver.is_over_on_wire());
        assert_eq!(receiver.error().unwrap().status(), Status::Cancelled);
    }
}

/// Promise of `cancel`: no CANCEL is sent for a stream that has ended on the wire or was never
/// requested, since it could be taken for the next stream's.
#[test]
fn what_is_over_on_the_wire_is_not_cancelled_there() {
    let mut receiver = streaming(true, true);
    put_header(&mut receiver, 1).unwrap();
    receiver.handle_metadata(NOW, &end(2)).unwrap();
    drain(&mut receiver);
    receiver.cancel();
    let bytes = Control::Cancel { stream: 0 }.encode();
    assert_eq!(
        drain(&mut receiver).0,
        [ReceiverTransmit::Control {
            side: Side::Data,
            bytes
        }]
    );
    let mut receiver = TestReceiver::new(config(true, false)).unwrap();
    receiver.cancel();
    receiver.start(NOW);
    assert_eq!(drain(&mut receiver).0, []);
}

/// Rule E3: regions belong to the connection: every state acknowledges a retired region.
#[test]
fn regions_are_acknowledged_in_every_state() {
    let mut receiver = streaming(true, false);
    receiver.cancel();
    drain(&mut receiver);
    let region = Control::Region {
        id: 3,
        handle: vec![1],
    }
    .encode();
    receiver
        .handle_control(NOW, Side::Metadata, &region)
        .unwrap();
    let gone = Control::RegionGone { id: 3 }.encode();
    receiver.handle_control(NOW, Side::Metadata, &gone).unwrap();
    let (transmits, _) = drain(&mut receiver);
    let bytes = Control::RegionForgotten { id: 3 }.encode();
    assert_eq!(
        transmits,
        [ReceiverTransmit::Control {
            side: Side::Metadata,
            bytes
        }]
    );
}

/// Promise of `waits`: time before the consumer waits does not count as the server's silence. From
/// then on, silence takes the stall timeout once.
#[test]
fn silence_is_counted_from_when_the_consumer_waits() {
    let later = |by| NOW.saturating_add(by);
    let mut receiver = streaming(true, false);
    for seq in [1, 2] {
        put_header(&mut receiver, seq).unwrap();
        put_packed(&mut receiver, seq).unwrap();
    }
    receiver.next_message().unwrap();
    // The consumer does not wait: another message is ready.
    receiver.waits(later(STALL * 3));
    receiver.next_message().unwrap();
    receiver.waits(later(STALL * 5));
    assert_eq!(receiver.poll_timeout(), Some(later(STALL * 6)));
    // The consumer still waits.
    receiver.waits(later(STALL * 6));
    receiver.handle_timeout(later(STALL * 6));
    assert_eq!(receiver.error().unwrap().status(), Status::Timeout);
}

/// Promise of the stall timeout: a message that does not advance the stream does not extend the
/// timeout, however often it comes.
#[test]
fn what_says_nothing_is_silence() {
    let later = |by| NOW.saturating_add(by);
    let idle: [(&str, Vec<u8>); 4] = [
        ("unknown", vec![200]),
        ("GOAWAY", Control::GoAway.encode()),
        ("PENDING", Control::Pending { stream: 0 }.encode()),
        (
            "REGION",
            Control::Region {
                id: 1,
                handle: Vec::new(),
            }
            .encode(),
        ),
    ];
    for (name, bytes) in idle {
        let mut receiver = streaming(true, false);
        receiver
            .handle_control(NOW, Side::Metadata, &bytes)
            .unwrap();
        receiver
            .handle_control(later(STALL / 2), Side::Metadata, &bytes)
            .unwrap();
        assert_eq!(receiver.poll_timeout(), Some(later(STALL)), "{name}");
    }
    // Messages after the ERROR's number do not extend the timeout either.
    let mut receiver = streaming(true, false);
    let error = error_at(2);
    receiver
        .handle_control(NOW, Side::Metadata, &error)
        .unwrap();
    let half = later(STALL / 2);
    receiver
        .handle_metadata(half, &metadata(3, &batch(&[8]).0))
        .unwrap();
    receiver
        .handle_control(half, Side::Metadata, &error)
        .unwrap();
    assert_eq!(receiver.poll_timeout(), Some(later(STALL)));
}

/// Promise of `connect_timeout`: it limits the wait for the first answer, which is PENDING if
/// STREAM takes longer.
#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let later = |by| NOW.saturating_add(by);
    let limit = AnswerLimit {
        by: later(STALL / 2),
        timeout: STALL / 2,
    };
    let of = |separate, stall_timeout| ReceiverConfig {
        answer: Some(limit),
        stall_timeout,
        ..config(true, separate)
    };
    let told = |receiver: &mut TestReceiver, at| {
        receiver.handle_timeout(at);
        receiver.error().map(|error| error.text().to_owned())
    };
    let mut receiver = started(of(false, None));
    assert_eq!(receiver.poll_timeout(), Some(limit.by));
    // PENDING of an earlier stream, and a message that is no answer.
    for bytes in [Control::Pending { stream: 7 }.encode(), vec![200]] {
        receiver
            .handle_control(NOW, Side::Metadata, &bytes)
            .unwrap();
    }
    let text = told(&mut receiver, limit.by).unwrap();
    assert!(text.contains("has not answered within 500ms"), "{text}");

    for answer in [Control::Pending { stream: 0 }.encode(), stream()] {
        let mut receiver = started(of(false, None));
        receiver
            .handle_control(NOW, Side::Metadata, &answer)
            .unwrap();
        assert_eq!(receiver.poll_timeout(), None);
        // After the answer, only the stall timeout counts.
        let mut receiver = started(of(false, Some(STALL)));
        receiver
            .handle_control(NOW, Side::Metadata, &answer)
            .unwrap();
        assert_eq!(told(&mut receiver, limit.by), None);
        let text = told(&mut receiver, later(STALL)).unwrap();
        assert!(text.contains("has sent nothing for 1s"), "{text}");
    }
    // Both servers of a stream must answer, even if the schema has come.
    let mut receiver = started(of(true, None));
    receiver
        .handle_control(NOW, Side::Metadata, &stream())
        .unwrap();
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    assert_eq!(receiver.poll_timeout(), Some(limit.by));
    receiver.handle_control(NOW, Side::Data, &stream()).unwrap();
    assert_eq!(receiver.poll_timeout(), None);
}

/// Promise of `poll_timeout`: silence counts from the last message, but not while messages wait for
/// the consumer, and not before the consumer made room.
#[test]
fn silence_is_an_error_while_the_consumer_waits() {
    let later = |by| NOW.saturating_add(by);
    let mut receiver = streaming(true, false);
    assert_eq!(receiver.poll_timeout(), Some(later(STALL)));
    receiver.handle_timeout(later(STALL / 2));
    assert_eq!(receiver.state(), ReceiverState::Streaming);
    put_header(&mut receiver, 1).unwrap();
    put_packed(&mut receiver, 1).unwrap();
    assert_eq!(receiver.poll_timeout(), None);
    receiver.handle_timeout(later(STALL * 9));
    receiver.next_message().unwrap();
    receiver.handle_timeout(later(STALL * 9));
    assert_eq!(receiver.state(), ReceiverState::Streaming);
    assert_eq!(receiver.poll_timeout(), Some(later(STALL * 10)));
    drain(&mut receiver);
    receiver.handle_timeout(later(STALL * 10));
    let error = receiver.error().unwrap();
    assert_eq!(
        (error.status(), receiver.poll_timeout()),
        (Status::Timeout, None)
    );
    // The server gets CANCEL.
    let bytes = Control::Cancel { stream: 0 }.encode();
    assert_eq!(
        drain(&mut receiver).0,
        [ReceiverTransmit::Control {
            side: Side::Metadata,
            bytes
        }]
    );
}

/// Feature return: an unseen lent body goes back by its number. If the body came before the answer,
/// on a transport without order, it goes back after the answer.
#[test]
fn bodies_go_back_by_number_where_the_server_takes_that() {
    let mut receiver = started(config(true, false));
    receiver.cancel();
    put_list(&mut receiver, 1, 64).unwrap();
    assert_eq!(receiver.abandoned(), []);
    let info = StreamInfo {
        features: FEATURE_RETURN,
        ..INFO
    };
    let accepted = Control::Stream(info, Headers::new()).encode();
    receiver
        .handle_control(NOW, Side::Metadata, &accepted)
        .unwrap();
    let number = |seq| Return::Number {
        number: 0,
        stream: 0,
        seq,
    };
    assert_eq!(receiver.abandoned(), [number(1)]);
    put_list(&mut receiver, 2, 256).unwrap();
    assert_eq!(receiver.abandoned(), [number(2)]);
    let spans = |length| {
        [Span {
            address: 64,
            length,
        }]
    };
    assert_eq!(receiver.to_return(3, &spans(1)), Some(number(3)));
    assert_eq!(receiver.to_return(3, &spans(0)), None);
}

/// Feature repeat: a message may repeat the header before it, if both ends support this.
#[test]
fn a_header_may_be_that_of_the_message_before() {
    let repeat = |seq| {
        let kind = PrefixKind::Repeat;
        Prefix { kind, seq }.encode()
    };
    let mut config = config(true, false);
    config.request.features |= FEATURE_REPEAT;
    let accepted = |features| {
        let mut receiver = started(config.clone());
        let answer = Control::Stream(StreamInfo { features, ..INFO }, Headers::new()).encode();
        receiver
            .handle_control(NOW, Side::Metadata, &answer)
            .unwrap();
        receiver
    };
    let mut receiver = accepted(FEATURE_REPEAT);
    assert_eq!(rule(receiver.handle_metadata(NOW, &repeat(0))), "rule M3");
    let mut receiver = accepted(FEATURE_REPEAT);
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    put_header(&mut receiver, 1).unwrap();
    receiver.handle_metadata(NOW, &repeat(2)).unwrap();
    for seq in [1, 2] {
        put_packed(&mut receiver, seq).unwrap();
        let message = receiver.next_message().unwrap();
        assert_eq!(
            (message.seq, message.header.bytes()),
            (seq, &batch(&[100]).0[..])
        );
    }
    // Rule M3: a repeated header is a prefix and nothing else.
    let longer = [&repeat(3)[..], &[0]].concat();
    assert_eq!(rule(receiver.handle_metadata(NOW, &longer)), "rule M3");
    // The server did not name the feature.
    let mut receiver = accepted(0);
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    put_header(&mut receiver, 1).unwrap();
    assert_eq!(rule(receiver.handle_metadata(NOW, &repeat(2))), "rule M3");
}

/// Rule E2: a lent body waits for the answer of its connection, which tells how the body goes back.
#[test]
fn lent_bodies_wait_for_the_answer_of_their_connection() {
    let mut receiver = started(config(true, true));
    receiver
        .handle_control(NOW, Side::Metadata, &stream())
        .unwrap();
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    put_header(&mut receiver, 1).unwrap();
    put_list(&mut receiver, 1, 64).unwrap();
    assert!(receiver.next_message().is_none());
    // A server that never answers has stalled.
    assert!(receiver.poll_timeout().is_some());
    let accepted = Control::Stream(
        StreamInfo {
            features: FEATURE_RETURN,
            ..INFO
        },
        Headers::new(),
    );
    receiver
        .handle_control(NOW, Side::Data, &accepted.encode())
        .unwrap();
    assert_eq!(receiver.next_message().unwrap().seq, 1);
}

/// Rule E2, after all headers have come: the stream waits for the answer of the bodies' connection,
/// and fails if that connection ends first.
#[test]
fn a_stream_whose_bodies_were_never_accepted_does_not_wait_for_ever() {
    let mut receiver = started(config(true, true));
    receiver
        .handle_control(NOW, Side::Metadata, &stream())
        .unwrap();
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    put_header(&mut receiver, 1).unwrap();
    put_list(&mut receiver, 1, 64).unwrap();
    receiver.handle_metadata(NOW, &end(2)).unwrap();
    assert_eq!(receiver.state(), ReceiverState::Ended);
    assert!(receiver.is_held_up() && receiver.next_message().is_none());
    assert!(receiver.poll_timeout().is_some() && receiver.may_read(Side::Data));
    receiver.handle_disconnect(Side::Data, &Error::disconnected("gone"));
    assert_eq!(receiver.error().unwrap().status(), Status::Disconnected);
}

/// Rule A8: a body past the limit is refused as soon as its header has come, before it is posted.
/// The server hears of the end, and has broken no rule.
#[test]
fn a_body_past_its_limit_is_refused_by_its_header() {
    for extension in [true, false] {
        let mut receiver = streaming(extension, false);
        receiver.limit_messages(999, 0);
        let (header, len) = batch(&[900]);
        assert!(len < 999);
        receiver
            .handle_metadata(NOW, &metadata(1, &header))
            .unwrap();
        drain(&mut receiver);
        let (header, len) = dictionary(&[1000]);
        assert!(len > 999);
        let error = receiver
            .handle_metadata(NOW, &metadata(2, &header))
            .unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.text().contains("message_limit_bytes"), "{error}");
        assert_eq!(receiver.state(), ReceiverState::Failed);
        assert!(!receiver.is_peer_at_fault());
        let (transmits, events) = drain(&mut receiver);
        assert!(events.is_empty(), "{events:?}");
        assert_eq!(transmits.len(), usize::from(extension), "{transmits:?}");
    }
}

/// Rule A8: dictionaries without bytes use no credit, and the headers of those that wait for the
/// consumer or for their bodies have a limit. What the consumer takes makes room.
#[test]
fn headers_that_wait_for_the_consumer_have_a_limit() {
    let (header, len) = dictionary(&vec![0; 100_000]);
    assert_eq!(len, 0);
    let rounds = (64 << 20) / header.len();
    let send = |receiver: &mut TestReceiver, number: usize| {
        let seq = u32::try_from(number + 1).unwrap();
        receiver.handle_metadata(NOW, &metadata(seq, &header))?;
        let tag = body_tag(seq, BodyKind::Packed);
        let body = InBody::Packed { len: 0, memory: "" };
        receiver.handle_body(NOW, tag, body)
    };
    let mut receiver = streaming(true, false);
    receiver.limit_messages(u64::MAX, 1);
    let error = (0..2 * rounds)
        .find_map(|number| send(&mut receiver, number).err())
        .unwrap();
    assert_eq!(error.status(), Status::OutOfMemory);
    assert!(error.text().contains("wait for the consumer"), "{error}");
    let mut receiver = streaming(true, false);
    receiver.limit_messages(u64::MAX, 1);
    let error = (0..2 * rounds)
        .find_map(|number| {
            let seq = u32::try_from(number + 1).unwrap();
            receiver.handle_metadata(NOW, &metadata(seq, &header)).err()
        })
        .unwrap();
    assert_eq!(error.status(), Status::OutOfMemory);
    let mut receiver = streaming(true, false);
    receiver.limit_messages(u64::MAX, 1);
    for number in 0..2 * rounds {
        send(&mut receiver, number).unwrap();
        assert!(receiver.next_message().is_some());
    }
}
