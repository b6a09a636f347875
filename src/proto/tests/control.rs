//! Rules E1 and E3: the bytes of `docs/wire.md`.

use super::*;

fn every_kind() -> Vec<Control> {
    vec![
        Control::Stream(StreamInfo {
            version: 0x0102,
            features: 3,
            device_type: -1,
            device_id: -2,
            body_kinds: 3,
        }),
        Control::Error {
            status: -5,
            seq: 0x0A0B_0C0D,
            text: "no «x»".into(),
        },
        Control::Cancel {
            stream: 0x0807_0605_0403_0201,
        },
        Control::Credit {
            stream: 9,
            credit: Credit {
                batches: 16,
                bytes: 1 << 40,
            },
        },
        Control::Region {
            id: 1,
            handle: vec![7, 8],
        },
        Control::RegionGone { id: 0x0201 },
        Control::RegionForgotten { id: u16::MAX },
    ]
}

/// Rule E3: kind byte, fixed little-endian fields, then text: the bytes of `docs/wire.md`.
#[test]
fn control_messages_have_the_documented_bytes() {
    let expected: [&[u8]; 7] = [
        &[
            1, 2, 1, 3, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 254, 255, 255, 255, 255, 255, 255,
            255, 3,
        ],
        &[
            2, 0xFB, 255, 255, 255, 0x0D, 0x0C, 0x0B, 0x0A, b'n', b'o', b' ', 0xC2, 0xAB, b'x',
            0xC2, 0xBB,
        ],
        &[3, 1, 2, 3, 4, 5, 6, 7, 8],
        &[
            4, 9, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0,
        ],
        &[5, 1, 0, 7, 8],
        &[6, 1, 2],
        &[7, 255, 255],
    ];
    for (message, expected) in every_kind().into_iter().zip(expected) {
        assert_eq!(message.encode(), expected, "{message:?}");
        assert_eq!(Control::decode(expected), Ok(Some(message)));
    }
}

/// Rule E3: every kind cut short or with bytes too many is an error, where the kind has a
/// fixed length.
#[test]
fn malformed_control_messages_are_errors() {
    assert_eq!(Control::decode(&[]).unwrap_err().rule(), "E3");
    for message in every_kind() {
        let bytes = message.encode();
        let open_ended = match &message {
            Control::Error { .. } => 9,
            Control::Region { .. } => 3,
            _ => bytes.len(),
        };
        for len in 1..open_ended {
            let error = Control::decode(&bytes[..len]).unwrap_err();
            assert!(error.text().contains(message.name()), "{error}");
        }
        if open_ended == bytes.len() {
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Control::decode(&longer).unwrap_err().rule(), "E3");
        }
    }
    let bad: [&[u8]; 6] = [
        &[2, 0, 0, 0, 0, 0, 0, 0, 0],
        &[2, 255, 255, 255, 255, 0, 0, 0, 0, 0xFF],
        &[5, 0, 0],
        &[6, 0, 0],
        &[7, 0, 0],
        &[
            1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3,
        ],
    ];
    for bytes in bad {
        assert_eq!(
            Control::decode(bytes).unwrap_err().rule(),
            "E3",
            "{bytes:?}"
        );
    }
}

/// Rule E3: unknown kinds are ignored, whatever they hold.
#[test]
fn unknown_kinds_are_ignored() {
    for kind in (8..=255).chain([0]) {
        assert_eq!(Control::decode(&[kind, 1, 2, 3]), Ok(None));
    }
}

/// Promise of [`Control::encode`]: a text is cut at a character, below the transport's limit.
#[test]
fn long_texts_are_cut() {
    let text = "«".repeat(40_000);
    let bytes = Control::Error {
        status: -1,
        seq: 0,
        text,
    }
    .encode();
    assert!(bytes.len() <= 9 + MOST_TEXT);
    assert!(matches!(
        Control::decode(&bytes),
        Ok(Some(Control::Error { .. }))
    ));
}

/// Rule E1: the request's bytes, and that fields of later versions are skipped.
#[test]
fn requests_have_the_documented_bytes() {
    let request = Request {
        min_version: 1,
        max_version: 2,
        features: 3,
        credit: Credit {
            batches: 4,
            bytes: 5,
        },
        lent_limit: 6,
        stream_id: 7 << 64 | 8,
        ticket: b"t".to_vec(),
    };
    let mut expected = vec![54, 0, 1, 0, 2, 0];
    for word in [3_u64, 4, 5, 6, 8, 7] {
        expected.extend_from_slice(&word.to_le_bytes());
    }
    expected.push(b't');
    assert_eq!(request.encode(), expected);
    assert_eq!(Request::decode(&expected), Ok(request.clone()));

    let mut later = expected.clone();
    later[0] = 56;
    later.splice(54..54, [9, 9]);
    assert_eq!(Request::decode(&later), Ok(request));
}

/// Rule E1: too short, a fixed part shorter than version 1's, an empty version range.
#[test]
fn malformed_requests_are_errors() {
    let bytes = Request::new(
        "",
        Credit {
            batches: 1,
            bytes: 1,
        },
    )
    .encode();
    assert_eq!(bytes.len(), 54);
    assert!(Request::decode(&bytes).is_ok());
    for len in 0..bytes.len() {
        assert_eq!(Request::decode(&bytes[..len]).unwrap_err().rule(), "E1");
    }
    for (at, value) in [(0, 53), (0, 55), (2, 0), (2, 2)] {
        let mut bad = bytes.clone();
        bad[at] = value;
        assert_eq!(
            Request::decode(&bad).unwrap_err().rule(),
            "E1",
            "{at}: {value}"
        );
    }
}

/// Promise of [`error_of`]: a number of a later version is kept in the text.
#[test]
fn unknown_statuses_keep_their_number() {
    assert_eq!(error_of(-5, "x"), Error::new(Status::NotFound, "x"));
    assert_eq!(
        error_of(-999, "x"),
        Error::new(Status::Provider, "x (status -999)")
    );
}
