//! Valid messages with one fault each, and the expected text (rule A8).

use std::sync::Arc;

use arrow::array::*;

use super::support::*;
use super::types::{column, every_type};
use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::device::HostBuffer;
use crate::proto::Header;

type Change = fn(&mut Parts);

/// Rule A8, level structure: faults in headers are found at both levels, and named in the text.
#[test]
fn wrong_headers_are_found_at_level_structure() {
    let cases: &[(&str, Change, &str)] = &[
        ("Int32", |parts| parts.length = -6, "negative"),
        (
            "Int32",
            |parts| parts.length = 7,
            "6 values in a batch of 7 rows",
        ),
        ("Int32", |parts| parts.nodes[0].0 = -1, "negative"),
        ("Int32", |parts| parts.nodes[0].1 = -1, "negative"),
        (
            "Int32",
            |parts| parts.nodes[0].1 = 7,
            "7 nulls among 6 values",
        ),
        (
            "Int32",
            |parts| parts.nodes[0].0 = 7,
            "24 bytes, 28 are needed",
        ),
        (
            "Int32",
            |parts| parts.nodes[0].0 = i64::MAX,
            "need 1152921504606846976",
        ),
        (
            "month day nano",
            |parts| parts.nodes[0].0 = i64::MAX,
            "of length",
        ),
        (
            "Int32",
            |parts| parts.buffers[0].1 = 0,
            "validity bitmap has 0 bytes",
        ),
        (
            "Int32",
            |parts| parts.buffers[1].1 = 23,
            "23 bytes, 24 are needed",
        ),
        (
            "Boolean",
            |parts| parts.buffers[1].1 = 0,
            "0 bytes, 1 are needed",
        ),
        ("Int32", |parts| parts.nodes.clear(), "fewer nodes"),
        ("Int32", |parts| parts.nodes.push((6, 0)), "1 nodes more"),
        ("Int32", |parts| parts.buffers.truncate(1), "fewer buffers"),
        (
            "Int32",
            |parts| parts.buffers.push((0, 0)),
            "1 buffers more",
        ),
        (
            "utf8",
            |parts| parts.buffers[1].1 = 27,
            "27 bytes, 28 are needed",
        ),
        ("utf8", |parts| parts.buffers[2].1 -= 1, "are needed"),
        (
            "large utf8",
            |parts| parts.buffers[1].1 = 0,
            "0 bytes, 56 are needed",
        ),
        ("utf8 view", |parts| parts.counts = None, "fewer counts"),
        (
            "utf8 view",
            |parts| parts.counts = Some(vec![-1]),
            "-1 view buffers",
        ),
        (
            "utf8 view",
            |parts| parts.counts = Some(vec![i64::MAX]),
            "view buffers where",
        ),
        (
            "utf8 view",
            |parts| parts.counts = Some(vec![1, 0]),
            "1 counts of view buffers more",
        ),
        (
            "Int32",
            |parts| parts.counts = Some(vec![0]),
            "1 counts of view buffers more",
        ),
        ("list", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        ("large list", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        (
            "list view",
            |parts| parts.buffers[2].1 = 20,
            "20 bytes, 24 are needed",
        ),
        ("fixed list", |parts| parts.nodes[1] = (11, 0), "needs 12"),
        ("struct", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        (
            "map",
            |parts| parts.nodes[1].1 = 1,
            "validity bitmap has 0 bytes",
        ),
        ("sparse union", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        (
            "sparse union",
            |parts| parts.nodes[0].1 = 1,
            "no validity bitmap",
        ),
        (
            "sparse union",
            |parts| parts.buffers[0].1 = 5,
            "5 bytes, 6 are needed",
        ),
        (
            "dense union",
            |parts| parts.buffers[1].1 = 20,
            "20 bytes, 24 are needed",
        ),
        (
            "run ends",
            |parts| parts.nodes[1].0 = 2,
            "2 run ends and 3 values",
        ),
        (
            "run ends",
            |parts| {
                parts.nodes[1].1 = 1;
                parts.buffers[0] = (parts.buffers[1].0, 1);
            },
            "a run end is null",
        ),
        (
            "run ends",
            |parts| parts.nodes[0].1 = 1,
            "no validity bitmap",
        ),
        (
            "run ends",
            |parts| {
                parts.length = 7;
                parts.nodes[0].0 = 7;
            },
            "the last run ends at 6",
        ),
        (
            "run ends",
            |parts| {
                parts.nodes[1].0 = 0;
                parts.nodes[2] = (0, 0);
            },
            "the last run ends at 0",
        ),
        (
            "dictionary",
            |parts| parts.buffers[1].1 = 11,
            "11 bytes, 12 are needed",
        ),
    ];
    let batch = every_type();
    for (name, change, wanted) in cases {
        let index = batch.schema().index_of(name).unwrap();
        let mut messages = column(index);
        let last = messages.len() - 1;
        messages[last].0 = edit(&messages[last].0, change);
        for level in LEVELS {
            for at in PLACES {
                let error = decode_messages(&messages, level, at).err();
                let text = error.map_or_else(String::new, |error| error.text().to_owned());
                assert!(text.contains(wanted), "{name}: {wanted:?}: {text:?}");
            }
        }
    }
}

/// Rule A8, level full: a null count that differs from the bitmap.
#[test]
fn null_counts_are_compared_with_the_bitmap() {
    for count in [0, 2, 6] {
        let mut messages = column(every_type().schema().index_of("Int32").unwrap());
        messages[1].0 = edit(&messages[1].0, |parts| parts.nodes[0].1 = count);
        for at in PLACES {
            let error = decode_messages(&messages, Level::Full, at).err().unwrap();
            assert!(error.text().contains("the bitmap 1"), "{error}");
            decode_messages(&messages, Level::Structure, at).unwrap();
        }
    }
}

/// Changes bytes of a body, at an offset in a buffer.
fn poke(messages: &mut [(Vec<u8>, Vec<u8>)], buffer: usize, offset: usize, bytes: &[u8]) {
    let (header, body) = messages.last_mut().unwrap();
    let start = usize::try_from(
        Header::parse(header)
            .unwrap()
            .buffers()
            .nth(buffer)
            .unwrap()
            .offset,
    )
    .unwrap();
    body[start + offset..][..bytes.len()].copy_from_slice(bytes);
}

/// Column, buffer, offset, new bytes, true if level structure finds the fault, and the text.
type Poke<'a> = (&'a str, usize, usize, &'a [u8], bool, &'a str);

/// Rule A8: invalid offsets, run ends and map keys in bodies. The first and last are found at both
/// levels.
#[test]
fn wrong_bodies_are_found() {
    let minus = (-1i32).to_le_bytes();
    let far = 1000i32.to_le_bytes();
    let cases: &[Poke] = &[
        ("utf8", 1, 0, &minus, true, "from -1"),
        ("utf8", 1, 24, &far, true, "1000 are needed"),
        ("utf8", 1, 24, &minus, true, "to -1"),
        ("utf8", 1, 4, &far, false, "offset 1000"),
        ("list", 1, 24, &far, true, "needs 1000"),
        ("list", 1, 0, &far, true, "from 1000"),
        ("list", 1, 8, &far, false, "offset 1000"),
        ("map", 1, 24, &far, true, "needs 1000"),
        (
            "run ends",
            1,
            8,
            &[5, 0, 0, 0],
            true,
            "the last run ends at 5",
        ),
        ("run ends", 1, 4, &[2, 0, 0, 0], false, "run 1 ends at 2"),
        ("run ends", 1, 0, &[0, 0, 0, 0], false, "run 0 ends at 0"),
    ];
    let batch = every_type();
    for (name, buffer, offset, bytes, structural, wanted) in cases {
        let mut messages = column(batch.schema().index_of(name).unwrap());
        poke(&mut messages, *buffer, *offset, bytes);
        for at in PLACES {
            let error = |level| {
                let error = decode_messages(&messages, level, at).err();
                error.map_or_else(String::new, |error| error.text().to_owned())
            };
            assert!(
                error(Level::Full).contains(wanted),
                "{name}: {wanted}: {}",
                error(Level::Full)
            );
            assert_eq!(
                error(Level::Structure).contains(wanted),
                *structural,
                "{name}: {wanted}"
            );
        }
    }
}

/// Null rows of views may have any content; a dangerous view becomes an empty string.
#[test]
fn views_of_null_rows_are_cleared() {
    let mut messages = column(every_type().schema().index_of("utf8 view").unwrap());
    poke(&mut messages, 1, 16, &[0xff; 16]);
    for at in PLACES {
        let decoded = decode_messages(&messages, Level::Full, at).unwrap();
        assert!(decoded.batches[0].copied > 0);
        let (_, batches) = read_back(decoded);
        let expected = every_type();
        assert_eq!(
            batches[0].column(0),
            expected.column_by_name("utf8 view").unwrap()
        );
        let views = batches[0].column(0).as_string_view().views();
        assert_eq!(views[1], 0);
    }
}

/// A body that does not match its header is refused before it is read (rules A1, D3).
#[test]
fn bodies_must_match_their_headers() {
    let messages = column(0);
    let parse = |index: usize| Header::parse(&messages[index].0).unwrap();
    let mut decoder = Decoder::new(&parse(0), DecodeOptions::default()).unwrap();
    let header = parse(1);
    let mut body = place(&header, &messages[1].1, Place::Packed, &Arc::default());
    body.buffers.pop();
    let error = decoder.batch(&header, &body).unwrap_err();
    assert!(error.text().contains("not those of its header"), "{error}");
    let short = HostBuffer::new(messages[1].1.len() - 1).unwrap();
    let error = ReceivedBody::packed(&header, short).err().unwrap();
    assert!(
        error.text().contains("came where its header says"),
        "{error}"
    );
    let mut memory = HostBuffer::new(messages[1].1.len()).unwrap();
    memory.as_mut_slice().copy_from_slice(&messages[1].1);
    let body = ReceivedBody::packed(&header, memory).unwrap();
    assert_eq!(decoder.batch(&header, &body).unwrap().rows, 6);
    // Messages of the wrong kind.
    assert!(decoder.batch(&parse(0), &body).is_err());
    assert!(Decoder::new(&header, DecodeOptions::default()).is_err());
}
