//! Rules A1, A2 and A6: the layout of a body and its description in the header.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::{MetadataVersion, root_as_message};

use super::super::*;
use super::columns::{ROWS, every_type};
use super::support::{batch_of, bytes_of, encoder, export, named, pack_body, read, stream_of};
use crate::arrow::format::write_metadata;

/// Encodes one column.
fn encode_one(column: ArrayRef) -> EncodedMessage {
    let batch = batch_of(vec![named("c", column)]);
    let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
    encoder.encode(export(&batch), None).unwrap().remove(0)
}

/// The lengths of a message's buffers.
fn lengths(message: &EncodedMessage) -> Vec<usize> {
    message.buffers.iter().map(|buffer| buffer.len).collect()
}

/// The encoder makes no needless copies: for a whole batch, and for a slice at a byte boundary, all
/// buffers belong to the producer.
#[test]
fn buffers_are_the_producers_own() {
    let batch = every_type();
    for slice in [batch.clone(), batch.slice(8, 16)] {
        let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
        let messages = encoder.encode(export(&slice), None).unwrap();
        let copied = |message: &EncodedMessage| {
            let owner = &message.owner;
            message
                .buffers
                .iter()
                .filter(|buffer| owner.wrote(**buffer))
                .count()
        };
        // A slice gets new run ends that count from its first row: one buffer for each of three
        // columns. One of them begins with the third run, so its values get a new validity too.
        let wanted = if slice.num_rows() == ROWS { 0 } else { 4 };
        assert_eq!(messages.iter().map(copied).sum::<usize>(), wanted);
    }
    let values = Int64Array::from_iter_values(0..100);
    let start: *const u8 = values.values().as_ptr().cast();
    let message = encode_one(Arc::new(values.slice(10, 20)));
    assert_eq!(message.buffers[1].data, start.wrapping_add(80));
    assert_eq!(message.buffers[1].len, 160);
}

/// Rule A2: a bitmap begins at bit 0, and is copied only if necessary. Without nulls there is no
/// bitmap.
#[test]
fn bitmaps_begin_at_bit_0() {
    let values: BooleanArray = (0..40).map(|i| (i != 3).then_some(i % 5 == 0)).collect();
    let at_byte = encode_one(Arc::new(values.slice(8, 20)));
    // The slice has no nulls and so no validity; 20 bits are 3 bytes.
    assert_eq!(lengths(&at_byte), [0, 3]);
    assert!(!at_byte.owner.wrote(at_byte.buffers[1]));
    let off = super::support::edit(
        export(&batch_of(vec![named("c", Arc::new(values))])),
        |array| (array.offset, array.length) = (3, 10),
    );
    let schema = Schema::new(vec![Field::new("c", DataType::Boolean, true)]);
    let off = encoder(&schema, EncodeOptions::default())
        .encode(off, None)
        .unwrap()
        .remove(0);
    assert_eq!(lengths(&off), [2, 2]);
    assert!(off.buffers.iter().all(|buffer| off.owner.wrote(*buffer)));
    assert_eq!(bytes_of(off.buffers[0], &off.owner), [0b1111_1110, 0b11]);
    // Rows 3 to 12: 5 and 10 are true; row 3 is null and ignored.
    assert_eq!(
        bytes_of(off.buffers[1], &off.owner)[0] & 0b1111_1110,
        0b1000_0100
    );
    let header = root_as_message(&off.header).unwrap();
    let node = *header
        .header_as_record_batch()
        .unwrap()
        .nodes()
        .unwrap()
        .get(0);
    assert_eq!((node.length(), node.null_count()), (10, 1));
}

/// Rule A2: offsets that do not start at 0 are sent unchanged, with all earlier bytes.
#[test]
fn offsets_are_sent_as_they_are() {
    let values = StringArray::from(vec!["ab", "cde", "f", "ghij"]);
    let message = encode_one(Arc::new(values.slice(1, 2)));
    assert_eq!(lengths(&message), [0, 12, 6]);
    let offsets: Vec<u8> = [2_i32, 5, 6]
        .iter()
        .flat_map(|at| at.to_ne_bytes())
        .collect();
    assert_eq!(bytes_of(message.buffers[1], &message.owner), offsets);
    assert_eq!(bytes_of(message.buffers[2], &message.owner), b"abcdef");
}

/// For a slice far into its array, only its own data is sent, with new offsets.
#[test]
fn offsets_far_into_an_array_are_written_anew() {
    let values = StringArray::from_iter_values(std::iter::repeat_n("ab", 5_000));
    let near = encode_one(Arc::new(values.slice(2_048, 10)));
    assert_eq!(lengths(&near), [0, 44, 2 * 2_058]);
    let far = encode_one(Arc::new(values.slice(2_049, 10)));
    assert_eq!(lengths(&far), [0, 44, 20]);
    let offsets: Vec<u8> = (0..=10_i32).flat_map(|at| (2 * at).to_ne_bytes()).collect();
    assert_eq!(bytes_of(far.buffers[1], &far.owner), offsets);
    // The values still belong to the producer.
    let start = values.value_data().as_ptr();
    assert_eq!(far.buffers[2].data, start.wrapping_add(2 * 2_049));
    // Unused data that is shorter than the slice is sent too.
    let half = encode_one(Arc::new(values.slice(2_450, 2_550)));
    assert_eq!(lengths(&half)[2], 10_000);
    let less = encode_one(Arc::new(values.slice(2_550, 2_450)));
    assert_eq!(lengths(&less)[2], 4_900);
}

/// Of each variadic buffer, the bytes from the first to the last used byte are sent.
#[test]
fn views_far_into_an_array_are_written_anew() {
    let mut builder = StringViewBuilder::new().with_fixed_block_size(30_000);
    for row in 0..2_000 {
        // Every fourth is short, every fifth null.
        let text = if row % 4 == 0 {
            "short".into()
        } else {
            format!("a longer text: {row:05}")
        };
        builder.append_option((row % 5 != 0).then_some(text));
    }
    let values = builder.finish();
    assert_eq!(values.data_buffers().len(), 1);
    let own = (1_000..1_010)
        .filter(|row| row % 4 != 0 && row % 5 != 0)
        .count();
    let far = encode_one(Arc::new(values.slice(1_000, 10)));
    assert_eq!(lengths(&far), [2, 160, 20 * own]);
    assert!(far.owner.wrote(far.buffers[1]));
    assert!(!far.owner.wrote(far.buffers[2]));
    assert!(bytes_of(far.buffers[2], &far.owner).starts_with(b"a longer text: 01001"));
    // The view of a null is zeroed. A view outside of its buffer stays unchanged, and a reader
    // finds the fault.
    let edited = |row: usize| {
        let mut views = values.views()[1_000..1_010].to_vec();
        views[row] |= u128::from(u32::MAX) << 96;
        let views = ScalarBuffer::from(views);
        let nulls = values.slice(1_000, 10).nulls().cloned();
        // SAFETY: only the encoder reads the views, and it checks their positions.
        let array = unsafe {
            StringViewArray::new_unchecked(views, values.data_buffers().to_vec().into(), nulls)
        };
        encode_one(Arc::new(array))
    };
    assert_eq!(lengths(&edited(5)), lengths(&far));
    assert_eq!(lengths(&edited(1))[2], values.data_buffers()[0].len());
    // The buffers of a whole array belong to the producer.
    let whole = encode_one(Arc::new(values.clone()));
    assert!(!whole.owner.wrote(whole.buffers[1]));
}

/// Of the children of list views and dense unions, the values from the first to the last used value
/// are sent.
#[test]
fn scattered_rows_far_into_an_array_are_written_anew() {
    const ROWS: i32 = 6_000;
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let child: ArrayRef = Arc::new(Int32Array::from_iter_values(0..2 * ROWS));
    let views = |moved: i32| {
        let offsets = (0..ROWS).map(|row| 2 * row + if row == 3_001 { moved } else { 0 });
        let sizes = std::iter::repeat_n(2, ROWS as usize).collect();
        let (item, child) = (Arc::clone(&item), Arc::clone(&child));
        // SAFETY: only the encoder reads the offsets, and it checks them.
        unsafe { ListViewArray::new_unchecked(item, offsets.collect(), sizes, child, None) }
    };
    let far = encode_one(Arc::new(views(0).slice(3_000, 10)));
    assert_eq!(lengths(&far), [0, 40, 40, 0, 80]);
    let offsets: Vec<u8> = (0..10_i32).flat_map(|at| (2 * at).to_ne_bytes()).collect();
    assert_eq!(bytes_of(far.buffers[1], &far.owner), offsets);
    assert!(!far.owner.wrote(far.buffers[4]));
    // A row outside of the child stays unchanged, as does a whole array; a reader finds the fault.
    for whole in [
        views(2 * ROWS).slice(3_000, 10),
        views(-7_000).slice(3_000, 10),
        views(0),
    ] {
        let whole = encode_one(Arc::new(whole));
        assert_eq!(lengths(&whole)[4], 8 * ROWS as usize);
        assert!(!whole.owner.wrote(whole.buffers[1]));
    }

    let fields = [
        (0, Arc::clone(&item)),
        (1, Arc::new(Field::new("even", DataType::Int32, true))),
    ];
    let union = UnionArray::try_new(
        fields.into_iter().collect(),
        (0..ROWS).map(|row| i8::from(row % 2 == 0)).collect(),
        Some((0..ROWS).map(|row| 2 * row).collect()),
        vec![Arc::clone(&child), child],
    );
    let union = union.unwrap();
    let far = encode_one(Arc::new(union.slice(3_000, 10)));
    // The rows of each child use every fourth of its values.
    assert_eq!(lengths(&far), [10, 40, 0, 4 * 17, 0, 4 * 17]);
    let offsets: Vec<u8> = [0, 0, 4, 4, 8, 8, 12, 12, 16, 16_i32]
        .into_iter()
        .flat_map(i32::to_ne_bytes)
        .collect();
    assert_eq!(bytes_of(far.buffers[1], &far.owner), offsets);
    let whole = encode_one(Arc::new(union));
    assert_eq!(lengths(&whole)[3], 8 * ROWS as usize);
}

/// Arrays without rows may have no offsets. One offset of 0 is sent, because readers require it.
#[test]
fn empty_offsets_become_one_zero() {
    let batch = batch_of(vec![
        named("s", Arc::new(StringArray::from(Vec::<&str>::new()))),
        named("l", Arc::new(LargeBinaryArray::from(Vec::<&[u8]>::new()))),
    ]);
    let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
    let array = super::support::edit(export(&batch), |array| {
        for index in 0..2 {
            let child = super::support::child(array, index);
            for buffer in 0..3 {
                // SAFETY: arrow-rs exports three pointers for strings.
                let slot = unsafe { child.buffers.add(buffer) };
                // SAFETY: the list belongs to the array, which is borrowed exclusively.
                unsafe { slot.write(std::ptr::null()) };
            }
        }
    });
    let message = encoder.encode(array, None).unwrap().remove(0);
    assert_eq!(lengths(&message), [0, 4, 0, 0, 8, 0]);
    let stream = stream_of(&encoder, std::slice::from_ref(&message));
    assert_eq!(read(&stream).1[0].num_rows(), 0);
}

/// The run ends of a slice count from its first row, and runs outside are not sent.
#[test]
fn run_ends_count_from_the_first_row() {
    let ends = Int32Array::from(vec![3, 10, 11, 20]);
    let values = StringArray::from(vec!["a", "b", "c", "d"]);
    let runs = RunArray::try_new(&ends, &values).unwrap();
    let batch = batch_of(vec![named("r", Arc::new(runs))]);
    let cut = |offset, length| {
        let array =
            super::support::edit(export(&batch), |a| (a.offset, a.length) = (offset, length));
        encoder(&batch.schema(), EncodeOptions::default())
            .encode(array, None)
            .unwrap()
            .remove(0)
    };
    let run_ends = |message: &EncodedMessage| -> Vec<i32> {
        let bytes = bytes_of(message.buffers[1], &message.owner);
        bytes
            .chunks(4)
            .map(|end| i32::from_ne_bytes(end.try_into().unwrap()))
            .collect()
    };
    let middle = cut(4, 7);
    assert_eq!(run_ends(&middle), [6, 7]);
    assert_eq!(middle.buffers[3].len, 12, "offsets of two values");
    // At the start the producer's run ends are valid, if a run ends with the slice.
    let head = cut(0, 10);
    assert_eq!(run_ends(&head), [3, 10]);
    assert!(!head.owner.wrote(head.buffers[1]));
    assert_eq!(run_ends(&cut(0, 9)), [3, 9]);
    assert!(run_ends(&cut(20, 0)).is_empty());
}

/// Rules A1, A2 and A6: version V5, buffers at multiples of 64, lengths without padding, a body
/// length that covers them. Bodies that are not packed have the same header.
#[test]
fn headers_describe_the_packed_body() {
    let batch = every_type();
    let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
    let messages = encoder.encode(export(&batch.slice(3, 30)), None).unwrap();
    for message in &messages {
        let header = root_as_message(&message.header).unwrap();
        assert_eq!(header.version(), MetadataVersion::V5);
        assert_eq!(
            u64::try_from(header.bodyLength()).unwrap(),
            message.body_len
        );
        let dictionary = header
            .header_as_dictionary_batch()
            .map(|d| d.data().unwrap());
        let body = header.header_as_record_batch().or(dictionary).unwrap();
        let buffers = body.buffers().unwrap();
        assert_eq!(buffers.len(), message.buffers.len());
        let mut end = 0;
        for ((entry, span), buffer) in buffers.iter().zip(message.spans()).zip(&message.buffers) {
            assert_eq!(entry.offset(), i64::try_from(end).unwrap());
            assert_eq!(span.offset, end);
            assert_eq!(entry.length(), i64::try_from(buffer.len).unwrap());
            assert_eq!(span.length, buffer.len as u64);
            end = (end + span.length).next_multiple_of(64);
        }
        assert_eq!(end, message.body_len);
        assert!(!message.compressed && body.compression().is_none());
        assert!(message.owner.gpu().is_none());
    }
}

/// Rule A2: two servers with the same array write the same bytes.
#[test]
fn layout_is_a_function_of_the_array() {
    let batch = every_type().slice(5, 33);
    let once = || {
        let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
        let messages = encoder.encode(export(&batch), None).unwrap();
        let bytes: Vec<_> = messages
            .iter()
            .map(|m| (m.header.clone(), pack_body(m)))
            .collect();
        (encoder.schema_header().to_vec(), bytes)
    };
    assert_eq!(once(), once());
}

/// The metadata of schema, fields (also extension types) and batch is in the headers.
#[test]
fn metadata_crosses() {
    let pairs = |pairs: &[(&str, &str)]| -> HashMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    };
    let extension = pairs(&[
        ("ARROW:extension:name", "arrow.uuid"),
        ("ARROW:extension:metadata", ""),
        ("k\u{e9}y", "v\u{e4}lue"),
    ]);
    let field = Field::new("u", DataType::FixedSizeBinary(16), false).with_metadata(extension);
    let schema = Schema::new_with_metadata(vec![field], pairs(&[("a", "1"), ("b", "")]));
    let column = FixedSizeBinaryArray::try_from_iter(std::iter::repeat_n([7_u8; 16], 3)).unwrap();
    let batch = RecordBatch::try_new(Arc::new(schema.clone()), vec![Arc::new(column)]).unwrap();
    super::support::cross(&schema, std::slice::from_ref(&batch));

    let own = vec![
        ("x".to_owned(), "1".to_owned()),
        ("x".to_owned(), "2".to_owned()),
    ];
    let mut encoder = encoder(&schema, EncodeOptions::default());
    let blob = write_metadata(&own).unwrap();
    let with = encoder
        .encode(export(&batch), Some(&blob))
        .unwrap()
        .remove(0);
    let header = root_as_message(&with.header).unwrap();
    assert_eq!(
        crate::arrow::format::metadata_from_ipc(header.custom_metadata()),
        own
    );
    let without = encoder.encode(export(&batch), None).unwrap().remove(0);
    assert!(
        root_as_message(&without.header)
            .unwrap()
            .custom_metadata()
            .is_none()
    );
}

/// Dropping the last message of a batch releases the producer's array, on any thread.
#[test]
fn dropping_the_messages_releases_the_array() {
    let column = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let batch = batch_of(vec![named("c", column.clone())]);
    let count = || column.to_data().buffers()[0].strong_count();
    let before = count();
    let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
    let messages = encoder.encode(export(&batch), None).unwrap();
    let held = messages[0].owner.clone();
    drop((messages, encoder));
    assert!(count() > before);
    std::thread::spawn(move || drop(held)).join().unwrap();
    assert_eq!(count(), before);
}

/// Arrays may be encoded on one thread and released on another.
#[test]
fn encoders_and_messages_cross_threads() {
    fn sends<T: Send>() {}
    fn shares<T: Send + Sync>() {}
    sends::<Encoder>();
    shares::<EncodedMessage>();
}

/// Rule A1: a batch's header depends on that batch alone. Earlier batches of the same or another
/// shape, with own metadata or with a dictionary, do not change it.
#[test]
fn headers_do_not_depend_on_what_came_before() {
    let batch = every_type();
    let empty = RecordBatch::new_empty(batch.schema());
    let metadata = write_metadata(&[("k".to_owned(), "v".to_owned())]).unwrap();
    let turns = [
        (batch.clone(), None),
        (batch.clone(), None),
        (batch.slice(8, 16), None),
        (batch.slice(8, 16), Some(metadata.as_slice())),
        (batch.slice(8, 16), None),
        (empty, None),
        (batch.clone(), Some(metadata.as_slice())),
        (batch.clone(), None),
    ];
    let mut one = encoder(&batch.schema(), EncodeOptions::default());
    for (turn, (batch, metadata)) in turns.iter().enumerate() {
        let mut fresh = encoder(&batch.schema(), EncodeOptions::default());
        let alone = fresh
            .encode(export(batch), *metadata)
            .unwrap()
            .pop()
            .unwrap();
        let message = one.encode(export(batch), *metadata).unwrap().pop().unwrap();
        assert_eq!(message.header, alone.header, "turn {turn}");
        assert_eq!(message.body_len, alone.body_len, "turn {turn}");
    }
}
