//! Every state of the receiver against every event, as snapshots.

use std::fmt::Write as _;

use super::*;

type Step = fn(&mut TestReceiver) -> Result<(), Error>;

fn states() -> Vec<(&'static str, TestReceiver)> {
    let with = |mut receiver: TestReceiver, change: fn(&mut TestReceiver)| {
        change(&mut receiver);
        drain(&mut receiver);
        receiver.abandoned();
        receiver
    };
    vec![
        ("new", TestReceiver::new(config(true, false)).unwrap()),
        ("requested", with(started(config(true, false)), |_| {})),
        (
            "awaiting_schema",
            with(started(config(true, false)), |receiver| {
                receiver
                    .handle_control(NOW, Side::Metadata, &stream())
                    .unwrap();
            }),
        ),
        (
            "awaiting_schema_baseline",
            with(started(config(false, false)), |_| {}),
        ),
        ("streaming", with(streaming(true, false), one_message)),
        (
            "streaming_baseline",
            with(streaming(false, false), one_message),
        ),
        (
            "streaming_separate",
            with(streaming(true, true), one_message),
        ),
        (
            "stopping",
            with(streaming(true, false), |receiver| {
                one_message(receiver);
                receiver
                    .handle_control(NOW, Side::Metadata, &error_at(2))
                    .unwrap();
            }),
        ),
        (
            "end_seen",
            with(streaming(true, true), |receiver| {
                one_message(receiver);
                put_header(receiver, 2).unwrap();
                receiver.handle_metadata(NOW, &end(3)).unwrap();
            }),
        ),
        (
            "ended",
            with(streaming(true, false), |receiver| {
                one_message(receiver);
                receiver.handle_metadata(NOW, &end(2)).unwrap();
            }),
        ),
        (
            "failed",
            with(streaming(true, false), |receiver| {
                receiver.handle_metadata(NOW, &[]).unwrap_err();
            }),
        ),
        (
            "cancelled",
            with(streaming(true, false), TestReceiver::cancel),
        ),
    ]
}

/// A complete message that waits for the consumer.
fn one_message(receiver: &mut TestReceiver) {
    put_header(receiver, 1).unwrap();
    put_list(receiver, 1, 64).unwrap();
}

const EVENTS: &[(&str, Step)] = &[
    ("start", |r| {
        r.start(NOW);
        Ok(())
    }),
    ("schema", |r| {
        r.handle_metadata(NOW, &metadata(0, &schema()))
    }),
    ("header 1", |r| put_header(r, 1)),
    ("header 2", |r| put_header(r, 2)),
    ("header 3", |r| put_header(r, 3)),
    ("schema as 2", |r| {
        r.handle_metadata(NOW, &metadata(2, &schema()))
    }),
    ("header malformed", |r| {
        r.handle_metadata(NOW, &metadata(2, &[1, 2, 3]))
    }),
    ("end 1", |r| r.handle_metadata(NOW, &end(1))),
    ("end 2", |r| r.handle_metadata(NOW, &end(2))),
    ("end 3", |r| r.handle_metadata(NOW, &end(3))),
    ("prefix malformed", |r| r.handle_metadata(NOW, &[9])),
    ("packed 2", |r| put_packed(r, 2)),
    ("list 1", |r| put_list(r, 1, 256)),
    ("list 2", |r| put_list(r, 2, 256)),
    ("list malformed", |r| {
        r.handle_body(NOW, body_tag(2, BodyKind::List), InBody::List(&[1]))
    }),
    ("tag malformed", |r| {
        r.handle_body(NOW, 1 << 40, InBody::List(&list(64, 100)))
    }),
    ("STREAM", |r| {
        r.handle_control(NOW, Side::Metadata, &stream())
    }),
    ("STREAM on the data side", |r| {
        r.handle_control(NOW, Side::Data, &stream())
    }),
    ("ERROR at 1", |r| {
        r.handle_control(NOW, Side::Metadata, &error_at(1))
    }),
    ("ERROR at 3", |r| {
        r.handle_control(NOW, Side::Metadata, &error_at(3))
    }),
    ("ERROR on the data side", |r| {
        r.handle_control(NOW, Side::Data, &error_at(2))
    }),
    ("REGION", |r| {
        r.handle_control(
            NOW,
            Side::Metadata,
            &Control::Region {
                id: 1,
                handle: vec![],
            }
            .encode(),
        )
    }),
    ("REGION_GONE", |r| {
        r.handle_control(NOW, Side::Metadata, &Control::RegionGone { id: 1 }.encode())
    }),
    ("GOAWAY", |r| {
        r.handle_control(NOW, Side::Metadata, &Control::GoAway.encode())
    }),
    ("CANCEL", |r| {
        r.handle_control(NOW, Side::Metadata, &Control::Cancel { stream: 0 }.encode())
    }),
    ("control of unknown kind", |r| {
        r.handle_control(NOW, Side::Metadata, &[99])
    }),
    ("control malformed", |r| {
        r.handle_control(NOW, Side::Metadata, &[])
    }),
    ("disconnect", |r| {
        r.handle_disconnect(Side::Metadata, &Error::disconnected("end of file"));
        Ok(())
    }),
    ("disconnect of the data side", |r| {
        r.handle_disconnect(Side::Data, &Error::disconnected("end of file"));
        Ok(())
    }),
    ("timeout", |r| {
        r.handle_timeout(NOW.saturating_add(STALL));
        Ok(())
    }),
    ("next_message", |r| {
        r.next_message()
            .map(drop)
            .ok_or_else(|| Error::invalid_argument("no message"))
    }),
    ("next_message, flush_credit", |r| {
        let none = r.next_message().is_none();
        r.flush_credit();
        if none {
            Err(Error::invalid_argument("no message"))
        } else {
            Ok(())
        }
    }),
    ("cancel", |r| {
        r.cancel();
        Ok(())
    }),
];

fn outputs(receiver: &mut TestReceiver) -> String {
    let (transmits, events) = drain(receiver);
    let mut lines = Vec::new();
    for transmit in transmits {
        lines.push(match transmit {
            ReceiverTransmit::Tagged { side, tag, .. } => format!("sends {tag:#x} on {side:?}"),
            ReceiverTransmit::Control { side, bytes } => {
                format!(
                    "sends {:?} on {side:?}",
                    Control::decode(&bytes).unwrap().unwrap()
                )
            }
        });
    }
    lines.extend(events.into_iter().map(|event| match event {
        ReceiverEvent::Stream { side, .. } => format!("event Stream on {side:?}"),
        ReceiverEvent::Schema(_) => "event Schema".into(),
        event => format!("event {event:?}"),
    }));
    let abandoned = receiver.abandoned();
    if !abandoned.is_empty() {
        lines.push(format!("abandons {abandoned:?}"));
    }
    lines
        .into_iter()
        .map(|line| format!("    {line}\n"))
        .collect()
}

/// Rules M4 to M6, D1, D5, D8, E1 to E5: every state × every event.
#[test]
fn every_state_and_every_event() {
    for (name, _) in states() {
        let mut table = String::new();
        for (event, step) in EVENTS {
            let mut receiver = states()
                .into_iter()
                .find(|(other, _)| *other == name)
                .unwrap()
                .1;
            let outcome = match step(&mut receiver) {
                Ok(()) => "ok".to_owned(),
                Err(error) => match error.rule() {
                    Some(rule) => format!("{error} (rule {rule})"),
                    None => error.to_string(),
                },
            };
            let over = if receiver.is_over_on_wire() {
                ", over on the wire"
            } else {
                ""
            };
            let rest = outputs(&mut receiver);
            write!(
                table,
                "{event} -> {:?}{over}: {outcome}\n{rest}",
                receiver.state()
            )
            .unwrap();
        }
        insta::assert_snapshot!(format!("receiver_{name}"), table);
    }
}
