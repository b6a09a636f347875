//! Rule A7: offsets and slices, of every type and at every level.

use std::sync::Arc;

use arrow::array::builder::{
    Int32Builder, Int64Builder, LargeListBuilder, ListBuilder, MapBuilder, StringBuilder,
    StringViewBuilder,
};
use arrow::array::{
    ArrayRef, Int64Array, LargeBinaryArray, LargeListViewArray, ListViewArray, RecordBatch,
    StringArray, UnionArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field};
use proptest::prelude::*;

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{assert_same, child, cross, cross_arrays, edit, export};

/// The level of a slice: in arrow-rs, or in the C structs, as other producers do.
#[derive(Debug, Clone, Copy)]
enum Level {
    /// arrow-rs slices each column before the export.
    Before,
    /// The struct of the batch has an offset and a length.
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
                // Like a producer that does not count the nulls of a slice.
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

/// Rule A7, for slices at byte boundaries of bitmaps.
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

/// Rule A7, for slices so far into an array that they get new offsets.
#[test]
fn slices_far_into_an_array_cross() {
    const ROWS: usize = 6_000;
    let text = |row: usize| (!row.is_multiple_of(5)).then(|| format!("row {row}"));
    let strings: StringArray = (0..ROWS).map(text).collect();
    let bytes: LargeBinaryArray = (0..ROWS).map(text).collect();
    // Many buffers, with strings inside their views and others.
    let mut views = StringViewBuilder::new().with_fixed_block_size(8_192);
    for row in 0..ROWS {
        views.append_option(text(row).map(|text| text.repeat(1 + row % 3)));
    }
    let mut numbers = ListBuilder::new(Int64Builder::new());
    let mut nested = LargeListBuilder::new(ListBuilder::new(StringBuilder::new()));
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..ROWS {
        let count = row % 4;
        numbers.values().append_slice(&[7; 3][..count]);
        numbers.append(!row.is_multiple_of(7));
        for inner in 0..count {
            for _ in 0..=inner {
                nested.values().values().append_option(text(row));
            }
            nested.values().append(inner != 1);
        }
        nested.append(true);
        for key in 0..count {
            map.keys().append_value(format!("{row}/{key}"));
            map.values().append_value(i32::try_from(row).unwrap());
        }
        map.append(!row.is_multiple_of(11)).unwrap();
    }
    let columns: [(&str, ArrayRef); 6] = [
        ("strings", Arc::new(strings)),
        ("bytes", Arc::new(bytes)),
        ("views", Arc::new(views.finish())),
        ("numbers", Arc::new(numbers.finish())),
        ("nested", Arc::new(nested.finish())),
        ("map", Arc::new(map.finish())),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    for level in [Level::Before, Level::Batch, Level::Columns] {
        for (offset, len) in [(5_990, 10), (5_001, 0), (4_003, 1), (3_001, 1_500)] {
            let array = sliced(&batch, level, offset, len);
            let (_, read) = cross_arrays(&batch.schema(), [array], EncodeOptions::default());
            assert_same(&read, &[batch.slice(offset, len)]);
        }
    }
}

/// Rule A7, for slices of arrays whose rows may point anywhere: the values that the rows use are
/// sent.
#[test]
fn slices_of_scattered_rows_cross() {
    const ROWS: i32 = 6_000;
    const VALUES: i32 = 5 * ROWS;
    let field = |name: &str, ty: DataType| Arc::new(Field::new(name, ty, true));
    let texts: StringArray = (0..VALUES).map(|row| Some(format!("text {row}"))).collect();
    let numbers: Int64Array = (0..i64::from(VALUES)).map(Some).collect();
    // Rows out of order, rows that overlap, and empty rows at the end.
    let start = |row: i32| if row % 9 == 0 { VALUES } else { (row ^ 3) * 5 };
    let len = |row: i32| if row % 9 == 0 { 0 } else { row % 7 };
    let is_valid = NullBuffer::from_iter((0..ROWS).map(|row| row % 5 != 0));
    let views = ListViewArray::new(
        field("item", DataType::Utf8),
        (0..ROWS).map(start).collect(),
        (0..ROWS).map(len).collect(),
        Arc::new(texts.clone()),
        Some(is_valid),
    );
    let large = LargeListViewArray::new(
        field("item", DataType::Int64),
        (0..ROWS).map(|row| i64::from(start(row))).collect(),
        (0..ROWS).map(|row| i64::from(len(row))).collect(),
        Arc::new(numbers.clone()),
        None,
    );
    let fields = [
        (7, field("n", DataType::Int64)),
        (3, field("t", DataType::Utf8)),
    ];
    let union = UnionArray::try_new(
        fields.into_iter().collect(),
        (0..ROWS)
            .map(|row| if row % 3 == 0 { 7 } else { 3 })
            .collect(),
        Some((0..ROWS).map(|row| row * 5).collect()),
        vec![Arc::new(numbers), Arc::new(texts)],
    );
    let columns: [(&str, ArrayRef); 3] = [
        ("views", Arc::new(views)),
        ("large", Arc::new(large)),
        ("union", Arc::new(union.unwrap())),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for level in [Level::Before, Level::Batch, Level::Columns] {
        for (offset, len) in [(5_990, 10), (5_001, 0), (4_003, 1), (9, 1), (2_001, 2_500)] {
            let array = sliced(&batch, level, offset, len);
            let (_, read) = cross_arrays(&batch.schema(), [array], EncodeOptions::default());
            assert_same(&read, &[batch.slice(offset, len)]);
        }
    }
}

/// Many batches of one stream, each another slice, do not affect each other.
#[test]
fn batches_of_one_stream_cross() {
    let batch = every_type();
    let batches: Vec<_> = (0..ROWS)
        .step_by(7)
        .map(|at| batch.slice(at, 7.min(ROWS - at)))
        .collect();
    cross(&batch.schema(), &batches);
}
