//! Every state of the sender against every event, as snapshots: a review shows a forgotten
//! transition as a changed line.

use std::fmt::Write as _;

use super::*;

type Step = fn(&mut TestSender) -> Result<(), Error>;

use crate::error::Error;
use crate::proto::Grant;

fn states() -> Vec<(&'static str, TestSender)> {
    let with = |mut sender: TestSender, change: fn(&mut TestSender)| {
        change(&mut sender);
        drain(&mut sender);
        sender
    };
    let put = || {
        let mut sender = TestSender::new(SenderConfig::default());
        sender
            .handle_tagged(tags(Role::Both).dipc_want, &asks_to_put().encode())
            .unwrap();
        sender
    };
    let exchange = || {
        let mut sender = TestSender::new(SenderConfig::default());
        let request = Request {
            verb: Verb::Exchange,
            ..asks_to_put()
        };
        sender
            .handle_tagged(tags(Role::Both).dipc_want, &request.encode())
            .unwrap();
        sender
    };
    let asked = || {
        let mut sender = TestSender::new(SenderConfig::default());
        sender.ask(&asks_to_put()).unwrap();
        sender
    };
    vec![
        (
            "exchange_streaming",
            with(exchange(), |sender| {
                sender.grant(INFO, GRANT).unwrap();
                sender.accept(INFO).unwrap();
                sender.send_schema(schema()).unwrap();
            }),
        ),
        (
            "exchange_ended_here",
            with(exchange(), |sender| {
                sender.accept(INFO).unwrap();
                sender.send_schema(schema()).unwrap();
                sender.grant(INFO, GRANT).unwrap();
                sender.end().unwrap();
            }),
        ),
        ("put_requested", with(put(), |_| {})),
        (
            "put_taking",
            with(put(), |sender| sender.grant(INFO, GRANT).unwrap()),
        ),
        (
            "put_taken",
            with(put(), |sender| {
                sender.grant(INFO, GRANT).unwrap();
                sender.incoming_over();
            }),
        ),
        (
            "put_draining",
            with(put(), |sender| sender.fail(-5, "no").unwrap()),
        ),
        ("put_asked", with(asked(), |_| {})),
        ("put_streaming", with(asked(), grant)),
        (
            "put_ending",
            with(asked(), |sender| {
                grant(sender);
                sender.end().unwrap();
            }),
        ),
        (
            "put_aborted",
            with(asked(), |sender| {
                grant(sender);
                sender.fail(-19, "no").unwrap();
            }),
        ),
        ("idle", TestSender::new(SenderConfig::default())),
        ("requested", with(requested(Role::Both, true), |_| {})),
        (
            "requested_baseline",
            with(requested(Role::Both, false), |_| {}),
        ),
        (
            "requested_cancelled",
            with(requested(Role::Both, true), |sender| {
                sender
                    .handle_control(&Control::Cancel { stream: 0 }.encode())
                    .unwrap();
            }),
        ),
        (
            "accepted",
            with(requested(Role::Both, true), |sender| {
                sender.accept(INFO).unwrap()
            }),
        ),
        ("streaming", with(streaming(Role::Both, true), lend)),
        (
            "streaming_baseline",
            with(streaming(Role::Both, false), lend),
        ),
        ("streaming_metadata", streaming(Role::Metadata, true)),
        ("streaming_data", with(streaming(Role::Data, true), lend)),
        (
            "streaming_cancelled",
            with(streaming(Role::Both, true), |sender| {
                lend(sender);
                sender
                    .handle_control(&Control::Cancel { stream: 0 }.encode())
                    .unwrap();
            }),
        ),
        (
            "idle_again",
            with(streaming(Role::Both, true), |sender| {
                lend(sender);
                sender.end().unwrap();
            }),
        ),
        (
            "ended_baseline",
            with(streaming(Role::Both, false), |sender| {
                lend(sender);
                sender.end().unwrap();
            }),
        ),
        (
            "ended_data",
            with(streaming(Role::Data, true), |sender| sender.end().unwrap()),
        ),
        (
            "closed",
            with(streaming(Role::Both, true), |sender| {
                lend(sender);
                sender.handle_control(&[]).unwrap_err();
            }),
        ),
    ]
}

fn asks_to_put() -> Request {
    Request {
        verb: Verb::Put,
        source: Some(INFO),
        ..Request::new("t", WINDOW)
    }
}

const GRANT: Grant = Grant {
    credit: WINDOW,
    lent_limit: 1000,
    device_type: 1,
};

/// The server of an asking sender grants the stream; the schema and a lent batch have left.
fn grant(sender: &mut TestSender) {
    sender.send_schema(schema()).unwrap();
    let message = Control::Grant {
        info: INFO,
        grant: GRANT,
        headers: Headers::new(),
    };
    sender.handle(&message).unwrap();
    lend(sender);
}

fn lend(sender: &mut TestSender) {
    let (header, len) = batch(&[100]);
    sender
        .send_batch(header, len, lent(64, 100, "hold"))
        .unwrap();
}

fn body(sender: &TestSender) -> OutBody<&'static str, &'static str> {
    match sender.role() {
        Some(Role::Metadata) => OutBody::Elsewhere,
        _ => packed(128),
    }
}

const EVENTS: &[(&str, Step)] = &[
    ("want_data", |s| {
        Ok(s.handle_tagged(tags(Role::Both).want_data, b"t")?)
    }),
    ("dipc_want", |s| {
        Ok(s.handle_tagged(
            tags(Role::Both).dipc_want,
            &Request::new("t", WINDOW).encode(),
        )?)
    }),
    ("dipc_want of version 9", |s| {
        let request = Request {
            min_version: 9,
            max_version: 9,
            ..Request::new("t", WINDOW)
        };
        Ok(s.handle_tagged(tags(Role::Both).dipc_want, &request.encode())?)
    }),
    ("dipc_want malformed", |s| {
        Ok(s.handle_tagged(tags(Role::Both).dipc_want, b"t")?)
    }),
    ("free_data of what is lent", |s| {
        Ok(s.handle_tagged(free_tag(Role::Both), &encode_frees(&[64]))?)
    }),
    ("free_data of what is not", |s| {
        Ok(s.handle_tagged(free_tag(Role::Both), &encode_frees(&[65]))?)
    }),
    ("free_data malformed", |s| {
        Ok(s.handle_tagged(free_tag(Role::Both), &[1])?)
    }),
    ("foreign tag", |s| Ok(s.handle_tagged(3, &[])?)),
    ("CANCEL", |s| {
        Ok(s.handle_control(&Control::Cancel { stream: 0 }.encode())?)
    }),
    ("CREDIT more", |s| Ok(s.handle_control(&credit(9, 9999))?)),
    ("CREDIT less", |s| Ok(s.handle_control(&credit(0, 0))?)),
    ("STREAM", |s| {
        Ok(s.handle_control(&Control::Stream(INFO, Headers::new()).encode())?)
    }),
    ("GRANT", |s| {
        Ok(s.handle(&Control::Grant {
            info: INFO,
            grant: GRANT,
            headers: Headers::new(),
        })?)
    }),
    ("ERROR", |s| {
        Ok(s.handle(&Control::Error {
            status: -5,
            seq: 0,
            text: "no".into(),
            headers: Headers::new(),
        })?)
    }),
    (
        "PENDING",
        |s| Ok(s.handle(&Control::Pending { stream: 0 })?),
    ),
    ("RESULT", |s| {
        Ok(s.handle(&Control::Result {
            stream: 0,
            batches: 1,
            bytes: Vec::new(),
        })?)
    }),
    ("END", |s| {
        Ok(s.handle(&Control::End {
            stream: 0,
            seq: 0,
            batches: 1,
            headers: Headers::new(),
        })?)
    }),
    ("ABORT", |s| {
        Ok(s.handle(&Control::Abort {
            stream: 0,
            status: -5,
            seq: 1,
            text: "no".into(),
        })?)
    }),
    ("control of unknown kind", |s| Ok(s.handle_control(&[99])?)),
    ("control malformed", |s| Ok(s.handle_control(&[])?)),
    ("disconnect", |s| {
        let held = s.handle_disconnect();
        Err(Error::disconnected(format!("gave back {held:?}")))
    }),
    ("accept", |s| s.accept(INFO)),
    ("refuse", |s| s.refuse(-5, "no")),
    ("send_schema", |s| s.send_schema(schema())),
    ("send_dictionary", |s| {
        let (header, len) = dictionary(&[100]);
        let body = body(s);
        s.send_dictionary(header, len, body)
    }),
    ("send_batch", |s| {
        let (header, len) = batch(&[100]);
        let body = body(s);
        s.send_batch(header, len, body)
    }),
    ("send_batch lent", |s| {
        let (header, len) = batch(&[100]);
        s.send_batch(header, len, lent(512, 100, "other"))
    }),
    ("end", TestSender::end),
    ("fail", |s| s.fail(-19, "no")),
    ("grant", |s| s.grant(INFO, GRANT)),
    ("say_result", |s| s.say_result(1, b"")),
    ("finish_taking", |s| s.finish_taking(1)),
    ("incoming_over", |s| {
        s.incoming_over();
        Ok(())
    }),
    ("ask", |s| s.ask(&asks_to_put())),
];

fn outputs(sender: &mut TestSender) -> String {
    let (transmits, events) = drain(sender);
    let transmits = transmits.into_iter().map(|transmit| match transmit {
        Transmit::Request { .. } => "asks".to_owned(),
        Transmit::Metadata {
            prefix: [0, seq, ..],
            ..
        } => format!("sends end {seq}"),
        Transmit::Metadata {
            prefix: [_, seq, ..],
            ..
        } => format!("sends header {seq}"),
        Transmit::Control { bytes, .. } => match Control::decode(&bytes).unwrap().unwrap() {
            Control::Error { status, seq, .. } => format!("sends ERROR {status} at {seq}"),
            message => format!("sends {}", message.name()),
        },
        Transmit::Body { tag, .. } => format!("sends body {tag:#x}"),
        Transmit::List { tag, .. } => format!("sends list {tag:#x}"),
        Transmit::Disconnect { .. } => "disconnects".into(),
    });
    let events = events.into_iter().map(|event| match event {
        SenderEvent::Requested {
            extension, role, ..
        } => {
            format!(
                "event Requested {role:?}{}",
                if extension { "" } else { " baseline" }
            )
        }
        event => format!("event {event:?}"),
    });
    transmits
        .chain(events)
        .map(|line| format!("    {line}\n"))
        .collect()
}

/// Rules M1, E1 to E5, E7, F1 to F4, Q2 to Q5, Q10: every state × every event.
#[test]
fn every_state_and_every_event() {
    for (name, _) in states() {
        let mut table = String::new();
        for (event, step) in EVENTS {
            let mut sender = states()
                .into_iter()
                .find(|(other, _)| *other == name)
                .unwrap()
                .1;
            let result = step(&mut sender);
            let outcome = match result {
                Ok(()) => "ok".to_owned(),
                Err(error) => match error.rule() {
                    Some(rule) => format!("{error} (rule {rule})"),
                    None => error.to_string(),
                },
            };
            write!(
                table,
                "{event} -> {:?}: {outcome}\n{}",
                sender.state(),
                outputs(&mut sender)
            )
            .unwrap();
        }
        insta::assert_snapshot!(format!("sender_{name}"), table);
    }
}
