//! Tests of [`super`]: the properties that the hash depends on.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{Fields, Int32Type, UnionFields};

use super::*;

fn hash_of(batches: &[RecordBatch]) -> String {
    let mut checksum = Checksum::new(&batches[0].schema());
    for batch in batches {
        checksum.update(batch, &|| Ok(())).unwrap();
    }
    checksum.finish()
}

fn hash(array: impl Array + 'static) -> String {
    let array: ArrayRef = Arc::new(array);
    hash_of(&[RecordBatch::try_from_iter([("column", array)]).unwrap()])
}

fn numbers() -> Int32Array {
    Int32Array::from(vec![Some(1), None, Some(3), Some(4), None, Some(6)])
}

/// One column of every kind of layout, six rows each, with nulls if the type has them.
fn every_layout() -> RecordBatch {
    let valid = || NullBuffer::from(vec![true, false, true, true, true, false]);
    let words = || {
        vec![
            Some("a"),
            None,
            Some("a string longer than twelve"),
            Some(""),
            None,
            None,
        ]
    };
    let item = || Arc::new(Field::new("item", DataType::Int32, true));
    let offsets = || OffsetBuffer::new(ScalarBuffer::from(vec![0, 2, 3, 3, 5, 6, 6]));
    let fields: Fields = vec![
        Field::new("number", DataType::Int32, true),
        Field::new("word", DataType::Utf8, true),
    ]
    .into();
    let structs = StructArray::new(
        fields,
        vec![Arc::new(numbers()), Arc::new(StringArray::from(words()))],
        Some(valid()),
    );
    let union_fields: UnionFields = [
        (0, Arc::new(Field::new("number", DataType::Int32, true))),
        (5, Arc::new(Field::new("word", DataType::Utf8, true))),
    ]
    .into_iter()
    .collect();
    let ids = || ScalarBuffer::from(vec![0_i8, 5, 5, 0, 0, 5]);
    let children =
        || -> Vec<ArrayRef> { vec![Arc::new(numbers()), Arc::new(StringArray::from(words()))] };
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..6 {
        if row % 2 == 0 {
            map.keys().append_value("key");
            map.values().append_option((row > 2).then_some(row));
        }
        map.append(row != 3).unwrap();
    }
    let runs = RunArray::<Int32Type>::try_new(
        &Int32Array::from(vec![2, 3, 6]),
        &StringArray::from(vec![Some("x"), None, Some("y")]),
    )
    .unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(NullArray::new(6)),
        Arc::new(numbers()),
        Arc::new(BooleanArray::from(vec![
            Some(true),
            None,
            Some(false),
            None,
            Some(true),
            None,
        ])),
        Arc::new(StringArray::from(words())),
        Arc::new(LargeStringArray::from(words())),
        Arc::new(StringViewArray::from(words())),
        Arc::new(FixedSizeBinaryArray::try_from_iter((0..6_u8).map(|i| [i, i])).unwrap()),
        Arc::new(ListArray::new(
            item(),
            offsets(),
            Arc::new(numbers()),
            Some(valid()),
        )),
        Arc::new(ListViewArray::new(
            item(),
            vec![4, 0, 1, 1, 2, 0].into(),
            vec![2, 0, 3, 1, 0, 6].into(),
            Arc::new(numbers()),
            Some(valid()),
        )),
        Arc::new(FixedSizeListArray::new(
            item(),
            2,
            Arc::new(Int32Array::from_iter_values(0..12)),
            Some(valid()),
        )),
        Arc::new(structs),
        Arc::new(UnionArray::try_new(union_fields.clone(), ids(), None, children()).unwrap()),
        Arc::new(
            UnionArray::try_new(
                union_fields,
                ids(),
                Some(vec![3, 2, 0, 1, 0, 5].into()),
                children(),
            )
            .unwrap(),
        ),
        Arc::new(map.finish()),
        Arc::new(words().into_iter().collect::<DictionaryArray<Int32Type>>()),
        Arc::new(runs),
        Arc::new(Decimal256Array::from_iter_values(
            (0..6).map(arrow::datatypes::i256::from),
        )),
    ];
    let named = columns.into_iter().enumerate();
    RecordBatch::try_from_iter_with_nullable(
        named.map(|(index, column)| (format!("c{index}"), column, true)),
    )
    .unwrap()
}

/// Promise of `--checksum`: batch boundaries, offsets and slices do not count, for any type.
#[test]
fn the_hash_does_not_depend_on_batches() {
    let whole = every_layout();
    let expected = hash_of(std::slice::from_ref(&whole));
    for cut in 0..=6 {
        let parts = [whole.slice(0, cut), whole.slice(cut, 6 - cut)];
        assert_eq!(hash_of(&parts), expected, "cut at {cut}");
    }
    let rows: Vec<_> = (0..6).map(|row| whole.slice(row, 1)).collect();
    assert_eq!(hash_of(&rows), expected);
}

/// Every row of every column counts: to leave a row out, or to exchange two, changes the hash.
#[test]
fn the_hash_depends_on_every_row() {
    let whole = every_layout();
    for index in 0..whole.num_columns() {
        let column = whole.project(&[index]).unwrap();
        let expected = hash_of(std::slice::from_ref(&column));
        assert_ne!(hash_of(&[column.slice(0, 5)]), expected, "column {index}");
        if index > 0 {
            let exchanged = [column.slice(3, 3), column.slice(0, 3)];
            assert_ne!(hash_of(&exchanged), expected, "column {index}");
        }
    }
}

/// Encodings of the same values have equal hashes; values under a null do not count.
#[test]
fn encodings_do_not_count() {
    let words = vec![Some("a"), None, Some("bb"), Some("a")];
    let plain = hash(StringArray::from(words.clone()));
    assert_eq!(hash(LargeStringArray::from(words.clone())), plain);
    assert_eq!(hash(StringViewArray::from(words.clone())), plain);
    assert_eq!(
        hash(
            words
                .iter()
                .copied()
                .collect::<DictionaryArray<Int32Type>>()
        ),
        plain
    );
    let runs = RunArray::<Int32Type>::try_new(
        &Int32Array::from(vec![1, 2, 3, 4]),
        &StringArray::from(words),
    );
    assert_eq!(hash(runs.unwrap()), plain);

    let nulls = NullBuffer::from(vec![true, false]);
    let under = |value| Int32Array::new(vec![1, value].into(), Some(nulls.clone()));
    assert_eq!(hash(under(7)), hash(under(8)));
}

/// Values, nulls, the splitting of strings, types and names count.
#[test]
fn values_types_and_names_count() {
    let word = |words: Vec<&str>| hash(StringArray::from(words));
    assert_ne!(word(vec!["ab", "c"]), word(vec!["a", "bc"]));
    assert_ne!(
        hash(Int32Array::from(vec![Some(0)])),
        hash(Int32Array::from(vec![None]))
    );
    assert_ne!(
        hash(Int32Array::from(vec![5])),
        hash(UInt32Array::from(vec![5]))
    );
    assert_ne!(
        hash(Float64Array::from(vec![0.0])),
        hash(Float64Array::from(vec![-0.0]))
    );
    let named = |name: &str| {
        hash_of(&[RecordBatch::try_from_iter([(name, Arc::new(numbers()) as ArrayRef)]).unwrap()])
    };
    assert_ne!(named("a"), named("b"));
}
