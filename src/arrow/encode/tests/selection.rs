//! Rule Q12: selected columns and rows arrive as arrow-rs selects them, for every type and every
//! golden stream.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow::array::{
    ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray, StructArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::concat_batches;
use arrow::datatypes::{Int32Type, Schema, SchemaRef};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::root_as_message;

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{
    assert_same, batch_of, bytes_of, edit, export, export_schema, export_struct, named, read,
    stream_of,
};
use crate::arrow::abi::ArrowArray;
use crate::arrow::annotate;
use crate::arrow::select::{Part, into_whole};
use crate::error::Status;

/// All columns, or some; the first row; the number of rows.
type Wanted<'a> = (Option<&'a [&'a str]>, u64, Option<u64>);

fn selection((columns, first_row, rows): Wanted<'_>) -> Selection {
    let mut selection = Selection::new();
    if let Some(names) = columns {
        selection.set_columns(names.iter().copied()).unwrap();
    }
    selection.set_rows(first_row, rows);
    selection
}

/// The parts of arrays that a selector lets through, encoded. Each array is made only when it is
/// wanted.
fn select(
    schema: &Schema,
    arrays: impl IntoIterator<Item = OwnedDeviceArray>,
    wanted: Wanted<'_>,
) -> (Encoder, Vec<EncodedMessage>) {
    let schema = export_schema(schema);
    let options = EncodeOptions::default();
    let (mut encoder, mut selector) =
        Encoder::selecting(&schema, &selection(wanted), options).unwrap();
    let mut messages = Vec::new();
    let mut arrays = arrays.into_iter();
    while !selector.is_complete()
        && let Some(array) = arrays.next()
    {
        let len = array.raw().array.length;
        if let Part::Rows { first, rows } = selector.part(array.raw()).unwrap() {
            let selected = selector.select(array, first, rows).map_err(|it| it.0);
            messages.extend(encoder.encode(selected.unwrap(), None).unwrap());
        }
        selector.pass(len);
    }
    (encoder, messages)
}

/// The same rows and columns by arrow-rs, in one batch.
fn expected(schema: &SchemaRef, batches: &[RecordBatch], wanted: Wanted<'_>) -> RecordBatch {
    let whole = concat_batches(schema, batches).unwrap();
    let (columns, first, rows) = wanted;
    let first = usize::try_from(first).unwrap().min(whole.num_rows());
    let left = whole.num_rows() - first;
    let rows = rows.map_or(left, |rows| usize::try_from(rows).unwrap().min(left));
    let sliced = whole.slice(first, rows);
    let Some(names) = columns else { return sliced };
    let index = |name: &&str| schema.index_of(name).unwrap();
    let columns: Vec<_> = names.iter().map(index).collect();
    sliced.project(&columns).unwrap()
}

fn check(schema: &SchemaRef, batches: &[RecordBatch], wanted: Wanted<'_>) {
    let (encoder, messages) = select(schema, batches.iter().map(export), wanted);
    let (read_schema, read) = read(&stream_of(&encoder, &messages));
    let expected = expected(schema, batches, wanted);
    assert_eq!(read_schema, expected.schema(), "{wanted:?}");
    let read = concat_batches(&read_schema, &read).unwrap();
    assert_same(&[read], &[expected]);
}

/// Ranges of a table of so many rows: whole, empty, at the ends, and past the end.
fn ranges(rows: u64) -> Vec<(u64, Option<u64>)> {
    vec![
        (0, None),
        (0, Some(0)),
        (0, Some(1)),
        (1, None),
        (3, Some(9)),
        (8, Some(16)),
        (rows / 2, Some(rows / 3)),
        (rows.saturating_sub(1), Some(5)),
        (rows, None),
        (rows + 7, Some(1)),
    ]
}

fn check_all(schema: &SchemaRef, batches: &[RecordBatch]) {
    let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let mut counts = HashMap::new();
    for field in schema.fields() {
        *counts.entry(field.name().as_str()).or_insert(0) += 1;
    }
    // In another order than the schema's. A name of two columns selects neither.
    let names = schema
        .fields()
        .iter()
        .rev()
        .map(|field| field.name().as_str());
    let names: Vec<_> = names.filter(|name| counts[name] == 1).collect();
    for (first, count) in ranges(rows) {
        check(schema, batches, (Some(&names), first, count));
        check(schema, batches, (None, first, count));
        for name in &names {
            check(schema, batches, (Some(&[name]), first, count));
        }
    }
}

/// Rule Q12, for every type at once: whole, in three batches, and of arrays with an offset.
#[test]
fn every_type_is_selected_as_arrow_selects_it() {
    let batch = every_type();
    let parts = [
        batch.slice(0, 13),
        batch.slice(13, 1),
        batch.slice(14, ROWS - 14),
    ];
    check_all(&batch.schema(), std::slice::from_ref(&batch));
    check_all(&batch.schema(), &parts);
    let names: Vec<_> = batch
        .schema()
        .fields()
        .iter()
        .map(|it| it.name().clone())
        .collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    // The batch itself has an offset, as producers other than arrow-rs give it.
    let array = edit(export(&batch), |array| {
        (array.offset, array.length) = (5, array.length - 5);
    });
    let (encoder, messages) = select(&batch.schema(), [array], (Some(&names), 3, Some(20)));
    let (_, read) = read(&stream_of(&encoder, &messages));
    assert_same(&read, &[batch.slice(8, 20)]);
}

/// Rule Q12, for every golden stream.
#[test]
fn golden_streams_are_selected_as_arrow_selects_them() {
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/golden"),
        PathBuf::from,
    );
    let streams = root.join("streams");
    let Ok(files) = std::fs::read_dir(&streams) else {
        println!(
            "skipped: {} is not there; set DIPC_GOLDEN",
            streams.display()
        );
        return;
    };
    let mut count = 0;
    for file in files {
        let path = file.unwrap().path();
        println!("{}", path.display());
        let bytes = std::fs::read(&path).unwrap();
        let reader = StreamReader::try_new(bytes.as_slice(), None).unwrap();
        let schema = reader.schema();
        let batches: Vec<_> = reader.map(|batch| batch.unwrap()).collect();
        check_all(&schema, &batches);
        count += 1;
    }
    assert!(count > 0, "{} is empty", streams.display());
}

/// Rules Q12 and A5: rows without columns keep their number.
#[test]
fn rows_without_columns_are_counted() {
    let batch = every_type();
    let wanted = (Some(&[][..]), 10, Some(7));
    let arrays = [batch.slice(0, 12), batch.slice(12, 20)];
    let (encoder, messages) = select(&batch.schema(), arrays.iter().map(export), wanted);
    let (schema, read) = read(&stream_of(&encoder, &messages));
    assert_eq!(schema.fields().len(), 0);
    let rows: Vec<_> = read.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [2, 5]);
    assert!(messages.iter().all(|message| message.body_len == 0));
}

/// Rule Q12: buffers, and dictionaries, of other columns are not in any message; those of the
/// selected columns are sent from where they lie.
#[test]
fn what_is_not_wanted_is_in_no_message() {
    let numbers = Int64Array::from_iter_values(0..1_000);
    let kept = numbers.values().as_ptr();
    let text = |word: &str| -> ArrayRef {
        let values: ArrayRef = Arc::new(StringArray::from(vec![word]));
        let keys = Int32Array::from(vec![0; 1_000]);
        Arc::new(DictionaryArray::<Int32Type>::new(keys, values))
    };
    let batch = batch_of(vec![
        named("secret", text("a word that nobody asks for")),
        named("numbers", Arc::new(numbers)),
        named("words", text("asked for")),
    ]);
    let wanted = (Some(&["words", "numbers"][..]), 400, Some(100));
    let (_, messages) = select(&batch.schema(), [export(&batch)], wanted);
    let kinds: Vec<_> = messages.iter().map(|message| message.kind).collect();
    assert_eq!(kinds, [HeaderKind::Dictionary, HeaderKind::RecordBatch]);
    for message in &messages {
        for buffer in &message.buffers {
            let bytes = bytes_of(*buffer, &message.owner);
            assert!(!bytes.windows(6).any(|word| word == b"nobody"));
        }
    }
    let buffers = messages[1].buffers.iter().filter(|buffer| buffer.len > 0);
    let buffers: Vec<_> = buffers.map(|it| (it.data.addr(), it.len)).collect();
    assert_eq!(buffers.len(), 2, "no copy of a bitmap, no other column");
    assert_eq!(buffers[1], (kept.addr() + 8 * 400, 8 * 100));
}

/// Rule Q12: a batch outside the range is released and not encoded; no batch is asked for once the
/// range is over.
#[test]
fn batches_outside_the_range_are_not_looked_at() {
    let batch = every_type();
    let rows = ROWS as u64;
    // The first array is broken, so a read of it would fail.
    let broken = edit(export(&batch), |array| array.n_children = 0);
    let arrays = [broken, export(&batch)].into_iter();
    let arrays = arrays.chain(std::iter::from_fn(|| panic!("no more is wanted")));
    let wanted = (None, rows, Some(rows));
    let (encoder, messages) = select(&batch.schema(), arrays, wanted);
    let (_, read) = read(&stream_of(&encoder, &messages));
    assert_same(&read, &[batch]);
}

/// Rule Q12: null rows of the batch itself count only if they are selected.
#[test]
fn nulls_of_the_batch_itself_count_in_the_range() {
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..20));
    let field = named("n", column.clone());
    let is_valid = NullBuffer::from_iter((0..20).map(|row| row != 3));
    let array = || {
        let fields = vec![field.0.clone()].into();
        export_struct(&StructArray::new(
            fields,
            vec![column.clone()],
            Some(is_valid.clone()),
        ))
    };
    let schema = Schema::new(vec![field.0.clone()]);
    let (encoder, messages) = select(&schema, [array()], (None, 4, Some(9)));
    let (_, read) = read(&stream_of(&encoder, &messages));
    let expected: ArrayRef = Arc::new(Int32Array::from_iter_values(4..13));
    assert_same(&read, &[batch_of(vec![named("n", expected)])]);
    let c_schema = export_schema(&schema);
    let options = EncodeOptions::default();
    let (mut encoder, selector) =
        Encoder::selecting(&c_schema, &selection((None, 3, Some(9))), options).unwrap();
    let selected = selector.select(array(), 3, 9).map_err(|it| it.0).unwrap();
    let error = encoder.encode(selected, None).unwrap_err();
    assert!(error.text().contains("nulls of its own"), "{error}");
}

/// Rule Q12: metadata of the schema, of fields and of batches stay.
#[test]
fn metadata_stay() {
    let column = |name: &str| named(name, Arc::new(Int32Array::from(vec![1, 2, 3])));
    let pair = |key: &str| HashMap::from([(key.to_owned(), "value".to_owned())]);
    let (field, values) = column("b");
    let field = field.with_metadata(pair("of the field"));
    let batch = batch_of(vec![column("a"), (field, values)]);
    let schema = batch
        .schema()
        .as_ref()
        .clone()
        .with_metadata(pair("of the schema"));
    let one = 1_i32.to_ne_bytes();
    let metadata = [&one[..], &one, b"k", &one, b"v"].concat();
    let array = annotate(export(&batch), &metadata);
    let (encoder, messages) = select(&schema, [array], (Some(&["b"]), 1, Some(1)));
    let (read, _) = read(&stream_of(&encoder, &messages));
    assert_eq!(read.metadata(), &pair("of the schema"));
    assert_eq!(read.field(0).metadata(), &pair("of the field"));
    let header = root_as_message(&messages[0].header).unwrap();
    let custom = crate::arrow::format::metadata_from_ipc(header.custom_metadata());
    assert_eq!(custom, [("k".to_owned(), "v".to_owned())]);
}

/// Rule Q12: a column that the schema does not have, or has twice, is named by the error, together
/// with columns that exist.
#[test]
fn columns_that_cannot_be_found_are_named() {
    let names = ["a", "twice", "twice"].into_iter().map(str::to_owned);
    let many = (0..30).map(|number| format!("c{number}"));
    let column = || -> ArrayRef { Arc::new(Int32Array::from(vec![1])) };
    let fields = names.chain(many).map(|name| named(&name, column()).0);
    let schema = export_schema(&Schema::new(fields.collect::<Vec<_>>()));
    let refused = |name: &str| {
        let selection = selection((Some(&["a", name]), 0, None));
        let outcome = Encoder::selecting(&schema, &selection, EncodeOptions::default());
        let error = outcome.err().unwrap();
        assert_eq!(error.status(), Status::InvalidArgument);
        error.text().to_owned()
    };
    let absent = refused("b");
    assert!(
        absent.contains("\"b\"") && absent.contains("\"a\", \"twice\""),
        "{absent}"
    );
    assert!(absent.contains("and 13 others"), "{absent}");
    assert!(refused("twice").contains("several columns have the name \"twice\""));
}

unsafe extern "C" fn count_release(array: *mut ArrowArray) {
    // SAFETY: the arrays of the test hold a live counter.
    let array = unsafe { &mut *array };
    array.release = None;
    // SAFETY: as above.
    let counter = unsafe { &*array.private_data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Rule Q12: a selection reads no buffer, because it may be on a GPU, and keeps the event that
/// readers wait for. The array is released once, with the view, or given back.
#[test]
fn selecting_reads_no_buffer() {
    let released = AtomicU32::new(0);
    // Addresses that nobody can read.
    let mut buffers = [ptr::null::<c_void>(), ptr::without_provenance(0x1000)];
    let mut children: Vec<_> = (0..3_u8)
        .map(|_| ArrowArray {
            length: 100,
            n_buffers: 2,
            buffers: buffers.as_mut_ptr(),
            release: Some(count_release),
            ..ArrowArray::empty()
        })
        .collect();
    let mut children: Vec<_> = children.iter_mut().map(ptr::from_mut).collect();
    let mut array = || {
        let mut raw = ArrowDeviceArray::empty();
        (raw.device_type, raw.device_id) = (2, 1);
        raw.sync_event = ptr::without_provenance_mut(0x2000);
        raw.array = ArrowArray {
            length: 100,
            offset: 7,
            n_children: 3,
            children: children.as_mut_ptr(),
            release: Some(count_release),
            private_data: ptr::from_ref(&released).cast_mut().cast(),
            ..ArrowArray::empty()
        };
        // SAFETY: children, buffers and counter outlive the array. Nobody reads the buffers.
        unsafe { OwnedDeviceArray::from_raw(raw) }
    };
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let fields = ["a", "b", "c"].map(|name| named(name, column.clone()).0);
    let schema = export_schema(&Schema::new(fields.to_vec()));
    let wanted = selection((Some(&["c", "a"]), 0, None));
    let (_, selector) = Encoder::selecting(&schema, &wanted, EncodeOptions::default()).unwrap();
    let view = selector.select(array(), 20, 30).map_err(|it| it.0).unwrap();
    let raw = view.raw();
    assert_eq!(
        (raw.device_type, raw.device_id, raw.sync_event.addr()),
        (2, 1, 0x2000)
    );
    assert_eq!(
        (raw.array.offset, raw.array.length, raw.array.n_children),
        (27, 30, 2)
    );
    drop(view);
    let view = selector.select(array(), 20, 30).map_err(|it| it.0).unwrap();
    let whole = into_whole(view);
    assert_eq!(
        (whole.raw().array.offset, whole.raw().array.length),
        (7, 100)
    );
    drop(whole);
    // An array of another schema is not followed.
    let mut short = array();
    // SAFETY: a count lower than the number of children does no harm.
    unsafe { short.raw_mut() }.array.n_children = 2;
    let (error, back) = selector.select(short, 0, 1).unwrap_err();
    assert_eq!(error.status(), Status::InvalidData);
    drop(back);
    assert_eq!(released.load(Ordering::Relaxed), 3);
}
