//! The bounds on what the messages of a stream may take together (rule A8).

use std::sync::Arc;

use arrow::array::*;
use arrow::ipc;
use arrow::ipc::writer::IpcWriteOptions;

use super::budget::{as_delta, decode_within, field, schema_of};
use super::support::*;
use crate::arrow::decode::budget::DecodeBudget;
use crate::arrow::decode::columns::struct_bytes;
use crate::arrow::decode::{DecodeOptions, Decoder, Level, empty};
use crate::error::Status;
use crate::proto::Header;

/// The messages of a batch: a schema, a dictionary for each column, and the batch.
fn sent(columns: usize, values: &ArrayRef) -> Vec<(Vec<u8>, Vec<u8>)> {
    let columns = (0..columns).map(|index| {
        let key = (!values.is_empty()).then_some(0);
        let array = DictionaryArray::new(Int32Array::from(vec![key]), Arc::clone(values));
        (format!("c{index}"), Arc::new(array) as ArrayRef)
    });
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ))
}

/// Rule A8: dictionaries without bytes, which a consumer does not see, have a limit. With batches
/// in between there may be any number.
#[test]
fn thousands_of_empty_dictionaries_are_refused() {
    let none: ArrayRef = Arc::new(StringArray::new_null(0));
    let mut all = sent(1, &none);
    let dictionary = all[1].clone();
    let mut batch = all.pop().unwrap();
    batch.0 = edit(&batch.0, |parts| {
        parts.length = 0;
        parts.nodes = vec![(0, 0)];
    });
    let many = |between: Option<&(Vec<u8>, Vec<u8>)>| {
        let mut all = all.clone();
        for _ in 0..5000 {
            all.push(dictionary.clone());
            all.extend(between.cloned());
        }
        all
    };
    for level in LEVELS {
        let error = decode_within(&many(None), level, 1 << 20).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        assert!(error.text().contains("since the last batch"), "{error}");
        assert!(error.text().contains("message_limit_bytes"), "{error}");
        decode_within(&many(Some(&batch)), level, 1 << 20).unwrap();
        decode_within(&many(None), level, 64 << 20).unwrap();
    }
}

/// Rule A8: a delta of a few bytes has the bitmap of all values copied. The limit is one for all
/// deltas between two batches.
#[test]
fn deltas_that_copy_the_whole_end_at_the_limit() {
    let nulls: ArrayRef = Arc::new(StructArray::new_empty_fields(1, Some(vec![false].into())));
    let all = sent(1, &nulls);
    let delta = (as_delta(&all[1].0), all[1].1.clone());
    let rows = 4 << 20;
    let first = edit(&all[1].0, |parts| {
        parts.length = rows;
        parts.nodes = vec![(rows, 0)];
        parts.buffers = vec![(0, 0)];
        parts.body_len = 0;
    });
    let begin = [all[0].clone(), (first, Vec::new())];
    let with = |between: &[(Vec<u8>, Vec<u8>)]| {
        let mut sent = begin.to_vec();
        for _ in 0..50 {
            sent.push(delta.clone());
            sent.extend_from_slice(between);
        }
        sent
    };
    let limit = 6 << 20;
    let error = decode_within(&with(&[]), Level::Structure, limit).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    assert!(error.text().contains("since the last batch"), "{error}");
    // Each delta alone is within the limit of a message.
    decode_within(&with(&all[2..]), Level::Structure, limit).unwrap();
}

/// Rule A8: bodies of dictionaries stay here, so that all of them together have a limit.
#[test]
fn bodies_of_dictionaries_have_a_limit() {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7; 1000]));
    let all = sent(10, &values);
    let error = decode_within(&all, Level::Full, 2000).unwrap_err();
    // The schema alone takes more than this limit.
    assert!(error.text().contains("schema"), "{error}");
    let limit = 22_000;
    let many = sent(
        10,
        &(Arc::new(Int64Array::from(vec![7; 10_000])) as ArrayRef),
    );
    let error = decode_within(&many, Level::Full, limit).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    assert!(error.text().contains("bodies of all"), "{error}");
    decode_within(&all, Level::Full, limit).unwrap();
    // A dictionary that is sent again replaces the earlier one.
    let mut anew = many[..2].to_vec();
    anew.extend(std::iter::repeat_n(many[1].clone(), 20));
    let refused = decode_within(&anew, Level::Full, limit).map_err(|error| error.text().to_owned());
    assert!(refused.is_ok(), "{refused:?}");
}

/// Rule A8: the empty dictionary that replaces a missing one counts against the budget.
#[test]
fn absent_dictionaries_are_counted() {
    const FIELDS: usize = 1000;
    let mut fbb = flatbuffers::FlatBufferBuilder::new();
    let leaves: Vec<_> = (0..FIELDS)
        .map(|_| field(&mut fbb, "", ipc::Type::Utf8View, None, &[]))
        .collect();
    let outer = field(&mut fbb, "d", ipc::Type::Struct_, Some(0), &leaves);
    let header = Header::parse(&schema_of(fbb, &[outer])).unwrap();
    let mut decoder = Decoder::new(&header, DecodeOptions::default()).unwrap();
    let root = Arc::clone(&decoder.schema.root);
    let least = struct_bytes(FIELDS, 3);
    let budget = DecodeBudget::new(least / 2, &[]);
    let error = empty::dictionary(&root.children[0], &budget).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    let budget = DecodeBudget::new(2 * least, &[]);
    let columns = empty::dictionary(&root.children[0], &budget).unwrap();
    assert_eq!(columns.nodes.len(), FIELDS + 1);
    assert!(budget.left() < least);
    // A batch that uses it, which has no more than one node.
    let none: ArrayRef = Arc::new(StringArray::new_null(0));
    let batch = edit(&sent(1, &none)[2].0, |parts| {
        parts.length = 0;
        parts.nodes = vec![(0, 0)];
        parts.buffers = vec![(0, 0); 2];
        parts.body_len = 0;
    });
    let header = Header::parse(&batch).unwrap();
    let body = place(&header, &[], Place::Packed, &Arc::default());
    assert!(decoder.batch(&header, &body).is_ok());
    decoder.options.message_limit = least;
    let error = decoder.batch(&header, &body).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
}

/// Rule A8: a batch holds the map of the dictionaries, so that the next dictionary copies it. With
/// many dictionaries the copy counts.
#[test]
fn copies_of_the_map_are_counted() {
    const COLUMNS: usize = 500;
    let values: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    let mut all = sent(COLUMNS, &values);
    let again = all[1].clone();
    all.push(again);
    let options = |message_limit| DecodeOptions {
        level: Level::Structure,
        message_limit,
    };
    let decode = |held: bool| {
        let header = Header::parse(&all[0].0).unwrap();
        let mut decoder = Decoder::new(&header, options(u64::MAX)).unwrap();
        let mut batches = Vec::new();
        let mut last = Ok(0);
        for (index, (header, body)) in all.iter().enumerate().skip(1) {
            let header = Header::parse(header).unwrap();
            let body = place(&header, body, Place::Packed, &Arc::default());
            if index == COLUMNS + 1 {
                batches.push(decoder.batch(&header, &body).unwrap());
                if !held {
                    batches.clear();
                }
                // The limit begins with the next message.
                decoder.options.message_limit = 16 << 10;
                decoder.totals = super::super::DictionaryTotals::default();
            } else {
                last = decoder.add_dictionary(&header, &body);
            }
        }
        last
    };
    decode(false).unwrap();
    assert_eq!(decode(true).unwrap_err().status(), Status::OutOfMemory);
}
