//! A table with a column of each type.

use std::sync::Arc;

use datafusion::arrow::array::*;
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::*;

/// Three rows, the second mostly null.
pub fn wide() -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(100)]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![
        Some("short"),
        None,
        Some("longer than the twelve bytes of a view"),
    ]));
    let of = |array: &ArrayRef, kinds: Vec<DataType>| {
        let columns = kinds.into_iter().map(|kind| cast(array, &kind).unwrap());
        columns.collect::<Vec<_>>()
    };
    let mut columns = of(
        &numbers,
        vec![
            DataType::Int8,
            DataType::Int16,
            DataType::Int32,
            DataType::Int64,
            DataType::UInt8,
            DataType::UInt16,
            DataType::UInt32,
            DataType::UInt64,
            DataType::Float16,
            DataType::Float32,
            DataType::Float64,
            DataType::Boolean,
            DataType::Date64,
            DataType::Time64(TimeUnit::Nanosecond),
            DataType::Timestamp(TimeUnit::Second, None),
            DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())),
            DataType::Duration(TimeUnit::Microsecond),
            DataType::Decimal32(9, 2),
            DataType::Decimal64(18, 2),
            DataType::Decimal128(38, 3),
            DataType::Decimal256(76, 4),
        ],
    );
    columns.extend(of(
        &cast(&numbers, &DataType::Int32).unwrap(),
        vec![
            DataType::Date32,
            DataType::Time32(TimeUnit::Millisecond),
            DataType::Interval(IntervalUnit::YearMonth),
        ],
    ));
    columns.extend(of(
        &texts,
        vec![
            DataType::Utf8,
            DataType::LargeUtf8,
            DataType::Utf8View,
            DataType::Binary,
            DataType::LargeBinary,
            DataType::BinaryView,
            DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8)),
        ],
    ));
    columns.push(Arc::new(NullArray::new(3)));
    columns.push(Arc::new(IntervalDayTimeArray::from(vec![
        Some(IntervalDayTime::new(1, 2)),
        None,
        Some(IntervalDayTime::new(-3, 4)),
    ])));
    columns.push(Arc::new(IntervalMonthDayNanoArray::from(vec![
        Some(IntervalMonthDayNano::new(1, 2, 3)),
        None,
        Some(IntervalMonthDayNano::new(-4, 5, 6)),
    ])));
    let fixed = [Some(b"abcd"), None, Some(b"wxyz")].into_iter();
    columns.push(Arc::new(
        FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed, 4).unwrap(),
    ));
    columns.extend(nested(&numbers, &columns[30].clone()));
    let named = columns.into_iter().enumerate();
    let named = named.map(|(number, column)| (format!("c{number}"), column, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

fn nested(numbers: &ArrayRef, dictionary: &ArrayRef) -> Vec<ArrayRef> {
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
    let offsets = OffsetBuffer::new(vec![0, 2, 2, 3].into());
    let long = OffsetBuffer::new(vec![0_i64, 2, 2, 3].into());
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("d", dictionary.data_type().clone(), true),
    ]);
    let both = vec![Arc::clone(numbers), Arc::clone(dictionary)];
    let records: ArrayRef = Arc::new(StructArray::new(fields, both, nulls()));
    let list = ListArray::new(
        item(&records),
        offsets.clone(),
        Arc::clone(&records),
        nulls(),
    );
    let large = LargeListArray::new(item(numbers), long, Arc::clone(numbers), nulls());
    let fixed = FixedSizeListArray::new(item(numbers), 1, Arc::clone(numbers), nulls());
    let (starts, sizes) = (vec![1, 0, 0].into(), vec![2, 0, 3].into());
    let view = ListViewArray::new(item(numbers), starts, sizes, Arc::clone(numbers), nulls());

    let entries = Fields::from(vec![
        Field::new("keys", DataType::Utf8, false),
        Field::new("values", DataType::Int64, true),
    ]);
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
    let pairs = StructArray::new(entries, vec![keys, Arc::clone(numbers)], None);
    let entry = Arc::new(Field::new("entries", pairs.data_type().clone(), false));
    let map = MapArray::new(entry, offsets, pairs, nulls(), false);

    let runs = RunArray::<Int32Type>::try_new(
        &Int32Array::from(vec![1, 3]),
        &StringArray::from(vec![Some("run"), None]),
    );
    let choices: UnionFields = [
        (0, Arc::new(Field::new("number", DataType::Int64, true))),
        (1, Arc::new(Field::new("word", DataType::Utf8, true))),
    ]
    .into_iter()
    .collect();
    let ids: ScalarBuffer<i8> = vec![0, 1, 0].into();
    let words: ArrayRef = Arc::new(StringArray::from(vec!["x", "y", "z"]));
    let children = vec![Arc::clone(numbers), words];
    let sparse = UnionArray::try_new(choices.clone(), ids.clone(), None, children.clone());
    let places: ScalarBuffer<i32> = vec![0, 1, 2].into();
    let dense = UnionArray::try_new(choices, ids, Some(places), children);
    vec![
        records,
        Arc::new(list),
        Arc::new(large),
        Arc::new(fixed),
        Arc::new(view),
        Arc::new(map),
        Arc::new(runs.unwrap()),
        Arc::new(sparse.unwrap()),
        Arc::new(dense.unwrap()),
    ]
}
