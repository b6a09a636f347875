//! Tests of [`super`]: equal tables, and the first difference of others.

use std::sync::Arc;

use arrow::array::{
    DictionaryArray, Float64Array, Int8Array, Int32Array, ListArray, StringArray, StringViewArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Int8Type};
use arrow::record_batch::RecordBatchIterator;

use super::*;

fn table(rows: std::ops::Range<i32>) -> RecordBatch {
    let words = rows
        .clone()
        .map(|i| (i % 3 != 0).then(|| format!("word {i}")));
    let words: ArrayRef = Arc::new(words.collect::<StringArray>());
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(rows));
    RecordBatch::try_from_iter([("number", numbers), ("word", words)]).unwrap()
}

fn one(name: &str, array: impl Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter([(name, Arc::new(array) as ArrayRef)]).unwrap()
}

fn verify(received: &[RecordBatch], expected: &[RecordBatch]) -> Option<Difference> {
    let batches: Vec<_> = expected.iter().cloned().map(Ok).collect();
    let reader = RecordBatchIterator::new(batches, expected[0].schema());
    let mut verify = Verify::new(&received[0].schema(), Reader::plain(reader));
    for batch in received {
        verify.update(batch).unwrap();
    }
    verify.finish().unwrap()
}

/// Promise of `--verify`: batch boundaries do not count, also with empty batches.
#[test]
fn batch_boundaries_do_not_count() {
    let whole = table(0..100);
    let parts = [
        table(0..1),
        table(1..1),
        table(1..64),
        table(64..100),
        table(0..0),
    ];
    assert_eq!(verify(std::slice::from_ref(&whole), &parts), None);
    assert_eq!(verify(&parts, std::slice::from_ref(&whole)), None);
    assert_eq!(verify(&[whole.slice(0, 0)], &[whole.slice(0, 0)]), None);
}

/// The first row that differs is named, with its column and both values.
#[test]
fn the_first_difference_is_told() {
    let mut numbers: Vec<i32> = (0..100).collect();
    numbers[77] = -1;
    numbers[90] = -1;
    let changed = RecordBatch::try_new(
        table(0..1).schema(),
        vec![
            Arc::new(Int32Array::from(numbers)),
            Arc::clone(table(0..100).column(1)),
        ],
    )
    .unwrap();
    let found = verify(
        &[changed.slice(0, 50), changed.slice(50, 50)],
        &[table(0..100)],
    )
    .unwrap();
    assert_eq!(
        found.to_string(),
        r#"column "number", row 77: received "-1", expected "77""#
    );
}

/// A null differs from a value, and from its own name as text.
#[test]
fn nulls_differ_from_values() {
    let null = one("word", StringArray::from(vec![None::<&str>]));
    let text = one("word", StringArray::from(vec![Some("null")]));
    let found = verify(&[null], &[text]).unwrap().to_string();
    assert_eq!(
        found,
        r#"column "word", row 0: received null, expected "null""#
    );
}

/// The two forms of null in a dictionary are equal, also within lists; values are not.
#[test]
fn a_null_index_is_the_index_of_a_null() {
    let dictionary = |keys: Vec<Option<i8>>, values: Vec<Option<&str>>| {
        let values = Arc::new(StringArray::from(values));
        DictionaryArray::new(Int8Array::from(keys), values)
    };
    let index = dictionary(vec![Some(0), None, Some(1)], vec![Some("a"), Some("b")]);
    let value = dictionary(
        vec![Some(2), Some(1), Some(0)],
        vec![Some("b"), None, Some("a")],
    );
    let in_lists = |array: &DictionaryArray<Int8Type>| {
        let item = Field::new_list_field(array.data_type().clone(), true);
        let lengths = OffsetBuffer::from_lengths([2, 0, 1]);
        one(
            "list",
            ListArray::new(item.into(), lengths, Arc::new(array.clone()), None),
        )
    };
    let alone = |array: &DictionaryArray<Int8Type>| one("word", array.clone());
    for (one, other) in [(&index, &value), (&value, &index)] {
        assert_eq!(verify(&[alone(one)], &[alone(other)]), None);
        assert_eq!(verify(&[in_lists(one)], &[in_lists(other)]), None);
        // Also for rows after the first.
        let rows = |array| alone(array).slice(1, 2);
        assert_eq!(verify(&[rows(one)], &[rows(other)]), None);
    }
    let other = dictionary(vec![Some(0), Some(1), Some(1)], vec![Some("a"), Some("b")]);
    let found = verify(&[alone(&value)], &[alone(&other)]).unwrap();
    assert_eq!(
        found.to_string(),
        r#"column "word", row 1: received null, expected "b""#
    );
    assert!(verify(&[in_lists(&value)], &[in_lists(&other)]).is_some());
}

/// Bits decide: a NaN equals itself, -0 differs from 0, and NaNs with different bits differ.
#[test]
fn floats_are_compared_by_their_bits() {
    let float = |value: f64| one("float", Float64Array::from(vec![value]));
    assert_eq!(verify(&[float(f64::NAN)], &[float(f64::NAN)]), None);
    assert!(verify(&[float(-0.0)], &[float(0.0)]).is_some());
    let other = f64::from_bits(f64::NAN.to_bits() ^ 1);
    let found = verify(&[float(other)], &[float(f64::NAN)]).unwrap();
    assert!(found.to_string().contains("other bits"));
}

/// Too few rows, too many rows, and other columns are reported as such.
#[test]
fn rows_and_columns_count() {
    let short = verify(&[table(0..9)], &[table(0..10)]).unwrap();
    assert_eq!(
        short.to_string(),
        "only 9 rows were received, more were expected"
    );
    let long = verify(&[table(0..10)], &[table(0..9)]).unwrap();
    assert_eq!(
        long.to_string(),
        "more rows than the 9 expected were received"
    );

    let plain = one("word", StringArray::from(vec!["x"]));
    let view = one("word", StringViewArray::from(vec!["x"]));
    let found = verify(&[plain], &[view]).unwrap().to_string();
    assert!(found.contains("Utf8 as column 0 of 1, expected"), "{found}");
    let fewer = verify(&[table(0..1).project(&[0]).unwrap()], &[table(0..1)]).unwrap();
    assert!(fewer.to_string().contains("received 1 columns"), "{fewer}");
}
