//! Rule A7: offsets and slices, of every type and at every level.

use arrow::array::RecordBatch;
use proptest::prelude::*;

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{assert_same, child, cross, cross_arrays, edit, export};

/// Where a slice is made: in arrow-rs, or in the C structs as other producers do.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// arrow-rs slices each column before the export.
    Before,
    /// The struct that the batch is has an offset and a length.
    Batch,
    /// Each column has an offset and a length.
    Columns,
}

fn sliced(batch: &RecordBatch, level: Level, offset: usize, len: usize) -> OwnedDeviceArray {
    let (c_offset, c_len) = (i64::try_from(offset).unwrap(), i64::try_from(len).unwrap());
    match level {
        Level::Before => export(&batch.slice(offset, len)),
        Level::Batch => edit(export(batch), |array| {
            array.offset += c_offset;
            array.length = c_len;
        }),
        Level::Columns => edit(export(batch), |array| {
            array.length = c_len;
            for index in 0..batch.num_columns() {
                let column = child(array, index);
                column.offset += c_offset;
                column.length = c_len;
                // As producers do that do not count again.
                if column.null_count > 0 {
                    column.null_count = -1;
                }
            }
        }),
    }
}

fn check(level: Level, offset: usize, len: usize) {
    let batch = every_type();
    let array = sliced(&batch, level, offset, len);
    let (_, read) = cross_arrays(&batch.schema(), [array], EncodeOptions::default());
    assert_same(&read, &[batch.slice(offset, len)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Rule A7, for every type at once.
    #[test]
    fn any_slice_crosses(
        level in prop::sample::select(vec![Level::Before, Level::Batch, Level::Columns]),
        (offset, len) in (0..=ROWS).prop_flat_map(|offset| (Just(offset), 0..=ROWS - offset)),
    ) {
        check(level, offset, len);
    }

    /// Rule A7: a slice of a slice, made at two levels.
    #[test]
    fn slices_of_slices_cross(first in 0..20_usize, second in 0..20_usize) {
        let batch = every_type();
        let inner = batch.slice(first, ROWS - first);
        let array = sliced(&inner, Level::Columns, second, inner.num_rows() - second);
        let array = edit(array, |array| (array.offset, array.length) = (1, array.length - 1));
        let (_, read) = cross_arrays(&batch.schema(), [array], EncodeOptions::default());
        let skipped = first + second + 1;
        assert_same(&read, &[batch.slice(skipped, ROWS - skipped)]);
    }
}

/// Rule A7 at the places where bytes of bitmaps begin and end.
#[test]
fn slices_at_byte_bounds_cross() {
    for level in [Level::Before, Level::Batch, Level::Columns] {
        for (offset, len) in [
            (0, 8),
            (8, 8),
            (7, 1),
            (8, 37),
            (1, 8),
            (9, 0),
            (45, 0),
            (44, 1),
        ] {
            check(level, offset, len);
        }
    }
}

/// Many batches of one stream, each another slice: nothing of one goes over to the next.
#[test]
fn batches_of_one_stream_cross() {
    let batch = every_type();
    let batches: Vec<_> = (0..ROWS)
        .step_by(7)
        .map(|at| batch.slice(at, 7.min(ROWS - at)))
        .collect();
    cross(&batch.schema(), &batches);
}
