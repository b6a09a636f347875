use std::time::Duration;

use crate::error::Error;
use crate::fuzzing::supply::Supply;
use crate::proto::testing::{batch, dictionary, schema};
use crate::proto::{
    AddressList, Body, BodyKind, Control, Credit, Headers, InBody, Prefix, PrefixKind, Receiver,
    ReceiverConfig, ReceiverTransmit, Request, Return, Role, Side, SideConfig, Span, StreamInfo,
    Tags, Timestamp, VERSION, body_tag,
};

/// What the driver would know of the stream.
pub(super) struct Watch {
    pub(super) receiver: Receiver<u64>,
    /// Number of the message that must come out next.
    pub(super) next: u32,
}

impl Watch {
    pub(super) fn new(receiver: Receiver<u64>, first_seq: u32) -> Self {
        Self {
            receiver,
            next: first_seq.wrapping_add(1),
        }
    }
}

/// Any sequence of inputs, well formed and not, ends in an error or in messages in order, each with
/// a body that fits its header; nothing comes after a failure (rules M4 to M6, D1 to D6, A1, E1 to
/// E5).
pub fn receiver(data: &[u8]) {
    let mut supply = Supply(data);
    let flags = supply.byte();
    let extension = flags & 1 != 0;
    let side = |role| SideConfig {
        tags: Tags::default_for(role),
        extension,
    };
    let first_seq = if flags & 4 != 0 { u32::MAX - 1 } else { 0 };
    let credit = Credit {
        batches: u64::from(supply.byte() % 8),
        bytes: u64::from(supply.byte()) * 64,
    };
    let is_split = flags & 2 != 0;
    let role = if is_split { Role::Metadata } else { Role::Both };
    let config = ReceiverConfig {
        data: is_split.then(|| side(Role::Data)),
        first_seq,
        stall_timeout: Some(Duration::from_nanos(100)),
        ..ReceiverConfig::new(Request::new("ticket", credit), side(role))
    };
    let Ok(receiver) = Receiver::new(config) else {
        return;
    };
    let mut watch = Watch::new(receiver, first_seq);
    let mut now = Timestamp::default();
    watch.receiver.start(now);
    while !supply.0.is_empty() {
        now = now.saturating_add(Duration::from_nanos(u64::from(supply.byte() >> 4)));
        let failed = step(&mut watch, &mut supply, now, first_seq).is_err();
        check(&mut watch, failed);
    }
}

pub(super) fn step(
    watch: &mut Watch,
    supply: &mut Supply<'_>,
    now: Timestamp,
    first_seq: u32,
) -> Result<(), Error> {
    let receiver = &mut watch.receiver;
    let choice = supply.byte();
    let side = if choice & 0x80 != 0 {
        Side::Data
    } else {
        Side::Metadata
    };
    // Near the next number, before and after it.
    let seq = watch
        .next
        .wrapping_add(u32::from(supply.byte() % 8))
        .wrapping_sub(2);
    let metadata = |header: &[u8]| {
        [
            &Prefix {
                kind: PrefixKind::Metadata,
                seq,
            }
            .encode(),
            header,
        ]
        .concat()
    };
    match choice & 0x1F {
        0 => {
            let len = supply.byte();
            receiver.handle_metadata(now, supply.bytes(len))
        }
        1 => {
            let prefix = Prefix {
                kind: PrefixKind::Metadata,
                seq: first_seq,
            }
            .encode();
            receiver.handle_metadata(now, &[&prefix, &schema()[..]].concat())
        }
        2 | 3 => receiver.handle_metadata(now, &metadata(&batch(&supply.lengths()).0)),
        4 => receiver.handle_metadata(now, &metadata(&dictionary(&supply.lengths()).0)),
        5 => {
            // A header with one byte changed.
            let mut header = batch(&supply.lengths()).0;
            let at = usize::from(supply.byte()) % header.len();
            if let Some(byte) = header.get_mut(at) {
                *byte = supply.byte();
            }
            receiver.handle_metadata(now, &metadata(&header))
        }
        6 => {
            let end = Prefix {
                kind: PrefixKind::EndOfStream,
                seq,
            }
            .encode();
            receiver.handle_metadata(now, &end)
        }
        7 | 8 => {
            let len = batch(&supply.lengths()).1;
            let body = InBody::Packed { len, memory: len };
            receiver.handle_body(now, body_tag(seq, BodyKind::Packed), body)
        }
        9 | 10 => {
            let spans = supply.lengths().into_iter().map(|length| Span {
                address: if length == 0 { 0 } else { 4096 },
                length,
            });
            let Ok(list) = AddressList::new(spans.collect()) else {
                return Ok(());
            };
            let tag = body_tag(seq, BodyKind::List);
            receiver.handle_body(now, tag, InBody::List(&list.encode()))
        }
        11 => {
            let (tag, len) = (supply.word(), supply.byte());
            receiver.handle_body(now, tag, InBody::List(supply.bytes(len)))
        }
        12 => {
            let len = supply.byte();
            receiver.handle_control(now, side, supply.bytes(len))
        }
        13 | 14 => {
            let (device_type, device_id, body_kinds) = (1, -1, 3);
            let (version, features) = (VERSION, 0);
            let info = StreamInfo {
                version,
                features,
                device_type,
                device_id,
                body_kinds,
            };
            receiver.handle_control(now, side, &Control::Stream(info, Headers::new()).encode())
        }
        15 => {
            let error = Control::Error {
                status: -19,
                seq,
                text: String::new(),
                headers: Headers::new(),
            };
            receiver.handle_control(now, side, &error.encode())
        }
        16 => {
            receiver.handle_disconnect(side, &Error::disconnected("cut"));
            Ok(())
        }
        17 => {
            receiver.handle_timeout(now);
            Ok(())
        }
        18 => {
            receiver.cancel();
            Ok(())
        }
        19 => {
            receiver.flush_credit();
            Ok(())
        }
        _ => {
            take(watch);
            Ok(())
        }
    }
}

/// The consumer takes a message, which must be the next one and whole.
fn take(watch: &mut Watch) {
    let Some(message) = watch.receiver.next_message() else {
        return;
    };
    assert_eq!(message.seq, watch.next);
    watch.next = watch.next.wrapping_add(1);
    match message.body {
        Body::Packed(len) => assert_eq!(len, message.header.body_len()),
        Body::Lent(spans) => {
            assert!(!message.header.compressed());
            let lengths = spans.iter().map(|span| span.length);
            assert!(lengths.eq(message.header.buffers().map(|buffer| buffer.length)));
        }
    }
    for span in message.header.buffers() {
        let end = span.offset.checked_add(span.length);
        assert!(end.is_some_and(|end| end <= message.header.body_len()));
    }
}

pub(super) fn check(watch: &mut Watch, failed: bool) {
    let receiver = &mut watch.receiver;
    while let Some(transmit) = receiver.poll_transmit() {
        if let ReceiverTransmit::Control { bytes, .. } = transmit {
            assert!(matches!(Control::decode(&bytes), Ok(Some(_))));
        }
    }
    while receiver.poll_event().is_some() {}
    for body in receiver.abandoned() {
        if let Return::Addresses(addresses) = body {
            assert!(addresses.iter().all(|address| *address != 0));
        }
    }
    let broken = receiver.error().is_some();
    assert!(!failed || broken);
    if broken {
        // Nothing is handed out, and nothing awaited.
        assert_eq!(receiver.waiting(), 0);
        assert_eq!(receiver.poll_timeout(), None);
        assert!(!receiver.is_complete());
    }
}
