//! Role × state of the streams × kind of message, as snapshots: a review shows a forgotten
//! transition as a changed line.

use std::fmt::Write as _;

use super::*;
use crate::proto::{BodyKind, body_tag, encode_frees};

fn states() -> Vec<(&'static str, TestSession)> {
    let with = |mut session: TestSession, change: fn(&mut TestSession)| {
        change(&mut session);
        while session.poll_transmit().is_some() {}
        events(&mut session);
        session
    };
    let begins = |session: &mut TestSession| {
        let sender = session.first_mut().sender();
        sender.accept(INFO).unwrap();
        sender.send_schema(crate::proto::testing::schema()).unwrap();
    };
    vec![
        ("server_idle", server_of(true)),
        ("server_idle_unordered", server_of(false)),
        ("server_get_requested", with(asked(Verb::Get), |_| {})),
        ("server_get_streaming", with(asked(Verb::Get), begins)),
        (
            "server_put_undecided",
            with(asked(Verb::Put), |session| {
                session.first_mut().await_decision()
            }),
        ),
        (
            "server_put_taking",
            with(asked(Verb::Put), |session| {
                receives(session, Verb::Put);
                session.first_mut().sender().grant(INFO, GRANT).unwrap();
            }),
        ),
        (
            "server_put_draining",
            with(asked(Verb::Put), |session| {
                receives(session, Verb::Put);
                session.first_mut().sender().fail(-5, "no").unwrap();
            }),
        ),
        (
            "server_put_taken",
            with(asked(Verb::Put), |session| {
                session.first_mut().await_decision();
                session.first_mut().sender().grant(INFO, GRANT).unwrap();
                session.first_mut().sender().incoming_over();
                session.first_mut().end_receiving();
                session.first_mut().sender().finish_taking(0).unwrap();
            }),
        ),
        ("client_idle", client()),
        (
            "client_get",
            with(client(), |session| receives(session, Verb::Get)),
        ),
        (
            "client_get_left",
            with(client(), |session| {
                receives(session, Verb::Get);
                let stream = session.first_mut().incoming_mut().unwrap();
                stream.cancel();
                stream.leave(Timestamp::default(), Duration::from_secs(60));
            }),
        ),
        (
            "client_bodies",
            with(client(), |session| session.first_mut().begin_bodies(1000)),
        ),
        (
            "client_retired",
            with(client(), |session| session.first_mut().retire()),
        ),
        ("client_put_asked", with(asking(Verb::Put), |_| {})),
        (
            "client_exchange",
            with(asking(Verb::Exchange), |session| {
                receives(session, Verb::Exchange);
                let grant = Control::Grant {
                    info: INFO,
                    grant: GRANT,
                    headers: Headers::new(),
                };
                control(session, &grant).unwrap();
            }),
        ),
        (
            "client_closed",
            with(asking(Verb::Put), |session| {
                session.handle_disconnect(&Error::disconnected("cut"));
            }),
        ),
    ]
}

fn controls() -> Vec<Control> {
    vec![
        Control::Stream(INFO, Headers::new()),
        Control::Error {
            status: -5,
            seq: 0,
            text: "no".into(),
            headers: Headers::new(),
        },
        Control::Cancel { stream: 0 },
        Control::Credit {
            stream: 0,
            credit: Credit {
                batches: 9,
                bytes: 9999,
            },
        },
        Control::Region {
            id: 7,
            handle: vec![1],
        },
        Control::RegionGone { id: 7 },
        Control::RegionForgotten { id: 7 },
        Control::GoAway,
        Control::Ready {
            seq: 1,
            event: 2,
            handle: Vec::new(),
        },
        Control::Return {
            stream: 0,
            seqs: vec![1],
        },
        Control::Pending { stream: 0 },
        Control::Grant {
            info: INFO,
            grant: GRANT,
            headers: Headers::new(),
        },
        Control::Result {
            stream: 0,
            batches: 0,
            bytes: Vec::new(),
        },
        Control::End {
            stream: 0,
            seq: 0,
            batches: 0,
            headers: Headers::new(),
        },
        Control::Abort {
            stream: 0,
            status: -5,
            seq: 1,
            text: "no".into(),
        },
    ]
}

/// Every kind of message, with its name.
fn messages() -> Vec<(String, Option<u64>, Vec<u8>)> {
    let tagged = [
        ("want_data", tags().want_data, b"t".to_vec()),
        (
            "dipc_want get",
            tags().dipc_want,
            asks_to(Verb::Get).encode(),
        ),
        (
            "dipc_want put",
            tags().dipc_want,
            asks_to(Verb::Put).encode(),
        ),
        ("free_data", tags().free_data.unwrap(), encode_frees(&[64])),
        ("list", body_tag(1, BodyKind::List), vec![0; 16]),
        ("foreign tag", 3 << 60, Vec::new()),
    ];
    let tagged = tagged.map(|(name, tag, bytes)| (name.to_owned(), Some(tag), bytes));
    let controls = controls().into_iter();
    let controls = controls.map(|message| (message.name().to_owned(), None, message.encode()));
    let broken = [
        ("control of unknown kind".to_owned(), None, vec![99]),
        ("control malformed".to_owned(), None, Vec::new()),
    ];
    tagged.into_iter().chain(controls).chain(broken).collect()
}

/// What follows from a message: what is left to do with it, and the outputs.
fn outcome(session: &mut TestSession, message: InMessage<Bytes, &'static str>) -> String {
    let mut line = match hand_in(session, Timestamp::default(), message) {
        Ok(Handled::Done) => "done".to_owned(),
        Ok(Handled::Expect(_)) => "a body is expected".to_owned(),
        Ok(Handled::Memory(_)) => "the peer's memory".to_owned(),
        Err(error) => match error.rule() {
            Some(rule) => format!("{error} (rule {rule})"),
            None => error.to_string(),
        },
    };
    let waits = session.first_mut().take_bodies().len();
    if waits > 0 {
        line.push_str("; waits for its stream");
    }
    if let Some(stream) = session.first_mut().incoming_mut()
        && let Some(error) = stream.error()
    {
        write!(line, "; the stream that comes in fails: {error}").unwrap();
    }
    for name in sent(session) {
        write!(line, "; sends {name}").unwrap();
    }
    for event in events(session) {
        match event {
            SessionEvent::Requested(_) => line.push_str("; event Requested"),
            event => write!(line, "; event {event:?}").unwrap(),
        }
    }
    line
}

/// Rules M1, E1 to E4, Q2 to Q5, Q10, Q11: role × state × message.
#[test]
fn every_role_state_and_message() {
    for index in 0..states().len() {
        let fresh = || states().swap_remove(index);
        let name = fresh().0;
        let mut table = String::new();
        for (message, tag, bytes) in messages() {
            let (_, mut session) = fresh();
            let bytes = bytes.into();
            let input = match tag {
                Some(tag) => InMessage::Tagged { tag, bytes },
                None => InMessage::Control(bytes),
            };
            let outcome = outcome(&mut session, input);
            writeln!(
                table,
                "{message} -> {:?}: {outcome}",
                session.first().state()
            )
            .unwrap();
        }
        for (message, input) in [("schema", metadata(0)), ("packed body", body(1, 10))] {
            let (_, mut session) = fresh();
            let outcome = outcome(&mut session, input);
            writeln!(
                table,
                "{message} -> {:?}: {outcome}",
                session.first().state()
            )
            .unwrap();
        }
        insta::assert_snapshot!(format!("session_{name}"), table);
    }
}
