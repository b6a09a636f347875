use super::*;
use crate::proto::BodyKind;

/// What comes of a message that was sent as `message`, once `change` has been made to its bytes.
fn arrived(message: Outgoing, change: impl FnOnce(&mut Vec<u8>)) -> Result<Incoming> {
    let sealed = seal(0, message).unwrap();
    let (tag, mut bytes) = match sealed {
        Outgoing::Metadata { prefix, header } => (
            None,
            [prefix.as_slice(), &header.unwrap_or_default()].concat(),
        ),
        Outgoing::Control { bytes, .. } => {
            let mut bytes = bytes;
            change(&mut bytes);
            let control = Incoming::Control {
                bytes: Bytes::from_vec(bytes),
                fd: None,
            };
            return open(0, control);
        }
        Outgoing::Tagged { tag, payload } => {
            let mut bytes = Vec::new();
            payload.append_to(&mut bytes);
            assert_eq!(payload.checked_len(), Some(bytes.len()));
            (Some(tag), bytes)
        }
        Outgoing::GpuBody { .. } => panic!("no such message here"),
    };
    change(&mut bytes);
    let incoming = match tag {
        None => Incoming::Metadata(Bytes::from_vec(bytes)),
        Some(tag) if tag == body_tag(7, BodyKind::Packed) => Incoming::Body {
            seq: 7,
            memory: HostBuffer::copy_of(&bytes).unwrap(),
        },
        Some(tag) => Incoming::Tagged {
            tag,
            bytes: Bytes::from_vec(bytes),
        },
    };
    open(0, incoming)
}

fn bytes_of(message: Incoming) -> Vec<u8> {
    match message {
        Incoming::Metadata(bytes)
        | Incoming::Control { bytes, .. }
        | Incoming::Tagged { bytes, .. } => bytes.to_vec(),
        Incoming::Body { memory, .. } => memory.as_slice().to_vec(),
        Incoming::GpuBody { .. } => panic!("no such message here"),
    }
}

/// One message of each kind, and its bytes.
fn messages() -> Vec<(Outgoing, Vec<u8>)> {
    let text = b"nine bytes and many more than are kept without an allocation".to_vec();
    let own = text.clone();
    let metadata = |header: Option<&[u8]>| Outgoing::Metadata {
        prefix: [1, 2, 3, 4, 5],
        header: header.map(Into::into),
    };
    let body = |payload| Outgoing::Tagged {
        tag: body_tag(7, BodyKind::Packed),
        payload,
    };
    let parts = vec![
        BufferRef::of(&own[..9]),
        BufferRef::EMPTY,
        BufferRef::of(&own[9..]),
    ];
    let parts = Payload::Gather {
        parts,
        owner: Box::new(own),
    };
    vec![
        (
            metadata(Some(&text)),
            [&[1, 2, 3, 4, 5], text.as_slice()].concat(),
        ),
        (metadata(None), vec![1, 2, 3, 4, 5]),
        (
            Outgoing::Control {
                bytes: text.clone(),
                fd: None,
            },
            text.clone(),
        ),
        (
            Outgoing::Tagged {
                tag: 42,
                payload: Payload::Bytes(Bytes::from_slice(&text)),
            },
            text.clone(),
        ),
        (body(Payload::Shared(text.as_slice().into())), text.clone()),
        (body(parts), text),
        (body(Payload::Bytes(Bytes::new())), Vec::new()),
    ]
}

/// Rule E8: each kind of message comes out as it went in.
#[test]
fn messages_come_without_their_checksums() {
    for (message, bytes) in messages() {
        assert_eq!(bytes_of(arrived(message, |_| {}).unwrap()), bytes);
    }
}

/// Rule E8: a change of any bit of a message or of its checksum is found, and so is a missing part.
#[test]
fn changed_messages_are_refused() {
    for number in 0..messages().len() {
        let take = || messages().swap_remove(number).0;
        let mut length = 0;
        arrived(take(), |bytes| length = bytes.len()).unwrap();
        for bit in 0..length * 8 {
            let error = arrived(take(), |bytes| bytes[bit / 8] ^= 1 << (bit % 8)).unwrap_err();
            assert!(error.text().contains("the checksum"), "{error}");
        }
        for length in 0..length {
            assert!(arrived(take(), |bytes| bytes.truncate(length)).is_err());
        }
    }
}

/// Rules E8, S2: a message does not pass for one with another tag, of another class, or of another
/// stream.
#[test]
fn messages_belong_to_their_tags() {
    let tagged = |tag| Outgoing::Tagged {
        tag,
        payload: Payload::Bytes(Bytes::from_slice(b"bytes")),
    };
    let Outgoing::Tagged { payload, .. } = seal(9, tagged(1)).unwrap() else {
        panic!("another message");
    };
    let mut bytes = Vec::new();
    payload.append_to(&mut bytes);
    let bytes = Bytes::from_vec(bytes);
    for message in [
        Incoming::Tagged {
            tag: 2,
            bytes: bytes.clone(),
        },
        Incoming::Metadata(bytes.clone()),
        Incoming::Control {
            bytes: bytes.clone(),
            fd: None,
        },
    ] {
        assert!(open(9, message).is_err());
    }
    for number in [0, 8, 9 << 8, 9] {
        let bytes = bytes.clone();
        let opened = open(number, Incoming::Tagged { tag: 1, bytes });
        assert_eq!(opened.is_ok(), number == 9);
    }
}
