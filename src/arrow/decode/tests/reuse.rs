//! Batches with the header of the last batch: only the addresses of their buffers are new.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Float64Array, Int8Array, Int64Array, RecordBatch};
use arrow::datatypes::Schema;
use arrow::ipc::writer::IpcWriteOptions;

use super::support::*;
use crate::arrow::decode::{DecodeOptions, Decoder};
use crate::proto::HeaderParser;

const ROWS: i64 = 20;

/// Columns of fixed width with values of this batch only; numbers below `nulls` are null.
fn numbers(batch: i64, nulls: usize) -> RecordBatch {
    let longs = (0..ROWS).map(|row| row * 7 + batch);
    let longs = longs.map(|value| (value >= i64::try_from(nulls).unwrap()).then_some(value));
    let bytes = (0..ROWS).map(|row| i8::try_from((row + batch) % 100).unwrap());
    let reals = (0..ROWS).map(|row| f64::from(i32::try_from(row - batch).unwrap()));
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("longs", Arc::new(Int64Array::from_iter(longs)), true),
        ("bytes", Arc::new(Int8Array::from_iter_values(bytes)), true),
        (
            "reals",
            Arc::new(Float64Array::from_iter_values(reals)),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Each batch has its own values, wherever its body lies, also after a different batch. Each body
/// is dropped with its own batch.
#[test]
fn a_batch_like_the_last_one_has_its_own_values() {
    let batches = [
        numbers(0, 0),
        numbers(1, 0),
        numbers(2, 3),
        numbers(3, 0),
        numbers(4, 0),
        numbers(5, 0).slice(0, 5),
        numbers(6, 0),
        numbers(7, 0),
    ];
    let schema: Arc<Schema> = batches[0].schema();
    let messages = messages(&write(&schema, &batches, IpcWriteOptions::default()));
    for level in LEVELS {
        for first in PLACES {
            for second in PLACES {
                let mut parser = HeaderParser::default();
                let options = DecodeOptions {
                    level,
                    ..DecodeOptions::default()
                };
                let header = parser.parse(&messages[0].0).unwrap();
                let mut decoder = Decoder::new(&header, options).unwrap();
                let imported = import_schema(decoder.schema());
                let drops = Arc::default();
                let mut known = 0;
                let mut last = header;
                for (index, (header, body)) in messages[1..].iter().enumerate() {
                    let header = parser.parse(header).unwrap();
                    known += usize::from(header.is(&last));
                    let at = [first, second][index % 2];
                    let body = place(&header, body, at, &drops);
                    let batch = decoder.batch(&header, &body).unwrap();
                    drop(body);
                    assert_eq!(batch.rows, batches[index].num_rows() as u64);
                    assert_eq!(
                        import(&imported, batch.array),
                        batches[index],
                        "{first:?} {second:?}"
                    );
                    assert_eq!(drops.load(Ordering::SeqCst), index + 1);
                    last = header;
                }
                // The second, fifth and last batch have the header of the batch before them.
                assert_eq!(known, 3);
            }
        }
    }
}

/// Only a batch with the last header is reused, and only if its buffers need no copy.
#[test]
fn only_a_batch_like_the_last_one_is_not_built() {
    let batches = [numbers(0, 0), numbers(1, 0), numbers(2, 3)];
    let messages = messages(&write(
        &batches[0].schema(),
        &batches,
        IpcWriteOptions::default(),
    ));
    let mut parser = HeaderParser::default();
    let header = parser.parse(&messages[0].0).unwrap();
    let mut decoder = Decoder::new(&header, DecodeOptions::default()).unwrap();
    let drops = Arc::default();
    let mut is_reused = |index: usize, at: Place| {
        let first = parser.parse(&messages[1].0).unwrap();
        let body = place(&first, &messages[1].1, Place::Packed, &drops);
        decoder.batch(&first, &body).unwrap();
        let header = parser.parse(&messages[index].0).unwrap();
        let body = place(&header, &messages[index].1, at, &drops);
        decoder.spare.reuse(&header, &body).is_some()
    };
    assert!(is_reused(2, Place::Packed));
    assert!(is_reused(2, Place::Shared));
    assert!(!is_reused(2, Place::Misaligned));
    assert!(!is_reused(3, Place::Packed));
}
