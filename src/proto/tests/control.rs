//! Rules E1 and E3: the bytes of `docs/wire.md`.

use std::time::Duration;

use super::*;
use crate::error::Status;
use crate::proto::extension::*;
use crate::proto::headers::MAX_REQUEST_HEADERS;
use crate::proto::request::*;
use crate::proto::{Headers, MOST_RESULT, Selection, Verb};

fn every_kind() -> Vec<Control> {
    vec![
        Control::Stream(
            StreamInfo {
                version: 0x0102,
                features: 3,
                device_type: -1,
                device_id: -2,
                body_kinds: 3,
            },
            Headers::new(),
        ),
        Control::Error {
            status: -5,
            seq: 0x0A0B_0C0D,
            text: "no «x»".into(),
            headers: Headers::new(),
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
        Control::Ready {
            seq: 0x0403_0201,
            event: 0x0605,
            handle: Vec::new(),
        },
        Control::Ready {
            seq: 0,
            event: 1,
            handle: vec![9; IPC_HANDLE_BYTES],
        },
        Control::Return {
            stream: 5,
            seqs: vec![0x0403_0201, u32::MAX],
        },
        Control::GoAway,
        Control::Pending {
            stream: 0x0807_0605_0403_0201,
        },
        Control::Streams { limit: 0x0403_0201 },
    ]
}

/// Rule E3: kind byte, fixed little-endian fields, then text: the bytes of `docs/wire.md`.
#[test]
fn control_messages_have_the_documented_bytes() {
    let mut first_ready = vec![9, 0, 0, 0, 0, 1, 0];
    first_ready.extend_from_slice(&[9; 64]);
    let expected: [&[u8]; 13] = [
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
        &[9, 1, 2, 3, 4, 5, 6],
        &first_ready,
        &[11, 5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 255, 255, 255, 255],
        &[12],
        &[15, 1, 2, 3, 4, 5, 6, 7, 8],
        &[23, 1, 2, 3, 4],
    ];
    assert_eq!(every_kind().len(), expected.len());
    for (message, expected) in every_kind().into_iter().zip(expected) {
        assert_eq!(message.encode(), expected, "{message:?}");
        assert_eq!(Control::decode(expected), Ok(Some(message)));
    }
}

/// Rule E3: each kind of fixed length is an error if it is cut short or has extra bytes.
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
            // A READY without a handle is complete, and so is a RETURN of a single body.
            let whole = match message {
                Control::Ready { .. } => 7,
                Control::Return { .. } => 13,
                _ => 0,
            };
            if len == whole {
                continue;
            }
            let error = Control::decode(&bytes[..len]).unwrap_err();
            assert!(error.text().contains(message.name()), "{error}");
        }
        if open_ended == bytes.len() {
            let longer = [&bytes[..], &[0]].concat();
            assert_eq!(Control::decode(&longer).unwrap_err().rule(), "E3");
        }
    }
    let bad: [&[u8]; 7] = [
        &[23, 0, 0, 0, 0],
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

/// Rule E3: unknown kinds are ignored, whatever bytes follow.
#[test]
fn unknown_kinds_are_ignored() {
    for kind in (24..=255).chain([0, 8, 10, 13, 14, 22]) {
        assert_eq!(Control::decode(&[kind, 1, 2, 3]), Ok(None));
    }
}

/// Promise of [`Control::encode`]: a text is cut between characters, below the transport's limit.
#[test]
fn long_texts_are_cut() {
    let text = "«".repeat(40_000);
    let bytes = Control::Error {
        status: -1,
        seq: 0,
        text,
        headers: Headers::new(),
    }
    .encode();
    assert!(bytes.len() <= 9 + MOST_TEXT);
    assert!(matches!(
        Control::decode(&bytes),
        Ok(Some(Control::Error { .. }))
    ));
}

/// Rule E1: the bytes of the request; fields of later versions are skipped.
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
        device_type: 1,
        gpus: Vec::new(),
        verb: Verb::Get,
        deadline: None,
        headers: Headers::new(),
        source: None,
        selection: Selection::new(),
        number: 0,
        ticket: b"t".to_vec(),
    };
    let mut expected = vec![54, 0, 1, 0, 2, 0];
    for word in [3_u64, 4, 5, 6, 8, 7] {
        expected.extend_from_slice(&word.to_le_bytes());
    }
    expected.push(b't');
    assert_eq!(request.encode(), expected);
    assert_eq!(Request::decode(&expected), Ok(request.clone()));

    let on_gpus = Request {
        device_type: 2,
        gpus: vec![[0xAA; 16], [0xBB; 16]],
        ..request
    };
    let mut longer = expected.clone();
    longer[0] = 59 + 32;
    let devices = [&[2, 0, 0, 0, 2][..], &[0xAA; 16], &[0xBB; 16]].concat();
    longer.splice(54..54, devices);
    assert_eq!(on_gpus.encode(), longer);
    assert_eq!(Request::decode(&longer), Ok(on_gpus.clone()));

    let mut later = longer.clone();
    later[0] += 2;
    later.splice(91..91, [9, 9]);
    assert_eq!(Request::decode(&later), Ok(on_gpus));
}

/// Rule Q1: the bytes of a verb, a deadline and headers, after the bytes of devices.
#[test]
fn requests_have_the_documented_verb_and_headers() {
    let credit = Credit {
        batches: 1,
        bytes: 1,
    };
    let mut request = Request {
        device_type: 2,
        gpus: vec![[0xAA; 16]],
        verb: Verb::List,
        deadline: Some(Duration::from_nanos(0x0102)),
        ..Request::new("ticket", credit)
    };
    request.headers.add("k", "v").unwrap();
    let bytes = request.encode();
    assert_eq!(bytes[0], 59 + 16 + 13);
    // A server of version 1 would read the verb as get, and the headers as part of the ticket.
    assert_eq!(bytes[2..6], [2, 0, 3, 0]);
    let verb = [
        &[5, 0x02, 0x01, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0][..],
        b"\x01\x01\0\0\0kv",
    ]
    .concat();
    assert_eq!(bytes[75..], [&verb[..], b"ticket"].concat());
    let read = Request::decode(&bytes).unwrap();
    assert_eq!(
        read,
        Request {
            min_version: 2,
            ..request.clone()
        }
    );
    let mut later = bytes.clone();
    later[0] += 2;
    later.splice(88..88, [9, 9]);
    assert_eq!(Request::decode(&later).unwrap(), read);

    // Headers longer than the message, and headers over the limit.
    let mut bad = bytes.clone();
    bad[84] = 200;
    assert_eq!(Request::decode(&bad).unwrap_err().rule(), "E1");
    request.headers = Headers::new();
    request
        .headers
        .add("k", vec![0; MAX_REQUEST_HEADERS])
        .unwrap();
    assert_eq!(Request::decode(&request.encode()).unwrap_err().rule(), "Q1");
    // A deadline alone does not need version 2: the client keeps the deadline itself.
    let only = Request {
        deadline: Some(Duration::ZERO),
        ..Request::new("t", credit)
    };
    let read = Request::decode(&only.encode()).unwrap();
    assert_eq!(
        (read.min_version, read.deadline),
        (1, Some(Duration::from_nanos(1)))
    );
    for number in 0..=255 {
        let verb = Verb::from_number(number);
        assert_eq!(verb.number(), number);
        let request = Request {
            verb,
            source: verb.has_source().then_some(SOURCE),
            ..Request::new("t", credit)
        };
        assert_eq!(Request::decode(&request.encode()).unwrap().verb, verb);
    }
}

const SOURCE: StreamInfo = StreamInfo {
    version: VERSION,
    features: 0x0706,
    device_type: 2,
    device_id: -1,
    body_kinds: 3,
};

/// Rule S2: the number of a stream is the last field of fixed length; number 0 has no bytes.
#[test]
fn requests_have_the_documented_number() {
    let credit = Credit {
        batches: 1,
        bytes: 1,
    };
    let first = Request::new("ticket", credit);
    assert_eq!(first.encode()[..2], [54, 0]);
    let request = Request {
        number: 0x0403_0201,
        ..first
    };
    let bytes = request.encode();
    assert_eq!(bytes[..2], [101, 0]);
    assert_eq!(bytes[93..], b"\0\0\0\0\x01\x02\x03\x04ticket"[..]);
    assert_eq!(Request::decode(&bytes), Ok(request));
}

/// Rule Q3: the bytes of the source of a put, before the headers; a put without it is malformed.
#[test]
fn a_put_describes_its_stream_in_the_documented_bytes() {
    let credit = Credit {
        batches: 1,
        bytes: 1,
    };
    let mut request = Request {
        verb: Verb::Put,
        source: Some(SOURCE),
        ..Request::new("ticket", credit)
    };
    request.headers.add("k", "v").unwrap();
    let bytes = request.encode();
    assert_eq!(bytes[0], 59 + 13 + 21);
    let source = [
        &[3, 2, 0, 0, 0][..],
        &[0xFF; 8],
        &[6, 7, 0, 0, 0, 0, 0, 0],
        b"\x01\x01\0\0\0kvticket",
    ]
    .concat();
    assert_eq!(bytes[72..], source);
    let read = Request::decode(&bytes).unwrap();
    let min_version = 2;
    assert_eq!(
        read,
        Request {
            min_version,
            ..request.clone()
        }
    );
    request.source = None;
    let error = Request::decode(&request.encode()).unwrap_err();
    assert_eq!(error.rule(), "Q3");
}

/// Rules Q3, Q4, Q10: the bytes of GRANT, RESULT, ABORT and END, none of which is read cut short.
#[test]
fn messages_of_a_put_have_the_documented_bytes() {
    let mut headers = Headers::new();
    headers.add("k", "v").unwrap();
    let pair = b"\x01\x01\0\0\0kv";
    let credit = Credit {
        batches: 4,
        bytes: 5,
    };
    let grant = Grant {
        credit,
        lent_limit: 6,
        device_type: 1,
    };
    let word = |word: u64| word.to_le_bytes();
    let fixed: [(Control, Vec<u8>, usize); 4] = [
        (
            Control::Grant {
                info: SOURCE,
                grant,
                headers: headers.clone(),
            },
            [
                &[21, 3, 0][..],
                &word(0x0706),
                &[2, 0, 0, 0],
                &[0xFF; 8],
                &[3],
                &word(4),
                &word(5),
                &word(6),
                &[1, 0, 0, 0],
                pair,
            ]
            .concat(),
            52,
        ),
        (
            Control::Result {
                stream: 9,
                batches: 8,
                bytes: b"safe".to_vec(),
            },
            [&[19][..], &word(9), &word(8), b"safe"].concat(),
            17,
        ),
        (
            Control::Abort {
                stream: 9,
                status: -2,
                seq: 3,
                text: "why".to_owned(),
            },
            [
                &[20][..],
                &word(9),
                &(-2_i32).to_le_bytes(),
                &[3, 0, 0, 0],
                b"why",
            ]
            .concat(),
            17,
        ),
        (
            Control::End {
                stream: 9,
                seq: 3,
                batches: 8,
                headers,
            },
            [&[18][..], &word(9), &[3, 0, 0, 0], &word(8), pair].concat(),
            21,
        ),
    ];
    for (message, bytes, least) in fixed {
        assert_eq!(message.encode(), bytes, "{}", message.name());
        assert_eq!(Control::decode(&bytes), Ok(Some(message)));
        for len in 1..least {
            assert_eq!(Control::decode(&bytes[..len]).unwrap_err().rule(), "E3");
        }
    }
    let too_long = [&[19][..], &[0; 16], &[0; MOST_RESULT + 1]].concat();
    assert_eq!(Control::decode(&too_long).unwrap_err().rule(), "E3");
    // A status of success would be no failure.
    let no_failure = [&[20][..], &[0; 16]].concat();
    assert_eq!(Control::decode(&no_failure).unwrap_err().rule(), "E3");
}

/// Rule Q1: answers with headers have kinds of their own; other answers have version 1's bytes.
#[test]
fn answers_with_headers_have_the_documented_bytes() {
    let mut headers = Headers::new();
    headers.add("k", "v").unwrap();
    let pair = b"\x01\x01\0\0\0kv";
    let info = StreamInfo {
        version: 2,
        features: 16,
        device_type: 1,
        device_id: -1,
        body_kinds: 1,
    };
    let stream = Control::Stream(info, headers.clone());
    let plain = Control::Stream(info, Headers::new()).encode();
    let bytes = stream.encode();
    assert_eq!((plain[0], bytes[0]), (1, 16));
    assert_eq!(bytes[1..], [&plain[1..], pair].concat());
    assert_eq!(Control::decode(&bytes), Ok(Some(stream)));
    let error = Control::Error {
        status: -1,
        seq: 3,
        text: "no".to_owned(),
        headers,
    };
    let bytes = error.encode();
    let expected = [
        &[17, 255, 255, 255, 255, 3, 0, 0, 0, 7, 0, 0, 0][..],
        pair,
        b"no",
    ]
    .concat();
    assert_eq!(bytes, expected);
    assert_eq!(Control::decode(&bytes), Ok(Some(error)));
    for len in 1..bytes.len() - 2 {
        assert_eq!(Control::decode(&bytes[..len]).unwrap_err().rule(), "E3");
    }
}

/// Rule E1: the request names the device of bodies with or without GPUs. A count of GPUs that
/// exceeds the bytes is malformed.
#[test]
fn requests_name_as_many_gpus_as_they_say() {
    let credit = Credit {
        batches: 1,
        bytes: 1,
    };
    let wanted = Request {
        device_type: 0,
        ..Request::new("t", credit)
    };
    assert_eq!(wanted.encode().len(), 59 + 1);
    assert_eq!(Request::decode(&wanted.encode()), Ok(wanted.clone()));
    let many = Request {
        gpus: vec![[7; 16]; 300],
        ..wanted
    };
    let bytes = many.encode();
    assert_eq!(bytes.len(), 59 + 255 * 16 + 1);
    let read = Request::decode(&bytes).unwrap();
    assert_eq!((read.gpus.len(), read.ticket.as_slice()), (255, &b"t"[..]));
    for (fixed, count) in [(55, 0), (58, 0), (59, 1), (74, 1), (75, 2), (59, 255)] {
        let mut bad = vec![0; 200];
        let good = Request::new("", credit).encode();
        bad[..54].copy_from_slice(&good);
        bad[0] = fixed;
        bad[58] = count;
        let error = Request::decode(&bad).unwrap_err();
        assert_eq!(error.rule(), "E1", "{fixed}, {count}");
    }
}

/// Rule E1: a short request, a fixed part below version 1's length, an empty version range.
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
    for (at, value) in [(0, 53), (0, 55), (2, 0), (2, 4)] {
        let mut bad = bytes.clone();
        bad[at] = value;
        assert_eq!(
            Request::decode(&bad).unwrap_err().rule(),
            "E1",
            "{at}: {value}"
        );
    }
}

/// Promise of [`error_of`]: the text keeps a status number of a later version.
#[test]
fn unknown_statuses_keep_their_number() {
    assert_eq!(error_of(-5, "x"), Error::new(Status::NotFound, "x"));
    assert_eq!(
        error_of(-999, "x"),
        Error::new(Status::Provider, "x (status -999)")
    );
}

/// `docs/wire.md`, ERROR: a status about the server's pointers, handles or process does not become
/// the same status of this process.
#[test]
fn a_peer_cannot_say_what_only_this_process_can_mean() {
    for own in [
        Status::NullArgument,
        Status::Forked,
        Status::Panic,
        Status::Poisoned,
        Status::BufferTooSmall,
    ] {
        let error = error_of(own.code(), "no");
        assert_eq!(error.status(), Status::Provider, "{own:?}");
        assert_eq!(error.text(), format!("no ({})", own.symbol()));
    }
    for code in [-25, i32::MIN] {
        let error = error_of(code, "no");
        assert_eq!(error.status(), Status::Provider);
        assert_eq!(error.text(), format!("no (status {code})"));
    }
    for said in [
        Status::NotFound,
        Status::Busy,
        Status::Stopped,
        Status::InvalidArgument,
    ] {
        assert_eq!(error_of(said.code(), "no").status(), said);
    }
}
