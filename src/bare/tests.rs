use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::{Int32Type, Schema};

use super::*;
use crate::arrow::decode::DecodeOptions;
use crate::arrow::{OwnedDeviceArray, OwnedSchema, batch_from_c, batch_to_c, schema_to_c};
use crate::client::{GetOptions, NextBatch};
use crate::device::BufferRef;
use crate::error::{Error, Status};
use crate::proto::{
    Control, Credit, Headers, ReceiverConfig, ReceiverState, Request, Role, SenderConfig,
    SenderState, Side, SideConfig, StreamInfo, Tags, Timestamp, Verb,
};

const NOW: Timestamp = Timestamp::from_nanos(1_000_000);

fn batch(first: i32) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(first..first + 100));
    let texts = (first..first + 100).map(|n| (n % 3 != 0).then(|| format!("text {n}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let words: DictionaryArray<Int32Type> = (0..100).map(|n| ["a", "b", "c"][n % 3]).collect();
    let words: ArrayRef = Arc::new(words);
    RecordBatch::try_from_iter([("number", numbers), ("text", texts), ("word", words)]).unwrap()
}

fn schema() -> Arc<Schema> {
    batch(0).schema()
}

/// The third message of a stream wraps around (rule M4).
const FIRST_SEQ: u32 = u32::MAX - 1;

fn sender(lend: bool) -> BareSender {
    let config = SenderConfig {
        first_seq: FIRST_SEQ,
        ..SenderConfig::default()
    };
    BareSender::new(config, lend).unwrap()
}

fn receiver(window: u64, extension: bool) -> BareReceiver {
    limited(window, extension, DecodeOptions::default())
}

fn limited(window: u64, extension: bool, decode: DecodeOptions) -> BareReceiver {
    let credit = Credit {
        batches: window,
        bytes: 1 << 20,
    };
    let side = SideConfig {
        tags: Tags::default_for(Role::Both),
        extension,
    };
    let config = ReceiverConfig {
        first_seq: FIRST_SEQ,
        ..ReceiverConfig::new(Request::new(*b"ticket", credit), side)
    };
    BareReceiver::new(config, decode).unwrap()
}

fn bytes(message: &WireMessage) -> Vec<u8> {
    // SAFETY: the parts lie on the host and live as long as the message, and nobody writes to them.
    message
        .parts()
        .iter()
        .flat_map(|part| unsafe { part.as_slice() }.iter().copied())
        .collect()
}

/// Carries every message both ways until neither side has one.
fn exchange(sender: &mut BareSender, receiver: &mut BareReceiver, now: Timestamp) {
    carry(std::slice::from_mut(sender), receiver, now);
}

/// The same for the sender of each connection.
fn carry(senders: &mut [BareSender], receiver: &mut BareReceiver, now: Timestamp) {
    let sides = [Side::Metadata, Side::Data];
    loop {
        let mut moved = false;
        while let Some(message) = receiver.poll_transmit(now) {
            moved = true;
            let at = sides.iter().position(|side| *side == message.side);
            let sender = &mut senders[at.unwrap()];
            match message.class {
                MessageClass::Tagged => sender.handle_tagged(message.tag, &bytes(&message)),
                _ => sender.handle_control(&bytes(&message)),
            }
            .unwrap();
        }
        for (sender, side) in senders.iter_mut().zip(sides) {
            while let Some(message) = sender.poll_transmit() {
                moved = true;
                let bytes = bytes(&message);
                // A failure of the server is an error here too; `next_batch` repeats it.
                let _ = match message.class {
                    MessageClass::Metadata => receiver.handle_metadata(now, &bytes),
                    MessageClass::Tagged => receiver.handle_tagged(now, message.tag, &bytes),
                    MessageClass::Control => receiver.handle_control(now, side, &bytes),
                    MessageClass::Disconnect => {
                        let reason = Error::disconnected(String::from_utf8(bytes).unwrap());
                        receiver.handle_disconnect(side, &reason);
                        Ok(())
                    }
                };
            }
        }
        if !moved {
            return;
        }
    }
}

fn c_schema() -> OwnedSchema {
    schema_to_c(&schema()).unwrap()
}

fn c_batch(first: i32) -> OwnedDeviceArray {
    batch_to_c(batch(first))
}

fn read(array: OwnedDeviceArray) -> RecordBatch {
    // SAFETY: the arrays come from `batch_to_c` or the decoder, which follow the C interface, and
    // all have this schema.
    unsafe { batch_from_c(array, &schema()) }.unwrap()
}

/// Maps the whole memory of this process, for address lists.
fn lend_everything(receiver: &mut BareReceiver) {
    let len = (isize::MAX as usize) / 2;
    let data = std::ptr::with_exposed_provenance(1);
    let memory = BufferRef { data, len };
    let owner = Arc::new(());
    // SAFETY: the receiver gets lists of a sender in this process only, which keeps the named
    // memory until it comes back.
    unsafe { receiver.add_memory(1, OpenMemory { memory, owner }) }.unwrap();
}

/// Rules M1, M4, D3, D4, F1: batches cross in both kinds, with the extension and without it, and
/// lent memory goes back once the arrays are released.
#[test]
fn batches_cross_between_a_pair() {
    for (lend, extension) in [(false, false), (false, true), (true, true), (true, false)] {
        let mut sender = sender(lend);
        let mut receiver = receiver(16, extension);
        if lend {
            lend_everything(&mut receiver);
        }
        receiver.start(NOW);
        exchange(&mut sender, &mut receiver, NOW);
        assert_eq!(sender.state(), SenderState::Requested);
        assert_eq!(sender.request().unwrap().ticket, b"ticket");
        sender.start(&c_schema(), 1).unwrap();
        exchange(&mut sender, &mut receiver, NOW);
        assert!(receiver.schema().unwrap().is_some());
        let mut held = Vec::new();
        for first in [0, 100, 200] {
            sender.send_batch(c_batch(first), None).unwrap();
            exchange(&mut sender, &mut receiver, NOW);
            let NextBatch::Batch(array) = receiver.next_batch().unwrap() else {
                panic!("no batch")
            };
            held.push(array);
        }
        assert_eq!(receiver.lent_outstanding() > 0, lend);
        assert_eq!(sender.lent_outstanding() > 0, lend);
        sender.end().unwrap();
        exchange(&mut sender, &mut receiver, NOW);
        assert!(matches!(receiver.next_batch().unwrap(), NextBatch::End));
        for (index, array) in held.into_iter().enumerate() {
            assert_eq!(read(array), batch(i32::try_from(index).unwrap() * 100));
        }
        // The decoder keeps dictionaries as long as the receiver lives.
        let later = Timestamp::from_nanos(NOW.as_nanos() + 20_000_000); // Rule F5
        exchange(&mut sender, &mut receiver, NOW);
        exchange(&mut sender, &mut receiver, later);
        let dictionaries = usize::from(lend) * 2;
        assert!(
            sender.lent_outstanding() <= dictionaries,
            "{}",
            sender.lent_outstanding()
        );
    }
}

/// Rule E5: a full window refuses the batch and gives it back; credit opens it again.
#[test]
fn a_full_window_gives_the_batch_back() {
    let mut sender = sender(false);
    let mut receiver = receiver(2, true);
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    sender.start(&c_schema(), 1).unwrap();
    let mut sent = 0;
    let refused = loop {
        match sender.send_batch(c_batch(sent * 100), None) {
            Ok(()) => sent += 1,
            Err(refused) => break refused,
        }
        exchange(&mut sender, &mut receiver, NOW);
    };
    assert_eq!(sent, 2);
    assert_eq!(refused.0.status(), Status::Busy);
    assert_eq!(read(refused.1), batch(200));
    assert!(!sender.may_send());
    assert!(matches!(
        receiver.next_batch().unwrap(),
        NextBatch::Batch(_)
    ));
    assert!(matches!(
        receiver.next_batch().unwrap(),
        NextBatch::Batch(_)
    ));
    assert!(matches!(receiver.next_batch().unwrap(), NextBatch::NotYet));
    exchange(&mut sender, &mut receiver, NOW);
    assert!(sender.may_send());
}

/// Rules E2, E3: a refusal and a failure reach the consumer with status and text.
#[test]
fn failures_keep_their_words() {
    let mut sender = sender(false);
    let mut first = receiver(2, true);
    first.start(NOW);
    exchange(&mut sender, &mut first, NOW);
    sender
        .refuse(Status::NotFound.code(), "no such thing")
        .unwrap();
    exchange(&mut sender, &mut first, NOW);
    let error = first.schema().unwrap_err();
    assert_eq!(error.status(), Status::NotFound);
    assert!(error.text().contains("no such thing"));

    let mut second = receiver(2, true);
    second.start(NOW);
    exchange(&mut sender, &mut second, NOW);
    sender.start(&c_schema(), 1).unwrap();
    sender.fail(-7000, "out of ink").unwrap();
    exchange(&mut sender, &mut second, NOW);
    let error = second.next_batch().err().unwrap();
    assert_eq!(error.status(), Status::Provider);
    assert!(error.text().contains("out of ink"));
    assert!(sender.send_batch(c_batch(0), None).is_err());
}

/// Rule Q1: the verb, and deadline and headers of the options, go with the request. Headers come
/// back with the answer, and the deadline ends the stream.
#[test]
fn a_request_says_what_its_options_say() {
    let mut headers = Headers::new();
    headers.add("k", "v").unwrap();
    let options = GetOptions {
        deadline: Some(Duration::from_secs(1)),
        headers,
        first_seq: FIRST_SEQ,
        ..GetOptions::default()
    };
    let mut sender = sender(false);
    let mut receiver =
        BareReceiver::for_uris(&["shm:@t?dipc=1"], Verb::List, b"t", 1, &options).unwrap();
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    let request = sender.request().unwrap();
    assert_eq!(request.headers, options.headers);
    assert_eq!(request.deadline, options.deadline);
    assert_eq!(request.verb, Verb::List);
    sender.add_headers(&options.headers).unwrap();
    sender.start(&c_schema(), 1).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    assert_eq!(*receiver.answer_headers(), options.headers);
    let late = Timestamp::from_nanos(NOW.as_nanos() + 1_000_000_000);
    assert_eq!(receiver.poll_timeout(), Some(late));
    receiver.handle_timeout(late);
    let error = receiver.next_batch().err().unwrap();
    assert_eq!(error.status(), Status::Timeout, "{error}");
}

/// Rule Q1: a verb that a sender does not know is refused, and not answered with a table.
#[test]
fn verbs_that_give_tables_are_refused() {
    for verb in [Verb::Put, Verb::Exchange, Verb::Unknown(77)] {
        let mut sender = sender(false);
        let window = Credit {
            batches: 1,
            bytes: 1,
        };
        let request = Request {
            verb,
            source: verb.has_source().then_some(StreamInfo {
                version: 2,
                features: 0,
                device_type: 1,
                device_id: -1,
                body_kinds: 1,
            }),
            ..Request::new(*b"t", window)
        };
        let tag = Tags::DEFAULT.dipc_want;
        sender.handle_tagged(tag, &request.encode()).unwrap();
        // Rule Q10: the table of a refused client ends before the next request.
        let refused = match verb.has_source() {
            true => SenderState::Draining,
            false => SenderState::Idle,
        };
        assert_eq!(sender.state(), refused, "{verb:?}");
        let answer = bytes(&sender.poll_transmit().unwrap());
        let Some(Control::Error { status, .. }) = Control::decode(&answer).unwrap() else {
            panic!("{verb:?}: another answer");
        };
        assert_eq!(status, Status::Unsupported.code());
    }
}

/// Rule Q12: the host of a sender does not see a selection, so a get with one is refused, and not
/// answered with the whole table.
#[test]
fn selections_are_refused() {
    let mut sender = sender(false);
    let mut options = GetOptions {
        first_seq: FIRST_SEQ,
        ..GetOptions::default()
    };
    options.selection.set_rows(1, None);
    let uris = ["shm:@t?dipc=1"];
    let mut receiver = BareReceiver::for_uris(&uris, Verb::Get, b"ticket", 7, &options).unwrap();
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    assert_eq!(sender.state(), SenderState::Idle);
    let error = receiver.next_batch().err().unwrap();
    assert_eq!(error.status(), Status::Unsupported);
    assert!(error.text().contains("whole tables"), "{error}");
}

/// Promise: an address outside the host's ranges is a protocol error, and is never read.
#[test]
fn addresses_outside_named_memory_are_refused() {
    let mut sender = sender(true);
    let mut receiver = receiver(2, true);
    let small = [0u8; 64];
    let lendable = || OpenMemory {
        memory: BufferRef::of(&small),
        owner: Arc::new(()),
    };
    let mut add = |address| {
        // SAFETY: `small` outlives the receiver, and nobody writes to it.
        unsafe { receiver.add_memory(address, lendable()) }
    };
    add(4096).unwrap();
    assert!(add(4100).is_err()); // overlaps
    assert!(add(u64::MAX).is_err());
    assert!(add(0).is_err());
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    sender.start(&c_schema(), 1).unwrap();
    sender.send_batch(c_batch(0), None).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    let error = receiver.next_batch().err().unwrap();
    assert_eq!(error.status(), Status::Protocol);
    assert_eq!(receiver.next_batch().err().unwrap(), error);
}

/// Promise: a cancelled stream ends at both sides, and its lent memory comes back.
#[test]
fn cancelling_ends_both_sides() {
    let mut sender = sender(true);
    let mut receiver = receiver(4, true);
    lend_everything(&mut receiver);
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    sender.start(&c_schema(), 1).unwrap();
    sender.send_batch(c_batch(0), None).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    receiver.cancel();
    exchange(&mut sender, &mut receiver, NOW);
    assert!(sender.is_cancelled());
    assert_eq!(
        sender.send_batch(c_batch(0), None).unwrap_err().0.status(),
        Status::Cancelled
    );
    sender.end().unwrap();
    let later = Timestamp::from_nanos(NOW.as_nanos() + 20_000_000);
    exchange(&mut sender, &mut receiver, later);
    exchange(&mut sender, &mut receiver, later);
    assert_eq!(sender.state(), SenderState::Idle);
    assert_eq!(sender.lent_outstanding(), 0);
    assert!(receiver.next_batch().is_err());
}

/// Rule D6: a body with a wrong tag ends the stream, because it does not come again; the consumer
/// gets the reason.
#[test]
fn a_body_that_is_refused_ends_the_stream() {
    let mut receiver = receiver(4, true);
    while receiver.poll_transmit(NOW).is_some() {}
    let refused = receiver.handle_tagged(NOW, 1 << 40, b"body").unwrap_err();
    assert_eq!(refused.status(), Status::Protocol);
    assert_eq!(receiver.next_batch().err(), Some(refused));
    assert_eq!(receiver.state(), ReceiverState::Cancelled);
}

/// Promise of security.md: a body longer than the bound is refused once its header has come, also
/// where the host carries the messages.
#[test]
fn long_bodies_are_refused_by_their_headers() {
    let mut sender = sender(false);
    let decode = DecodeOptions {
        message_limit: 1 << 16,
        ..DecodeOptions::default()
    };
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1 << 20));
    let long = RecordBatch::try_from_iter([("number", numbers)]).unwrap();
    let mut receiver = limited(16, true, decode);
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    let schema = schema_to_c(&long.schema()).unwrap();
    sender.start(&schema, 1).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    assert!(receiver.schema().unwrap().is_some());
    sender.send_batch(batch_to_c(long), None).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    let refused = receiver.next_batch().err().unwrap();
    assert_eq!(refused.status(), Status::OutOfMemory, "{refused}");
    assert!(sender.is_cancelled());
}

#[path = "connection_tests.rs"]
mod connections;
