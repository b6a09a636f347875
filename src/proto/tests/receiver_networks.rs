//! Cases of networks at the consuming side: servers that cannot refuse, and connections that keep
//! no order.

use super::*;

const SILENCE: Duration = Duration::from_secs(60);

fn baseline_without_stall() -> ReceiverConfig {
    ReceiverConfig {
        stall_timeout: None,
        silence_timeout: Some(SILENCE),
        ..config(false, true)
    }
}

/// Rule R5: a server that does not know a ticket is silent. The client ends the wait with a text
/// that gives the usual reason.
#[test]
fn a_baseline_server_that_never_answers_is_given_up() {
    let mut receiver = started(baseline_without_stall());
    let deadline = receiver.poll_timeout().unwrap();
    assert_eq!(deadline, NOW.saturating_add(SILENCE));
    receiver.handle_timeout(deadline);
    let error = receiver.error().unwrap();
    assert_eq!(error.status(), Status::Timeout);
    assert!(error.text().contains("does not know the ticket"), "{error}");
}

/// After its first answer, a baseline server may take as long as other servers.
#[test]
fn silence_after_the_schema_is_the_providers() {
    let mut receiver = started(baseline_without_stall());
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    assert_eq!(receiver.poll_timeout(), None);
    let with_extension = ReceiverConfig {
        stall_timeout: None,
        silence_timeout: Some(SILENCE),
        ..config(true, false)
    };
    assert_eq!(started(with_extension).poll_timeout(), None);
}

/// Rule U3: headers without any body mean that the second URI is missing, or that the two URIs are
/// swapped. The wait ends with a text that says so; a large body has time to come.
#[test]
fn a_baseline_server_whose_first_body_never_comes_is_given_up() {
    for two in [false, true] {
        let mut config = baseline_without_stall();
        if !two {
            config.data = None;
        }
        let mut receiver = started(config);
        receiver
            .handle_metadata(NOW, &metadata(0, &schema()))
            .unwrap();
        put_header(&mut receiver, 1).unwrap();
        let deadline = receiver.poll_timeout().unwrap();
        assert_eq!(deadline, NOW.saturating_add(SILENCE));
        receiver.handle_timeout(deadline);
        let error = receiver.error().unwrap();
        assert_eq!(error.status(), Status::Timeout);
        let cause = if two { "swapped" } else { "give both" };
        assert!(error.text().contains("no body for 60s"), "{error}");
        assert!(error.text().contains(cause), "{error}");
    }
}

/// After its first body, a baseline server has no such limit.
#[test]
fn silence_after_the_first_body_is_the_providers() {
    let mut receiver = started(baseline_without_stall());
    receiver
        .handle_metadata(NOW, &metadata(0, &schema()))
        .unwrap();
    put_header(&mut receiver, 1).unwrap();
    put_packed(&mut receiver, 1).unwrap();
    assert!(receiver.next_message().is_some());
    put_header(&mut receiver, 2).unwrap();
    assert_eq!(receiver.poll_timeout(), None);
}

/// Rule E4 without order: ERROR may overtake earlier messages. The connection is free only after
/// these messages have come.
#[test]
fn a_stream_is_whole_when_everything_before_its_error_has_come() {
    let mut receiver = streaming(true, false);
    receiver
        .handle_control(NOW, Side::Metadata, &error_at(2))
        .unwrap();
    assert!(!receiver.is_whole() && receiver.state() == ReceiverState::Streaming);
    put_header(&mut receiver, 1).unwrap();
    assert!(!receiver.is_whole());
    put_packed(&mut receiver, 1).unwrap();
    assert!(receiver.next_message().is_some());
    assert!(receiver.is_whole() && receiver.is_over_on_wire());
}

/// The connection stays free when the consumer drops the stream.
#[test]
fn a_stream_that_has_ended_is_whole_also_after_a_cancel() {
    let mut receiver = streaming(true, false);
    receiver.handle_metadata(NOW, &end(1)).unwrap();
    assert!(receiver.is_whole() && receiver.is_over_on_wire());
    receiver.cancel();
    assert!(receiver.is_whole() && receiver.is_over_on_wire());
}

/// No message precedes a refusal. A cancelled stream may still have messages under way.
#[test]
fn a_refused_stream_is_whole_and_a_cancelled_one_is_not() {
    let mut refused = started(config(true, false));
    refused
        .handle_control(NOW, Side::Metadata, &error_at(0))
        .unwrap_err();
    assert!(refused.is_whole() && refused.is_over_on_wire());
    let mut cancelled = streaming(true, false);
    cancelled.cancel();
    cancelled
        .handle_control(NOW, Side::Metadata, &error_at(3))
        .unwrap();
    assert!(cancelled.is_over_on_wire() && !cancelled.is_whole());
}
