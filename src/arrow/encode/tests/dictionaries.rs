//! Rule A3: the dictionaries that are sent, and their form.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields, Int8Type, Int32Type, Schema};
use arrow::ipc::root_as_message;

use super::super::*;
use super::support::{assert_same, batch_of, encoder, export, named, read, stream_of};

/// The content of a stream: (id, delta, rows) for each dictionary, `None` for a batch.
fn sent(messages: &[EncodedMessage]) -> Vec<Option<(i64, bool, i64)>> {
    messages
        .iter()
        .map(|message| {
            let header = root_as_message(&message.header).unwrap();
            let dictionary = header.header_as_dictionary_batch();
            assert_eq!(dictionary.is_some(), message.kind == HeaderKind::Dictionary);
            dictionary.map(|d| (d.id(), d.isDelta(), d.data().unwrap().length()))
        })
        .collect()
}

/// Encodes the batches as one stream, checks that they arrive, and returns its content.
fn send(batches: &[RecordBatch]) -> Vec<Option<(i64, bool, i64)>> {
    let mut encoder = encoder(&batches[0].schema(), EncodeOptions::default());
    let mut messages = Vec::new();
    for batch in batches {
        messages.extend(encoder.encode(export(batch), None).unwrap());
    }
    let (_, read) = read(&stream_of(&encoder, &messages));
    assert_same(&read, batches);
    sent(&messages)
}

fn encoded(keys: Vec<Option<i32>>, values: ArrayRef) -> ArrayRef {
    Arc::new(DictionaryArray::new(Int32Array::from(keys), values))
}

fn one(values: ArrayRef) -> RecordBatch {
    let last = i32::try_from(values.len()).unwrap() - 1;
    batch_of(vec![named(
        "d",
        encoded(vec![Some(0), None, Some(last)], values),
    )])
}

const BATCH: Option<(i64, bool, i64)> = None;

fn whole(id: i64, rows: i64) -> Option<(i64, bool, i64)> {
    Some((id, false, rows))
}

fn delta(id: i64, rows: i64) -> Option<(i64, bool, i64)> {
    Some((id, true, rows))
}

/// Pairs of a dictionary and one that has grown by two values, for every type with deltas, with
/// offsets that do not start at 0.
fn growing() -> Vec<(ArrayRef, ArrayRef)> {
    let texts = [
        "x",
        "",
        "a longer text than a view holds",
        "b",
        "another text, longer than that",
    ];
    let array = |array: ArrayRef| (array.slice(1, 2), array.slice(1, 4));
    let with_null = [Some("x"), Some("y"), None, Some("z"), None];
    vec![
        array(Arc::new(StringArray::from(texts.to_vec()))),
        array(Arc::new(LargeStringArray::from(texts.to_vec()))),
        array(Arc::new(StringViewArray::from(texts.to_vec()))),
        array(Arc::new(StringArray::from(with_null.to_vec()))),
        array(Arc::new(Int64Array::from(vec![5, 4, 3, 2, 1]))),
        array(Arc::new(BooleanArray::from(vec![
            true, false, true, true, false,
        ]))),
        array(Arc::new(Decimal256Array::from(vec![
            None,
            Some(1.into()),
            None,
            None,
            None,
        ]))),
    ]
}

/// A dictionary with the values of `array` in new memory.
fn copy(array: &ArrayRef) -> ArrayRef {
    let indices = UInt32Array::from_iter_values(0..u32::try_from(array.len()).unwrap());
    arrow::compute::take(array.as_ref(), &indices, None).unwrap()
}

/// A dictionary in the same memory, or with the same values, is unchanged and not sent.
#[test]
fn an_unchanged_dictionary_is_sent_once() {
    for (values, _) in growing() {
        let batches = [
            one(values.clone()),
            one(values.clone()),
            one(copy(&values)),
            one(values),
        ];
        assert_eq!(send(&batches), [whole(0, 2), BATCH, BATCH, BATCH, BATCH]);
    }
}

/// A longer dictionary with an equal prefix is a delta, whose message has only the new values.
#[test]
fn a_grown_dictionary_is_a_delta() {
    for (short, long) in growing() {
        let batches = [
            one(short.clone()),
            one(long.clone()),
            one(copy(&long)),
            one(short),
        ];
        let wanted = [
            whole(0, 2),
            BATCH,
            delta(0, 2),
            BATCH,
            BATCH,
            whole(0, 2),
            BATCH,
        ];
        assert_eq!(send(&batches), wanted);
    }
    let texts = |count: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            (0..count).map(|i| format!("{i:0100}")),
        ))
    };
    let mut encoder = encoder(&one(texts(100)).schema(), EncodeOptions::default());
    let first = encoder.encode(export(&one(texts(100))), None).unwrap();
    let second = encoder.encode(export(&one(texts(101))), None).unwrap();
    assert!(first[0].body_len > 10_000 && second[0].body_len < 1000);
}

/// A different or shorter dictionary replaces the last one.
#[test]
fn another_dictionary_is_a_replacement() {
    let text = |texts: &[&str]| -> ArrayRef { Arc::new(StringArray::from(texts.to_vec())) };
    let batches = [
        one(text(&["a", "b", "c"])),
        one(text(&["a", "x", "c"])),
        one(text(&["a"])),
        one(text(&["b", "a"])),
    ];
    let wanted = [
        whole(0, 3),
        BATCH,
        whole(0, 3),
        BATCH,
        whole(0, 1),
        BATCH,
        whole(0, 2),
        BATCH,
    ];
    assert_eq!(send(&batches), wanted);
    // A null differs from the value under it.
    let batches = [
        one(Arc::new(StringArray::from(vec![Some("a"), Some("")]))),
        one(Arc::new(StringArray::from(vec![Some("a"), None]))),
    ];
    assert_eq!(send(&batches), [whole(0, 2), BATCH, whole(0, 2), BATCH]);
}

/// An empty dictionary is valid, and a non-empty one after it is sent as a whole.
#[test]
fn empty_dictionaries_cross() {
    let empty: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
    let none = batch_of(vec![named("d", encoded(vec![None, None], empty))]);
    let full = one(Arc::new(StringArray::from(vec!["a"])));
    assert_eq!(
        send(&[none.clone(), none, full]),
        [whole(0, 0), BATCH, BATCH, whole(0, 1), BATCH]
    );
}

/// Each field with a shared dictionary gets an id, because C structs do not show the sharing.
#[test]
fn a_shared_dictionary_has_an_id_for_each_field() {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let batch = batch_of(vec![
        named("one", encoded(vec![Some(0), Some(1)], values.clone())),
        named("plain", Arc::new(Int32Array::from(vec![1, 2]))),
        named("two", encoded(vec![Some(1), None], values)),
    ]);
    let wanted = [whole(0, 2), whole(1, 2), BATCH, BATCH];
    assert_eq!(send(&[batch.clone(), batch]), wanted);
}

/// A dictionary of lists of dictionary-encoded strings, and another field after it.
fn nested(inner: &[&str], keys: Vec<i8>) -> RecordBatch {
    let inner: ArrayRef = Arc::new(StringArray::from(inner.to_vec()));
    let inner = DictionaryArray::<Int8Type>::new(Int8Array::from(keys), inner);
    let lists = ListArray::new(
        Arc::new(Field::new("item", inner.data_type().clone(), true)),
        OffsetBuffer::from_lengths([1, 2]),
        Arc::new(inner),
        None,
    );
    let plain: ArrayRef = Arc::new(StringArray::from(vec!["z"]));
    batch_of(vec![
        named(
            "outer",
            encoded(vec![Some(1), Some(0), None], Arc::new(lists)),
        ),
        named("plain", encoded(vec![None, Some(0), Some(0)], plain)),
    ])
}

/// Ids count depth first, inner dictionaries first. An inner dictionary is sent before the outer
/// one, and its change causes the outer one to be sent again.
#[test]
fn nested_dictionaries_go_inner_first() {
    let same = nested(&["a", "b"], vec![0, 1, 0]);
    let grown = nested(&["a", "b", "c"], vec![0, 1, 0]);
    let other = nested(&["b", "a", "c"], vec![1, 0, 1]);
    let outer_only = nested(&["b", "a", "c"], vec![1, 0, 2]);
    let wanted = [
        vec![whole(0, 2), whole(1, 2), whole(2, 1), BATCH],
        vec![BATCH],
        vec![delta(0, 1), whole(1, 2), BATCH],
        vec![whole(0, 3), whole(1, 2), BATCH],
        vec![whole(1, 2), BATCH],
    ];
    assert_eq!(
        send(&[same.clone(), same, grown, other, outer_only]),
        wanted.concat()
    );
}

/// Dictionaries of nested types are compared by value, and replaced when they grow.
#[test]
fn dictionaries_of_every_type_are_compared_by_value() {
    let batch = super::columns::every_type();
    for (column, field) in batch.columns().iter().zip(batch.schema().fields()) {
        // arrow-rs cannot read a dictionary of dictionaries, and the format cannot express it.
        if matches!(field.data_type(), DataType::Dictionary(..)) {
            continue;
        }
        let values = |offset, len| {
            let keys = Int32Array::from(vec![0, 5, 2]);
            let values = column.slice(offset, len);
            batch_of(vec![named(
                "d",
                Arc::new(DictionaryArray::<Int32Type>::new(keys, values)),
            )])
        };
        let schema = values(0, 20).schema();
        let mut encoder = encoder(&schema, EncodeOptions::default());
        let mut next = |batch: &RecordBatch| {
            let messages = encoder.encode(export(batch), None).unwrap();
            sent(&messages)
        };
        let name = field.name();
        assert_eq!(next(&values(3, 20)), [whole(0, 20), BATCH], "{name}");
        assert_eq!(next(&values(3, 20)), [BATCH], "{name}");
        // The same values at another position of a longer array, so that only the values are equal.
        let twice = arrow::compute::concat(&[column.as_ref(), column.as_ref()]);
        if let Ok(twice) = twice {
            let keys = Int32Array::from(vec![0, 5, 2]);
            let values = twice.slice(super::columns::ROWS + 3, 20);
            let dictionary = DictionaryArray::<Int32Type>::new(keys, values);
            assert_eq!(
                next(&batch_of(vec![named("d", Arc::new(dictionary))])),
                [BATCH],
                "{name}"
            );
        }
        let grown = next(&values(3, 22));
        let [Some((0, is_delta, rows)), None] = grown.as_slice() else {
            panic!("{name} {grown:?}")
        };
        assert_eq!(*rows, if *is_delta { 2 } else { 22 }, "{name}");
        let same_everywhere = [
            "null",
            "only_nulls",
            "inline_view",
            "empty_struct",
            "runs32",
        ];
        if !same_everywhere.contains(&name.as_str()) {
            assert_eq!(next(&values(8, 22)), [whole(0, 22), BATCH], "{name}");
        }
    }
}

/// A dictionary inside a list, a struct and a union is found.
#[test]
fn dictionaries_under_other_types_are_sent() {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let inner = encoded(vec![Some(0), Some(1), None], values);
    let field = Field::new("d", inner.data_type().clone(), true);
    let list = ListArray::new(
        Arc::new(field.clone()),
        OffsetBuffer::from_lengths([2, 0, 1]),
        inner.clone(),
        None,
    );
    let group = StructArray::new(Fields::from(vec![field]), vec![inner], None);
    let batch = batch_of(vec![
        named("list", Arc::new(list)),
        named("struct", Arc::new(group)),
    ]);
    let sliced = batch.slice(1, 2);
    assert_eq!(
        send(&[batch, sliced]),
        [whole(0, 2), whole(1, 2), BATCH, BATCH]
    );
}

/// A failed batch does not change the encoder: its dictionary counts as not sent.
#[test]
fn a_failed_batch_changes_nothing() {
    let first: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let second: ArrayRef = Arc::new(StringArray::from(vec!["b"]));
    let mut encoder = encoder(&one(first.clone()).schema(), EncodeOptions::default());
    encoder.encode(export(&one(first.clone())), None).unwrap();
    // Metadata is checked first, and lengths after the dictionaries.
    assert!(
        encoder
            .encode(export(&one(second.clone())), Some(&[1]))
            .is_err()
    );
    let broken = super::support::edit(export(&one(second.clone())), |array| array.length += 1);
    assert!(encoder.encode(broken, None).is_err());
    assert_eq!(
        sent(&encoder.encode(export(&one(first)), None).unwrap()),
        [BATCH]
    );
    assert_eq!(
        sent(&encoder.encode(export(&one(second)), None).unwrap()),
        [whole(0, 1), BATCH]
    );
}

/// Promise of [`Encoder`]: a stream with dictionaries holds the last batch only. A stream without
/// dictionaries holds no batch.
#[test]
fn at_most_one_batch_is_held() {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let watched = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let owner = |array: &Arc<Int32Array>| array.to_data().buffers()[0].strong_count();
    let column = |name: &str, array: ArrayRef| named(name, array);

    let with = |watched: &Arc<Int32Array>| {
        let dictionary = encoded(vec![Some(0), None, Some(0)], values.clone());
        batch_of(vec![column("w", watched.clone()), column("d", dictionary)])
    };
    let before = owner(&watched);
    let mut holding = encoder(&with(&watched).schema(), EncodeOptions::default());
    drop(holding.encode(export(&with(&watched)), None).unwrap());
    assert!(owner(&watched) > before);
    let later = Arc::new(Int32Array::from(vec![4, 5, 6]));
    drop(holding.encode(export(&with(&later)), None).unwrap());
    assert_eq!(owner(&watched), before);
    assert_eq!(holding.dictionaries.held(), 1);

    let batch = batch_of(vec![column("w", watched.clone())]);
    let mut free = encoder(&batch.schema(), EncodeOptions::default());
    let batch_owner = owner(&watched);
    let messages = free.encode(export(&batch), None).unwrap();
    assert!(owner(&watched) > batch_owner);
    drop(messages);
    assert_eq!(owner(&watched), batch_owner);
    assert_eq!(free.dictionaries.held(), 0);
}

/// The flag of ordered dictionaries is in the header.
#[test]
fn ordered_dictionaries_say_so() {
    let ty = DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8));
    #[expect(
        deprecated,
        reason = "arrow-rs has no other constructor that takes the flag"
    )]
    let field = Field::new_dict("d", ty, true, 0, true);
    let encoder = encoder(&Schema::new(vec![field]), EncodeOptions::default());
    let header = root_as_message(encoder.schema_header()).unwrap();
    let field = header.header_as_schema().unwrap().fields().unwrap().get(0);
    let dictionary = field.dictionary().unwrap();
    assert!(dictionary.isOrdered());
    assert_eq!(dictionary.indexType().unwrap().bitWidth(), 16);
    assert!(!dictionary.indexType().unwrap().is_signed());
}
