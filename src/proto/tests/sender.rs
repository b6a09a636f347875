//! Rules M1 to M5, D1, E1 to E5, E7, F2 and F3 at the producing side. `sender_table.rs` has the
//! table of states and events.

use smallvec::smallvec;

use super::*;
use crate::proto::extension::FEATURES;
use crate::proto::testing::{batch, dictionary, schema};
use crate::proto::{
    BODY_KIND_LIST, BODY_KIND_PACKED, Credit, FEATURE_HEADERS, FEATURE_REPEAT, IPC_HANDLE_BYTES,
    MAX_ANSWER_HEADERS, Request, RoleTags, Selection, Span, StreamInfo, Tags, VERSION, Verb,
    encode_frees,
};

#[path = "sender_table.rs"]
mod table;

/// In these tests, payloads and holds are names.
type TestSender = Sender<&'static str, &'static str>;

const INFO: StreamInfo = StreamInfo {
    version: VERSION,
    features: 0,
    device_type: 1,
    device_id: -1,
    body_kinds: BODY_KIND_PACKED | BODY_KIND_LIST,
};
const WINDOW: Credit = Credit {
    batches: 2,
    bytes: 256,
};

fn tags(role: Role) -> Tags {
    Tags::default_for(role)
}

fn free_tag(role: Role) -> u64 {
    tags(role).free_data.unwrap()
}

fn requested(role: Role, extension: bool) -> TestSender {
    let mut sender = Sender::new(SenderConfig::default());
    if extension {
        // Features of a client that returns addresses.
        let request = Request {
            features: FEATURE_IN_PLACE,
            ..Request::new("ticket", WINDOW)
        };
        sender
            .handle_tagged(tags(role).dipc_want, &request.encode())
            .unwrap();
    } else {
        sender
            .handle_tagged(tags(role).want_data, b"ticket")
            .unwrap();
    }
    sender
}

/// `docs/wire.md`, PENDING: sent only for a request that waits for its answer, and only to a client
/// that wants PENDING.
#[test]
fn pending_is_said_of_a_request_alone() {
    let request = Request {
        features: FEATURES,
        stream_id: 5,
        ..Request::new("ticket", WINDOW)
    };
    let mut sender: TestSender = Sender::new(SenderConfig::default());
    sender.say_pending();
    assert!(!sender.awaits_pending() && drain(&mut sender).0.is_empty());
    sender
        .handle_tagged(tags(Role::Both).dipc_want, &request.encode())
        .unwrap();
    assert!(sender.awaits_pending());
    sender.say_pending();
    let bytes = Control::Pending { stream: 5 }.encode();
    assert_eq!(
        drain(&mut sender).0,
        [Transmit::Control {
            bytes,
            region: None
        }]
    );
    sender.accept(INFO).unwrap();
    assert!(!sender.awaits_pending());
    for extension in [true, false] {
        let mut other = requested(Role::Both, extension);
        other.say_pending();
        assert!(drain(&mut other).0.is_empty(), "it did not ask for that");
    }
}

/// A stream after its schema; outputs drained.
fn streaming(role: Role, extension: bool) -> TestSender {
    let mut sender = requested(role, extension);
    sender.accept(INFO).unwrap();
    sender.send_schema(schema()).unwrap();
    drain(&mut sender);
    sender
}

fn drain(sender: &mut TestSender) -> (Vec<Transmit<&'static str>>, Vec<SenderEvent<&'static str>>) {
    let transmits = std::iter::from_fn(|| sender.poll_transmit()).collect();
    (
        transmits,
        std::iter::from_fn(|| sender.poll_event()).collect(),
    )
}

fn packed(len: u64) -> OutBody<&'static str, &'static str> {
    OutBody::Packed {
        len,
        payload: "payload",
    }
}

fn lent(address: u64, length: u64, hold: &'static str) -> OutBody<&'static str, &'static str> {
    OutBody::Lent {
        spans: smallvec![Span { address, length }],
        hold,
        in_place: true,
    }
}

fn send_packed(sender: &mut TestSender, length: u64) {
    let (header, len) = batch(&[length]);
    sender.send_batch(header, len, packed(len)).unwrap();
}

fn credit(batches: u64, bytes: u64) -> Vec<u8> {
    Control::Credit {
        stream: 0,
        credit: Credit { batches, bytes },
    }
    .encode()
}

/// Rules M1, M2, M4, M5, D1, D2: the bytes of a stream to a baseline peer.
#[test]
fn a_baseline_stream_on_the_wire() {
    let mut sender = requested(Role::Both, false);
    let (_, events) = drain(&mut sender);
    let [
        SenderEvent::Requested {
            request,
            extension: false,
            role: Role::Both,
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(request.ticket, b"ticket");
    sender.accept(INFO).unwrap();
    sender.send_schema(schema()).unwrap();
    let (header, len) = dictionary(&[10]);
    sender
        .send_dictionary(header.clone(), len, packed(len))
        .unwrap();
    sender.send_batch(batch(&[]).0, 0, packed(0)).unwrap();
    sender.end().unwrap();
    let metadata = |prefix, header: Option<Vec<u8>>| Transmit::Metadata {
        prefix,
        header: header.map(Arc::from),
    };
    assert_eq!(
        drain(&mut sender).0,
        [
            metadata([1, 0, 0, 0, 0], Some(schema())),
            metadata([1, 1, 0, 0, 0], Some(header)),
            Transmit::Body {
                tag: 1,
                packed: "payload"
            },
            metadata([1, 2, 0, 0, 0], Some(batch(&[]).0)),
            Transmit::Body {
                tag: 2,
                packed: "payload"
            },
            metadata([0, 3, 0, 0, 0], None),
        ]
    );
    assert_eq!(sender.state(), SenderState::Ended);
}

/// Rule M4: numbers wrap at 2^32.
#[test]
fn numbers_wrap() {
    let config = SenderConfig {
        first_seq: u32::MAX - 1,
        ..SenderConfig::default()
    };
    let mut sender = TestSender::new(config);
    sender
        .handle_tagged(tags(Role::Both).want_data, b"")
        .unwrap();
    sender.accept(INFO).unwrap();
    sender.send_schema(schema()).unwrap();
    for expected in [u32::MAX, 0, 1] {
        assert_eq!(sender.next_seq(), expected);
        send_packed(&mut sender, 8);
    }
    sender.end().unwrap();
    let last = drain(&mut sender).0.pop();
    assert_eq!(
        last,
        Some(Transmit::Metadata {
            prefix: [0, 2, 0, 0, 0],
            header: None
        })
    );
}

/// Rule E2: STREAM comes before the schema. Rule E4: the next request follows the end, and numbers
/// start again.
#[test]
fn an_extension_connection_serves_stream_after_stream() {
    let mut sender = requested(Role::Both, true);
    for _ in 0..3 {
        sender.accept(INFO).unwrap();
        sender.send_schema(schema()).unwrap();
        sender.end().unwrap();
        assert_eq!(
            drain(&mut sender).0,
            [
                Transmit::Control {
                    bytes: Control::Stream(
                        StreamInfo {
                            features: FEATURE_IN_PLACE,
                            ..INFO
                        },
                        Headers::new()
                    )
                    .encode(),
                    region: None
                },
                Transmit::Metadata {
                    prefix: [1, 0, 0, 0, 0],
                    header: Some(schema().into())
                },
                Transmit::Metadata {
                    prefix: [0, 1, 0, 0, 0],
                    header: None
                },
            ]
        );
        assert_eq!(sender.state(), SenderState::Idle);
        let request = Request {
            features: FEATURE_IN_PLACE | 1 << 63,
            ..Request::new("next", WINDOW)
        };
        sender
            .handle_tagged(tags(Role::Both).dipc_want, &request.encode())
            .unwrap();
    }
}

/// Rules F1, F2, E4: returns belong to the connection and arrive at any time, even after the end.
#[test]
fn frees_arrive_at_any_time() {
    let mut sender = streaming(Role::Both, true);
    let (header, len) = batch(&[100]);
    sender
        .send_batch(header.clone(), len, lent(64, 100, "first"))
        .unwrap();
    sender
        .send_batch(header, len, lent(256, 100, "second"))
        .unwrap();
    sender.end().unwrap();
    drain(&mut sender);
    assert_eq!(
        (sender.state(), sender.lent_outstanding()),
        (SenderState::Idle, 2)
    );
    sender
        .handle_tagged(free_tag(Role::Both), &encode_frees(&[256]))
        .unwrap();
    assert_eq!(drain(&mut sender).1, [SenderEvent::Freed("second")]);
    // Returns may also come during the next request.
    let request = Request::new("next", WINDOW).encode();
    sender
        .handle_tagged(tags(Role::Both).dipc_want, &request)
        .unwrap();
    sender
        .handle_tagged(free_tag(Role::Both), &encode_frees(&[64]))
        .unwrap();
    assert!(drain(&mut sender).1.contains(&SenderEvent::Freed("first")));
    assert_eq!(sender.lent_outstanding(), 0);
}

/// Feature return: bodies come back by stream and number, at any time, each as often as lent. Rule
/// F3: a wrong return closes the connection, and earlier returns count.
#[test]
fn bodies_come_back_by_number() {
    let mut sender = TestSender::new(SenderConfig::default());
    let want = tags(Role::Both).dipc_want;
    let returned = |stream: u64, seqs: &[u32]| {
        let seqs = seqs.to_vec();
        Control::Return { stream, seqs }.encode()
    };
    let (header, len) = batch(&[100]);
    for (stream_id, hold) in [(7, "first"), (8 | 9 << 64, "second"), (7, "third")] {
        let request = Request {
            stream_id,
            ..Request::new("t", WINDOW)
        };
        sender.handle_tagged(want, &request.encode()).unwrap();
        sender.accept(INFO).unwrap();
        sender.send_schema(schema()).unwrap();
        let body = lent(64, 100, hold);
        sender.send_batch(header.clone(), len, body).unwrap();
        sender.end().unwrap();
        drain(&mut sender);
    }
    assert_eq!(sender.lent_outstanding(), 3);
    sender.handle_control(&returned(8, &[1])).unwrap();
    assert_eq!(drain(&mut sender).1, [SenderEvent::Freed("second")]);
    // Two streams with one id: a return does not say which body it means, so both must be back.
    sender.handle_control(&returned(7, &[1])).unwrap();
    assert!(drain(&mut sender).1.is_empty());
    assert_eq!(sender.lent_outstanding(), 2);
    let error = sender.handle_control(&returned(7, &[1, 1])).unwrap_err();
    assert_eq!(error.rule(), "F3");
    let both = ["first", "third"].map(SenderEvent::Freed);
    assert_eq!(drain(&mut sender).1, both);
    assert_eq!(
        (sender.lent_outstanding(), sender.state()),
        (0, SenderState::Closed)
    );
    assert!(sender.handle_disconnect().is_empty());
}

/// Rule F4: a disconnect gives back lends by number and lends by address, in the order in which
/// they were lent.
#[test]
fn a_disconnect_gives_back_what_has_a_number() {
    let mut sender = TestSender::new(SenderConfig::default());
    let (header, len) = batch(&[100]);
    let want = tags(Role::Both).dipc_want;
    for (features, hold) in [(FEATURES, "a"), (FEATURE_IN_PLACE, "b"), (FEATURES, "c")] {
        let request = Request {
            features,
            ..Request::new("t", WINDOW)
        };
        sender.handle_tagged(want, &request.encode()).unwrap();
        sender.accept(INFO).unwrap();
        sender.send_schema(schema()).unwrap();
        let body = lent(64, 100, hold);
        sender.send_batch(header.clone(), len, body).unwrap();
        sender.end().unwrap();
    }
    let mut holds = sender.handle_disconnect();
    // Two lends of one stream and number cannot be told apart.
    holds[..2].sort_unstable();
    assert_eq!(holds, ["a", "c", "b"]);
    assert_eq!(sender.lent_outstanding(), 0);
}

/// Rule A1: a list of empty buffers lends nothing, so its hold comes back at once.
#[test]
fn empty_lends_come_back_at_once() {
    let mut sender = streaming(Role::Both, false);
    let (header, _) = batch(&[0]);
    sender.send_batch(header, 0, lent(0, 0, "hold")).unwrap();
    let (transmits, events) = drain(&mut sender);
    assert!(
        matches!(&transmits[1], Transmit::List { tag: 0x0100_0000_0000_0001, bytes }
        if bytes.len() == 32)
    );
    assert_eq!(events, [SenderEvent::Freed("hold")]);
}

/// Rule F3: a wrong free closes the connection and frees nothing. Rule F4: the disconnect gives
/// back every lend.
#[test]
fn a_wrong_free_closes_the_connection() {
    let mut sender = streaming(Role::Both, true);
    let (header, len) = batch(&[100]);
    sender
        .send_batch(header, len, lent(64, 100, "hold"))
        .unwrap();
    drain(&mut sender);
    let error = sender
        .handle_tagged(free_tag(Role::Both), &encode_frees(&[64, 65]))
        .unwrap_err();
    assert_eq!(error.rule(), "F3");
    assert_eq!(sender.state(), SenderState::Closed);
    let (transmits, events) = drain(&mut sender);
    assert!(events.is_empty());
    let [
        Transmit::Control { bytes, .. },
        Transmit::Disconnect { reason },
    ] = &transmits[..]
    else {
        panic!("{transmits:?}");
    };
    assert!(matches!(
        Control::decode(bytes),
        Ok(Some(Control::Error { seq: 2, .. }))
    ));
    assert_eq!(*reason, error.text());
    assert_eq!(sender.handle_disconnect(), ["hold"]);
    assert_eq!(sender.lent_outstanding(), 0);
}

/// Rule E7: a baseline peer that is refused, or whose stream fails, is disconnected with the
/// reason. A peer with the extension gets ERROR and may ask again.
#[test]
fn refusals() {
    let not_found = Status::NotFound.code();
    for fail in [false, true] {
        let refuse = |mut sender: TestSender| {
            drain(&mut sender);
            match fail {
                true => sender.fail(not_found, "no ticket x").unwrap(),
                false => sender.refuse(not_found, "no ticket x").unwrap(),
            }
            (drain(&mut sender).0, sender.state())
        };
        let (transmits, state) = refuse(requested(Role::Both, false));
        assert_eq!(
            transmits,
            [Transmit::Disconnect {
                reason: "no ticket x".into()
            }]
        );
        assert_eq!(state, SenderState::Closed);

        let (transmits, state) = refuse(requested(Role::Both, true));
        let text = "no ticket x".to_owned();
        let bytes = Control::Error {
            status: not_found,
            seq: 0,
            text,
            headers: Headers::new(),
        }
        .encode();
        assert_eq!(
            transmits,
            [Transmit::Control {
                bytes,
                region: None
            }]
        );
        assert_eq!(state, SenderState::Idle);
    }
    // Promise of `fail`: a status of success travels as the provider's.
    let mut sender = requested(Role::Both, true);
    sender.fail(7, "odd").unwrap();
    let Some(Transmit::Control { bytes, .. }) = sender.poll_transmit() else {
        panic!()
    };
    let status = Status::Provider.code();
    let expected = Control::Error {
        status,
        seq: 0,
        text: "odd".into(),
        headers: Headers::new(),
    };
    assert_eq!(Control::decode(&bytes), Ok(Some(expected)));
}

/// Rule E1: a client of an unsupported version gets a text with the versions; the connection lives.
#[test]
fn versions_that_cannot_talk_are_refused() {
    let mut sender = TestSender::new(SenderConfig::default());
    let request = Request {
        min_version: 4,
        max_version: 9,
        ..Request::new("t", WINDOW)
    };
    sender
        .handle_tagged(tags(Role::Both).dipc_want, &request.encode())
        .unwrap();
    let (transmits, events) = drain(&mut sender);
    assert!(events.is_empty());
    let [Transmit::Control { bytes, .. }] = &transmits[..] else {
        panic!("{transmits:?}")
    };
    let Ok(Some(Control::Error { status, text, .. })) = Control::decode(bytes) else {
        panic!()
    };
    assert_eq!(status, Status::Unsupported.code());
    assert!(
        text.contains("versions 1 to 3 ") && text.contains("4 to 9"),
        "{text}"
    );
    assert_eq!(sender.state(), SenderState::Idle);
}

/// Rules E1 and Q1: the answer has the client's version, but never more than this build's. An
/// unknown verb gets a text.
#[test]
fn the_highest_common_version_is_spoken() {
    for (max_version, spoken) in [(1, 1), (2, 2), (3, 3), (9, 3)] {
        let mut sender = TestSender::new(SenderConfig::default());
        let request = Request {
            max_version,
            ..Request::new("t", WINDOW)
        };
        let want = tags(Role::Both).dipc_want;
        sender.handle_tagged(want, &request.encode()).unwrap();
        sender.accept(INFO).unwrap();
        let (transmits, _) = drain(&mut sender);
        let [Transmit::Control { bytes, .. }] = &transmits[..] else {
            panic!("{transmits:?}")
        };
        let told = Control::decode(bytes).unwrap();
        assert!(
            matches!(told, Some(Control::Stream(info, _)) if info.version == spoken),
            "{told:?}"
        );
    }
    let mut sender = TestSender::new(SenderConfig::default());
    let request = Request {
        verb: Verb::Unknown(77),
        ..Request::new("t", WINDOW)
    };
    let want = tags(Role::Both).dipc_want;
    sender.handle_tagged(want, &request.encode()).unwrap();
    let (transmits, events) = drain(&mut sender);
    assert!(events.is_empty());
    let [Transmit::Control { bytes, .. }] = &transmits[..] else {
        panic!("{transmits:?}")
    };
    let told = Control::decode(bytes).unwrap();
    assert!(
        matches!(&told, Some(Control::Error { text, .. }) if text.contains("number 77: upgrade")),
        "{told:?}"
    );
}

/// Rule Q12: a selection with another verb than get, or with a part that this build does not know,
/// is refused by a text; the connection lives.
#[test]
fn selections_that_cannot_be_served_are_refused() {
    let mut selection = Selection::new();
    selection.set_columns(["a"]).unwrap();
    let ask = |verb: Verb| Request {
        verb,
        source: verb.has_source().then_some(INFO),
        selection: selection.clone(),
        ..Request::new("t", WINDOW)
    };
    let mut unknown = ask(Verb::Get).encode();
    let at = unknown.len() - b"\x01\x03\0\0\0\x01\0at".len();
    unknown[at] = 7;
    let cases = [Verb::Put, Verb::Exchange, Verb::Describe, Verb::List]
        .map(|verb| (ask(verb).encode(), Status::InvalidArgument, verb.name()));
    let cases = cases.into_iter();
    for (bytes, expected, word) in cases.chain([(unknown, Status::Unsupported, "part 7")]) {
        let mut sender = TestSender::new(SenderConfig::default());
        let want = tags(Role::Both).dipc_want;
        sender.handle_tagged(want, &bytes).unwrap();
        let (transmits, events) = drain(&mut sender);
        assert!(events.is_empty());
        let [Transmit::Control { bytes, .. }] = &transmits[..] else {
            panic!("{transmits:?}")
        };
        let Ok(Some(Control::Error { status, text, .. })) = Control::decode(bytes) else {
            panic!("{bytes:?}")
        };
        assert_eq!(status, expected.code(), "{text}");
        assert!(text.contains(word), "{text}");
    }
    let mut sender = TestSender::new(SenderConfig::default());
    let want = tags(Role::Both).dipc_want;
    sender
        .handle_tagged(want, &ask(Verb::Get).encode())
        .unwrap();
    let (_, events) = drain(&mut sender);
    assert!(
        matches!(&events[..], [SenderEvent::Requested { request, .. }]
        if request.selection == selection)
    );
}

/// Rule Q1: headers go with the next answer, except to a client that does not know them.
#[test]
fn headers_go_with_the_next_answer() {
    let mut headers = Headers::new();
    headers.add("k", "v").unwrap();
    for knows in [true, false] {
        let mut sender = TestSender::new(SenderConfig::default());
        let mut request = Request::new("t", WINDOW);
        if !knows {
            request.features &= !FEATURE_HEADERS;
        }
        let want = tags(Role::Both).dipc_want;
        assert!(sender.add_answer_headers(&headers).is_err(), "no request");
        sender.handle_tagged(want, &request.encode()).unwrap();
        sender.add_answer_headers(&headers).unwrap();
        sender.accept(INFO).unwrap();
        sender.fail(-1, "no").unwrap();
        let (transmits, _) = drain(&mut sender);
        let [
            Transmit::Control { bytes: first, .. },
            Transmit::Control { bytes: second, .. },
        ] = &transmits[..]
        else {
            panic!("{transmits:?}")
        };
        let Some(Control::Stream(_, said)) = Control::decode(first).unwrap() else {
            panic!("{first:?}")
        };
        assert_eq!(said.get("k").is_some(), knows);
        let Some(Control::Error { headers, .. }) = Control::decode(second).unwrap() else {
            panic!("{second:?}")
        };
        assert!(headers.is_empty(), "they have gone");
    }
    let mut sender = TestSender::new(SenderConfig::default());
    let want = tags(Role::Both).dipc_want;
    let request = Request::new("t", WINDOW).encode();
    sender.handle_tagged(want, &request).unwrap();
    let mut many = Headers::new();
    many.add("k", vec![0; MAX_ANSWER_HEADERS]).unwrap();
    let error = sender.add_answer_headers(&many).unwrap_err();
    assert_eq!(error.status(), Status::InvalidArgument);
    sender.add_answer_headers(&headers).unwrap();
    sender.refuse(-1, "no").unwrap();
    let (transmits, _) = drain(&mut sender);
    let [Transmit::Control { bytes, .. }] = &transmits[..] else {
        panic!("{transmits:?}")
    };
    let told = Control::decode(bytes).unwrap();
    assert!(
        matches!(&told, Some(Control::Error { headers, .. }) if headers.get("k").is_some()),
        "{told:?}"
    );
}

/// Rule E4: ERROR answers CANCEL, whether the driver ends or fails the stream. Until then nothing
/// more is sent.
#[test]
fn a_cancel_is_answered() {
    for fail in [false, true] {
        let mut sender = streaming(Role::Both, true);
        sender
            .handle_control(&Control::Cancel { stream: 0 }.encode())
            .unwrap();
        sender
            .handle_control(&Control::Cancel { stream: 0 }.encode())
            .unwrap();
        assert_eq!(drain(&mut sender).1, [SenderEvent::Cancelled]);
        let (header, len) = batch(&[8]);
        let error = sender.send_batch(header, len, packed(len)).unwrap_err();
        assert_eq!(error.status(), Status::Cancelled);
        match fail {
            true => sender
                .fail(Status::Cancelled.code(), "as you wish")
                .unwrap(),
            false => sender.end().unwrap(),
        }
        let (transmits, _) = drain(&mut sender);
        let [Transmit::Control { bytes, .. }] = &transmits[..] else {
            panic!("{transmits:?}")
        };
        assert!(
            matches!(Control::decode(bytes), Ok(Some(Control::Error { status, seq: 1, .. }))
            if status == Status::Cancelled.code())
        );
        assert_eq!(
            (sender.state(), sender.is_cancelled()),
            (SenderState::Idle, false)
        );
    }
}

/// Rule E4: CANCEL and CREDIT of an ended stream do not affect the next stream.
#[test]
fn what_crossed_the_end_is_ignored() {
    let mut sender = streaming(Role::Both, true);
    sender.end().unwrap();
    drain(&mut sender);
    sender
        .handle_control(&Control::Cancel { stream: 0 }.encode())
        .unwrap();
    sender.handle_control(&credit(1, 1)).unwrap();
    assert_eq!(drain(&mut sender), (vec![], vec![]));
}

/// Rule E5: batches use the window, by count and by bytes, until they are taken.
#[test]
fn credit_bounds_what_is_sent() {
    let mut sender = streaming(Role::Both, true);
    assert!(sender.may_pull() && sender.admits(256, false) && sender.admits(u64::MAX, false));
    send_packed(&mut sender, 64);
    // One batch is outstanding: one more batch, with the rest of the bytes.
    assert!(sender.may_pull() && sender.admits(192, false) && !sender.admits(193, false));
    send_packed(&mut sender, 64);
    assert!(!sender.may_pull() && !sender.admits(0, false));
    sender.handle_control(&credit(3, 256 + 64)).unwrap();
    assert_eq!(drain(&mut sender).1, [SenderEvent::CreditChanged]);
    assert!(sender.may_pull() && sender.admits(192, false) && !sender.admits(193, false));
    // All batches are taken: one message of any size is admitted.
    sender.handle_control(&credit(4, 256 + 128)).unwrap();
    assert!(sender.may_pull() && sender.admits(u64::MAX, false));
    send_packed(&mut sender, 1024);
    assert!(!sender.may_pull() && !sender.admits(0, false));
}

/// Feature in place: bodies lent in place use batches of the window and no bytes, both before and
/// after the consumer takes them.
#[test]
fn bodies_lent_in_place_use_no_bytes_of_the_window() {
    let mut sender = TestSender::new(SenderConfig::default());
    let window = Credit {
        batches: 4,
        bytes: 256,
    };
    let request = Request::new("t", window);
    // The caller does not know here whether its connection keeps the order of messages, nor how
    // long it will wait.
    let asked = FEATURES & !FEATURE_REPEAT & !FEATURE_PENDING;
    assert_eq!(request.features, asked);
    let want = tags(Role::Both).dipc_want;
    sender.handle_tagged(want, &request.encode()).unwrap();
    sender.accept(INFO).unwrap();
    sender.send_schema(schema()).unwrap();
    // Rule E2: STREAM names the feature.
    let (transmits, _) = drain(&mut sender);
    let told = transmits.iter().find_map(|transmit| match transmit {
        Transmit::Control { bytes, .. } => Control::decode(bytes).unwrap(),
        _ => None,
    });
    assert!(matches!(told, Some(Control::Stream(info, _)) if info.features == asked));

    let (header, len) = batch(&[1 << 20]);
    assert!(sender.admits(len, true));
    sender
        .send_batch(header, len, lent(64, 1 << 20, "a"))
        .unwrap();
    // The whole window of bytes is left for other bodies, and no more.
    assert!(sender.may_pull() && sender.admits(256, false) && !sender.admits(257, false));
    send_packed(&mut sender, 192);
    assert!(sender.admits(len, true) && sender.admits(64, false) && !sender.admits(65, false));
    // The first body is taken: the same bytes are left.
    sender.handle_control(&credit(4 + 1, 256 + len)).unwrap();
    assert!(sender.admits(len, true) && sender.admits(64, false) && !sender.admits(65, false));
    sender
        .handle_control(&credit(4 + 2, 256 + len + 192))
        .unwrap();
    assert!(sender.admits(u64::MAX, false));
}

/// Feature repeat: a header with the same memory as the header before it is not sent again, if the
/// client knows the feature. Another header in between, or another stream, ends this.
#[test]
fn a_header_like_the_last_is_not_sent_again() {
    let (header, len) = batch(&[100]);
    let (other, _) = dictionary(&[100]);
    let (header, other): (Arc<[u8]>, Arc<[u8]>) = (header.into(), other.into());
    let kinds = |features: u64| {
        let mut sender = TestSender::new(SenderConfig::default());
        let window = Credit {
            batches: 9,
            bytes: 9 << 10,
        };
        let request = Request {
            features,
            ..Request::new("t", window)
        };
        let mut kinds = Vec::new();
        for _ in 0..2 {
            let want = tags(Role::Both).dipc_want;
            sender.handle_tagged(want, &request.encode()).unwrap();
            sender.accept(INFO).unwrap();
            sender.send_schema(schema()).unwrap();
            for header in [&header, &header, &header, &other, &header] {
                let header = Arc::clone(header);
                sender.send_batch(header, len, packed(len)).unwrap();
            }
            sender.end().unwrap();
            for transmit in drain(&mut sender).0 {
                if let Transmit::Metadata { prefix, header } = transmit {
                    let [kind, ..] = prefix;
                    assert_eq!(header.is_some(), kind == 1);
                    kinds.push(kind);
                }
            }
        }
        kinds
    };
    let stream = [1, 1, 2, 2, 1, 1, 0];
    assert_eq!(kinds(FEATURE_REPEAT), [stream, stream].concat());
    let stream = [1, 1, 1, 1, 1, 1, 0];
    assert_eq!(kinds(0), [stream, stream].concat());
}

/// Rule E5: with an empty window, messages still go one by one.
#[test]
fn a_window_of_nothing_admits_one_at_a_time() {
    let mut sender = TestSender::new(SenderConfig::default());
    let request = Request::new(
        "t",
        Credit {
            batches: 0,
            bytes: 0,
        },
    )
    .encode();
    sender
        .handle_tagged(tags(Role::Both).dipc_want, &request)
        .unwrap();
    sender.accept(INFO).unwrap();
    sender.send_schema(schema()).unwrap();
    for sent in 1..4 {
        assert!(sender.may_pull() && sender.admits(1 << 40, false));
        send_packed(&mut sender, 64);
        assert!(!sender.may_pull() && !sender.admits(0, false));
        sender.handle_control(&credit(sent, 64 * sent)).unwrap();
    }
}

/// Rule E5: dictionaries use no batches, but their bytes count until the consumer takes them.
#[test]
fn dictionaries_use_bytes_alone() {
    let mut sender = streaming(Role::Both, true);
    for _ in 0..100 {
        assert!(sender.admits(0, false));
        sender
            .send_dictionary(dictionary(&[]).0, 0, packed(0))
            .unwrap();
    }
    let (header, len) = dictionary(&[256]);
    sender.send_dictionary(header, len, packed(len)).unwrap();
    assert!(!sender.may_pull() && !sender.admits(1, false));
    sender.handle_control(&credit(2, 512)).unwrap();
    assert!(sender.may_pull() && sender.admits(1 << 40, false));
}

/// Rule E5: credit counts totals, so it never falls; a baseline peer has no window.
#[test]
fn credit_never_falls() {
    for (batches, bytes) in [(1, 256), (2, 255)] {
        let mut sender = streaming(Role::Both, true);
        assert_eq!(
            sender
                .handle_control(&credit(batches, bytes))
                .unwrap_err()
                .rule(),
            "E5"
        );
        assert_eq!(sender.state(), SenderState::Closed);
    }
    let mut sender = streaming(Role::Both, false);
    for _ in 0..100 {
        send_packed(&mut sender, 1 << 20);
        assert!(sender.may_pull() && sender.admits(u64::MAX, false));
    }
}

/// Rule U3: of two separate connections, one carries headers and the other carries bodies, with the
/// same numbers. The tag of the request tells the role.
#[test]
fn separate_roles_share_numbers() {
    let (header, len) = batch(&[100]);
    let mut metadata = streaming(Role::Metadata, true);
    metadata
        .send_batch(header.clone(), len, OutBody::Elsewhere)
        .unwrap();
    metadata.end().unwrap();
    let prefix = |kind, seq| [kind, seq, 0, 0, 0];
    assert_eq!(
        drain(&mut metadata).0,
        [
            Transmit::Metadata {
                prefix: prefix(1, 1),
                header: Some(header.clone().into())
            },
            Transmit::Metadata {
                prefix: prefix(0, 2),
                header: None
            },
        ]
    );
    assert_eq!(metadata.state(), SenderState::Idle);

    let mut data = streaming(Role::Data, true);
    data.send_batch(header.clone(), len, lent(64, 100, "hold"))
        .unwrap();
    data.send_batch(header.clone(), len, packed(len)).unwrap();
    data.end().unwrap();
    let (transmits, _) = drain(&mut data);
    assert!(matches!(
        transmits[..],
        [
            Transmit::List {
                tag: 0x0100_0000_0000_0001,
                ..
            },
            Transmit::Body { tag: 2, .. },
        ]
    ));
    assert_eq!(data.state(), SenderState::Ended);
    // Rule E5: both connections count credit.
    let mut metadata = streaming(Role::Metadata, true);
    metadata
        .send_batch(header.clone(), len, OutBody::Elsewhere)
        .unwrap();
    metadata
        .send_batch(header.clone(), len, OutBody::Elsewhere)
        .unwrap();
    assert!(!metadata.may_pull());

    for (role, body) in [
        (Role::Both, OutBody::Elsewhere),
        (Role::Data, OutBody::Elsewhere),
        (Role::Metadata, packed(len)),
        (Role::Metadata, lent(64, 100, "x")),
    ] {
        let error = streaming(role, true)
            .send_batch(header.clone(), len, body)
            .unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
    }
}

/// Rules D3, A1, U2: the sender refuses a body that breaks a rule, before it sends or lends
/// anything.
#[test]
fn bodies_are_checked_before_they_are_sent() {
    let no_frees = Tags {
        free_data: None,
        ..Tags::DEFAULT
    };
    let mut without = TestSender::new(SenderConfig::only(Role::Both, no_frees));
    without.handle_tagged(no_frees.want_data, b"").unwrap();
    without.accept(INFO).unwrap();
    without.send_schema(schema()).unwrap();
    let cases = [
        (streaming(Role::Both, true), packed(127)),
        (streaming(Role::Both, true), lent(0, 100, "x")),
        (streaming(Role::Both, true), lent(64, 129, "x")),
        (without, lent(64, 100, "x")),
    ];
    for (mut sender, body) in cases {
        drain(&mut sender);
        let (header, len) = batch(&[100]);
        let before = sender.next_seq();
        let error = sender.send_batch(header, len, body).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument, "{error}");
        assert_eq!((sender.next_seq(), sender.lent_outstanding()), (before, 0));
        assert_eq!(drain(&mut sender), (vec![], vec![]));
    }
}

/// Rule U3: a listener for one role does not know the tags of the others.
#[test]
fn tags_of_other_roles_are_unknown() {
    let only = SenderConfig::only(Role::Data, tags(Role::Data));
    let mut sender = TestSender::new(only);
    let error = sender
        .handle_tagged(Tags::DEFAULT.want_data, b"t")
        .unwrap_err();
    assert_eq!(error.rule(), "U1");
    assert_eq!(RoleTags::only(Role::Data, tags(Role::Data)).both, None);
}

/// Rule E4: on a transport without order, CREDIT or CANCEL of the previous stream may come late,
/// and changes nothing.
#[test]
fn what_names_another_stream_is_ignored() {
    let mut sender = TestSender::new(SenderConfig::default());
    let request = Request {
        stream_id: (7 << 64) | 2,
        ..Request::new("ticket", WINDOW)
    };
    sender
        .handle_tagged(Tags::DEFAULT.dipc_want, &request.encode())
        .unwrap();
    drain(&mut sender);
    let late = Control::Credit {
        stream: 1,
        credit: Credit {
            batches: 100,
            bytes: 1 << 30,
        },
    };
    sender.handle_control(&late.encode()).unwrap();
    sender
        .handle_control(&Control::Cancel { stream: 1 }.encode())
        .unwrap();
    assert!(drain(&mut sender).1.is_empty() && !sender.is_cancelled());
    // The low half of the id names the stream.
    sender
        .handle_control(&Control::Cancel { stream: 2 }.encode())
        .unwrap();
    assert!(sender.is_cancelled());
}

/// Rule E3, READY: it names the next message, and leaves before that message's list.
#[test]
fn ready_comes_before_its_list() {
    let mut s = streaming(Role::Both, true);
    s.announce_ready(3, &[7; IPC_HANDLE_BYTES]).unwrap();
    let seq = s.next_seq();
    assert_eq!(
        s.announce_ready(3, &[7; 12]).unwrap_err().status(),
        Status::InvalidArgument
    );
    let Some(Transmit::Control { bytes, region }) = s.poll_transmit() else {
        panic!("READY is a control message");
    };
    assert_eq!(region, None);
    let ready = Control::Ready {
        seq,
        event: 3,
        handle: vec![7; IPC_HANDLE_BYTES],
    };
    assert_eq!(Control::decode(&bytes), Ok(Some(ready)));
    let (header, len) = batch(&[64]);
    s.send_batch(header, len, lent(64, 64, "lent")).unwrap();
    let (transmits, _) = drain(&mut s);
    assert!(matches!(transmits.last(), Some(Transmit::List { .. })));
    // A baseline peer gets no READY.
    let mut baseline = streaming(Role::Both, false);
    assert!(baseline.announce_ready(0, &[]).is_err());
}
