//! What a hostile peer may send (rule A8).

use std::ffi::CStr;
use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::datatypes::*;
use arrow::ipc::writer::IpcWriteOptions;
use proptest::prelude::*;

use super::support::*;
use super::types::every_type;
use crate::arrow::abi::{ArrowArray, ArrowSchema};
use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::device::HostBuffer;
use crate::proto::Header;

/// Reads the ends of every buffer as far as the type and length say that it reaches, and follows
/// the last offset: AddressSanitizer sees what lies outside.
pub fn touch(decoded: &Decoded) {
    for batch in &decoded.batches {
        walk(decoded.schema.raw(), &batch.array.raw().array, 0);
    }
}

/// Element `index` of `T`s from `base` on.
fn at<T: Copy>(base: *const u8, index: usize) -> T {
    assert!(!base.is_null());
    let element = base.wrapping_add(index * size_of::<T>()).cast::<T>();
    // SAFETY: the promise under test: the buffer reaches that far.
    unsafe { element.read_unaligned() }
}

fn ends(base: *const u8, bytes: usize) {
    if bytes != 0 {
        std::hint::black_box(at::<u8>(base, 0));
        std::hint::black_box(at::<u8>(base, bytes - 1));
    }
}

fn walk(schema: &ArrowSchema, array: &ArrowArray, need: usize) {
    assert!(array.release.is_some());
    assert!(array.length >= 0 && (0..=array.length).contains(&array.null_count));
    let len = usize::try_from(array.length).unwrap();
    assert!(len >= need);
    // SAFETY: the schema is ours, its format a string.
    let format = unsafe { CStr::from_ptr(schema.format) }.to_str().unwrap();
    let buffer = |index: usize| -> *const u8 {
        assert!(index < usize::try_from(array.n_buffers).unwrap());
        // SAFETY: an array has as many buffers as it says.
        unsafe { *array.buffers.wrapping_add(index) }.cast()
    };
    if !matches!(format.as_bytes(), [b'n', ..] | [b'+', b'u' | b'r', ..]) {
        if array.null_count > 0 {
            ends(buffer(0), len.div_ceil(8));
        } else {
            assert!(buffer(0).is_null());
        }
    }
    let wide = |index: usize, row: usize| -> usize {
        let offset = if matches!(format, "U" | "Z" | "+L" | "+vL") {
            at::<i64>(buffer(index), row)
        } else {
            at::<i32>(buffer(index), row).into()
        };
        usize::try_from(offset).unwrap()
    };
    let mut child_need = 0;
    match format {
        "n" | "+r" => assert_eq!(array.n_buffers, 0),
        "b" => ends(buffer(1), len.div_ceil(8)),
        "u" | "z" | "U" | "Z" => {
            assert!(wide(1, 0) <= wide(1, len));
            ends(buffer(2), wide(1, len));
        }
        "vu" | "vz" => {
            ends(buffer(1), len * 16);
            let last = usize::try_from(array.n_buffers).unwrap() - 1;
            for index in 2..last {
                ends(
                    buffer(index),
                    at::<i64>(buffer(last), index - 2).try_into().unwrap(),
                );
            }
        }
        "+l" | "+L" | "+m" => child_need = wide(1, len),
        "+vl" | "+vL" => {
            ends(buffer(1), len * if format == "+vL" { 8 } else { 4 });
            ends(buffer(2), len * if format == "+vL" { 8 } else { 4 });
        }
        "+s" => child_need = len,
        _ if format.starts_with("+w:") => child_need = len * format[3..].parse::<usize>().unwrap(),
        _ if format.starts_with("w:") => {
            ends(buffer(1), len * format[2..].parse::<usize>().unwrap())
        }
        _ if format.starts_with("+u") => {
            ends(buffer(0), len);
            if format.starts_with("+ud") {
                ends(buffer(1), len * 4);
            } else {
                child_need = len;
            }
        }
        _ => {
            let width = match format.as_bytes() {
                [b'c' | b'C'] => 1,
                [b's' | b'S' | b'e'] => 2,
                [b'i' | b'I' | b'f'] | b"tdD" | b"tts" | b"ttm" | b"tiM" => 4,
                b"tin" => 16,
                [b'd', b':', rest @ ..] => match rest.split(|byte| *byte == b',').nth(2) {
                    None => 16,
                    Some(bits) => std::str::from_utf8(bits).unwrap().parse::<usize>().unwrap() / 8,
                },
                _ => 8,
            };
            ends(buffer(1), len * width);
            assert_eq!(buffer(1).addr() % width.min(8), 0);
        }
    }
    assert_eq!(schema.n_children, array.n_children);
    for index in 0..usize::try_from(array.n_children).unwrap() {
        // SAFETY: an array and its schema have as many children as they say.
        let child = unsafe { *array.children.wrapping_add(index) };
        // SAFETY: as above.
        let child_schema = unsafe { *schema.children.wrapping_add(index) };
        // SAFETY: children live as long as their parent.
        let (child, child_schema) = (unsafe { &*child }, unsafe { &*child_schema });
        walk(child_schema, child, child_need);
    }
    // SAFETY: the dictionary is NULL or lives as long as the array; the same for the schema's.
    if let Some(dictionary) = unsafe { array.dictionary.as_ref() } {
        // SAFETY: as above.
        walk(
            unsafe { schema.dictionary.as_ref() }.unwrap(),
            dictionary,
            0,
        );
    }
}

/// Decodes at every level and place; what is accepted must hold what the level promises.
fn decode_anyhow(messages: &[(Vec<u8>, Vec<u8>)]) {
    for at in PLACES {
        for level in LEVELS {
            let Ok(decoded) = decode_messages(messages, level, at) else {
                continue;
            };
            touch(&decoded);
            if level == Level::Full {
                let schema = import_schema(decoded.schema);
                // Scales and names that arrow-rs does not take are not ours to refuse.
                if Schema::try_from(&schema).is_err() {
                    continue;
                }
                for batch in decoded.batches {
                    if let Ok(array) = try_import(&schema, batch.array) {
                        match array.to_data().validate_full() {
                            // Whether a field may be null is the producer's promise, not structure.
                            Err(error) if error.to_string().contains("non-nullable") => {}
                            checked => checked.unwrap(),
                        }
                    }
                }
            }
        }
    }
}

fn good() -> Vec<(Vec<u8>, Vec<u8>)> {
    let batch = every_type();
    messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ))
}

fn column(index: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let batch = every_type();
    let batch = batch.project(&[index % batch.num_columns()]).unwrap();
    messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// Rule A8: bytes flipped in good headers give an error or a sound array.
    #[test]
    fn flipped_headers_are_errors_or_sound(
        index in any::<usize>(),
        flips in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut messages = column(index);
        for (message, place, value) in flips {
            let count = messages.len();
            let header = &mut messages[message % count].0;
            let place = place % header.len();
            header[place] = value;
        }
        decode_anyhow(&messages);
    }

    /// Rule A8: bytes flipped in good bodies, too; at level full no value leads astray.
    #[test]
    fn flipped_bodies_are_errors_or_sound(
        flips in prop::collection::vec((any::<usize>(), any::<usize>(), any::<u8>()), 1..8),
        index in any::<usize>(),
    ) {
        let mut messages = column(index);
        for (message, place, value) in flips {
            let count = messages.len();
            let body = &mut messages[1 + message % (count - 1)].1;
            if !body.is_empty() {
                let place = place % body.len();
                body[place] = value;
            }
        }
        decode_anyhow(&messages);
    }
}

/// Rule A8: each byte of a whole stream's last header set to values that numbers break at.
#[test]
fn every_byte_of_a_header_may_lie() {
    let messages = good();
    let last = messages.len() - 1;
    for place in 0..messages[last].0.len() {
        for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            let mut messages = messages.clone();
            messages[last].0[place] = value;
            if let Ok(decoded) = decode_messages(&messages, Level::Structure, Place::Packed) {
                touch(&decoded);
            }
        }
    }
}

/// A batch of one column from parts that arrow-rs would not put together.
fn broken(ty: DataType, len: usize, buffers: Vec<Buffer>, children: Vec<ArrayData>) -> RecordBatch {
    let builder = ArrayData::builder(ty)
        .len(len)
        .buffers(buffers)
        .child_data(children);
    // SAFETY: wrong on purpose; it is only written, and what writing reads is in bounds.
    let data = unsafe { builder.build_unchecked() };
    RecordBatch::try_from_iter_with_nullable([("broken", make_array(data), true)]).unwrap()
}

/// The error of decoding one batch, where there is one.
fn error_of(batch: &RecordBatch, level: Level, at: Place) -> Option<String> {
    let bytes = write(
        &batch.schema(),
        std::slice::from_ref(batch),
        IpcWriteOptions::default(),
    );
    decode(&bytes, level, at)
        .err()
        .map(|error| error.text().to_owned())
}

/// Rule A8, level full: the text of the error says what is wrong, in shared memory as in private,
/// and level structure, which does not look at values, accepts the batch.
#[test]
fn wrong_values_are_found_at_level_full() {
    let ints = Int32Array::from(vec![1, 2, 3, 4]).into_data();
    let list = |large| {
        let field = Arc::new(Field::new_list_field(DataType::Int32, true));
        if large {
            DataType::LargeListView(field)
        } else {
            DataType::ListView(field)
        }
    };
    let union = |mode| {
        let fields = UnionFields::try_new([5], [Field::new("i", DataType::Int32, true)]).unwrap();
        DataType::Union(fields, mode)
    };
    let view = |length: u32, prefix: &[u8; 4], buffer: u32, offset: u32| {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(prefix);
        bytes.extend(buffer.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        Buffer::from(bytes)
    };
    let text = || Buffer::from(&b"abcdefghijklmnop"[..]);
    let cases = [
        (
            broken(
                DataType::Utf8,
                2,
                vec![Buffer::from_slice_ref([0i32, 5, 4]), text()],
                vec![],
            ),
            "offset 5",
        ),
        (
            broken(
                DataType::LargeBinary,
                2,
                vec![Buffer::from_slice_ref([0i64, 99, 4]), text()],
                vec![],
            ),
            "offset 99",
        ),
        (
            broken(
                DataType::Utf8,
                1,
                vec![
                    Buffer::from_slice_ref([0i32, 2]),
                    Buffer::from(&[0xffu8, 0xfe][..]),
                ],
                vec![],
            ),
            "UTF-8",
        ),
        (
            broken(
                DataType::Utf8,
                2,
                vec![
                    Buffer::from_slice_ref([0i32, 1, 2]),
                    Buffer::from("ä".as_bytes()),
                ],
                vec![],
            ),
            "inside a character",
        ),
        (
            broken(
                list(false),
                2,
                vec![
                    Buffer::from_slice_ref([0i32, 3]),
                    Buffer::from_slice_ref([1i32, 2]),
                ],
                vec![ints.clone()],
            ),
            "2 values from 3",
        ),
        (
            broken(
                list(true),
                1,
                vec![
                    Buffer::from_slice_ref([i64::MAX]),
                    Buffer::from_slice_ref([1i64]),
                ],
                vec![ints.clone()],
            ),
            "1 values from",
        ),
        (
            broken(
                list(false),
                1,
                vec![
                    Buffer::from_slice_ref([-1i32]),
                    Buffer::from_slice_ref([1i32]),
                ],
                vec![ints.clone()],
            ),
            "from -1",
        ),
        (
            broken(
                union(UnionMode::Sparse),
                4,
                vec![Buffer::from_slice_ref([5i8, 5, 4, 5])],
                vec![ints.clone()],
            ),
            "type id 4",
        ),
        (
            broken(
                union(UnionMode::Dense),
                2,
                vec![
                    Buffer::from_slice_ref([5i8, 5]),
                    Buffer::from_slice_ref([0i32, 4]),
                ],
                vec![ints.clone()],
            ),
            "value 4",
        ),
        (
            broken(
                DataType::Utf8View,
                1,
                vec![view(13, b"abcd", 1, 0), text()],
                vec![],
            ),
            "data buffer 1",
        ),
        (
            broken(
                DataType::Utf8View,
                1,
                vec![view(13, b"abcd", 0, 4), text()],
                vec![],
            ),
            "13 bytes at 4",
        ),
        (
            broken(
                DataType::BinaryView,
                1,
                vec![view(13, b"xbcd", 0, 0), text()],
                vec![],
            ),
            "prefix",
        ),
        (
            broken(
                DataType::BinaryView,
                1,
                vec![view(2, b"ab\0\x01", 0, 0), text()],
                vec![],
            ),
            "padded",
        ),
        (
            broken(
                DataType::Utf8View,
                1,
                vec![view(u32::MAX, b"abcd", 0, 0), text()],
                vec![],
            ),
            "-1 bytes",
        ),
    ];
    for (batch, wanted) in cases {
        for at in PLACES {
            let error = error_of(&batch, Level::Full, at).unwrap_or_default();
            assert!(error.contains(wanted), "{wanted:?}: {error:?}");
            assert!(error.contains("broken"), "names the column: {error:?}");
            assert_eq!(error_of(&batch, Level::Structure, at), None, "{wanted}");
        }
    }
}

type Change = fn(&mut Parts);

/// Rule A8, level structure: what headers alone can be wrong in, with a text that says so, at
/// both levels.
#[test]
fn wrong_headers_are_found_at_level_structure() {
    let cases: &[(&str, Change, &str)] = &[
        ("Int32", |parts| parts.length = -6, "negative"),
        (
            "Int32",
            |parts| parts.length = 7,
            "6 values in a batch of 7 rows",
        ),
        ("Int32", |parts| parts.nodes[0].0 = -1, "negative"),
        ("Int32", |parts| parts.nodes[0].1 = -1, "negative"),
        (
            "Int32",
            |parts| parts.nodes[0].1 = 7,
            "7 nulls among 6 values",
        ),
        (
            "Int32",
            |parts| parts.nodes[0].0 = 7,
            "24 bytes, 28 are needed",
        ),
        (
            "Int32",
            |parts| parts.nodes[0].0 = i64::MAX,
            "need 1152921504606846976",
        ),
        (
            "month day nano",
            |parts| parts.nodes[0].0 = i64::MAX,
            "of length",
        ),
        (
            "Int32",
            |parts| parts.buffers[0].1 = 0,
            "validity bitmap has 0 bytes",
        ),
        (
            "Int32",
            |parts| parts.buffers[1].1 = 23,
            "23 bytes, 24 are needed",
        ),
        (
            "Boolean",
            |parts| parts.buffers[1].1 = 0,
            "0 bytes, 1 are needed",
        ),
        ("Int32", |parts| parts.nodes.clear(), "fewer nodes"),
        ("Int32", |parts| parts.nodes.push((6, 0)), "1 nodes more"),
        ("Int32", |parts| parts.buffers.truncate(1), "fewer buffers"),
        (
            "Int32",
            |parts| parts.buffers.push((0, 0)),
            "1 buffers more",
        ),
        (
            "utf8",
            |parts| parts.buffers[1].1 = 27,
            "27 bytes, 28 are needed",
        ),
        ("utf8", |parts| parts.buffers[2].1 -= 1, "are needed"),
        (
            "large utf8",
            |parts| parts.buffers[1].1 = 0,
            "0 bytes, 56 are needed",
        ),
        ("utf8 view", |parts| parts.counts = None, "fewer counts"),
        (
            "utf8 view",
            |parts| parts.counts = Some(vec![-1]),
            "-1 view buffers",
        ),
        (
            "utf8 view",
            |parts| parts.counts = Some(vec![i64::MAX]),
            "view buffers where",
        ),
        (
            "utf8 view",
            |parts| parts.counts = Some(vec![1, 0]),
            "1 counts of view buffers more",
        ),
        (
            "Int32",
            |parts| parts.counts = Some(vec![0]),
            "1 counts of view buffers more",
        ),
        ("list", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        ("large list", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        (
            "list view",
            |parts| parts.buffers[2].1 = 20,
            "20 bytes, 24 are needed",
        ),
        ("fixed list", |parts| parts.nodes[1] = (11, 0), "needs 12"),
        ("struct", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        (
            "map",
            |parts| parts.nodes[1].1 = 1,
            "validity bitmap has 0 bytes",
        ),
        ("sparse union", |parts| parts.nodes[1] = (5, 0), "needs 6"),
        (
            "sparse union",
            |parts| parts.nodes[0].1 = 1,
            "no validity bitmap",
        ),
        (
            "sparse union",
            |parts| parts.buffers[0].1 = 5,
            "5 bytes, 6 are needed",
        ),
        (
            "dense union",
            |parts| parts.buffers[1].1 = 20,
            "20 bytes, 24 are needed",
        ),
        (
            "run ends",
            |parts| parts.nodes[1].0 = 2,
            "2 run ends and 3 values",
        ),
        (
            "run ends",
            |parts| parts.nodes[0].1 = 1,
            "no validity bitmap",
        ),
        (
            "run ends",
            |parts| {
                parts.length = 7;
                parts.nodes[0].0 = 7;
            },
            "the last run ends at 6",
        ),
        (
            "run ends",
            |parts| {
                parts.nodes[1].0 = 0;
                parts.nodes[2] = (0, 0);
            },
            "the last run ends at 0",
        ),
        (
            "dictionary",
            |parts| parts.buffers[1].1 = 11,
            "11 bytes, 12 are needed",
        ),
    ];
    let batch = every_type();
    for (name, change, wanted) in cases {
        let index = batch.schema().index_of(name).unwrap();
        let mut messages = column(index);
        let last = messages.len() - 1;
        messages[last].0 = edit(&messages[last].0, change);
        for level in LEVELS {
            for at in PLACES {
                let error = decode_messages(&messages, level, at).err();
                let text = error.map_or_else(String::new, |error| error.text().to_owned());
                assert!(text.contains(wanted), "{name}: {wanted:?}: {text:?}");
            }
        }
    }
}

/// Rule A8, level full: a null count that the bitmap does not bear out.
#[test]
fn null_counts_are_compared_with_the_bitmap() {
    for count in [0, 2, 6] {
        let mut messages = column(every_type().schema().index_of("Int32").unwrap());
        messages[1].0 = edit(&messages[1].0, |parts| parts.nodes[0].1 = count);
        for at in PLACES {
            let error = decode_messages(&messages, Level::Full, at).err().unwrap();
            assert!(error.text().contains("the bitmap 1"), "{error}");
            decode_messages(&messages, Level::Structure, at).unwrap();
        }
    }
}

/// Changes one element of a body, found by buffer and place.
fn poke(messages: &mut [(Vec<u8>, Vec<u8>)], buffer: usize, offset: usize, bytes: &[u8]) {
    let (header, body) = messages.last_mut().unwrap();
    let start = usize::try_from(Header::parse(header).unwrap().buffers()[buffer].offset).unwrap();
    body[start + offset..][..bytes.len()].copy_from_slice(bytes);
}

/// Column, buffer, place in it, bytes to put there, whether level structure sees it, and the text.
type Poke<'a> = (&'a str, usize, usize, &'a [u8], bool, &'a str);

/// Rule A8: offsets, run ends and map keys that are wrong in the body; ends are seen at both levels.
#[test]
fn wrong_bodies_are_found() {
    let minus = (-1i32).to_le_bytes();
    let far = 1000i32.to_le_bytes();
    let cases: &[Poke] = &[
        ("utf8", 1, 0, &minus, true, "from -1"),
        ("utf8", 1, 24, &far, true, "1000 are needed"),
        ("utf8", 1, 24, &minus, true, "to -1"),
        ("utf8", 1, 4, &far, false, "offset 1000"),
        ("list", 1, 24, &far, true, "needs 1000"),
        ("list", 1, 0, &far, true, "from 1000"),
        ("list", 1, 8, &far, false, "offset 1000"),
        ("map", 1, 24, &far, true, "needs 1000"),
        (
            "run ends",
            1,
            8,
            &[5, 0, 0, 0],
            true,
            "the last run ends at 5",
        ),
        ("run ends", 1, 4, &[2, 0, 0, 0], false, "run 1 ends at 2"),
        ("run ends", 1, 0, &[0, 0, 0, 0], false, "run 0 ends at 0"),
    ];
    let batch = every_type();
    for (name, buffer, offset, bytes, structural, wanted) in cases {
        let mut messages = column(batch.schema().index_of(name).unwrap());
        poke(&mut messages, *buffer, *offset, bytes);
        for at in PLACES {
            let error = |level| {
                let error = decode_messages(&messages, level, at).err();
                error.map_or_else(String::new, |error| error.text().to_owned())
            };
            assert!(
                error(Level::Full).contains(wanted),
                "{name}: {wanted}: {}",
                error(Level::Full)
            );
            assert_eq!(
                error(Level::Structure).contains(wanted),
                *structural,
                "{name}: {wanted}"
            );
        }
    }
}

/// Null rows of views may hold anything; what would lead astray becomes an empty string.
#[test]
fn views_of_null_rows_are_cleared() {
    let mut messages = column(every_type().schema().index_of("utf8 view").unwrap());
    poke(&mut messages, 1, 16, &[0xff; 16]);
    for at in PLACES {
        let decoded = decode_messages(&messages, Level::Full, at).unwrap();
        assert!(decoded.batches[0].copied > 0);
        let (_, batches) = read_back(decoded);
        let expected = every_type();
        assert_eq!(
            batches[0].column(0),
            expected.column_by_name("utf8 view").unwrap()
        );
        let views = batches[0].column(0).as_string_view().views();
        assert_eq!(views[1], 0);
    }
}

/// A body that is not the header's is refused before anything is read (rules A1, D3).
#[test]
fn bodies_must_match_their_headers() {
    let messages = column(0);
    let parse = |index: usize| Header::parse(&messages[index].0).unwrap();
    let decoder = Decoder::new(&parse(0), DecodeOptions::default()).unwrap();
    let header = parse(1);
    let mut body = place(&header, &messages[1].1, Place::Packed, &Arc::default());
    body.buffers.pop();
    let error = decoder.batch(&header, &body).unwrap_err();
    assert!(error.text().contains("A1"), "{error}");
    let short = HostBuffer::new(messages[1].1.len() - 1).unwrap();
    let error = ReceivedBody::packed(&header, short).err().unwrap();
    assert!(error.text().contains("D3"), "{error}");
    let mut memory = HostBuffer::new(messages[1].1.len()).unwrap();
    memory.as_mut_slice().copy_from_slice(&messages[1].1);
    let body = ReceivedBody::packed(&header, memory).unwrap();
    assert_eq!(decoder.batch(&header, &body).unwrap().rows, 6);
    // Messages of the wrong kind.
    assert!(decoder.batch(&parse(0), &body).is_err());
    assert!(Decoder::new(&header, DecodeOptions::default()).is_err());
}
