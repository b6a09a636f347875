//! Messages that this crate makes, read by the filters of this crate.

use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, BooleanArray, Int8Array, Int16Array, Int32Array,
    RecordBatch, StringArray, StringViewArray, StructArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::error::Status;
use crate::filter::Filter;
use crate::filter::build::{FilterBuilder, FilterExpression};

/// Two rows of type `of`: the numbers 1 and 2, or values as near to them as the type allows.
fn rows(of: &DataType) -> ArrayRef {
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let wide = || cast(&numbers, &DataType::Int64).unwrap();
    let texts = || cast(&numbers, &DataType::Utf8).unwrap();
    match of {
        DataType::Boolean => cast(&Int32Array::from(vec![1, 0]), of).unwrap(),
        of if of.is_binary() => cast(&texts(), of).unwrap(),
        DataType::Date32 | DataType::Time32(_) => cast(&numbers, of).unwrap(),
        of if of.is_temporal() => cast(&wide(), of).unwrap(),
        _ => cast(&numbers, of).unwrap(),
    }
}

/// Promise of the builder: a literal of each type equals the value that it was made from, beside a
/// column of its type, and a null of each type equals nothing.
#[test]
fn literals_are_the_values_that_they_were_made_of() {
    use DataType::{
        Binary, BinaryView, Boolean, Date32, Date64, Decimal32, Decimal64, Decimal128, Decimal256,
        Duration, Float16, Float32, Float64, Int8, Int16, Int32, Int64, LargeBinary, LargeUtf8,
        Time32, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    let zone = || Some("+01:00".into());
    for of in [
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        Date32,
        Date64,
        Decimal32(9, 2),
        Decimal64(18, 2),
        Decimal128(38, 2),
        Decimal256(50, 2),
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Millisecond, zone()),
        Timestamp(TimeUnit::Microsecond, zone()),
        Timestamp(TimeUnit::Nanosecond, None),
        Duration(TimeUnit::Second),
        Duration(TimeUnit::Nanosecond),
    ] {
        let column = rows(&of);
        let batch = RecordBatch::try_from_iter([("c", column.clone())]).unwrap();
        let schema = batch.schema();
        for value in [column.slice(0, 1), arrow::array::new_null_array(&of, 1)] {
            let mut builder = FilterBuilder::new(&schema);
            let (found, _) = builder.column(&["c"]).unwrap();
            let literal = FilterExpression::literal(&value).unwrap();
            let root = builder.call("equal", [found, literal]);
            let filter = Filter::parse(&builder.finish(root), &schema);
            let filter = filter.unwrap_or_else(|error| panic!("{of}: {error}"));
            let passed = filter.apply(&batch).unwrap();
            let expected = usize::from(value.null_count() == 0);
            assert_eq!(passed, batch.slice(0, expected), "{of}");
        }
    }
}

/// Promise of the builder: a choice, a cast and an option of a function reach the server as they
/// are.
#[test]
fn choices_casts_and_options_are_kept() {
    let column: ArrayRef = Arc::new(Int8Array::from(vec![Some(100), Some(27), None]));
    let batch = RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap();
    let schema = batch.schema();
    let number = |value| FilterExpression::literal(&Int8Array::from(vec![value])).unwrap();
    let wide = |value| FilterExpression::literal(&Int16Array::from(vec![value])).unwrap();
    let mut builder = FilterBuilder::new(&schema);
    let (c, _) = builder.column(&["c"]).unwrap();
    let silent = [("overflow", "SILENT")];
    // 100 + 100 as int8 is -56; as int16 it is 200.
    let wrapped = builder.call_with("add", [c.clone(), number(100)], silent);
    let is_wrapped = builder.call("equal", [wrapped, number(-56)]);
    let sum = c.cast(&DataType::Int16).unwrap();
    let sum = builder.call("add", [sum, wide(100)]);
    let is_wide = builder.call("equal", [sum, wide(127)]);
    let truth = FilterExpression::literal(&BooleanArray::from(vec![true])).unwrap();
    let root = FilterExpression::if_then([(is_wrapped, truth)], Some(is_wide));
    let filter = Filter::parse(&builder.finish(root), &schema).unwrap();
    assert_eq!(filter.apply(&batch).unwrap(), batch.slice(0, 2));
}

/// Promise of the builder: columns are found by their names, in structs too, whatever stands beside
/// them in the table; the error for an unknown name lists the known ones.
#[test]
fn columns_are_found_by_name() {
    let inner = |name, values: Vec<i32>| {
        let field = Arc::new(Field::new(name, DataType::Int32, true));
        (field, Arc::new(Int32Array::from(values)) as ArrayRef)
    };
    let inner = StructArray::from(vec![inner("a", vec![5, 6]), inner("b", vec![7, 8])]);
    let texts = StringArray::from(vec!["x", "y"]);
    let columns: [(&str, ArrayRef); 3] = [
        ("first", Arc::new(texts.clone())),
        ("s", Arc::new(inner)),
        ("last", Arc::new(texts)),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let mut builder = FilterBuilder::new(&schema);
    let (last, _) = builder.column(&["last"]).unwrap();
    let (b, of) = builder.column(&["s", "b"]).unwrap();
    assert_eq!(of, DataType::Int32);
    let eight = FilterExpression::literal(&Int32Array::from(vec![8])).unwrap();
    let texts =
        ["y", "z"].map(|text| FilterExpression::literal(&StringArray::from(vec![text])).unwrap());
    let equal = builder.call("equal", vec![b, eight]);
    let root = builder.call(
        "and",
        vec![equal, FilterExpression::any_of(last, texts.to_vec())],
    );
    let filter = Filter::parse(&builder.finish(root), &schema).unwrap();
    assert_eq!(filter.columns(), [1, 2]);
    assert_eq!(filter.apply(&batch).unwrap(), batch.slice(1, 1));

    let mut builder = FilterBuilder::new(&schema);
    for (names, text) in [
        (&["Last"][..], "there are \"first\", \"s\", \"last\""),
        (&["s", "c"][..], "there are \"a\", \"b\""),
        (&["last", "a"][..], "without fields"),
    ] {
        let error = builder.column(names).unwrap_err();
        assert_eq!(error.status(), Status::InvalidArgument);
        assert!(error.text().contains(text), "{error}");
    }
}

/// Promise of `Filter::apply`: views of few rows hold only the bytes of these rows, and views that
/// share bytes still share them.
#[test]
fn views_hold_what_their_rows_use() {
    let held = |batch: &RecordBatch| {
        let buffers = batch.column(1).as_string_view().data_buffers();
        buffers
            .iter()
            .map(arrow::buffer::Buffer::len)
            .sum::<usize>()
    };
    let long = |row: i32| format!("a text that is too long for a view, of row {row}");
    let own = StringViewArray::from_iter((0..1000).map(|row| (row % 7 != 0).then(|| long(row))));
    let keys = Int32Array::from(vec![0; 1000]);
    let shared = arrow::compute::take(&StringViewArray::from(vec![long(1)]), &keys, None).unwrap();
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1000));
    for (texts, most) in [(Arc::new(own) as ArrayRef, 3 * 60), (shared, 60)] {
        let batch = RecordBatch::try_from_iter([("n", numbers.clone()), ("t", texts)]).unwrap();
        let schema = batch.schema();
        let mut builder = FilterBuilder::new(&schema);
        let (n, _) = builder.column(&["n".to_owned()]).unwrap();
        let three = FilterExpression::literal(&Int32Array::from(vec![3])).unwrap();
        let root = builder.call("lt", vec![n, three]);
        let filter = Filter::parse(&builder.finish(root), &schema).unwrap();
        let passed = filter.apply(&batch).unwrap();
        assert_eq!(passed, batch.slice(0, 3));
        assert!(held(&passed) <= most, "{} bytes", held(&passed));
        assert_eq!(
            filter.apply(&passed).unwrap().column(1).to_data(),
            passed.column(1).to_data()
        );
    }
}
