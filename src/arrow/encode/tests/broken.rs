//! Broken producers: each fault is an `InvalidData` with the field and the fault.

use std::any::Any;
use std::ptr;
use std::sync::{Arc, Mutex};

use arrow::array::*;
use arrow::datatypes::{DataType, Field};
use proptest::prelude::*;

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{batch_of, child, edit, encoder, export, named, pack_body};
use crate::arrow::abi::ArrowArray;
use crate::error::Status;

/// Encodes one column of [`every_type`] after `change` has broken it, and returns the error.
fn error_of(column: &str, change: impl FnOnce(&mut ArrowArray)) -> Error {
    let batch = every_type();
    let index = batch.schema().index_of(column).unwrap();
    let batch = batch.project(&[index]).unwrap();
    let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
    let array = edit(export(&batch), |array| change(child(array, 0)));
    let Err(refused) = encoder.try_encode(array, None) else {
        panic!("{column}: was taken")
    };
    // The caller gets the array back to release it; arrow-rs releases broken arrays too.
    assert!(!refused.1.is_released());
    // The encoder can go on.
    encoder.encode(export(&batch), None).unwrap();
    refused.0
}

/// Sets an entry of an array's list of buffers.
fn set_buffer(array: &mut ArrowArray, index: usize, buffer: *const std::ffi::c_void) {
    assert!(i64::try_from(index).unwrap() < array.n_buffers);
    // SAFETY: arrow-rs exports `n_buffers` pointers, and the index is lower.
    let slot = unsafe { array.buffers.add(index) };
    // SAFETY: the list belongs to the array, which is borrowed exclusively.
    unsafe { slot.write(buffer) };
}

/// Keeps values of a broken array until the process ends, reachable for LeakSanitizer.
pub(super) fn keep<T: Copy + Send + 'static>(values: &[T]) -> *mut T {
    static KEPT: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
    let mut kept = values.to_vec();
    let first = kept.as_mut_ptr();
    KEPT.lock().unwrap().push(Box::new(kept));
    first
}

/// Replaces a buffer by numbers.
fn replace<T: Copy + Send + 'static>(array: &mut ArrowArray, index: usize, values: &[T]) {
    set_buffer(array, index, keep(values).cast_const().cast());
}

/// Releases an array that is still in its parent's list.
fn release(array: &mut ArrowArray) {
    let callback = array.release.unwrap();
    // SAFETY: arrow-rs exported the array, which is live and borrowed exclusively. The callback
    // clears `release`, and arrow-rs does not release a child twice.
    unsafe { callback(array) };
}

type Change = fn(&mut ArrowArray);

/// The cases: column, change, expected text.
const CASES: &[(&str, Change, &str)] = &[
    (
        "Int32Type",
        |a| a.length = -1,
        "field `Int32Type`: the length is -1",
    ),
    (
        "Int32Type",
        |a| a.offset = -5,
        "field `Int32Type`: the offset is -5",
    ),
    (
        "Int32Type",
        |a| a.offset = i64::MAX,
        "more than a 64-bit number holds",
    ),
    (
        "Int32Type",
        |a| a.length -= 1,
        "the array has 44 rows and its parent uses 45",
    ),
    ("Int32Type", |a| a.null_count = -2, "the null count is -2"),
    (
        "Int32Type",
        |a| a.null_count = 46,
        "the null count is 46 in an array of length 45",
    ),
    (
        "Int32Type",
        |a| a.n_buffers = 1,
        "the array has 1 buffers, but its type needs 2",
    ),
    (
        "Int32Type",
        |a| a.n_buffers = -1,
        "the array has -1 buffers",
    ),
    (
        "Int32Type",
        |a| a.buffers = ptr::null_mut(),
        "the list of buffers is NULL",
    ),
    (
        "Int32Type",
        |a| set_buffer(a, 1, ptr::null()),
        "the values buffer is NULL",
    ),
    (
        "Int32Type",
        |a| set_buffer(a, 0, ptr::null()),
        "the validity buffer is NULL",
    ),
    (
        "Int32Type",
        |a| a.n_children = 1,
        "the array has 1 children, but the schema has 0",
    ),
    (
        "bool",
        |a| set_buffer(a, 1, ptr::null()),
        "field `bool`: the values buffer is NULL",
    ),
    (
        "utf8",
        |a| a.n_buffers = 2,
        "the array has 2 buffers, but its type needs 3",
    ),
    (
        "utf8",
        |a| set_buffer(a, 1, ptr::null()),
        "the offsets buffer is NULL",
    ),
    (
        "utf8",
        |a| set_buffer(a, 2, ptr::null()),
        "the data buffer is NULL",
    ),
    (
        "utf8",
        |a| replace(a, 1, &[-1_i32; 46]),
        "the offsets buffer has -1 at position 0",
    ),
    (
        "utf8",
        |a| replace(a, 1, &descending()),
        "the offsets decrease, from 45 at position 0",
    ),
    (
        "large_utf8",
        |a| replace(a, 1, &[i64::MIN; 46]),
        "the offsets buffer has -9223",
    ),
    (
        "large_utf8",
        |a| {
            let mut offsets = [0; 46];
            offsets[45] = i64::MAX;
            replace(a, 1, &offsets);
        },
        "larger than any memory",
    ),
    (
        "utf8_view",
        |a| a.n_buffers = 2,
        "the array has 2 buffers, but its type needs 3",
    ),
    (
        "utf8_view",
        |a| set_buffer(a, 1, ptr::null()),
        "the views buffer is NULL",
    ),
    (
        "utf8_view",
        |a| set_buffer(a, 2, ptr::null()),
        "the variadic buffer is NULL",
    ),
    (
        "utf8_view",
        |a| set_buffer(a, usize::try_from(a.n_buffers - 1).unwrap(), ptr::null()),
        "the variadic lengths buffer is NULL",
    ),
    (
        "utf8_view",
        |a| replace(a, usize::try_from(a.n_buffers - 1).unwrap(), &[-9_i64; 64]),
        "the variadic lengths buffer has -9",
    ),
    (
        "list",
        |a| a.n_children = 0,
        "the array has 0 children, but the schema has 1",
    ),
    ("list", |a| a.n_children = -1, "the array has -1 children"),
    (
        "list",
        |a| a.children = ptr::null_mut(),
        "field `list`: the list of children is NULL",
    ),
    (
        "list",
        forget_children,
        "field `list.item`: the pointer to the array is NULL",
    ),
    (
        "list",
        |a| child(a, 0).length -= 1,
        "field `list.item`: the array has",
    ),
    (
        "list",
        |a| release(child(a, 0)),
        "field `list.item`: the array has been released",
    ),
    (
        "list",
        |a| replace(a, 1, &descending()),
        "the offsets decrease",
    ),
    (
        "fixed_list",
        |a| child(a, 0).length -= 1,
        "field `fixed_list.item`: the array has 134 rows",
    ),
    (
        "nested_list",
        |a| child(child(a, 0), 0).length = 1,
        "field `nested_list.item.item`: the",
    ),
    (
        "list_view",
        |a| set_buffer(a, 2, ptr::null()),
        "the sizes buffer is NULL",
    ),
    (
        "map",
        |a| child(child(a, 0), 1).length = 2,
        "field `map.entries.value`: the null count is 15 in an",
    ),
    (
        "struct",
        |a| child(a, 2).length = 7,
        "field `struct.b`: the null count is 15 in an",
    ),
    (
        "struct",
        |a| a.n_buffers = 0,
        "the array has 0 buffers, but its type needs 1",
    ),
    (
        "sparse_union",
        |a| set_buffer(a, 0, ptr::null()),
        "the type ids buffer is NULL",
    ),
    (
        "sparse_union",
        |a| child(a, 1).length = 3,
        "field `sparse_union.s`: the null count is 15 in an",
    ),
    (
        "dense_union",
        |a| a.n_buffers = 3,
        "the array has a validity bitmap, but its type has none",
    ),
    (
        "dense_union",
        |a| a.n_buffers = 4,
        "the array has 4 buffers, but its type needs 2",
    ),
    (
        "dense_union",
        |a| set_buffer(a, 1, ptr::null()),
        "the offsets buffer is NULL",
    ),
    ("runs16", |a| a.offset = 1, "ends before row 46"),
    (
        "runs16",
        |a| child(a, 0).null_count = 1,
        "run_ends`: the null count is 1 and the validity",
    ),
    (
        "runs16",
        |a| replace(child(a, 0), 1, &[-4_i16; 6]),
        "the values buffer has -4",
    ),
    (
        "runs16",
        |a| child(a, 1).length = 5,
        "field `runs16.values`: the array has 5 rows",
    ),
    (
        "dictionary",
        |a| a.dictionary = ptr::null_mut(),
        "the dictionary is NULL",
    ),
    (
        "dictionary",
        |a| dictionary(a).length = -1,
        "`dictionary.(dictionary)`: the length is -1",
    ),
    (
        "dictionary",
        |a| replace(dictionary(a), 1, &[-1_i32; 5]),
        "the offsets buffer has -1",
    ),
    (
        "null",
        |a| a.n_buffers = 2,
        "the array has 2 buffers, but its type needs 0",
    ),
];

fn descending() -> Vec<i32> {
    (0..46).rev().collect()
}

/// Replaces the list of children by NULLs; arrow-rs keeps its own list for the release.
fn forget_children(array: &mut ArrowArray) {
    let count = usize::try_from(array.n_children).unwrap();
    // Numbers, which threads can share; 0 is a NULL pointer.
    array.children = keep(&vec![0_usize; count]).cast();
}

fn dictionary(array: &mut ArrowArray) -> &mut ArrowArray {
    // SAFETY: arrow-rs exported a dictionary, which lives as long as the array.
    unsafe { array.dictionary.as_mut() }.unwrap()
}

/// Each fault of a column is found: negative lengths, missing buffers, wrong child counts and more.
#[test]
fn broken_columns_are_named() {
    for (column, change, text) in CASES {
        let error = error_of(column, change);
        assert_eq!(error.status(), Status::InvalidData, "{column}: {error}");
        assert!(
            error.text().contains(text),
            "{column}: wanted \"{text}\", got \"{error}\""
        );
    }
}

/// Each fault of the batch itself is found.
#[test]
fn broken_batches_are_named() {
    let batch = batch_of(vec![named("a", Arc::new(Int32Array::from(vec![1, 2, 3])))]);
    let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
    let mut error = |change: &dyn Fn(&mut ArrowDeviceArray)| {
        let mut raw = export(&batch).into_raw();
        change(&mut raw);
        // SAFETY: the changes below set numbers, or a pointer to a static buffer.
        let array = unsafe { OwnedDeviceArray::from_raw(raw) };
        encoder.try_encode(array, None).unwrap_err().0
    };
    let nulls: &'static [u8] = &[0b101];
    let with_nulls = |raw: &mut ArrowDeviceArray, count| {
        raw.array.null_count = count;
        set_buffer(&mut raw.array, 0, nulls.as_ptr().cast());
    };
    type Case<'a> = (&'a dyn Fn(&mut ArrowDeviceArray), Status, &'a str);
    let cases: &[Case<'_>] = &[
        (
            &|raw| with_nulls(raw, 1),
            Status::InvalidData,
            "the record batch has nulls of its own",
        ),
        (
            &|raw| with_nulls(raw, -1),
            Status::InvalidData,
            "the record batch has nulls of its own",
        ),
        (
            &|raw| raw.array.length = -3,
            Status::InvalidData,
            "the length is -3",
        ),
        (
            &|raw| raw.array.length = 4,
            Status::InvalidData,
            "field `a`: the array has 3 rows",
        ),
        (
            &|raw| raw.array.n_children = 2,
            Status::InvalidData,
            "2 children, but the schema has 1",
        ),
        (
            &|raw| raw.device_type = 4,
            Status::Unsupported,
            "device type 4",
        ),
    ];
    for (change, status, text) in cases {
        let error = error(change);
        assert_eq!(error.status(), *status);
        assert!(error.text().contains(text), "{error}");
    }
    // SAFETY: the struct is released.
    let released = unsafe { OwnedDeviceArray::from_raw(ArrowDeviceArray::empty()) };
    let error = encoder.encode(released, None).unwrap_err();
    assert!(error.text().contains("released already"), "{error}");
    let error = encoder
        .encode(export(&batch), Some(&[9, 0, 0, 0]))
        .unwrap_err();
    assert!(error.text().contains("the batch's metadata"), "{error}");
}

/// For a slice, run ends are rewritten. Run ends that do not increase are then found.
#[test]
fn run_ends_must_increase() {
    let cases: &[(&[i16], &str)] = &[
        (&[2, 3, 9, 9, 44, 46], "do not increase"),
        (&[2, 44, 9, 16, 44, 46], "do not increase"),
        (&[1, 2, 3, 4, 5, 6], "ends before row"),
    ];
    for (ends, text) in cases {
        let error = error_of("runs16", |array| {
            replace(child(array, 0), 1, ends);
            array.offset = 1;
        });
        assert!(error.text().contains(text), "{ends:?}: {error}");
    }
}

/// The comparison of dictionaries reads only within the bounds of offsets and views.
#[test]
fn broken_dictionaries_are_found_when_compared() {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    let views: ArrayRef = Arc::new(StringViewArray::from(vec!["a text that is not inline"; 3]));
    type Break = fn(&mut ArrowArray);
    let cases: [(ArrayRef, Break, &str); 3] = [
        (
            values,
            |values| replace(values, 1, &[0_i32, 9, 1, 3]),
            "the offsets decrease",
        ),
        (
            views.clone(),
            |views| replace(views, 1, &[[0x40_u8; 16]; 3]),
            "outside its buffers",
        ),
        (
            views,
            |views| replace(views, 1, &[[0xff_u8; 16]; 3]),
            "outside its buffers",
        ),
    ];
    for (values, change, text) in cases {
        let keys = Int32Array::from(vec![0, 1, 2]);
        let batch = batch_of(vec![named(
            "d",
            Arc::new(DictionaryArray::new(keys, values)),
        )]);
        let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
        encoder.encode(export(&batch), None).unwrap();
        let broken = edit(export(&batch), |array| change(dictionary(child(array, 0))));
        let error = encoder.encode(broken, None).unwrap_err();
        assert_eq!(error.status(), Status::InvalidData);
        assert!(error.text().contains(text), "{error}");
        assert!(error.text().contains("`d"), "{error}");
    }
}

/// A dictionary in the array but not in the schema is refused.
#[test]
fn arrays_that_disagree_with_their_schema_are_refused() {
    let keys = Int32Array::from(vec![0]);
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let encoded = batch_of(vec![named(
        "d",
        Arc::new(DictionaryArray::new(keys, values)),
    )]);
    let plain = arrow::datatypes::Schema::new(vec![Field::new("d", DataType::Int32, true)]);
    let mut encoder = encoder(&plain, EncodeOptions::default());
    let error = encoder.encode(export(&encoded), None).unwrap_err();
    assert!(
        error
            .text()
            .contains("has a dictionary, but its schema has none"),
        "{error}"
    );
}

proptest! {
    /// Too short or shifted arrays and children cause an error or a readable batch. A memory
    /// checker sees no read beyond the buffers.
    #[test]
    fn lies_about_lengths_do_no_harm(
        column in any::<prop::sample::Index>(),
        path in prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        offset in -1_i64..10,
        cut in 0_i64..50,
        first in 0..ROWS,
    ) {
        let batch = every_type();
        let batch = batch.project(&[column.index(batch.num_columns())]).unwrap();
        let array = edit(export(&batch.slice(first, ROWS - first)), |array| {
            let mut place = child(array, 0);
            for step in path {
                match usize::try_from(place.n_children).unwrap() {
                    0 => break,
                    children => place = child(place, step.index(children)),
                }
            }
            // The buffers have `length` rows from the old offset on, and so these rows too.
            place.length -= offset.max(0) + cut;
            place.offset += offset;
            place.null_count = place.null_count.min(place.length.max(-1));
        });
        let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
        match encoder.encode(array, None) {
            Ok(messages) => {
                prop_assert_eq!(messages.last().unwrap().kind, HeaderKind::RecordBatch);
                messages.iter().for_each(|message| drop(pack_body(message)));
            }
            Err(error) => prop_assert_eq!(error.status(), Status::InvalidData),
        }
    }
}
