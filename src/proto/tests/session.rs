//! Tests of a session: where each message goes, and what the connection does without a request.

use super::*;
use crate::error::Status;
use crate::proto::{Credit, Grant, PutStage, Role, StreamInfo, Tags, Verb};
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
    let message = InMessage::Tagged {
        tag: tags().dipc_want,
        bytes: &bytes,
    };
    assert_eq!(session.handle(message).unwrap(), Handled::Done);
    let event = session.poll_event(Timestamp::default).unwrap();
    assert!(matches!(event, SessionEvent::Requested(_)));
    session
}

/// A client that has asked a server to take its stream.
pub(super) fn asking(verb: Verb) -> TestSession {
    let mut session = client();
    session.ask(&asks_to(verb)).unwrap();
    session
}

pub(super) fn control(session: &mut TestSession, message: &Control) -> Result<Handled> {
    session.handle(InMessage::Control(&message.encode()))
}

fn events(session: &mut TestSession) -> Vec<SessionEvent<&'static str>> {
    std::iter::from_fn(|| session.poll_event(Timestamp::default)).collect()
}

/// The controls that a session sends.
fn sent(session: &mut TestSession) -> Vec<&'static str> {
    let mut names = Vec::new();
    while let Some(transmit) = session.poll_transmit() {
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
    for batches in 1..=5000 {
        let result = Control::Result {
            stream: 0,
            batches,
            bytes: vec![7; 100],
        };
        assert_eq!(control(&mut session, &result).unwrap(), Handled::Done);
        assert_eq!(events(&mut session), []);
    }
    let results = &session.put().unwrap().results;
    assert_eq!(results.len(), 1024);
    assert_eq!(results.back().unwrap().batches, 5000);
}

/// Rules Q2, Q4: a client learns in turn that its request was read, granted, and taken; then the
/// connection is free.
#[test]
fn a_put_goes_through_its_stages() {
    let mut session = asking(Verb::Put);
    assert_eq!(session.put().unwrap().stage, PutStage::Asked);
    assert!(session.is_needed());
    control(&mut session, &Control::Pending { stream: 0 }).unwrap();
    assert_eq!(events(&mut session), []);
    assert_eq!(session.put().unwrap().stage, PutStage::Heard);
    let grant = Control::Grant {
        info: StreamInfo {
            features: 0,
            ..INFO
        },
        grant: GRANT,
        headers: Headers::new(),
    };
    control(&mut session, &grant).unwrap();
    assert_eq!(
        events(&mut session),
        [SessionEvent::Granted {
            lent_limit: 1000,
            device_type: 1
        }]
    );
    assert_eq!(session.put().unwrap().stage, PutStage::Granted);
    let sender = session.sender();
    sender.send_schema(crate::proto::testing::schema()).unwrap();
    sender.end().unwrap();
    let end = Control::End {
        stream: 0,
        seq: 0,
        batches: 0,
        headers: Headers::new(),
    };
    control(&mut session, &end).unwrap();
    assert_eq!(events(&mut session), [SessionEvent::Answered]);
    assert!(session.has_ended_well());
    assert!(!session.is_needed());
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
    let error = session.ensure_streaming().unwrap_err();
    assert_eq!(
        (error.status(), error.text()),
        (Status::Busy, "the server: full")
    );
}

/// Rule Q5: ERROR ends both streams of an exchange.
#[test]
fn an_error_ends_both_streams_of_an_exchange() {
    let mut session = asking(Verb::Exchange);
    session.begin_receiving(0);
    let error = Control::Error {
        status: Status::Provider.code(),
        seq: 0,
        text: "no".into(),
        headers: Headers::new(),
    };
    let Handled::Stream(Some(of_stream)) = control(&mut session, &error).unwrap() else {
        panic!("the receiver has not seen it");
    };
    assert_eq!(of_stream, error);
    events(&mut session);
    assert!(session.ensure_streaming().is_err());
}

/// Rule Q10: ABORT ends the client's stream, and the server's stream has lost its client.
#[test]
fn an_abort_reaches_both_sides_of_a_server() {
    let mut session = asked(Verb::Exchange);
    session.begin_receiving(1000);
    let abort = Control::Abort {
        stream: 0,
        status: -5,
        seq: 1,
        text: "no".into(),
    };
    let handled = control(&mut session, &abort).unwrap();
    assert_eq!(handled, Handled::Stream(Some(abort)));
    assert_eq!(events(&mut session), [SessionEvent::Lost]);
}

/// Rule Q3: on a connection without order, four messages may overtake the request; more are a
/// fault. With order there is none.
#[test]
fn a_few_messages_may_overtake_the_request() {
    let mut unordered = server_of(false);
    for name in ["schema", "abort", "third", "fourth"] {
        unordered.set_aside(name, None, Held::Other(10)).unwrap();
    }
    let error = unordered
        .set_aside("fifth", None, Held::Other(10))
        .unwrap_err();
    assert_eq!(
        error.text(),
        "the client sent a message that only servers send"
    );
    // They wait for the reader of the stream.
    assert!(unordered.take_early().is_none());
    unordered.await_decision();
    assert!(unordered.take_early().is_none());
    unordered.begin_receiving(0);
    assert_eq!(unordered.take_early().unwrap().message, "schema");
    assert!(
        server_of(true)
            .set_aside("schema", None, Held::Other(10))
            .is_err()
    );
}

/// Rules Q3, Q10: an ABORT that has overtaken its request ends the stream once the stream is read.
#[test]
fn an_abort_may_overtake_the_request() {
    let mut session = server_of(false);
    let abort = Control::Abort {
        stream: 0,
        status: -5,
        seq: 1,
        text: "no".into(),
    };
    let Handled::Stream(kept) = control(&mut session, &abort).unwrap() else {
        panic!("it belongs to a stream");
    };
    session.set_aside("abort", kept, Held::Other(10)).unwrap();
    let bytes = asks_to(Verb::Put).encode();
    let tag = tags().dipc_want;
    session
        .handle(InMessage::Tagged { tag, bytes: &bytes })
        .unwrap();
    assert_eq!(events(&mut session).len(), 1);
    session.begin_receiving(1000);
    session.sender().refuse(-5, "no").unwrap();
    assert_eq!(session.state(), SenderState::Draining);
    let early = session.take_early().unwrap();
    assert_eq!(early.control, Some(abort));
    assert_eq!(events(&mut session), [SessionEvent::Lost]);
    // Nothing more of the stream comes.
    assert_eq!(session.state(), SenderState::Idle);
}

/// Rule Q11: a side reads on whatever its host does, up to what was granted and one body more, and
/// up to a bound of other messages.
#[test]
fn what_waits_for_its_reader_is_bounded() {
    let mut session = asked(Verb::Put);
    session.begin_receiving(100);
    session.set_aside("body", None, Held::Body(100)).unwrap();
    assert!(!session.is_full_of_early());
    session.set_aside("body", None, Held::Body(1)).unwrap();
    assert!(session.is_full_of_early());
    assert_eq!(session.take_early().unwrap().message, "body");
    assert!(!session.is_full_of_early());
    session
        .set_aside("header", None, Held::Other((64 << 20) + 1))
        .unwrap();
    assert!(session.is_full_of_early());
    // The stream is over: nothing of it is left for the next one.
    session.end_receiving();
    assert!(!session.is_full_of_early());
    session.begin_receiving(100);
    for _ in 0..1024 {
        assert!(!session.is_full_of_early());
        session.set_aside("header", None, Held::Other(1)).unwrap();
    }
    assert!(session.is_full_of_early());
    assert!(session.has_early());
}

/// Rule E4: nothing comes at a client that has not asked. A retired connection throws away the rest
/// of its last stream.
#[test]
fn what_nobody_asked_for_is_a_fault() {
    let mut session = client();
    let error = session.set_aside("body", None, Held::Body(1)).unwrap_err();
    assert_eq!(
        error.text(),
        "the server sent a body while no stream was asked for"
    );
    assert!(session.nothing_came(true).is_err());
    assert!(!session.nothing_came(false).unwrap());
    session.retire();
    session.set_aside("body", None, Held::Body(1)).unwrap();
    assert!(session.nothing_came(true).unwrap());
}

/// Rule E4, GOAWAY: the client ends the connection once the running stream has arrived.
#[test]
fn a_dismissed_client_ends_the_connection() {
    let mut session = client();
    session.begin_receiving(0);
    assert_eq!(
        control(&mut session, &Control::GoAway).unwrap(),
        Handled::Done
    );
    assert!(session.is_dismissed());
    assert!(!session.nothing_came(false).unwrap());
    session.end_receiving();
    let error = session.nothing_came(false).unwrap_err();
    assert_eq!(error.status(), Status::Disconnected);
}

/// A server that stops asks its client once to end the connection.
#[test]
fn a_server_dismisses_once() {
    let mut session = asked(Verb::Get);
    session.sender().accept(INFO).unwrap();
    let first = Timestamp::from_nanos(5);
    assert_eq!(session.dismiss(first), first);
    assert_eq!(session.dismiss(Timestamp::from_nanos(9)), first);
    assert_eq!(sent(&mut session), ["STREAM", "GOAWAY"]);
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
    let tag = tags().dipc_want;
    session
        .handle(InMessage::Tagged { tag, bytes: &bytes })
        .unwrap();
    events(&mut session);
    session.say_pending();
    session.say_pending();
    assert_eq!(sent(&mut session), ["PENDING"]);
}

/// A request that comes while the connection has a holder waits. The client has done with the
/// stream before it.
#[test]
fn a_request_waits_for_the_holder() {
    let mut session = server_of(true);
    let bytes = asks_to(Verb::Get).encode();
    let tag = tags().dipc_want;
    session
        .handle(InMessage::Tagged { tag, bytes: &bytes })
        .unwrap();
    let at = Timestamp::from_nanos(7);
    let Some(SessionEvent::Requested(request)) = session.poll_event(|| at) else {
        panic!("no request");
    };
    assert_eq!((request.at, &*request.request.ticket), (at, &b"t"[..]));
    assert_eq!(session.batches_taken(), 0);
    session.put_back(request);
    assert_eq!(session.batches_taken(), u64::MAX);
    assert!(session.take_waiting().is_some());
    assert!(!session.has_waiting());
}

/// The first request has its time. After it a connection without a stream is looked at twice, and
/// closed at the second look; what either side has of the other's memory keeps it.
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
    session.sender().refuse(-5, "no").unwrap();
    // Something waits for room.
    session.handle_timeout(after(630), false).unwrap();
    session.handle_timeout(after(1230), true).unwrap();
    assert!(session.handle_timeout(after(1829), true).is_ok());
    assert!(session.handle_timeout(after(1830), true).is_err());
    assert_eq!(client().poll_timeout(), None);
}

/// A stream that the client has sent keeps the connection no longer than it comes.
#[test]
fn a_connection_is_quiet_again_after_a_put() {
    let after = |seconds| Timestamp::default().saturating_add(Duration::from_secs(seconds));
    let mut session = asked(Verb::Put);
    session.begin_receiving(0);
    session.sender().refuse(-5, "no").unwrap();
    session.handle_timeout(after(30), true).unwrap();
    session.handle_timeout(after(630), true).unwrap();
    session.handle_timeout(after(1230), true).unwrap();
    session.incoming_over();
    session.end_receiving();
    session.handle_timeout(after(1830), true).unwrap();
    assert!(session.handle_timeout(after(2430), true).is_err());
}

/// Rule F2: a client that has stopped returning memory is needed until all of it is back.
#[test]
fn lent_memory_keeps_a_connection() {
    let mut session = asked(Verb::Get);
    let sender = session.sender();
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
    assert!(session.is_needed());
    let back = Control::Return {
        stream: 0,
        seqs: vec![1],
    };
    control(&mut session, &back).unwrap();
    assert_eq!(events(&mut session), [SessionEvent::Freed("hold")]);
    assert!(!session.is_needed());
}

#[path = "put_link.rs"]
mod put_link;
#[path = "session_table.rs"]
mod table;
