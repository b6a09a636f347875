//! A column of every type of the IPC format, made by arrow-rs.
#![allow(clippy::cast_possible_truncation, reason = "row numbers are below 128")]

use std::sync::Arc;

use arrow::array::types::*;
use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, Fields, UnionFields, i256};

use super::support::{batch_of, cross, named};

/// Rows of every column: more than two bytes of bitmap, and not a multiple of 8.
pub(super) const ROWS: usize = 45;

/// Every third row is null, from the second on.
fn valid(row: usize) -> bool {
    row % 3 != 1
}

fn nulls(rows: usize) -> Option<NullBuffer> {
    Some(NullBuffer::from_iter((0..rows).map(valid)))
}

fn primitive<T: ArrowPrimitiveType>(value: impl Fn(usize) -> T::Native) -> PrimitiveArray<T> {
    (0..ROWS)
        .map(|row| valid(row).then(|| value(row)))
        .collect()
}

fn text(row: usize) -> String {
    format!("{row}:{}", "x".repeat(row * 7 % 23))
}

fn texts() -> impl Iterator<Item = Option<String>> {
    (0..ROWS).map(|row| valid(row).then(|| text(row)))
}

/// Child values for lists; they are a slice.
fn items(count: usize) -> ArrayRef {
    let values: Int32Array = (0..count + 3)
        .map(|v| (v % 5 != 2).then_some(v as i32))
        .collect();
    Arc::new(values.slice(3, count))
}

fn item(ty: DataType) -> Arc<Field> {
    Arc::new(Field::new("item", ty, true))
}

fn primitives() -> Vec<(Field, ArrayRef)> {
    macro_rules! columns {
        ($($ty:ident: $value:expr),* $(,)?) => {
            vec![$(named(stringify!($ty), Arc::new(primitive::<$ty>($value)))),*]
        };
    }
    let mut columns = columns![
        Int8Type: |row| row as i8 - 20, Int16Type: |row| row as i16 * -300,
        Int32Type: |row| row as i32 * -70_000, Int64Type: |row| i64::MIN + row as i64,
        UInt8Type: |row| row as u8 * 5, UInt16Type: |row| row as u16 * 1000,
        UInt32Type: |row| u32::MAX - row as u32, UInt64Type: |row| u64::MAX - row as u64,
        Float32Type: |row| row as f32 / 3.0, Float64Type: |row| f64::MAX / (row as f64 + 1.0),
        Float16Type: |row| <Float16Type as ArrowPrimitiveType>::Native::from_f32(row as f32),
        Date32Type: |row| row as i32, Date64Type: |row| row as i64 * 86_400_000,
        Time32SecondType: |row| row as i32, Time32MillisecondType: |row| row as i32,
        Time64MicrosecondType: |row| row as i64, Time64NanosecondType: |row| row as i64,
        TimestampSecondType: |row| row as i64, TimestampMillisecondType: |row| row as i64,
        TimestampMicrosecondType: |row| row as i64, TimestampNanosecondType: |row| row as i64,
        DurationSecondType: |row| row as i64, DurationMillisecondType: |row| row as i64,
        DurationMicrosecondType: |row| row as i64, DurationNanosecondType: |row| row as i64,
        IntervalYearMonthType: |row| row as i32,
        IntervalDayTimeType: |row| IntervalDayTimeType::make_value(row as i32, -1),
        IntervalMonthDayNanoType: |row| IntervalMonthDayNanoType::make_value(1, row as i32, -1),
        Decimal32Type: |row| row as i32, Decimal64Type: |row| row as i64 - 7,
        Decimal128Type: |row| i128::from(row as i64) << 70,
        Decimal256Type: |row| i256::from_i128(row as i128),
    ];
    let zoned = primitive::<TimestampMicrosecondType>(|row| row as i64).with_timezone("+01:00");
    columns.push(named("zoned", Arc::new(zoned)));
    let scaled = primitive::<Decimal128Type>(|row| row as i128);
    let scaled = scaled.with_precision_and_scale(12, -3).unwrap();
    columns.push(named("scaled", Arc::new(scaled)));
    let required = Int64Array::from_iter_values(0..ROWS as i64);
    columns.push((
        Field::new("required", DataType::Int64, false),
        Arc::new(required),
    ));
    columns
}

fn strings() -> Vec<(Field, ArrayRef)> {
    let bytes = || texts().map(|text| text.map(String::into_bytes));
    let fixed = bytes().map(|bytes| bytes.map(|bytes| bytes[..2].to_vec()));
    let mut views = StringViewBuilder::new().with_fixed_block_size(64);
    texts().for_each(|text| views.append_option(text));
    let mut byte_views = BinaryViewBuilder::new();
    bytes().for_each(|bytes| byte_views.append_option(bytes));
    vec![
        named(
            "bool",
            Arc::new(
                (0..ROWS)
                    .map(|row| valid(row).then_some(row % 4 < 2))
                    .collect::<BooleanArray>(),
            ),
        ),
        named("utf8", Arc::new(texts().collect::<StringArray>())),
        named(
            "large_utf8",
            Arc::new(texts().collect::<LargeStringArray>()),
        ),
        named("binary", Arc::new(bytes().collect::<BinaryArray>())),
        named(
            "large_binary",
            Arc::new(bytes().collect::<LargeBinaryArray>()),
        ),
        named("utf8_view", Arc::new(views.finish())),
        named("binary_view", Arc::new(byte_views.finish())),
        named(
            "inline_view",
            Arc::new(StringViewArray::from(vec!["short"; ROWS])),
        ),
        named(
            "fixed",
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 2).unwrap()),
        ),
        named("null", Arc::new(NullArray::new(ROWS))),
        named("only_nulls", Arc::new(Int32Array::new_null(ROWS))),
    ]
}

fn lists() -> Vec<(Field, ArrayRef)> {
    let lengths = || (0..ROWS).map(|row| row % 4);
    let count = lengths().sum::<usize>();
    let list = ListArray::new(
        item(DataType::Int32),
        OffsetBuffer::from_lengths(lengths()),
        items(count),
        nulls(ROWS),
    );
    let large = LargeListArray::new(
        item(DataType::Utf8),
        OffsetBuffer::from_lengths((0..ROWS).map(|_| 1)),
        Arc::new(texts().collect::<StringArray>()),
        None,
    );
    // Views in descending order that overlap.
    let offsets = || (0..ROWS).rev();
    let sizes = || (0..ROWS).map(|row| row % 3);
    let view = ListViewArray::new(
        item(DataType::Int32),
        offsets().map(|at| at as i32).collect(),
        sizes().map(|size| size as i32).collect(),
        items(ROWS + 3),
        nulls(ROWS),
    );
    let large_view = LargeListViewArray::new(
        item(DataType::Int32),
        offsets().map(|at| at as i64).collect(),
        sizes().map(|size| size as i64).collect(),
        items(ROWS + 3),
        None,
    );
    let fixed = FixedSizeListArray::new(item(DataType::Int32), 3, items(ROWS * 3), nulls(ROWS));
    let nested = ListArray::new(
        item(list.data_type().clone()),
        OffsetBuffer::from_lengths((0..ROWS).map(|row| usize::from(row % 2 == 0))),
        Arc::new(list.slice(5, ROWS.div_ceil(2))),
        nulls(ROWS),
    );
    let entries = StructArray::new(
        Fields::from(vec![
            Field::new("key", DataType::Int32, false),
            Field::new("value", DataType::Utf8, true),
        ]),
        vec![
            Arc::new(Int32Array::from_iter_values(0..ROWS as i32)),
            Arc::new(texts().collect::<StringArray>()),
        ],
        None,
    );
    let map = |ordered| {
        let field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
        let offsets = OffsetBuffer::from_lengths((0..ROWS).map(|row| row % 2));
        MapArray::new(field, offsets, entries.clone(), nulls(ROWS), ordered)
    };
    vec![
        named("list", Arc::new(list)),
        named("large_list", Arc::new(large)),
        named("list_view", Arc::new(view)),
        named("large_list_view", Arc::new(large_view)),
        named("fixed_list", Arc::new(fixed)),
        named("nested_list", Arc::new(nested)),
        named("map", Arc::new(map(false))),
        named("sorted_map", Arc::new(map(true))),
    ]
}

fn groups() -> Vec<(Field, ArrayRef)> {
    let ints: ArrayRef = Arc::new(primitive::<Int32Type>(|row| row as i32));
    let strings: ArrayRef = Arc::new(texts().collect::<StringArray>());
    let bools: ArrayRef = Arc::new(
        (0..ROWS)
            .map(|row| valid(row + 1).then_some(row % 2 == 0))
            .collect::<BooleanArray>(),
    );
    let fields = Fields::from(vec![
        Field::new("i", DataType::Int32, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
    ]);
    let group = StructArray::new(
        fields,
        vec![ints.clone(), strings.clone(), bools],
        nulls(ROWS),
    );
    let outer = StructArray::new(
        Fields::from(vec![Field::new("inner", group.data_type().clone(), true)]),
        vec![Arc::new(group.clone())],
        None,
    );
    let empty = StructArray::new_empty_fields(ROWS, nulls(ROWS));

    let union_fields = || {
        UnionFields::try_new(
            [5, 0],
            [
                Field::new("i", DataType::Int32, true),
                Field::new("s", DataType::Utf8, true),
            ],
        )
        .unwrap()
    };
    let ids: ScalarBuffer<i8> = (0..ROWS)
        .map(|row| if row % 3 == 0 { 0 } else { 5 })
        .collect();
    let sparse = UnionArray::try_new(
        union_fields(),
        ids.clone(),
        None,
        vec![ints.clone(), strings.clone()],
    );
    // Increasing offsets for both children, with unused values in both.
    let offsets = (0..ROWS).map(|row| row as i32).collect();
    let dense = UnionArray::try_new(union_fields(), ids, Some(offsets), vec![ints, strings]);
    vec![
        named("struct", Arc::new(group)),
        named("struct_of_struct", Arc::new(outer)),
        named("empty_struct", Arc::new(empty)),
        named("sparse_union", Arc::new(sparse.unwrap())),
        named("dense_union", Arc::new(dense.unwrap())),
    ]
}

fn runs<R: RunEndIndexType>(ends: PrimitiveArray<R>) -> ArrayRef {
    let values: StringArray = texts().take(ends.len()).collect();
    Arc::new(RunArray::try_new(&ends, &values).unwrap())
}

fn encoded() -> Vec<(Field, ArrayRef)> {
    let keys = (0..ROWS).map(|row| valid(row).then_some((row % 4) as i8));
    let values: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        None,
        Some("ccc"),
        Some(""),
    ]));
    let dictionary = DictionaryArray::new(keys.collect::<Int8Array>(), values);
    let wide = UInt64Array::from_iter_values((0..ROWS).map(|row| (row % 3) as u64));
    let numbers: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
    vec![
        named("runs16", runs(Int16Array::from(vec![1, 2, 9, 16, 44, 45]))),
        named("runs32", runs(Int32Array::from(vec![45]))),
        named("runs64", runs(Int64Array::from(vec![10, 20, 45]))),
        named("dictionary", Arc::new(dictionary)),
        named(
            "wide_dictionary",
            Arc::new(DictionaryArray::new(wide, numbers)),
        ),
    ]
}

/// A batch with every type.
pub(super) fn every_type() -> RecordBatch {
    let mut columns = primitives();
    columns.extend(strings());
    columns.extend(lists());
    columns.extend(groups());
    columns.extend(encoded());
    batch_of(columns)
}

/// Every type of the IPC format arrives equal.
#[test]
fn every_type_crosses() {
    let batch = every_type();
    cross(&batch.schema(), std::slice::from_ref(&batch));
    for (index, field) in batch.schema().fields().iter().enumerate() {
        let alone = batch.project(&[index]).unwrap();
        cross(&alone.schema(), &[alone.clone(), alone]);
        assert!(!field.name().is_empty());
    }
}

/// Rule A5: schema only, zero batches, zero rows, zero columns, null-only columns.
#[test]
fn empty_streams_cross() {
    let batch = every_type();
    cross(&batch.schema(), &[]);
    cross(
        &batch.schema(),
        &[batch.slice(0, 0), RecordBatch::new_empty(batch.schema())],
    );
    let none = batch_of(vec![]);
    cross(&none.schema(), std::slice::from_ref(&none));
    let rows = RecordBatchOptions::new().with_row_count(Some(7));
    let rows = RecordBatch::try_new_with_options(none.schema(), vec![], &rows).unwrap();
    cross(&none.schema(), &[rows]);
    cross(&none.schema(), &[]);
}
