//! Connections of the two state machines: one for the bodies, cut connections, and messages that
//! belong to no stream.

use super::*;

fn begun(window: u64) -> (BareSender, BareReceiver) {
    let (mut sender, mut receiver) = (sender(false), receiver(window, true));
    receiver.start(NOW);
    exchange(&mut sender, &mut receiver, NOW);
    sender.start(&c_schema(), 1).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    (sender, receiver)
}

/// Rules U3, E5, F1: bodies cross on a connection of their own, where the client also grants credit
/// and gives memory back.
#[test]
fn bodies_cross_on_their_own_connection() {
    for lend in [false, true] {
        let side = |role| SideConfig::extended(Tags::default_for(role));
        let credit = Credit {
            batches: 2,
            bytes: 1 << 20,
        };
        let config = ReceiverConfig {
            data: Some(side(Role::Data)),
            first_seq: FIRST_SEQ,
            ..ReceiverConfig::new(Request::new(*b"ticket", credit), side(Role::Metadata))
        };
        let mut receiver = BareReceiver::new(config, DecodeOptions::default()).unwrap();
        if lend {
            lend_everything(&mut receiver);
        }
        let mut senders = [sender(lend), sender(lend)];
        receiver.start(NOW);
        carry(&mut senders, &mut receiver, NOW);
        for sender in &mut senders {
            sender.start(&c_schema(), 1).unwrap();
        }
        for first in [0, 100, 200] {
            for sender in &mut senders {
                sender.send_batch(c_batch(first), None).unwrap();
            }
            carry(&mut senders, &mut receiver, NOW);
            let NextBatch::Batch(array) = receiver.next_batch().unwrap() else {
                panic!("no batch")
            };
            assert_eq!(read(array), batch(first));
            assert!(matches!(receiver.next_batch().unwrap(), NextBatch::NotYet));
            carry(&mut senders, &mut receiver, NOW);
        }
        let expected = std::iter::from_fn(|| receiver.poll_expected());
        assert_eq!(expected.count(), 4); // with the dictionary
        for sender in &mut senders {
            sender.end().unwrap();
        }
        carry(&mut senders, &mut receiver, NOW);
        assert!(matches!(receiver.next_batch().unwrap(), NextBatch::End));
        let later = Timestamp::from_nanos(NOW.as_nanos() + 20_000_000); // Rule F5
        carry(&mut senders, &mut receiver, later);
        assert_eq!(senders[0].lent_outstanding(), 0);
        // The decoder keeps dictionaries as long as the receiver lives.
        assert!(senders[1].lent_outstanding() <= usize::from(lend) * 2);
    }
}

/// Promise of dipc_machines.h: batches that came before a cut can still be taken; then the stream
/// fails.
#[test]
fn what_came_before_a_cut_is_taken() {
    let (mut sender, mut receiver) = begun(4);
    sender.send_batch(c_batch(0), None).unwrap();
    exchange(&mut sender, &mut receiver, NOW);
    receiver.handle_disconnect(Side::Metadata, &Error::disconnected("cable cut"));
    assert_eq!(receiver.state(), ReceiverState::Streaming);
    assert!(matches!(
        receiver.next_batch().unwrap(),
        NextBatch::Batch(_)
    ));
    let error = receiver.next_batch().err().unwrap();
    assert_eq!(error.status(), Status::Disconnected);
    assert!(error.text().contains("cable cut"), "{error}");
    assert_eq!(receiver.state(), ReceiverState::Failed);
}

/// Rule E3: a malformed control message ends the connection. The client hears why, and the host
/// gets the order to cut; the receiver fails with its reason.
#[test]
fn malformed_control_messages_end_the_connection() {
    let (mut sender, mut receiver) = begun(4);
    let error = sender.handle_control(&[]).unwrap_err();
    assert_eq!(error.status(), Status::Protocol);
    assert_eq!(sender.state(), SenderState::Closed);
    let classes = std::iter::from_fn(|| sender.poll_transmit()).map(|message| message.class);
    let expected = [MessageClass::Control, MessageClass::Disconnect];
    assert_eq!(classes.collect::<Vec<_>>(), expected);
    assert!(sender.handle_control(&[]).is_err());
    assert!(sender.poll_transmit().is_none());

    let refused = receiver.handle_control(NOW, Side::Metadata, &[]);
    assert_eq!(refused.unwrap_err().status(), Status::Protocol);
    assert_eq!(receiver.state(), ReceiverState::Failed);
    assert!(receiver.poll_transmit(NOW).is_none());
    assert_eq!(
        receiver.next_batch().err().unwrap().status(),
        Status::Protocol
    );
}

/// Rule E3: the end of a region is acknowledged. The host has no GPU memory, so an order to wait
/// for GPU memory is an error.
#[test]
fn messages_about_memory_are_answered() {
    let (_, mut receiver) = begun(4);
    for control in [
        Control::Region {
            id: 3,
            handle: vec![1],
        },
        Control::RegionGone { id: 3 },
    ] {
        let handled = receiver.handle_control(NOW, Side::Metadata, &control.encode());
        handled.unwrap();
    }
    let answer = bytes(&receiver.poll_transmit(NOW).unwrap());
    assert_eq!(answer, Control::RegionForgotten { id: 3 }.encode());
    let ready = Control::Ready {
        seq: 1,
        event: 2,
        handle: Vec::new(),
    };
    let refused = receiver.handle_control(NOW, Side::Metadata, &ready.encode());
    assert_eq!(refused.unwrap_err().status(), Status::Protocol);
    assert_eq!(receiver.state(), ReceiverState::Failed);
}
