//! Section S: many streams on one connection.

use super::*;
use crate::proto::FEATURE_STREAMS;

fn request(number: u32, verb: Verb) -> Request {
    Request {
        number,
        stream_id: number.into(),
        features: FEATURE_STREAMS | FEATURE_RETURN,
        ..asks_to(verb)
    }
}

fn ask(session: &mut TestSession, number: u32, verb: Verb) -> Result<Handled> {
    let bytes: Bytes = request(number, verb).encode().into();
    let tag = tags().dipc_want;
    let message = InMessage::Tagged {
        tag,
        bytes: &bytes[..],
    };
    session.handle(Timestamp::default(), number, message)
}

fn say(session: &mut TestSession, number: u32, control: &Control) -> Result<Handled> {
    let bytes = control.encode();
    session.handle(Timestamp::default(), number, InMessage::Control(&bytes))
}

/// What a session sends: the number of the stream, and the control message, if it is one.
fn all_sent(session: &mut TestSession) -> Vec<(u32, Option<Control>)> {
    let transmits = std::iter::from_fn(|| session.poll_transmit());
    let sent = transmits.map(|(number, transmit)| match transmit {
        Transmit::Control { bytes, .. } => (number, Control::decode(&bytes).unwrap()),
        _ => (number, None),
    });
    sent.collect()
}

fn requested(session: &mut TestSession) -> Vec<u32> {
    let events = std::iter::from_fn(|| session.poll_event(Timestamp::default));
    let events = events.map(|(number, event)| match event {
        SessionEvent::Requested(asked) => {
            assert_eq!(asked.request.number, number);
            number
        }
        event => panic!("{event:?}"),
    });
    events.collect()
}

/// A server that takes this many streams, and has read the first request.
fn server(limit: u32, is_ordered: bool) -> TestSession {
    let mut session = server_of(is_ordered);
    session.offer_streams(limit);
    ask(&mut session, 0, Verb::Get).unwrap();
    assert_eq!(requested(&mut session), [0]);
    assert_eq!(
        all_sent(&mut session),
        [(0, Some(Control::Streams { limit }))]
    );
    session
}

/// A client that has asked for a stream, and may have this many streams.
fn client_of_many(limit: u32) -> TestSession {
    let mut session = client();
    session.offer_streams(limit);
    receives(&mut session, Verb::Get);
    say(&mut session, 0, &Control::Streams { limit }).unwrap();
    session
}

fn begin(session: &mut TestSession, number: u32) {
    let sender = session.stream_mut(number).unwrap().sender();
    sender.accept(INFO).unwrap();
    sender.send_schema(crate::proto::testing::schema()).unwrap();
}

/// Sends a batch that lends memory.
fn lend(session: &mut TestSession, number: u32) {
    let (header, len) = crate::proto::testing::batch(&[100]);
    let spans = vec![crate::proto::Span {
        address: 64 + u64::from(number),
        length: 100,
    }];
    let body = crate::proto::OutBody::Lent {
        spans: spans.into(),
        hold: "hold",
        in_place: true,
    };
    let sender = session.stream_mut(number).unwrap().sender();
    sender.send_batch(header, len, body).unwrap();
}

/// Rule S1: a server says STREAMS once, before its host decides, to a client that asks for many. It
/// does not say STREAMS to other clients.
#[test]
fn the_server_says_how_many_streams_it_takes() {
    let session = server(5, true);
    assert_eq!(session.stream_limit(), 5);
    for (offered, features, role) in [
        (None, FEATURE_STREAMS | FEATURE_RETURN, Role::Both),
        (Some(1), FEATURE_STREAMS | FEATURE_RETURN, Role::Both),
        (Some(5), FEATURE_RETURN, Role::Both),
        // Lent memory comes back by the number of its stream.
        (Some(5), FEATURE_STREAMS, Role::Both),
        (Some(5), FEATURE_STREAMS | FEATURE_RETURN, Role::Metadata),
    ] {
        let times = QuietTimes::default();
        let config = SenderConfig::default();
        let mut other = TestSession::server(config, true, times, Timestamp::default());
        if let Some(limit) = offered {
            other.offer_streams(limit);
        }
        let request = Request {
            features,
            ..asks_to(Verb::Get)
        };
        handle_tagged(
            &mut other,
            Tags::default_for(role).dipc_want,
            &request.encode(),
        );
        assert_eq!(requested(&mut other), [0]);
        assert_eq!((all_sent(&mut other), other.stream_limit()), (vec![], 1));
        // A later request does not change that.
        ask(&mut other, 0, Verb::Get).ok();
        assert_eq!(other.stream_limit(), 1);
    }
}

/// Rule S1: a client opens streams once the server has said STREAMS, as many as the server says,
/// but no more than the client wants.
#[test]
fn a_client_opens_as_many_streams_as_the_server_takes() {
    for (wanted, said, has) in [(10, 3, 3), (2, 3, 2)] {
        let mut session = client();
        session.offer_streams(wanted);
        assert_eq!(session.open().unwrap_err().status(), Status::Busy);
        receives(&mut session, Verb::Get);
        say(&mut session, 0, &Control::Streams { limit: said }).unwrap();
        for number in 1..has {
            assert_eq!(session.open().unwrap(), number);
        }
        assert_eq!(session.open().unwrap_err().status(), Status::Busy);
        // Rule S4: a stream that is over makes room for another, and its number is not used again.
        session.release(1);
        assert!(events(&mut session).is_empty());
        assert_eq!(session.open().unwrap(), has);
        say(&mut session, 0, &Control::GoAway).unwrap();
        assert_eq!(session.open().unwrap_err().status(), Status::Disconnected);
    }
    let error = say(&mut client(), 0, &Control::Streams { limit: 3 }).unwrap_err();
    assert_eq!(error.rule(), Some("S1"));
}

/// Rule S2: the numbers of requests ascend. Without STREAMS, 0 is the only number.
#[test]
fn numbers_of_requests_ascend() {
    let mut session = server(5, true);
    ask(&mut session, 1, Verb::Get).unwrap();
    ask(&mut session, 7, Verb::Put).unwrap();
    assert_eq!(requested(&mut session), [1, 7]);
    for number in [0, 1, 6, 7] {
        let mut session = server(5, true);
        ask(&mut session, 7, Verb::Get).unwrap();
        let error = ask(&mut session, number, Verb::Get).unwrap_err();
        assert_eq!(error.rule(), Some("S2"));
    }
    let mut one = server_of(true);
    assert_eq!(ask(&mut one, 1, Verb::Get).unwrap_err().rule(), Some("S2"));
}

/// Rule S3: credit, CANCEL and the end are each stream's own.
#[test]
fn streams_go_their_own_way() {
    let mut session = server(5, true);
    ask(&mut session, 1, Verb::Get).unwrap();
    ask(&mut session, 2, Verb::Get).unwrap();
    requested(&mut session);
    for number in 0..3 {
        begin(&mut session, number);
    }
    let credit = Credit {
        batches: 50,
        bytes: 5000,
    };
    say(&mut session, 1, &Control::Credit { stream: 1, credit }).unwrap();
    say(&mut session, 2, &Control::Cancel { stream: 2 }).unwrap();
    let lost = session.poll_event(Timestamp::default);
    assert_eq!(lost, Some((2, SessionEvent::Lost)));
    let batches = |number| session.stream(number).unwrap().room().unwrap().batches();
    assert_eq!([batches(0), batches(1)], [4, 50]);
    assert!(session.stream(2).unwrap().ensure_streaming().is_err());
    session.first_mut().sender().end().unwrap();
    assert!(session.stream(1).unwrap().ensure_streaming().is_ok());
    let numbers = all_sent(&mut session).into_iter().map(|(number, _)| number);
    // STREAM and the schema of each, and an end.
    assert_eq!(numbers.collect::<Vec<_>>(), [0, 0, 0, 1, 1, 2, 2]);
}

/// Rule S4: a stream counts until both sides have said their last word and its host has returned. A
/// server that is asked for more answers busy, and its host does not hear of it.
#[test]
fn more_streams_than_the_limit_are_busy() {
    let mut session = server(2, true);
    begin(&mut session, 0);
    ask(&mut session, 1, Verb::Get).unwrap();
    assert_eq!(requested(&mut session), [1]);
    begin(&mut session, 1);
    all_sent(&mut session);
    for (number, verb) in [(2, Verb::Get), (3, Verb::Put)] {
        ask(&mut session, number, verb).unwrap();
        assert!(requested(&mut session).is_empty());
        let sent = all_sent(&mut session);
        let [(at, Some(Control::Error { status, .. }))] = &sent[..] else {
            panic!("{sent:?}");
        };
        assert_eq!((*at, *status), (number, Status::Busy.code()));
    }
    // Rule Q10: what the client still sends of its table is dropped, up to its last word.
    assert!(session.stream(2).is_none());
    let abort = Control::Abort {
        stream: 3,
        status: -5,
        seq: 0,
        text: "no".into(),
    };
    say(&mut session, 3, &abort).unwrap();
    assert!(events(&mut session).is_empty());
    assert!(session.stream(3).is_none());
    // The host has not returned yet.
    session.stream_mut(1).unwrap().sender().end().unwrap();
    ask(&mut session, 4, Verb::Get).unwrap();
    assert!(requested(&mut session).is_empty());
    session.release(1);
    assert!(events(&mut session).is_empty());
    ask(&mut session, 5, Verb::Get).unwrap();
    assert_eq!(requested(&mut session), [5]);
}

/// Rules S3, Q3: a client that goes on with a table while the host decides is cut off. If the
/// connection were not read instead, the hosts of other streams would wait.
#[test]
fn a_client_waits_for_the_answer() {
    let mut session = server(5, true);
    ask(&mut session, 1, Verb::Put).unwrap();
    requested(&mut session);
    session.stream_mut(1).unwrap().await_decision();
    let mut sent = (0..5000).map(|_| {
        let schema = InMessage::Metadata(&[0_u8; 5][..]);
        session.handle(Timestamp::default(), 1, schema)
    });
    let error = sent.find_map(Result::err).expect("it is bounded");
    assert_eq!(error.status(), Status::Protocol);
    assert!(
        error.text().contains("before the server has answered"),
        "{error}"
    );
}

/// Rule S4: a client that goes on to ask the server to take tables, and ends none of those that
/// were refused, is cut off.
#[test]
fn refused_tables_that_never_end_are_bounded() {
    let mut session = server(2, true);
    begin(&mut session, 0);
    let asked = (1..1000).map(|number| {
        let asked = ask(&mut session, number, Verb::Put);
        requested(&mut session);
        all_sent(&mut session);
        asked
    });
    let refused: Vec<_> = asked.take_while(Result::is_ok).collect();
    assert_eq!(refused.len(), 2 * 2 + 64);
    let error = ask(&mut session, 1000, Verb::Put).unwrap_err();
    assert_eq!(error.status(), Status::Protocol);
}

/// Rules E1, S4: a stream that the server cannot serve makes room for another, although no host has
/// it.
#[test]
fn a_stream_of_another_version_leaves_its_place() {
    let mut session = server(2, true);
    begin(&mut session, 0);
    for number in 1..4 {
        let request = Request {
            min_version: 9,
            max_version: 9,
            ..request(number, Verb::Get)
        };
        let bytes = request.encode();
        handle_tagged(&mut session, tags().dipc_want, &bytes);
        assert!(requested(&mut session).is_empty());
        all_sent(&mut session);
        assert!(session.stream(number).is_none());
    }
    ask(&mut session, 4, Verb::Get).unwrap();
    assert_eq!(requested(&mut session), [4]);
}

/// Rules F2, S4: an ended stream does not count while the peer still has its memory, and the memory
/// comes back by the stream's number.
#[test]
fn memory_of_a_stream_outlives_the_stream() {
    let mut session = server(2, true);
    begin(&mut session, 0);
    ask(&mut session, 1, Verb::Get).unwrap();
    requested(&mut session);
    begin(&mut session, 1);
    lend(&mut session, 1);
    session.stream_mut(1).unwrap().sender().end().unwrap();
    session.release(1);
    all_sent(&mut session);
    assert!(events(&mut session).is_empty());
    ask(&mut session, 2, Verb::Get).unwrap();
    assert_eq!(requested(&mut session), [2]);
    let (stream, seqs) = (1, vec![1]);
    say(&mut session, 1, &Control::Return { stream, seqs }).unwrap();
    assert_eq!(
        session.poll_event(Timestamp::default),
        Some((1, SessionEvent::Freed("hold")))
    );
    assert!(events(&mut session).is_empty());
    assert!(session.stream(1).is_none());
}

/// Rule E3: regions belong to the connection, so the server hears of them even after the end of the
/// only stream that has come in.
#[test]
fn regions_outlive_the_stream_that_named_them() {
    for is_ordered in [false, true] {
        let mut session = server(2, is_ordered);
        let gone = Control::RegionGone { id: 7 };
        assert_eq!(
            say(&mut session, 0, &gone).unwrap_err().rule(),
            Some("E3"),
            "nothing has come in"
        );
        let mut session = server(2, is_ordered);
        ask(&mut session, 1, Verb::Put).unwrap();
        assert_eq!(requested(&mut session), [1]);
        let stream = session.stream_mut(1).unwrap();
        stream.await_decision();
        stream.sender().refuse(-5, "no").unwrap();
        stream.sender().incoming_over();
        stream.end_receiving();
        session.release(1);
        all_sent(&mut session);
        assert!(events(&mut session).is_empty());
        assert!(session.stream(1).is_none());
        assert!(matches!(
            say(&mut session, 0, &gone).unwrap(),
            Handled::Memory(_)
        ));
    }
}

/// Rule F4: the end of the connection gives back the lends of all streams, and each stream fails.
#[test]
fn the_end_of_the_connection_ends_each_stream() {
    let mut session = server(3, true);
    begin(&mut session, 0);
    for number in 1..3 {
        ask(&mut session, number, Verb::Get).unwrap();
        begin(&mut session, number);
        lend(&mut session, number);
    }
    let error = Error::disconnected("cut");
    assert_eq!(session.handle_disconnect(&error), ["hold", "hold"]);
    for number in 0..3 {
        let stream = session.stream(number).unwrap();
        assert_eq!(stream.ensure_streaming().unwrap_err(), error);
    }
}

/// Rule S7: messages that may cross the end of their stream are ignored after it. All other
/// messages of an ended stream are a fault, and so is a number that no stream has had.
#[test]
fn messages_of_no_stream_are_faults() {
    let ended = || {
        let mut session = server(3, true);
        ask(&mut session, 1, Verb::Get).unwrap();
        requested(&mut session);
        session
            .stream_mut(1)
            .unwrap()
            .sender()
            .refuse(-5, "no")
            .unwrap();
        session.release(1);
        all_sent(&mut session);
        assert!(events(&mut session).is_empty());
        assert!(session.stream(1).is_none());
        session
    };
    let (stream, credit) = (1, WINDOW);
    for late in [
        Control::Credit { stream, credit },
        Control::Cancel { stream },
        Control::Return {
            stream,
            seqs: vec![1],
        },
    ] {
        assert_eq!(say(&mut ended(), 1, &late).unwrap(), Handled::Done);
        assert_eq!(say(&mut ended(), 2, &late).unwrap_err().rule(), Some("S7"));
    }
    let mut session = ended();
    let bytes = [1, 0, 0, 0, 0];
    let message = InMessage::Metadata(&bytes[..]);
    let error = session
        .handle(Timestamp::default(), 1, message)
        .unwrap_err();
    assert_eq!(error.status(), Status::Protocol);
}

/// Rule S7: without order messages may overtake the request of their stream.
#[test]
fn messages_may_overtake_the_request_of_their_stream() {
    let now = Timestamp::default();
    let mut session = server(3, false);
    let InMessage::Metadata(schema) = metadata(0) else {
        panic!("no metadata");
    };
    session
        .handle(now, 2, InMessage::Metadata(&schema[..]))
        .unwrap();
    ask(&mut session, 2, Verb::Put).unwrap();
    assert_eq!(requested(&mut session), [2]);
    let stream = session.stream_mut(2).unwrap();
    stream.await_decision();
    stream
        .begin_receiving(now, stream_of(Verb::Put, WINDOW, false))
        .unwrap();
    events(&mut session);
    let incoming = session.stream(2).unwrap().incoming().unwrap();
    assert!(incoming.schema().is_some());
    // No more streams than a client may have asked for.
    let mut hand_in = |number| session.handle(now, number, InMessage::Metadata(&schema[..]));
    let refused = (3..100).find_map(|number| hand_in(number).err());
    assert_eq!(refused.unwrap().rule(), Some("S7"));
}

/// Rule S7: a CANCEL that has overtaken the request of its stream ends that stream.
#[test]
fn a_cancel_may_overtake_its_request() {
    let mut session = server(3, false);
    say(&mut session, 1, &Control::Cancel { stream: 1 }).unwrap();
    say(&mut session, 2, &Control::Cancel { stream: 9 }).unwrap();
    ask(&mut session, 1, Verb::Get).unwrap();
    ask(&mut session, 2, Verb::Get).unwrap();
    let told = std::iter::from_fn(|| session.poll_event(Timestamp::default));
    let lost = told.filter(|(_, event)| *event == SessionEvent::Lost);
    // The other CANCEL names another stream.
    assert_eq!(lost.map(|(number, _)| number).collect::<Vec<_>>(), [1]);
    let is_cancelled = |number: u32| session.stream(number).unwrap().ensure_streaming();
    assert_eq!(is_cancelled(1).unwrap_err().status(), Status::Cancelled);
    is_cancelled(2).unwrap();
}

/// Rules S3, S7: without order headers and control messages of a stream may come after its end, and
/// are dropped. Bodies may not, because the end has waited for them.
#[test]
fn late_messages_are_dropped_where_there_is_no_order() {
    let now = Timestamp::default();
    let InMessage::Metadata(schema) = metadata(0) else {
        panic!("no metadata");
    };
    for is_ordered in [false, true] {
        let mut session = server(3, is_ordered);
        for number in 0..2 {
            let hand_in = |session: &mut TestSession| {
                let schema = session.handle(now, number, InMessage::Metadata(&schema[..]));
                schema.and_then(|_| say(session, number, &Control::Pending { stream: 0 }))
            };
            if number > 0 {
                ask(&mut session, number, Verb::Get).unwrap();
            }
            requested(&mut session);
            session.release(number);
            let sender = session.stream_mut(number).unwrap().sender();
            sender.refuse(-5, "no").unwrap();
            all_sent(&mut session);
            events(&mut session);
            let handed = hand_in(&mut session);
            assert_eq!(handed.is_ok(), !is_ordered, "{number}: {handed:?}");
        }
        let body = InMessage::Body {
            seq: 1,
            len: 8,
            memory: "",
        };
        let error = session.handle(now, 1, body).unwrap_err();
        assert!(
            error.text().contains("stream 1, which has ended"),
            "{error}"
        );
    }
}

/// Rule S2: requests leave in the order of their numbers, whatever their hosts do first. This
/// includes the requests of streams that were left meanwhile. A stream that is never asked for does
/// not hold up the others.
#[test]
fn requests_leave_in_the_order_of_their_numbers() {
    let now = Timestamp::default();
    let mut session = client_of_many(9);
    all_sent(&mut session);
    for number in 1..=5 {
        assert_eq!(session.open().unwrap(), number);
    }
    let begin = |session: &mut TestSession, number| {
        let stream = session.stream_mut(number).unwrap();
        let incoming = stream_of(Verb::Get, WINDOW, true);
        stream.begin_receiving(now, incoming).unwrap();
    };
    begin(&mut session, 2);
    let left = session.stream_mut(2).unwrap().incoming_mut().unwrap();
    left.cancel();
    left.leave_one(now, Duration::from_secs(60));
    session.release(2);
    begin(&mut session, 3);
    begin(&mut session, 5);
    assert!(all_sent(&mut session).is_empty());
    begin(&mut session, 1);
    let cancel = Some(Control::Cancel { stream: 0 });
    assert_eq!(
        all_sent(&mut session),
        [(1, None), (2, None), (2, cancel), (3, None)]
    );
    session.release(4);
    assert_eq!(all_sent(&mut session), [(5, None)]);
}

/// Rule S2: without order a connection has numbers below 2^24.
#[test]
fn numbers_end_where_tags_have_them() {
    let mut session = server(3, false);
    ask(&mut session, (1 << 24) - 2, Verb::Get).unwrap();
    assert_eq!(session.streams.open(), (1 << 24) - 1);
    assert!(!session.streams.has_room());
}

/// Rule S8: a request that is read after GOAWAY never reaches the host; streams that run go on.
#[test]
fn nothing_is_served_after_goaway() {
    let mut session = server(3, true);
    begin(&mut session, 0);
    session.go_away().unwrap();
    all_sent(&mut session);
    ask(&mut session, 1, Verb::Get).unwrap();
    assert!(requested(&mut session).is_empty());
    let sent = all_sent(&mut session);
    assert!(
        matches!(&sent[..], [(1, Some(Control::Error { status, .. }))] if *status == Status::Busy.code()),
        "{sent:?}"
    );
    assert!(session.first().ensure_streaming().is_ok());
}

/// Rule S8: if the server serves no more streams on a connection, the client closes it once no
/// stream is under way, whichever stream has ended first.
#[test]
fn a_dismissed_client_reads_all_of_its_streams() {
    let mut session = client_of_many(3);
    let number = session.open().unwrap();
    let stream = session.stream_mut(number).unwrap();
    stream
        .begin_receiving(Timestamp::default(), stream_of(Verb::Get, WINDOW, false))
        .unwrap();
    say(&mut session, 0, &Control::GoAway).unwrap();
    session.first_mut().end_receiving();
    assert!(!session.nothing_came(None).unwrap());
    session.stream_mut(number).unwrap().end_receiving();
    let error = session.nothing_came(None).unwrap_err();
    assert_eq!(error.status(), Status::Disconnected);
}

/// Rule E4: the connection waits for the rest of a stream that its consumer has left, and the other
/// streams go on meanwhile.
#[test]
fn a_silent_stream_is_noticed_among_others() {
    let at = |seconds| Timestamp::default().saturating_add(Duration::from_secs(seconds));
    let mut session = client_of_many(3);
    let number = session.open().unwrap();
    let stream = session.stream_mut(number).unwrap();
    stream
        .begin_receiving(at(0), stream_of(Verb::Get, WINDOW, true))
        .unwrap();
    let incoming = stream.incoming_mut().unwrap();
    incoming.cancel();
    incoming.leave(at(0), Duration::from_secs(60));
    assert!(events(&mut session).is_empty());
    assert_eq!(session.poll_timeout(), Some(at(60)));
    session.handle_timeout(at(60), true).unwrap();
    let silent = SessionEvent::Silent(Duration::from_secs(60));
    assert_eq!(
        session.poll_event(Timestamp::default),
        Some((number, silent))
    );
    assert!(events(&mut session).is_empty());
    assert_eq!(session.poll_timeout(), None);
}
