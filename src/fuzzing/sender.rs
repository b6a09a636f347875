use std::collections::BTreeSet;

use crate::proto::testing::{batch, schema};
use crate::proto::{
    Control, Credit, Grant, OutBody, Request, RoleTags, Sender, SenderConfig, SenderEvent,
    SenderState, Span, StreamInfo, Tags, Transmit, VERSION, Verb, encode_frees,
};
use crate::fuzzing::supply::Supply;

/// A server's sender, its host, and what is lent.
struct Watch {
    sender: Sender<(), u32>,
    lent: BTreeSet<u32>,
    lends: u32,
}

const INFO: StreamInfo = StreamInfo {
    version: VERSION,
    features: 0,
    device_type: 1,
    device_id: -1,
    body_kinds: 3,
};

/// A client's bytes in any order, well formed and not, and a host's commands in any order: each
/// message can be read, what is lent comes back once, and nothing follows the end of the connection (rules M1, E1 to E5, F1 to F4, Q1 to Q5, Q10).
pub fn sender(data: &[u8]) {
    let mut supply = Supply(data);
    let config = SenderConfig {
        tags: RoleTags::DEFAULT,
        first_seq: if supply.byte() & 1 != 0 { u32::MAX - 1 } else { 0 },
    };
    let mut watch = Watch {
        sender: Sender::new(config),
        lent: BTreeSet::new(),
        lends: 0,
    };
    while !supply.0.is_empty() {
        match supply.byte() % 3 {
            0 => from_client(&mut watch.sender, &mut supply),
            1 => structured(&mut watch.sender, &mut supply),
            _ => command(&mut watch, &mut supply),
        }
        check(&mut watch);
    }
    let held = watch.sender.handle_disconnect();
    held.iter().for_each(|hold| take_back(&mut watch.lent, *hold));
    assert!(watch.lent.is_empty(), "lost: {:?}", watch.lent);
}

/// Bytes as they come.
fn from_client(sender: &mut Sender<(), u32>, supply: &mut Supply<'_>) {
    let (kind, len) = (supply.byte(), supply.byte());
    let tags = Tags::DEFAULT;
    let bytes = supply.bytes(len);
    // An error closes the connection, which is looked at behind.
    let _ = match kind % 4 {
        0 => sender.handle_tagged(tags.dipc_want, bytes),
        1 => sender.handle_tagged(tags.want_data, bytes),
        2 => sender.handle_tagged(tags.free_data.unwrap_or_default(), bytes),
        _ => sender.handle_control(bytes),
    };
}

/// Messages that a client may send at some time.
fn structured(sender: &mut Sender<(), u32>, supply: &mut Supply<'_>) {
    let choice = supply.byte();
    let (stream, number) = (u64::from(choice >> 7), u64::from(supply.byte()));
    let credit = Credit {
        batches: number % 16,
        bytes: number * 100,
    };
    let control = match choice % 7 {
        0 => {
            let verb = Verb::from_number(supply.byte() % 7);
            let request = Request {
                verb,
                source: verb.has_source().then_some(INFO),
                stream_id: stream.into(),
                features: number,
                ..Request::new("ticket", credit)
            };
            let _ = sender.handle_tagged(Tags::DEFAULT.dipc_want, &request.encode());
            return;
        }
        1 => {
            let frees = encode_frees(&[number * 64]);
            let _ = sender.handle_tagged(Tags::DEFAULT.free_data.unwrap_or_default(), &frees);
            return;
        }
        2 => Control::Cancel { stream },
        3 => Control::Credit { stream, credit },
        4 => Control::Return {
            stream,
            seqs: vec![u32::from(supply.byte() % 8)],
        },
        5 => Control::Abort {
            stream,
            status: -1,
            seq: 3,
            text: "why".into(),
        },
        _ => {
            sender.incoming_over();
            return;
        }
    };
    let _ = sender.handle_control(&control.encode());
}

/// What a host does; the sender refuses what its state does not allow.
fn command(watch: &mut Watch, supply: &mut Supply<'_>) {
    let sender = &mut watch.sender;
    let grant = Grant {
        credit: Credit {
            batches: 1,
            bytes: 1,
        },
        lent_limit: 1,
        device_type: 1,
    };
    let _ = match supply.byte() % 9 {
        0 => sender.accept(INFO),
        1 => sender.refuse(-5, "no"),
        2 => sender.send_schema(schema()),
        3 => {
            let (header, len) = batch(&[64]);
            let address = u64::from(supply.byte()) * 64;
            let body = OutBody::Lent {
                spans: smallvec::smallvec![Span {
                    address,
                    length: 64
                }],
                hold: watch.lends,
                in_place: false,
            };
            let sent = sender.send_batch(header, len, body);
            if sent.is_ok() {
                watch.lent.insert(watch.lends);
                watch.lends += 1;
            }
            sent
        }
        4 => sender.end(),
        5 => sender.fail(-19, "no"),
        6 => sender.grant(INFO, grant),
        7 => sender.say_result(1, b"safe"),
        _ => sender.finish_taking(1),
    };
}

fn check(watch: &mut Watch) {
    let mut is_cut = false;
    while let Some(transmit) = watch.sender.poll_transmit() {
        assert!(!is_cut, "a message behind the end");
        match transmit {
            Transmit::Disconnect { .. } => is_cut = true,
            Transmit::Control { bytes, .. } => {
                let control = Control::decode(&bytes);
                assert!(matches!(control, Ok(Some(_))), "a message that nobody reads");
            }
            _ => {}
        }
    }
    while let Some(event) = watch.sender.poll_event() {
        if let SenderEvent::Freed(hold) = event {
            take_back(&mut watch.lent, hold);
        }
    }
    if is_cut {
        assert_eq!(watch.sender.state(), SenderState::Closed);
    }
}

fn take_back(lent: &mut BTreeSet<u32>, hold: u32) {
    assert!(lent.remove(&hold), "{hold} came back and was not lent");
}
