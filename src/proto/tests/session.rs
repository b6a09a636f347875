//! Tests of a session: where each message goes, and what the connection does without a request.

use super::*;
use crate::error::Status;
use crate::proto::wires::hand_in;
use crate::proto::{
    Bytes, Credit, FEATURE_IN_PLACE, FEATURE_RETURN, Grant, Headers, PutStage, Receiver,
    ReceiverConfig, Role, SenderState, SideConfig, StreamInfo, Tags, Verb,
};
use std::time::Duration;

type TestSession = Session<&'static str, &'static str, &'static str>;

const WINDOW: Credit = Credit {
    batches: 4,
    bytes: 1000,
};

pub(super) const INFO: StreamInfo = StreamInfo {
    version: 3,
    features: 0,
    device_type: 1,
    device_id: -1,
    body_kinds: 0b11,
};

pub(super) const GRANT: Grant = Grant {
    credit: WINDOW,
    lent_limit: 1000,
    device_type: 1,
};

pub(super) fn tags() -> Tags {
    Tags::DEFAULT
}

fn config() -> SenderConfig {
    SenderConfig::only(Role::Both, tags())
}

pub(super) fn asks_to(verb: Verb) -> Request {
    Request {
        verb,
        source: verb.has_source().then_some(INFO),
        ..Request::new("t", WINDOW)
    }
}

pub(super) fn server_of(is_ordered: bool) -> TestSession {
    let times = QuietTimes {
        request: Some(Duration::from_secs(30)),
        idle: Some(Duration::from_secs(600)),
    };
    TestSession::server(config(), is_ordered, times, Timestamp::default())
}

pub(super) fn client() -> TestSession {
    TestSession::client(config(), true)
}

/// A server that a client has asked.
pub(super) fn asked(verb: Verb) -> TestSession {
    let mut session = server_of(true);
    let bytes = asks_to(verb).encode();
    handle_tagged(&mut session, tags().dipc_want, &bytes);
    let event = session.poll_event(Timestamp::default).unwrap().1;
    assert!(matches!(event, SessionEvent::Requested(_)));
    session
}

/// A client that has asked a server to take its stream.
pub(super) fn asking(verb: Verb) -> TestSession {
    let mut session = client();
    session.first_mut().ask(&asks_to(verb)).unwrap();
    session
}

/// The server's last word on a put of this many batches.
fn end_of(batches: u64) -> Control {
    Control::End {
        stream: 0,
        seq: 0,
        batches,
        headers: Headers::new(),
    }
}

/// The server takes the stream that the client asks it to take.
fn granted(session: &mut TestSession) {
    let grant = Control::Grant {
        info: INFO,
        grant: GRANT,
        headers: Headers::new(),
    };
    control(session, &grant).unwrap();
}

pub(super) fn control(session: &mut TestSession, message: &Control) -> Result<Handled> {
    let message = InMessage::Control(message.encode().into());
    hand_in(session, Timestamp::default(), message)
}

fn handle_tagged(session: &mut TestSession, tag: u64, bytes: &[u8]) {
    let bytes = bytes.into();
    let message = InMessage::Tagged { tag, bytes };
    let handled = hand_in(session, Timestamp::default(), message).unwrap();
    assert_eq!(handled, Handled::Done);
}

/// A message that belongs to a stream: the schema, and further ones.
fn metadata(seq: u32) -> InMessage<Bytes, &'static str> {
    let prefix = crate::proto::Prefix {
        kind: crate::proto::PrefixKind::Metadata,
        seq,
    };
    let header = crate::proto::testing::schema();
    InMessage::Metadata([&prefix.encode()[..], &header].concat().into())
}

fn body(seq: u32, len: u64) -> InMessage<Bytes, &'static str> {
    let memory = "body";
    InMessage::Body { seq, len, memory }
}

/// A stream of a server's get, or of the client of a put.
pub(super) fn stream_of(
    verb: Verb,
    credit: Credit,
    is_ordered: bool,
) -> IncomingStream<&'static str> {
    let request = Request {
        credit,
        features: FEATURE_IN_PLACE | FEATURE_RETURN,
        ..asks_to(verb)
    };
    let config = ReceiverConfig::new(request, SideConfig::extended(tags()));
    let now = Timestamp::default();
    let receiver = match verb {
        Verb::Put => Receiver::of_client(config, now),
        Verb::Exchange => Receiver::of_exchange(config, now),
        _ => Receiver::new(config).map(|mut receiver| {
            receiver.start(now);
            receiver
        }),
    };
    IncomingStream::new(receiver.unwrap(), is_ordered)
}

/// Begins a stream that comes in.
pub(super) fn receives(session: &mut TestSession, verb: Verb) {
    let stream = stream_of(verb, WINDOW, true);
    session
        .first_mut()
        .begin_receiving(Timestamp::default(), stream)
        .unwrap();
}

fn error_of(session: &mut TestSession) -> Option<String> {
    let error = session.first_mut().incoming_mut()?.error()?;
    Some(error.text().to_owned())
}

fn events(session: &mut TestSession) -> Vec<SessionEvent<&'static str>> {
    std::iter::from_fn(|| Some(session.poll_event(Timestamp::default)?.1)).collect()
}

/// The controls that a session sends.
fn sent(session: &mut TestSession) -> Vec<&'static str> {
    let mut names = Vec::new();
    while let Some((_, transmit)) = session.poll_transmit() {
        if let Transmit::Control { bytes, .. } = transmit {
            names.push(Control::decode(&bytes).unwrap().unwrap().name());
        }
    }
    names
}

/// Rule Q4: a server may say any number of results. The last 1,024 wait for the client's host;
/// later ones cover the others.
#[test]
fn results_that_nobody_reads_have_a_limit() {
    let mut session = asking(Verb::Put);
    for number in 1..=5000_u32 {
        let result = Control::Result {
            stream: 0,
            batches: 0,
            bytes: number.to_le_bytes().to_vec(),
        };
        assert_eq!(control(&mut session, &result).unwrap(), Handled::Done);
        assert_eq!(events(&mut session), []);
    }
    let results = &session.first().put().unwrap().results;
    assert_eq!(results.len(), 1024);
    assert_eq!(results.back().unwrap().bytes, 5000_u32.to_le_bytes());
}

/// Rule Q4: a host cannot take what was not sent, and END tells of all.
#[test]
fn no_more_is_taken_than_was_sent() {
    let mut early = asking(Verb::Put);
    let result = Control::Result {
        stream: 0,
        batches: 1,
        bytes: Vec::new(),
    };
    let error = control(&mut early, &result).unwrap_err();
    assert_eq!(error.rule(), Some("Q4"), "{error}");

    let mut session = asking(Verb::Put);
    granted(&mut session);
    let sender = session.first_mut().sender();
    sender.send_schema(crate::proto::testing::schema()).unwrap();
    sender.end().unwrap();
    let end = end_of(1);
    let error = control(&mut session, &end).unwrap_err();
    assert_eq!(error.rule(), Some("Q4"), "{error}");
}

/// Rule Q10: a client that does not wait for the last word any more sends CANCEL after its end of
/// stream, and the server's host is told.
#[test]
fn who_waits_no_longer_cancels() {
    for verb in [Verb::Put, Verb::Exchange] {
        let mut client = asking(verb);
        granted(&mut client);
        let sender = client.first_mut().sender();
        sender.send_schema(crate::proto::testing::schema()).unwrap();
        sender.end().unwrap();
        sent(&mut client);
        client.first_mut().stop_asking();
        assert_eq!(sent(&mut client), ["CANCEL"]);
        let mut server = asked(verb);
        let told = control(&mut server, &Control::Cancel { stream: 0 });
        assert_eq!(told.unwrap(), Handled::Done);
        assert_eq!(events(&mut server), [SessionEvent::Lost]);
        assert!(server.first().ensure_streaming().is_err());
    }
}

/// Rules Q3, E4: the schema of a put follows its request at once, even if the host has not ended
/// the stream before it.
#[test]
fn a_put_behind_an_unended_one_loses_nothing() {
    let mut session = server_of(true);
    let request = asks_to(Verb::Put).encode();
    let want = config().tags.get(Role::Both).unwrap().dipc_want;
    let end = crate::proto::Prefix {
        kind: crate::proto::PrefixKind::EndOfStream,
        seq: 1,
    };
    let end = || InMessage::Metadata(end.encode()[..].into());
    handle_tagged(&mut session, want, &request);
    assert_eq!(events(&mut session).len(), 1);
    session.first_mut().sender().grant(INFO, GRANT).unwrap();
    receives(&mut session, Verb::Put);
    for message in [metadata(0), end()] {
        hand_in(&mut session, Timestamp::default(), message).unwrap();
    }
    session.first_mut().sender().finish_taking(0).unwrap();
    // The host still has the table.
    handle_tagged(&mut session, want, &request);
    assert_eq!(events(&mut session), []);
    hand_in(&mut session, Timestamp::default(), metadata(0)).unwrap();
    session.first_mut().end_receiving();
    assert!(session.first_mut().take_waiting().is_some());
    receives(&mut session, Verb::Put);
    events(&mut session);
    let stream = session.first_mut().incoming_mut().unwrap();
    assert!(stream.schema().is_some());
}

/// Rules Q3, Q10: messages of a refused put do not belong to the next put.
#[test]
fn a_put_behind_a_refused_one_begins_anew() {
    let mut session = server_of(true);
    let request = asks_to(Verb::Put).encode();
    let want = config().tags.get(Role::Both).unwrap().dipc_want;
    handle_tagged(&mut session, want, &request);
    assert_eq!(events(&mut session).len(), 1);
    session.first_mut().await_decision();
    hand_in(&mut session, Timestamp::default(), metadata(0)).unwrap();
    session.first_mut().sender().refuse(-5, "no").unwrap();
    let abort = Control::Abort {
        stream: 0,
        status: -5,
        seq: 1,
        text: String::new(),
    };
    control(&mut session, &abort).unwrap();
    events(&mut session);
    // Whoever refused it still has the connection.
    handle_tagged(&mut session, want, &request);
    let Some((0, SessionEvent::Requested(next))) = session.poll_event(Timestamp::default) else {
        panic!("no request")
    };
    session.first_mut().put_back(next);
    hand_in(&mut session, Timestamp::default(), metadata(0)).unwrap();
    session.first_mut().end_receiving();
    assert!(session.first_mut().take_waiting().is_some());
    receives(&mut session, Verb::Put);
    events(&mut session);
    assert_eq!(error_of(&mut session), None);
    let stream = session.first_mut().incoming_mut().unwrap();
    assert!(stream.schema().is_some());
}

/// Rules Q2, Q4: a client learns in turn that its request was read, granted, and taken; then the
/// connection is free.
#[test]
fn a_put_goes_through_its_stages() {
    let mut session = asking(Verb::Put);
    assert_eq!(session.first().put().unwrap().stage, PutStage::Asked);
    assert!(session.first().is_needed());
    control(&mut session, &Control::Pending { stream: 0 }).unwrap();
    assert_eq!(events(&mut session), []);
    assert_eq!(session.first().put().unwrap().stage, PutStage::Heard);
    granted(&mut session);
    assert_eq!(
        events(&mut session),
        [SessionEvent::Granted {
            lent_limit: 1000,
            device_type: 1
        }]
    );
    assert_eq!(session.first().put().unwrap().stage, PutStage::Granted);
    let sender = session.first_mut().sender();
    sender.send_schema(crate::proto::testing::schema()).unwrap();
    sender.end().unwrap();
    let end = end_of(0);
    control(&mut session, &end).unwrap();
    assert_eq!(events(&mut session), [SessionEvent::Answered]);
    assert!(session.first().has_ended_well());
    assert!(!session.first().is_needed());
}

/// Rules Q2, Q8: a refusal is the last word. The stream fails with the server's text.
#[test]
fn a_refused_put_fails_with_the_servers_text() {
    let mut session = asking(Verb::Put);
    let refusal = Control::Error {
        status: Status::Busy.code(),
        seq: 0,
        text: "full".into(),
        headers: Headers::new(),
    };
    assert_eq!(control(&mut session, &refusal).unwrap(), Handled::Done);
    assert_eq!(
        events(&mut session),
        [SessionEvent::Lost, SessionEvent::Answered]
    );
    let error = session.first().ensure_streaming().unwrap_err();
    assert_eq!(
        (error.status(), error.text()),
        (Status::Busy, "the server: full")
    );
}

/// Rule Q5: ERROR ends both streams of an exchange.
#[test]
fn an_error_ends_both_streams_of_an_exchange() {
    let mut session = asking(Verb::Exchange);
    receives(&mut session, Verb::Exchange);
    let error = Control::Error {
        status: Status::Provider.code(),
        seq: 0,
        text: "no".into(),
        headers: Headers::new(),
    };
    assert_eq!(control(&mut session, &error).unwrap(), Handled::Done);
    assert_eq!(error_of(&mut session).as_deref(), Some("the server: no"));
    events(&mut session);
    assert!(session.first().ensure_streaming().is_err());
}

/// Rule Q10: the end of the server's stream may come after its ERROR. So a connection without order
/// carries no further stream after a failed exchange.
#[test]
fn a_failed_exchange_ends_a_connection_without_order() {
    for (is_ordered, rest) in [(true, Rest::Nothing), (false, Rest::Unusable)] {
        let mut session = asking(Verb::Exchange);
        let stream = stream_of(Verb::Exchange, WINDOW, is_ordered);
        let first = session.first_mut();
        first.begin_receiving(Timestamp::default(), stream).unwrap();
        let error = Control::Error {
            status: Status::Provider.code(),
            seq: 0,
            text: "no".into(),
            headers: Headers::new(),
        };
        control(&mut session, &error).unwrap();
        assert_eq!(session.first().rest(), rest);
    }
}

/// Rule E2: an ERROR that counts more messages than the server has sent still ends the stream: at
/// once if nothing can follow it, and otherwise with the end of the stream.
#[test]
fn an_error_that_counts_too_much_ends_the_stream() {
    for is_ordered in [true, false] {
        let mut session = client();
        let stream = stream_of(Verb::Get, WINDOW, is_ordered);
        let first = session.first_mut();
        first.begin_receiving(Timestamp::default(), stream).unwrap();
        let accepted = Control::Stream(INFO, Headers::new());
        control(&mut session, &accepted).unwrap();
        hand_in(&mut session, Timestamp::default(), metadata(0)).unwrap();
        let error = Control::Error {
            status: Status::Provider.code(),
            seq: 5,
            text: "no".into(),
            headers: Headers::new(),
        };
        control(&mut session, &error).unwrap();
        if !is_ordered {
            assert_eq!(error_of(&mut session), None);
            let kind = crate::proto::PrefixKind::EndOfStream;
            let prefix = crate::proto::Prefix { kind, seq: 1 }.encode();
            let end = InMessage::Metadata(prefix.to_vec().into());
            hand_in(&mut session, Timestamp::default(), end).unwrap();
        }
        assert_eq!(error_of(&mut session).as_deref(), Some("the server: no"));
    }
}

/// Rule Q10: ABORT ends the client's stream, and the server's stream has lost its client.
#[test]
fn an_abort_reaches_both_sides_of_a_server() {
    let mut session = asked(Verb::Exchange);
    receives(&mut session, Verb::Put);
    let abort = Control::Abort {
        stream: 0,
        status: -5,
        seq: 0,
        text: "no".into(),
    };
    assert_eq!(control(&mut session, &abort).unwrap(), Handled::Done);
    assert_eq!(events(&mut session), [SessionEvent::Lost]);
    assert!(error_of(&mut session).unwrap().ends_with("no"));
}

/// Rule Q10: ABORT of an earlier stream is ignored, whether it comes with the next stream or has
/// overtaken its request.
#[test]
fn an_abort_of_another_stream_is_ignored() {
    let abort = Control::Abort {
        stream: 7,
        status: -5,
        seq: 0,
        text: "no".into(),
    };
    let mut session = asked(Verb::Put);
    receives(&mut session, Verb::Put);
    assert_eq!(control(&mut session, &abort).unwrap(), Handled::Done);
    assert_eq!(
        (events(&mut session), error_of(&mut session)),
        (vec![], None)
    );
    let mut session = server_of(false);
    control(&mut session, &abort).unwrap();
    handle_tagged(&mut session, tags().dipc_want, &asks_to(Verb::Put).encode());
    assert_eq!(events(&mut session).len(), 1);
    session.first_mut().await_decision();
    let stream = stream_of(Verb::Put, WINDOW, false);
    session
        .first_mut()
        .begin_receiving(Timestamp::default(), stream)
        .unwrap();
    assert_eq!(
        (events(&mut session), error_of(&mut session)),
        (vec![], None)
    );
}

/// Rules E1, Q10: the connection outlives a put whose version the server does not speak. What the
/// client sends is dropped up to its last word.
#[test]
fn a_connection_outlives_a_put_of_another_version() {
    let now = Timestamp::default();
    let abort = || {
        let text = String::new();
        let (stream, status, seq) = (0, -5, 1);
        InMessage::Control(
            Control::Abort {
                stream,
                status,
                seq,
                text,
            }
            .encode()
            .into(),
        )
    };
    let end = || InMessage::Metadata(vec![0, 1, 0, 0, 0].into());
    for last in [abort(), end()] {
        let mut session = server_of(true);
        let request = Request {
            min_version: 9,
            max_version: 9,
            ..asks_to(Verb::Put)
        };
        handle_tagged(&mut session, tags().dipc_want, &request.encode());
        assert_eq!(
            (events(&mut session), sent(&mut session)),
            (vec![], vec!["ERROR"])
        );
        hand_in(&mut session, now, metadata(0)).unwrap();
        assert_eq!(session.first().state(), SenderState::Draining);
        hand_in(&mut session, now, last).unwrap();
        assert_eq!(session.first().state(), SenderState::Idle);
        handle_tagged(&mut session, tags().dipc_want, &asks_to(Verb::Get).encode());
        assert_eq!(events(&mut session).len(), 1);
    }
}

/// Rule Q3: on a connection without order, four messages may overtake the request; more are a
/// fault. With order, no message may overtake it.
#[test]
fn a_few_messages_may_overtake_the_request() {
    let now = Timestamp::default();
    let mut unordered = server_of(false);
    for seq in 0..4 {
        hand_in(&mut unordered, now, metadata(seq)).unwrap();
    }
    let error = hand_in(&mut unordered, now, metadata(4)).unwrap_err();
    assert_eq!(
        error.text(),
        "the client sent a message that only servers send"
    );
    // The messages wait for their stream.
    unordered.first_mut().await_decision();
    let stream = stream_of(Verb::Put, WINDOW, false);
    unordered.first_mut().begin_receiving(now, stream).unwrap();
    events(&mut unordered);
    assert!(unordered.first().incoming().unwrap().schema().is_some());
    assert!(hand_in(&mut server_of(true), now, metadata(0)).is_err());
}

/// Rules Q3, Q10: an ABORT that has overtaken its request ends the stream once the stream begins.
#[test]
fn an_abort_may_overtake_the_request() {
    let mut session = server_of(false);
    let abort = Control::Abort {
        stream: 0,
        status: -5,
        seq: 0,
        text: "no".into(),
    };
    control(&mut session, &abort).unwrap();
    handle_tagged(&mut session, tags().dipc_want, &asks_to(Verb::Put).encode());
    assert_eq!(events(&mut session).len(), 1);
    session.first_mut().await_decision();
    session.first_mut().sender().refuse(-5, "no").unwrap();
    assert_eq!(session.first().state(), SenderState::Draining);
    let stream = stream_of(Verb::Put, WINDOW, false);
    session
        .first_mut()
        .begin_receiving(Timestamp::default(), stream)
        .unwrap();
    assert_eq!(events(&mut session), [SessionEvent::Lost]);
    assert!(error_of(&mut session).unwrap().ends_with("no"));
    // Nothing more of the stream comes.
    assert_eq!(session.first().state(), SenderState::Idle);
}

/// Rule Q11: while the host decides, a side reads on up to one body, and up to a bound of other
/// messages.
#[test]
fn what_waits_for_the_decision_is_bounded() {
    let now = Timestamp::default();
    let mut session = asked(Verb::Put);
    session.first_mut().await_decision();
    assert!(!session.first().is_full());
    hand_in(&mut session, now, body(1, 100)).unwrap();
    assert!(session.first().is_full());
    session.first_mut().end_receiving();
    assert!(!session.first().is_full());
    session.first_mut().await_decision();
    for seq in 0..1024 {
        assert!(!session.first().is_full());
        hand_in(&mut session, now, metadata(seq)).unwrap();
    }
    assert!(session.first().is_full());
}

/// Rule Q11: a stream is read whatever its host does, until the window is full. What came before a
/// cut can be taken, and then the stream fails.
#[test]
fn what_waits_for_the_host_is_bounded() {
    let now = Timestamp::default();
    let mut session = asked(Verb::Put);
    receives(&mut session, Verb::Put);
    let mut client = asking(Verb::Put);
    let mut grant = GRANT;
    grant.credit = Credit {
        batches: 100,
        bytes: 1_000_000,
    };
    let headers = Headers::new();
    let info = INFO;
    let granted = Control::Grant {
        info,
        grant,
        headers,
    };
    control(&mut client, &granted).unwrap();
    client
        .first_mut()
        .sender()
        .send_schema(crate::proto::testing::schema())
        .unwrap();
    let (header, len) = crate::proto::testing::batch(&[600]);
    let mut sent = 0;
    while !session.first().is_full() {
        let (header, payload) = (header.clone(), "body");
        let body = crate::proto::OutBody::Packed { len, payload };
        client
            .first_mut()
            .sender()
            .send_batch(header, len, body)
            .unwrap();
        sent += 1;
        while let Some((_, transmit)) = client.poll_transmit() {
            let message = match transmit {
                Transmit::Metadata { prefix, header } => InMessage::Metadata(
                    [&prefix[..], header.as_deref().unwrap_or_default()]
                        .concat()
                        .into(),
                ),
                Transmit::Body { tag, packed } => InMessage::Body {
                    seq: body_of_tag(tag).unwrap().0,
                    len,
                    memory: packed,
                },
                _ => continue,
            };
            hand_in(&mut session, now, message).unwrap();
        }
        events(&mut session);
    }
    // The window has 1,000 bytes; the last batch may pass it.
    assert_eq!(sent, 2);
    session.handle_disconnect(&Error::disconnected("cut"));
    let stream = session.first_mut().incoming_mut().unwrap();
    for _ in 0..sent {
        assert!(stream.error().is_none());
        assert!(stream.next_message().is_some());
    }
    assert!(stream.next_message().is_none());
    assert_eq!(stream.error().unwrap().status(), Status::Disconnected);
}

/// Rule E4: nothing comes at a client that has not asked. A retired connection throws away the rest
/// of its last stream.
#[test]
fn what_nobody_asked_for_is_a_fault() {
    let now = Timestamp::default();
    let mut session = client();
    let error = hand_in(&mut session, now, body(1, 1)).unwrap_err();
    assert_eq!(
        error.text(),
        "the server sent a body while no stream was asked for"
    );
    assert!(session.nothing_came(Some(0)).is_err());
    assert!(!session.nothing_came(None).unwrap());
    session.first_mut().retire();
    hand_in(&mut session, now, body(1, 1)).unwrap();
    assert!(session.nothing_came(Some(0)).unwrap());
}

/// Rule D1: over one connection a header comes before its body. The bodies of a stream whose
/// consumer has left are thrown away.
#[test]
fn a_large_body_before_its_header_is_a_fault() {
    let mut session = client();
    receives(&mut session, Verb::Get);
    assert!(session.nothing_came(Some(0)).is_err());
    session.first_mut().incoming_mut().unwrap().cancel();
    assert!(session.nothing_came(Some(0)).unwrap());
}

/// Rules U3, D5: what the connection of the bodies brings waits for the session of the stream.
#[test]
fn bodies_of_another_sessions_stream_wait() {
    let now = Timestamp::default();
    let mut session = client();
    session.first_mut().begin_bodies(100);
    hand_in(&mut session, now, body(1, 100)).unwrap();
    assert!(!session.first().is_full());
    hand_in(&mut session, now, body(2, 1)).unwrap();
    assert!(session.first().is_full());
    assert!(!session.nothing_came(Some(0)).unwrap());
    assert_eq!(session.first_mut().take_bodies().len(), 2);
    assert!(!session.first().is_full());
    session.first_mut().discard_bodies();
    assert!(session.nothing_came(Some(0)).unwrap());
}

/// A stream that repeats the schema of the stream before it gets the earlier header, which is not
/// read anew. A stream with another schema gets its own header.
#[test]
fn the_schema_of_the_last_stream_is_known() {
    let now = Timestamp::default();
    let mut session = client();
    let mut schemas = Vec::new();
    for other in [false, false, true] {
        receives(&mut session, Verb::Get);
        let accepted = Control::Stream(INFO, Headers::new());
        control(&mut session, &accepted).unwrap();
        let InMessage::Metadata(bytes) = metadata(0) else {
            panic!("no metadata");
        };
        let mut bytes = bytes.to_vec();
        // Padding after the header makes a different header with the same meaning.
        bytes.extend(vec![0; if other { 8 } else { 0 }]);
        hand_in(&mut session, now, InMessage::Metadata(bytes.into())).unwrap();
        let stream = session.first_mut().incoming_mut().unwrap();
        while stream.poll_event().is_some() {}
        schemas.push(stream.schema().unwrap().bytes().as_ptr());
        session.first_mut().end_receiving();
    }
    assert_eq!(schemas[0], schemas[1]);
    assert_ne!(schemas[1], schemas[2]);
}

/// Rule E4: a stream that its consumer has left is over with the server's last word. The wait for a
/// silent server is as long as the consumer said.
#[test]
fn a_stream_that_was_left_ends() {
    let at = |seconds| Timestamp::default().saturating_add(Duration::from_secs(seconds));
    let left = || {
        let mut session = client();
        receives(&mut session, Verb::Get);
        let stream = session.first_mut().incoming_mut().unwrap();
        stream.cancel();
        stream.leave(at(0), Duration::from_secs(60));
        assert_eq!(events(&mut session), []);
        session
    };
    let mut session = left();
    assert_eq!(session.poll_timeout(), Some(at(60)));
    session.handle_timeout(at(59), true).unwrap();
    assert_eq!(events(&mut session), []);
    session.handle_timeout(at(60), true).unwrap();
    let silent = SessionEvent::Silent(Duration::from_secs(60));
    assert_eq!(events(&mut session), [silent]);
    assert_eq!(
        (session.first().rest(), session.poll_timeout()),
        (Rest::More, None)
    );
    // The number of messages of such a stream is limited too, whatever they are.
    let mut session = left();
    let unknown = || hand_in(&mut session, at(1), InMessage::Control(vec![99].into()));
    let mut handled = std::iter::repeat_with(unknown).take(2 << 20);
    let error = handled.find_map(Result::err).unwrap();
    assert_eq!(error.status(), Status::Protocol);
    let mut session = left();
    let error = Control::Error {
        status: Status::Cancelled.code(),
        seq: 0,
        text: "left".into(),
        headers: Headers::new(),
    };
    control(&mut session, &error).unwrap();
    assert_eq!(session.first().rest(), Rest::Nothing);
    assert_eq!(events(&mut session), [SessionEvent::LeftOver]);
    assert_eq!(events(&mut session), []);
}

/// Rule E4, GOAWAY: the client ends the connection once the running stream has arrived.
#[test]
fn a_dismissed_client_ends_the_connection() {
    let mut session = client();
    receives(&mut session, Verb::Get);
    assert_eq!(
        control(&mut session, &Control::GoAway).unwrap(),
        Handled::Done
    );
    assert!(session.is_dismissed());
    assert!(!session.nothing_came(None).unwrap());
    session.first_mut().end_receiving();
    let error = session.nothing_came(None).unwrap_err();
    assert_eq!(error.status(), Status::Disconnected);
}

/// A server that stops asks its client once to end the connection.
#[test]
fn a_server_dismisses_once() {
    let mut session = asked(Verb::Get);
    let first = Timestamp::from_nanos(5);
    assert_eq!(session.dismiss(first), first);
    assert_eq!(session.dismiss(Timestamp::from_nanos(9)), first);
    assert_eq!(sent(&mut session), ["GOAWAY"]);
}

/// Rule E3: a region's number is free after its acknowledgement, and not before. Regions outlive
/// streams, and a baseline peer never sees one.
#[test]
fn regions_come_and_go() {
    let mut session = asked(Verb::Get);
    session.announce_region(1, &[9]).unwrap();
    let (id, handle) = (1, vec![9]);
    let bytes = Control::Region { id, handle }.encode();
    let region = Some(1);
    assert_eq!(
        session.poll_transmit(),
        Some((0, Transmit::Control { bytes, region }))
    );
    assert!(session.announce_region(1, &[9]).is_err() && session.announce_region(0, &[9]).is_err());
    assert!(session.retire_region(2).is_err());
    session.first_mut().sender().refuse(-5, "no").unwrap();
    session.retire_region(1).unwrap();
    assert!(session.retire_region(1).is_err() && session.announce_region(1, &[9]).is_err());
    control(&mut session, &Control::RegionForgotten { id: 1 }).unwrap();
    let forgotten = SessionEvent::RegionForgotten { id: 1 };
    assert_eq!(events(&mut session), [forgotten]);
    session.announce_region(1, &[9]).unwrap();
    let error = control(&mut session, &Control::RegionForgotten { id: 1 }).unwrap_err();
    assert_eq!(error.rule(), Some("E3"));
    let mut baseline = server_of(true);
    handle_tagged(&mut baseline, tags().want_data, b"t");
    assert!(baseline.announce_region(1, &[9]).is_err());
}

/// Rule R5, PENDING: said once for each request, to a client that wants it.
#[test]
fn pending_is_said_once() {
    let mut session = server_of(true);
    let request = Request {
        features: crate::proto::FEATURE_PENDING,
        ..asks_to(Verb::Get)
    };
    let bytes = request.encode();
    handle_tagged(&mut session, tags().dipc_want, &bytes);
    events(&mut session);
    session.first_mut().say_pending();
    session.first_mut().say_pending();
    assert_eq!(sent(&mut session), ["PENDING"]);
}

/// A request that comes while the host still has the stream before it waits. The client has
/// finished with that stream.
#[test]
fn a_request_waits_for_the_holder() {
    let mut session = server_of(true);
    let bytes = asks_to(Verb::Get).encode();
    handle_tagged(&mut session, tags().dipc_want, &bytes);
    let at = Timestamp::from_nanos(7);
    let Some((_, SessionEvent::Requested(request))) = session.poll_event(|| at) else {
        panic!("no request");
    };
    assert_eq!((request.at, &*request.request.ticket), (at, &b"t"[..]));
    assert_eq!(session.first().batches_taken(), 0);
    session.first_mut().put_back(request);
    assert_eq!(session.first().batches_taken(), u64::MAX);
    assert!(session.first_mut().take_waiting().is_some());
    assert!(!session.first().has_waiting());
}

/// The first request has a time limit. Later, a connection without a stream is looked at twice, and
/// closed at the second look, unless one side has memory of the other.
#[test]
fn a_quiet_connection_is_closed() {
    let after = |seconds| Timestamp::default().saturating_add(Duration::from_secs(seconds));
    let mut session = server_of(true);
    assert_eq!(session.poll_timeout(), Some(after(30)));
    session.handle_timeout(after(29), true).unwrap();
    let error = session.handle_timeout(after(30), true).unwrap_err();
    assert_eq!(error.status(), Status::Timeout);

    let mut session = asked(Verb::Get);
    session.handle_timeout(after(30), true).unwrap();
    assert_eq!(session.poll_timeout(), Some(after(630)));
    session.first_mut().sender().refuse(-5, "no").unwrap();
    // Something waits for room.
    session.handle_timeout(after(630), false).unwrap();
    session.handle_timeout(after(1230), true).unwrap();
    assert!(session.handle_timeout(after(1829), true).is_ok());
    assert!(session.handle_timeout(after(1830), true).is_err());
    assert_eq!(client().poll_timeout(), None);
}

/// A stream that the client sends keeps the connection only until all of it has come.
#[test]
fn a_connection_is_quiet_again_after_a_put() {
    let after = |seconds| Timestamp::default().saturating_add(Duration::from_secs(seconds));
    let mut session = asked(Verb::Put);
    receives(&mut session, Verb::Put);
    session.first_mut().sender().refuse(-5, "no").unwrap();
    session.handle_timeout(after(30), true).unwrap();
    session.handle_timeout(after(630), true).unwrap();
    session.handle_timeout(after(1230), true).unwrap();
    let abort = Control::Abort {
        stream: 0,
        status: -5,
        seq: 0,
        text: "no".into(),
    };
    control(&mut session, &abort).unwrap();
    session.first_mut().end_receiving();
    session.handle_timeout(after(1830), true).unwrap();
    assert!(session.handle_timeout(after(2430), true).is_err());
}

/// Rule F2: a client that has stopped returning memory is needed until all of it is back.
#[test]
fn lent_memory_keeps_a_connection() {
    let mut session = asked(Verb::Get);
    let sender = session.first_mut().sender();
    sender.accept(INFO).unwrap();
    sender.send_schema(crate::proto::testing::schema()).unwrap();
    let (header, len) = crate::proto::testing::batch(&[100]);
    let body = crate::proto::OutBody::Lent {
        spans: vec![crate::proto::Span {
            address: 64,
            length: 100,
        }]
        .into(),
        hold: "hold",
        in_place: true,
    };
    sender.send_batch(header, len, body).unwrap();
    sender.end().unwrap();
    assert!(session.first().is_needed());
    let back = Control::Return {
        stream: 0,
        seqs: vec![1],
    };
    control(&mut session, &back).unwrap();
    assert_eq!(events(&mut session), [SessionEvent::Freed("hold")]);
    assert!(!session.first().is_needed());
}

#[path = "many_link.rs"]
mod many_link;
#[path = "session_rules.rs"]
mod rules;
#[path = "sending_link.rs"]
mod sending_link;
#[path = "streams.rs"]
mod streams;
#[path = "session_table.rs"]
mod table;
