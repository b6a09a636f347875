//! Dictionaries: deltas, replacements and missing dictionaries (rule A3).

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::concat;
use arrow::datatypes::*;
use arrow::ipc::writer::{DictionaryHandling, IpcWriteOptions};

use super::support::*;
use super::types::every_type;
use crate::arrow::decode::Level;

/// One column with the indices 0.. into `values`.
fn batch_of(values: &ArrayRef) -> RecordBatch {
    let count = i32::try_from(values.len()).unwrap();
    let array = DictionaryArray::new(Int32Array::from_iter_values(0..count), Arc::clone(values));
    RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap()
}

/// The format cannot express dictionary-encoded values of a dictionary, but a struct of them.
fn expressible(column: &ArrayRef) -> ArrayRef {
    if matches!(column.data_type(), DataType::Dictionary(..)) {
        let field = Field::new("inner", column.data_type().clone(), true);
        return Arc::new(StructArray::new(
            vec![field].into(),
            vec![Arc::clone(column)],
            None,
        ));
    }
    Arc::clone(column)
}

/// A stream with a dictionary, a batch, a delta and a batch that uses both.
fn with_delta(first: &ArrayRef, both: &ArrayRef) -> Vec<u8> {
    let batches = [batch_of(first), batch_of(both)];
    let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
    write(&batches[0].schema(), &batches, options)
}

/// True if the message is a dictionary with the delta flag.
fn is_delta(header: &[u8]) -> bool {
    let message = arrow::ipc::root_as_message(header).unwrap();
    message
        .header_as_dictionary_batch()
        .is_some_and(|batch| batch.isDelta())
}

/// A stream of two dictionaries. The delta flag of the second is set, whatever its type.
fn forced_delta(first: &ArrayRef, second: &ArrayRef) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let [a, b] = [batch_of(first), batch_of(second)];
    let mut all = messages(&write(
        &a.schema(),
        std::slice::from_ref(&a),
        IpcWriteOptions::default(),
    ));
    let other = messages(&write(&b.schema(), &[b], IpcWriteOptions::default()));
    let position = |messages: &[(Vec<u8>, Vec<u8>)]| {
        // The column's own dictionary comes after inner dictionaries, right before the batch.
        messages.len().checked_sub(2)
    };
    let (header, body) = other.get(position(&other)?)?.clone();
    all.push((edit(&header, |parts| parts.delta = true), body));
    Some(all)
}

/// Rule A3: a delta is joined with the earlier values, and counts as copied. The earlier batch
/// keeps its dictionary.
#[test]
fn deltas_are_joined() {
    let both: ArrayRef = Arc::new(StringArray::from(vec![
        Some("a"),
        None,
        Some("ccc"),
        Some("d"),
    ]));
    let bytes = with_delta(&both.slice(0, 2), &both);
    assert!(messages(&bytes).iter().any(|(header, _)| is_delta(header)));
    for level in LEVELS {
        for at in PLACES {
            let decoded = decode(&bytes, level, at).unwrap();
            assert!(decoded.copied > 0);
            let (_, batches) = read_back(decoded);
            assert_eq!(batches, [batch_of(&both.slice(0, 2)), batch_of(&both)]);
        }
    }
}

/// Rule A3 for values of every type, also with inner dictionaries and slices: after a delta the
/// dictionary has the values of both.
#[test]
fn deltas_of_every_type_are_joined() {
    let batch = every_type();
    for (column, field) in batch.columns().iter().zip(batch.schema().fields()) {
        let column = expressible(column);
        for (split, end) in [(3, 6), (1, 5), (0, 6), (6, 6)] {
            let (first, second) = (column.slice(0, split), column.slice(split, end - split));
            let Some(mut stream) = forced_delta(&first, &second) else {
                continue;
            };
            // A last batch that uses all joined values. Its own dictionary is not sent.
            let joined = if matches!(
                column.data_type(),
                DataType::Struct(..) | DataType::RunEndEncoded(..)
            ) {
                column.slice(0, end)
            } else {
                concat(&[&first, &second]).unwrap()
            };
            let expected = batch_of(&joined);
            let whole = messages(&write(
                &expected.schema(),
                std::slice::from_ref(&expected),
                IpcWriteOptions::default(),
            ));
            stream.push(whole.last().unwrap().clone());
            for level in LEVELS {
                for at in PLACES {
                    let decoded = decode_messages(&stream, level, at)
                        .unwrap_or_else(|error| panic!("{field} {split} {end}: {error}"));
                    touch(&decoded);
                    let (_, batches) = read_back(decoded);
                    let read = batches[1].column(0).as_dictionary::<Int32Type>().values();
                    assert_eq!(
                        read.as_ref(),
                        joined.as_ref(),
                        "{field} {split} {end} {level:?}"
                    );
                }
            }
        }
    }
}

/// Rule A3: later batches use a replacement, and earlier batches keep their dictionary.
#[test]
fn replacements_leave_earlier_batches_alone() {
    let values = |texts: &[&str]| Arc::new(StringArray::from(texts.to_vec())) as ArrayRef;
    let batches = [batch_of(&values(&["a", "b"])), batch_of(&values(&["x"]))];
    let bytes = write(&batches[0].schema(), &batches, IpcWriteOptions::default());
    for level in LEVELS {
        let (_, read) = read_back(decode(&bytes, level, Place::Shared).unwrap());
        assert_eq!(read, batches);
    }
}

/// A missing dictionary is an error if a value refers to it, and empty otherwise, at any depth.
#[test]
fn absent_dictionaries_are_empty_or_errors() {
    let without = |batch: RecordBatch| {
        let mut messages = messages(&write(
            &batch.schema(),
            &[batch],
            IpcWriteOptions::default(),
        ));
        messages.retain(|(header, _)| {
            arrow::ipc::root_as_message(header)
                .unwrap()
                .header_as_dictionary_batch()
                .is_none()
        });
        messages
    };
    let batch = every_type();
    for level in LEVELS {
        let error = decode_messages(&without(batch.clone()), level, Place::Packed)
            .err()
            .unwrap();
        assert!(error.text().contains("before it was sent"), "{error}");
        let decoded = decode_messages(&without(batch.slice(0, 0)), level, Place::Packed).unwrap();
        let (_, read) = read_back(decoded);
        assert_eq!(read, [batch.slice(0, 0)]);
        for column in batch.columns().iter().map(expressible) {
            let nulls = new_null_array(
                &DataType::Dictionary(DataType::Int8.into(), column.data_type().clone().into()),
                3,
            );
            let batch = RecordBatch::try_from_iter([("d", nulls)]).unwrap();
            let decoded = decode_messages(&without(batch), level, Place::Packed).unwrap();
            let (_, read) = read_back(decoded);
            assert_eq!((read[0].num_rows(), read[0].column(0).null_count()), (3, 3));
        }
    }
}

/// Rule A8: an index outside the dictionary is an error at level full, except under a null.
#[test]
fn indices_are_checked_where_valid() {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    for (index, valid, right) in [
        (1i8, true, true),
        (2, true, false),
        (-1, true, false),
        (77, false, true),
    ] {
        let keys = Int8Array::new(vec![0, index].into(), Some(vec![true, valid].into()));
        // SAFETY: the array is wrong on purpose; arrow-rs only writes it.
        let array = unsafe { DictionaryArray::new_unchecked(keys, Arc::clone(&values)) };
        let batch = RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap();
        let bytes = write(&batch.schema(), &[batch], IpcWriteOptions::default());
        for at in PLACES {
            assert_eq!(
                decode(&bytes, Level::Full, at).is_ok(),
                right,
                "{index} {valid}"
            );
            assert!(decode(&bytes, Level::Structure, at).is_ok());
        }
    }
}
