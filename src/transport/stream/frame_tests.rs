//! Tests of the frame reader: what it reads, and what it refuses.

use proptest::prelude::*;

use super::*;
use crate::error::Status;
use crate::transport::stream::fuzzing;
use crate::transport::stream::{MAX_CONTROL_BYTES, encode_header};

/// Set in the tag of an address list (rules D2, D4).
const LIST_BIT: u64 = 1 << 56;

fn frame(class: FrameClass, tag: u64, payload: &[u8]) -> Vec<u8> {
    frame_of(0, class, tag, payload)
}

fn frame_of(number: u32, class: FrameClass, tag: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = encode_header(number, payload.len() as u64, tag, class).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn read_one(reader: &mut FrameReader, mut bytes: &[u8]) -> Result<Option<Incoming>> {
    Ok(reader.read(&mut bytes)?.map(|(_, message)| message))
}

/// The tag and the bytes of a tagged message.
fn tagged(message: Incoming) -> (u64, Vec<u8>) {
    match message {
        Incoming::Tagged { tag, bytes } => (tag, bytes.to_vec()),
        other => panic!("{other:?}"),
    }
}

fn refused(bytes: &[u8], text: &str) {
    let error = read_one(&mut FrameReader::new(1 << 20), bytes).unwrap_err();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains(text), "{error}");
}

/// "Our transports", shm: each class is read as itself, several in one slice.
#[test]
fn every_class_is_read() {
    let mut stream = frame(FrameClass::Untagged, 0, b"meta");
    stream.extend(frame(FrameClass::Tagged, 0x6469_7063_0000_0001, b"want"));
    stream.extend(frame(FrameClass::Tagged, 5, b"body"));
    stream.extend(frame(FrameClass::Tagged, 5 | LIST_BIT, b"list"));
    stream.extend(frame(FrameClass::Control, 0, b"\x03"));
    stream.extend(frame(FrameClass::Tagged, 6, b""));
    let mut reader = FrameReader::new(100);
    let mut input = stream.as_slice();
    let mut next = || reader.read(&mut input).unwrap().unwrap().1;
    assert!(matches!(next(), Incoming::Metadata(bytes) if bytes[..] == *b"meta"));
    assert_eq!(tagged(next()), (0x6469_7063_0000_0001, b"want".to_vec()));
    assert!(matches!(next(), Incoming::Body { seq: 5, memory } if memory.as_slice() == b"body"));
    assert_eq!(tagged(next()), (5 | LIST_BIT, b"list".to_vec()));
    assert!(matches!(next(), Incoming::Control { bytes, .. } if bytes[..] == *b"\x03"));
    // Rule D1: a body of 0 bytes is a message too.
    assert!(matches!(next(), Incoming::Body { seq: 6, memory } if memory.is_empty()));
    assert!(reader.read(&mut input).unwrap().is_none());
    assert!(!reader.is_mid_frame());
}

/// Rule S2: a frame carries the number of its stream, and several streams may each have a body with
/// the same sequence number.
#[test]
fn frames_are_of_their_streams() {
    let mut reader = FrameReader::new(0);
    reader.post(7, ExpectedBody::new(5, 4, 0));
    reader.post(u32::MAX, ExpectedBody::new(5, 2, 0));
    let mut stream = frame_of(u32::MAX, FrameClass::Tagged, 5, b"of");
    stream.extend(frame_of(7, FrameClass::Tagged, 5, b"body"));
    stream.extend(frame_of(7, FrameClass::Untagged, 0, b"meta"));
    stream.extend(frame_of(8, FrameClass::Tagged, 5, b"unposted"));
    stream.extend(frame_of(9, FrameClass::Control, 0, b"\x03"));
    let mut input = stream.as_slice();
    let mut numbers = Vec::new();
    while let Some((number, message)) = reader.read(&mut input).unwrap() {
        numbers.push((number, message.held_bytes()));
    }
    assert_eq!(numbers, [(u32::MAX, 2), (7, 4), (7, 4)]);
    assert_eq!(reader.waiting(), Some(8));
    // The end of another stream does not throw it away.
    reader.clear_posted(7);
    assert_eq!(reader.waiting(), Some(8));
    reader.clear_posted(8);
    assert_eq!(reader.read(&mut input).unwrap().unwrap().0, 9);
    for at in 21..HEADER_BYTES {
        let mut bytes = frame(FrameClass::Control, 0, b"\x03");
        bytes[at] = 1;
        refused(&bytes, "padding is not zero");
    }
}

/// Rule A8: lengths past the limits are refused before anything is allocated; the text names them.
#[test]
fn lengths_past_the_limits_are_refused() {
    let header = |length, tag, class| encode_header(0, length, tag, class);
    refused(
        &header(1 << 47, 0, FrameClass::Untagged),
        "140737488355328 bytes",
    );
    refused(
        &header(MAX_METADATA_BYTES + 1, 0, FrameClass::Untagged),
        "metadata",
    );
    refused(
        &header(MAX_CONTROL_BYTES + 1, 0, FrameClass::Control),
        "the limit is 65536",
    );
    refused(
        &header(MAX_TAGGED_BYTES + 1, 1 << 40, FrameClass::Tagged),
        "tagged",
    );
    refused(
        &header((1 << 48) - 1, u64::MAX, FrameClass::Tagged),
        "281474976710655",
    );
}

/// Rule A8: a server holds no more for one message of a client than a request may have, even before
/// the client was admitted.
#[test]
fn a_client_announces_nothing_longer_than_a_request() {
    let mut reader = FrameReader::new(0);
    reader.expect_requests(&Arc::new(MemoryBudget::new(1 << 20)));
    let longest = frame(FrameClass::Untagged, 0, &vec![1; 1 << 20]);
    let read = read_one(&mut reader, &longest).unwrap();
    assert!(matches!(read, Some(Incoming::Metadata(bytes)) if bytes.len() == 1 << 20));
    let longer = encode_header(0, MAX_TAGGED_BYTES + 1, 0, FrameClass::Untagged);
    let error = read_one(&mut reader, &longer).unwrap_err();
    assert_eq!(error.status(), Status::Protocol, "{error}");
    assert!(error.text().contains("the limit is 1048576"), "{error}");
}

/// Rule Q8: partly received long requests take a bounded amount of memory, over all clients. Short
/// ones always have room, and a long one that is complete makes room.
#[test]
fn long_requests_in_part_share_a_bound() {
    let partial = Arc::new(MemoryBudget::new(250 << 10));
    let mut readers = [(); 3].map(|()| FrameReader::new(0));
    for reader in &mut readers {
        reader.expect_requests(&partial);
    }
    let long = frame(FrameClass::Untagged, 0, &vec![1; 100 << 10]);
    let short = frame(FrameClass::Untagged, 0, &vec![1; 64 << 10]);
    let [first, second, third] = &mut readers;
    for reader in [&mut *first, &mut *second] {
        assert!(read_one(reader, &long[..30]).unwrap().is_none());
    }
    assert!(read_one(third, &short).unwrap().is_some());
    let error = read_one(third, &long[..30]).unwrap_err();
    assert_eq!(error.status(), Status::Busy, "{error}");
    assert!(read_one(first, &long[30..]).unwrap().is_some());
    let mut fourth = FrameReader::new(0);
    fourth.expect_requests(&partial);
    assert!(read_one(&mut fourth, &long).unwrap().is_some());
    drop(readers);
    assert_eq!(partial.used(), 0);
}

/// "Our transports", shm: padding is zero and classes are known; the texts name what came.
#[test]
fn what_is_no_header_is_refused() {
    let mut header = encode_header(0, 4, 0, FrameClass::Untagged);
    header[23] = 1;
    refused(&header, "padding");
    let mut header = encode_header(0, 4, 0, FrameClass::Untagged);
    header[16] = 3;
    refused(&header, "class 3");
    refused(b"GET / HTTP/1.1\r\nHost: localhost\r\n", "GET / HT");
}

/// Rule A8: memory follows the bytes that came, not the length that was announced.
#[test]
fn memory_grows_with_the_bytes() {
    let mut reader = FrameReader::new(0);
    let header = encode_header(0, MAX_METADATA_BYTES, 0, FrameClass::Untagged);
    assert!(read_one(&mut reader, &header).unwrap().is_none());
    assert!(read_one(&mut reader, &[1; 1000]).unwrap().is_none());
    let FramePart::Bytes { bytes, .. } = &reader.state else {
        panic!("{:?}", reader.state)
    };
    assert_eq!((bytes.len(), bytes.capacity()), (1000, GROWTH_BYTES));
}

/// Rule D8: a posted body has exactly the length that its header asks for, in both kinds.
#[test]
fn posted_bodies_have_the_posted_length() {
    for (tag, wrong) in [(7, 101), (7, 99), (7 | LIST_BIT, 32), (7 | LIST_BIT, 100)] {
        let mut reader = FrameReader::new(1 << 20);
        reader.post(0, ExpectedBody::new(7, 100, 48));
        let error = read_one(
            &mut reader,
            &encode_header(0, wrong, tag, FrameClass::Tagged),
        )
        .unwrap_err();
        assert!(error.text().contains("whose header asks for"), "{error}");
        assert!(read_one(&mut reader, b"").is_err(), "an error lasts");
    }
    let mut reader = FrameReader::new(0);
    reader.post(0, ExpectedBody::new(7, 100, 48));
    let read = read_one(&mut reader, &frame(FrameClass::Tagged, 7, &[5; 100])).unwrap();
    assert!(matches!(read, Some(Incoming::Body { seq: 7, .. })));
    reader.post(0, ExpectedBody::new(8, 2 << 20, 2 << 20));
    let list = frame(FrameClass::Tagged, 8 | LIST_BIT, &vec![5; 2 << 20]);
    let read = read_one(&mut reader, &list).unwrap();
    assert!(matches!(read, Some(Incoming::Tagged { bytes, .. }) if bytes.len() == 2 << 20));
}

/// `ReceivingOptions::unexpected_bytes`: a larger body waits, takes no memory, and goes on when posted.
#[test]
fn a_large_unexpected_body_waits_until_it_is_posted() {
    for tag in [9, 9 | LIST_BIT] {
        let mut reader = FrameReader::new(10);
        let mut stream = frame(FrameClass::Tagged, tag, &vec![4; 2 << 20]);
        stream.extend(frame(FrameClass::Control, 0, b"\x03"));
        let mut input = stream.as_slice();
        assert!(reader.read(&mut input).unwrap().is_none());
        assert!(reader.is_waiting());
        assert_eq!(input.len(), stream.len() - HEADER_BYTES);
        reader.post(0, ExpectedBody::new(8, 1, 1));
        assert!(reader.is_waiting());
        reader.post(0, ExpectedBody::new(9, 2 << 20, 2 << 20));
        assert!(!reader.is_waiting());
        assert!(reader.read(&mut input).unwrap().is_some());
        assert!(matches!(
            reader.read(&mut input).unwrap(),
            Some((_, Incoming::Control { .. }))
        ));
        // Posted with another length it is refused.
        let mut reader = FrameReader::new(10);
        assert!(read_one(&mut reader, &stream).unwrap().is_none());
        reader.post(0, ExpectedBody::new(9, 5, 5));
        assert!(read_one(&mut reader, b"").is_err());
    }
}

/// `clear_posted`: a body of an ended stream does not hold up the frames after it.
#[test]
fn a_waiting_body_is_skipped_when_its_stream_is_over() {
    let mut reader = FrameReader::new(10);
    let mut stream = frame(FrameClass::Tagged, 9, &[4; 5000]);
    stream.extend(frame(FrameClass::Control, 0, b"\x02"));
    let mut input = stream.as_slice();
    assert!(reader.read(&mut input).unwrap().is_none());
    reader.clear_posted(0);
    assert!(matches!(
        reader.read(&mut input).unwrap(),
        Some((_, Incoming::Control { .. }))
    ));
}

/// If a body came early, the reader does not wait for it again when it is posted.
#[test]
fn an_early_body_counts_as_posted() {
    let mut reader = FrameReader::new(10);
    assert!(
        read_one(&mut reader, &frame(FrameClass::Tagged, 1, b"x"))
            .unwrap()
            .is_some()
    );
    reader.post(0, ExpectedBody::new(1, 1, 32));
    assert!(reader.posted.is_empty() && reader.early.is_empty());
}

proptest! {
    /// Frames are the same however the bytes are split, and garbage never panics.
    #[test]
    fn splits_do_not_matter(data in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzzing::frames(&data);
    }

    /// The same for streams that begin as frames do.
    #[test]
    fn splits_of_real_frames_do_not_matter(
        split in 1u8..60,
        frames in prop::collection::vec(
            (0u8..3, prop::sample::select(vec![0u64, 3, 3 | LIST_BIT, 4, 1 << 40]),
             prop::collection::vec(any::<u8>(), 0..80)), 0..8),
    ) {
        let mut data = vec![split, 4];
        for (class, tag, payload) in &frames {
            let classes = [FrameClass::Untagged, FrameClass::Tagged, FrameClass::Control];
            let class = classes[usize::from(*class)];
            data.extend(frame(class, *tag, payload));
        }
        fuzzing::frames(&data);
    }
}

/// Rule D5: bodies of no bytes that nobody has announced are remembered only up to a limit.
#[test]
fn bodies_before_their_headers_have_a_limit() {
    let mut reader = FrameReader::new(100);
    let most = u32::try_from(MOST_EARLY_BODIES).unwrap();
    let body = |seq: u32| frame(FrameClass::Tagged, seq.into(), b"");
    for seq in 0..most {
        assert!(read_one(&mut reader, &body(seq)).unwrap().is_some());
    }
    // One that is announced makes room.
    reader.post(0, ExpectedBody::new(5, 0, 0));
    assert!(read_one(&mut reader, &body(most)).unwrap().is_some());
    let error = read_one(&mut reader, &body(most + 1)).unwrap_err();
    assert_eq!(error.status(), Status::Protocol);
    assert!(error.text().contains("before their headers"), "{error}");
}

/// Promise of tcp: the bytes of another program are reported at once, even if they are too few for
/// a header and no more come.
#[test]
fn strangers_are_told_apart_by_their_first_words() {
    let said = |bytes: &[u8]| read_one(&mut FrameReader::new(1 << 20), bytes);
    for greeting in [
        "SSH-2.0-OpenSSH",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "+OK POP3 ready",
    ] {
        let error = said(greeting.as_bytes()).unwrap_err();
        assert_eq!(error.status(), Status::Protocol, "{error}");
        assert!(error.text().contains(&greeting[..8]), "{error}");
    }
    let alert = [21, 3, 3, 0, 2, 2, 50];
    let error = said(&alert).unwrap_err();
    assert!(error.text().contains("begins with tls://"), "{error}");

    // A header of this protocol may come in any pieces.
    let whole = frame(FrameClass::Tagged, 5 | LIST_BIT, b"list");
    let mut reader = FrameReader::new(1 << 20);
    let pieces = whole.iter().map(std::slice::from_ref);
    let read: Vec<_> = pieces
        .filter_map(|byte| read_one(&mut reader, byte).unwrap())
        .collect();
    assert_eq!(read.len(), 1);
}
