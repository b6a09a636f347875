//! Rule Q12: the bytes of a selection, and what is refused.

use super::*;
use crate::error::Status;
use crate::proto::{Credit, MAX_TICKET_BYTES, Request, VERSION};

const CREDIT: Credit = Credit {
    batches: 1,
    bytes: 1,
};

fn selection() -> Selection {
    let mut selection = Selection::new();
    selection.set_columns(["b", "ä"]).unwrap();
    selection.set_rows(0x0102, Some(3));
    selection.set_filter(b"f!").unwrap();
    selection
}

fn request(selection: Selection) -> Request {
    Request {
        selection,
        ..Request::new("ticket", CREDIT)
    }
}

/// The documented bytes of `selection`.
fn documented() -> Vec<u8> {
    let columns = [&[1, 7, 0, 0, 0, 1, 0][..], b"b", &[2, 0], "ä".as_bytes()].concat();
    let rows = [
        &[2, 16, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0][..],
        &[3, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let filter = [&[3, 2, 0, 0, 0][..], b"f!"].concat();
    [columns, rows, filter].concat()
}

/// Rule Q12: a selection has the documented bytes, between headers and ticket, and its length after
/// the fields of a put, which are zero. The lowest version is 3: an earlier server would send the
/// whole table.
#[test]
fn a_selection_has_the_documented_bytes() {
    let mut asked = request(selection());
    asked.headers.add("k", "v").unwrap();
    let bytes = asked.encode();
    assert_eq!(bytes[0], 59 + 13 + 21 + 4);
    assert_eq!(bytes[2..6], [3, 0, 3, 0]);
    let expected = [
        &[1, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0][..],
        &[0; 21],
        &[40, 0, 0, 0],
        b"\x01\x01\0\0\0kv",
        &documented(),
        b"ticket",
    ]
    .concat();
    assert_eq!(bytes[59..], expected);
    let min_version = 3;
    let read = Request {
        min_version,
        ..asked
    };
    assert_eq!(Request::decode(&bytes), Ok(read.clone()));
    assert!(read.ensure_served().is_ok());
    let mut later = bytes;
    later[0] += 2;
    later.splice(97..97, [9, 9]);
    assert_eq!(Request::decode(&later), Ok(read));
}

/// Rule Q12: what a selection says arrives, also rows without columns and an empty range; a request
/// for the whole table has neither the field nor version 3.
#[test]
fn every_selection_arrives() {
    let mut none = Selection::new();
    none.set_columns::<String>([]).unwrap();
    let mut empty = Selection::new();
    empty.set_rows(0, Some(0));
    let mut tail = Selection::new();
    tail.set_rows(u64::MAX, None);
    let mut most = Selection::new();
    let names = (0..MOST_COLUMNS).map(|number| number.to_string());
    most.set_columns(names).unwrap();
    let mut filter = Selection::new();
    filter
        .set_filter(vec![7; MAX_SELECTION_BYTES - PART])
        .unwrap();
    let mut long = Selection::new();
    let len = MAX_SELECTION_BYTES - PART - NAME - NAME;
    long.set_columns([String::new(), "x".repeat(len)]).unwrap();
    assert_eq!(long.encoded_len(), MAX_SELECTION_BYTES);
    for selection in [selection(), none, empty, tail, most, long, filter] {
        assert!(!selection.is_all());
        let read = Request::decode(&request(selection.clone()).encode()).unwrap();
        assert_eq!(read.selection, selection);
        let mut bytes = Vec::new();
        selection.encode(&mut bytes);
        assert_eq!(bytes.len(), selection.encoded_len());
    }
    let mut all = Selection::new();
    all.set_rows(0, Some(u64::MAX));
    assert!(all.is_all());
    let bytes = request(all).encode();
    assert_eq!((bytes[0], bytes[2]), (54, 1));
}

/// Rule Q12: a selection that is cut anywhere is malformed, unless it ends with a part.
#[test]
fn no_selection_is_read_cut_short() {
    let bytes = documented();
    let ends = [0, 12, 33, bytes.len()];
    for len in 0..=bytes.len() {
        let read = Selection::decode(&bytes[..len]);
        assert_eq!(read.is_ok(), ends.contains(&len), "{len}: {read:?}");
        if let Err(error) = read {
            assert_eq!(error.rule(), "Q12");
        }
    }
}

/// Rule Q12: bytes that no client of ours writes are a protocol error: parts out of order or
/// twice, contents of a wrong length, no UTF-8, too many names or bytes.
#[test]
fn hostile_selections_are_refused() {
    let rows = [&[2, 16, 0, 0, 0][..], &[1; 16]].concat();
    let columns = [1, 0, 0, 0, 0];
    let nameless = vec![0; 2 * (MOST_COLUMNS + 1)];
    let many = [&[1, 2, 32, 0, 0][..], &nameless].concat();
    let too_long = [&[9, 0, 0, 1, 0][..], &[0; 1 << 16]].concat();
    let cases: [&[u8]; 10] = [
        &[rows.as_slice(), &columns].concat(),
        &[columns, columns].concat(),
        &[0, 0, 0, 0, 0],
        &[2, 15, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        &[2, 0, 0, 0, 0],
        &[1, 1, 0, 0, 0, 0],
        &[1, 3, 0, 0, 0, 1, 0, 0xFF],
        &[1, 0xFF, 0xFF, 0xFF, 0xFF],
        &many,
        &too_long,
    ];
    for case in cases {
        let error = Selection::decode(case).unwrap_err();
        assert_eq!(error.rule(), "Q12", "{case:?}");
        let mut bytes = request(selection()).encode();
        let len = u32::try_from(case.len()).unwrap().to_le_bytes();
        bytes.splice(93..97, len);
        let end = bytes.len() - b"ticket".len();
        bytes.splice(97..end, case.iter().copied());
        assert_eq!(Request::decode(&bytes).unwrap_err().rule(), "Q12");
    }
    // A selection longer than the message.
    let mut bytes = request(selection()).encode();
    bytes[93] = 200;
    assert_eq!(Request::decode(&bytes).unwrap_err().rule(), "E1");
}

/// Rule Q12: a part of a later version is refused by a text, whatever else the selection says. It
/// is never skipped, because the client would get rows that it did not ask for.
#[test]
fn unknown_parts_are_not_skipped() {
    for bytes in [
        [&[9, 1, 0, 0, 0, 5][..]].concat(),
        [&documented()[..], &[9, 0, 0, 0, 0], &[10, 0, 0, 0, 0]].concat(),
    ] {
        let read = Selection::decode(&bytes).unwrap();
        assert!(!read.is_all());
        let error = read.ensure_fits(Verb::Get).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported);
        assert!(error.text().contains("part 9"), "{error}");
    }
}

/// Rule Q12: names that come twice or are too many, and selections of other verbs, are an invalid
/// argument at both ends.
#[test]
fn selections_that_mean_nothing_are_refused() {
    let mut refused = Selection::new();
    for message in [vec![], vec![7; MAX_SELECTION_BYTES - PART + 1]] {
        let error = refused.set_filter(message).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
    }
    let twice = refused.set_columns(["a", "b", "a"]).unwrap_err();
    assert!(twice.text().contains("\"a\""), "{twice}");
    let many = (0..=MOST_COLUMNS).map(|number| number.to_string());
    assert!(
        refused
            .set_columns(many)
            .unwrap_err()
            .text()
            .contains("4097")
    );
    assert!(refused.set_columns(["x".repeat(1 << 16)]).is_err());
    assert!(refused.is_all(), "a failure changes nothing");

    // The server refuses it too, if a client has not checked it.
    let mut read = Selection::decode(&documented()[..12]).unwrap();
    read.columns = Some(vec!["a".to_owned(), "a".to_owned()]);
    for verb in (1..=5).map(Verb::from_number) {
        for asked in [&read, &selection()] {
            let outcome = asked.ensure_fits(verb);
            let is_served = verb == Verb::Get && asked != &read;
            assert_eq!(outcome.is_ok(), is_served, "{}", verb.name());
            if let Err(error) = outcome {
                assert_eq!(error.status(), Status::InvalidArgument);
            }
        }
    }
}

/// Rules Q1 and Q12: a selection counts with the ticket, so that every server can read the request.
#[test]
fn a_selection_counts_with_the_ticket() {
    let fits = MAX_TICKET_BYTES - selection().encoded_len();
    for (len, does_fit) in [(fits, true), (fits + 1, false)] {
        let asked = Request {
            selection: selection(),
            ..Request::new(vec![0; len], CREDIT)
        };
        assert_eq!(asked.ensure_fits().is_ok(), does_fit);
        assert_eq!(Request::decode(&asked.encode()).is_ok(), does_fit);
    }
    assert_eq!(VERSION, 3);
}
