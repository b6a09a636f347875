//! Messages of a hostile peer (rule A8): flipped bytes and invalid values.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::Buffer;
use arrow::datatypes::*;
use arrow::ipc::writer::IpcWriteOptions;
use proptest::prelude::*;

use super::support::*;
use super::types::{column, every_type};
use crate::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use crate::device::{BufferRef, HostBuffer};
use crate::error::{Result, Status};
use crate::proto::{Header, HeaderKind};

/// Decodes at every level and place. Accepted data must keep the promise of the level.
fn decode_anyhow(messages: &[(Vec<u8>, Vec<u8>)]) {
    for at in PLACES {
        for level in LEVELS {
            let Ok(decoded) = decode_messages(messages, level, at) else {
                continue;
            };
            touch(&decoded);
            if level == Level::Full {
                let schema = import_nullable(decoded.schema);
                // arrow-rs refuses some scales and names that the decoder need not refuse.
                if Schema::try_from(&schema).is_err() {
                    continue;
                }
                for batch in decoded.batches {
                    if let Ok(array) = try_import(&schema, batch.array) {
                        match array.to_data().validate_full() {
                            // arrow-rs refuses null keys and entries of maps here.
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

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(400)
    })]

    /// Rule A8: flipped bytes in valid headers cause an error or a valid array.
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

    /// Rule A8: flipped bytes in valid bodies too. At level full no invalid value remains.
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

/// Rule A8: each byte of a stream's last header is set to critical values.
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

/// A batch of one column with parts that arrow-rs refuses to combine.
fn broken(ty: DataType, len: usize, buffers: Vec<Buffer>, children: Vec<ArrayData>) -> RecordBatch {
    let builder = ArrayData::builder(ty)
        .len(len)
        .buffers(buffers)
        .child_data(children);
    // SAFETY: wrong on purpose. It is only written, and the writer reads within bounds.
    let data = unsafe { builder.build_unchecked() };
    RecordBatch::try_from_iter_with_nullable([("broken", make_array(data), true)]).unwrap()
}

/// The nullable flags of a schema are kept, even if the format forbids them and arrow-rs refuses
/// them: for entries and keys of maps, and for run ends.
#[test]
fn fields_that_must_not_be_null_may_say_that_they_can_be() {
    let keys = StringArray::from(vec!["a", "b"]).into_data();
    let values = Int32Array::from(vec![1, 2]).into_data();
    let map = |entries_nullable, key_nullable| {
        let fields = Fields::from(vec![
            Field::new("key", DataType::Utf8, key_nullable),
            Field::new("value", DataType::Int32, true),
        ]);
        let entries = ArrayData::builder(DataType::Struct(fields))
            .len(2)
            .child_data(vec![keys.clone(), values.clone()])
            .build()
            .unwrap();
        let field = Field::new("entries", entries.data_type().clone(), entries_nullable);
        let offsets = vec![Buffer::from_slice_ref([0i32, 2])];
        broken(
            DataType::Map(Arc::new(field), false),
            1,
            offsets,
            vec![entries],
        )
    };
    let runs = {
        let ends = Int32Array::from(vec![2, 5]).into_data();
        let ty = DataType::RunEndEncoded(
            Arc::new(Field::new("run_ends", DataType::Int32, true)),
            Arc::new(Field::new("values", DataType::Int32, true)),
        );
        broken(ty, 5, vec![], vec![ends, values.clone()])
    };
    for batch in [map(true, false), map(false, true), runs] {
        let bytes = write(
            &batch.schema(),
            std::slice::from_ref(&batch),
            IpcWriteOptions::default(),
        );
        let decoded = decode(&bytes, Level::Structure, Place::Packed).unwrap();
        let said = Schema::try_from(&import_schema(decoded.schema)).unwrap();
        assert_eq!(said, *batch.schema());
        for at in PLACES {
            for level in LEVELS {
                let decoded = decode(&bytes, level, at).unwrap();
                touch(&decoded);
                let schema = import_nullable(decoded.schema);
                for batch in decoded.batches {
                    import(&schema, batch.array);
                }
            }
        }
    }
}

/// The error of decoding one batch, if any.
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

/// Rule A8, level full: the error names the fault, in shared and private memory. Level structure
/// does not read values and accepts the batch.
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

/// Decodes a stream with a small limit, from lent bodies. `body` returns the buffers of each
/// message in memory of 1 MiB.
fn decode_lent(
    messages: &[(Vec<u8>, Vec<u8>)],
    level: Level,
    body: impl Fn(&Header, &HostBuffer) -> Vec<BufferRef>,
) -> Result<u64> {
    let options = DecodeOptions {
        level,
        message_limit: 4 << 20,
    };
    let (first, rest) = messages.split_first().unwrap();
    let mut decoder = Decoder::new(&Header::parse(&first.0)?, options)?;
    let mut copied = 0;
    for (header, _) in rest {
        let header = Header::parse(header)?;
        let mut memory = HostBuffer::new(1 << 20)?;
        memory.as_mut_slice().fill(b'a');
        let buffers = body(&header, &memory);
        // SAFETY: the buffers are slices of the memory, which does not move and which nobody writes
        // to.
        let body = unsafe { ReceivedBody::new(buffers, Arc::new(memory), true) };
        copied += match header.kind() {
            HeaderKind::Dictionary => decoder.add_dictionary(&header, &body)?,
            _ => decoder.batch(&header, &body)?.copied,
        };
    }
    Ok(copied)
}

/// Rule A8: memory that many columns name is not copied for each of them.
#[test]
fn memory_that_a_list_names_often_is_not_copied_as_often() {
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(["a".repeat(1000)]));
    let columns = (0..200).map(|index| (format!("c{index}"), Arc::clone(&text)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let schema = batch.schema();
    let sent = messages(&write(&schema, &[batch], IpcWriteOptions::default()));
    // Columns of 500,000 bytes each, all in the same memory.
    let text = 500_000_i32;
    let offsets: Vec<u8> = [0, text]
        .iter()
        .flat_map(|offset| offset.to_le_bytes())
        .collect();
    let wide = edit(&sent[1].0, |parts| {
        for (index, (_, length)) in parts.buffers.iter_mut().enumerate() {
            *length = [0, 8, i64::from(text)][index % 3];
        }
        // A long body costs its sender nothing.
        parts.body_len = 200 * (i64::from(text) + 64);
    });
    let aliased = |header: &Header, memory: &HostBuffer| {
        let spans = header.buffers();
        let at = |(index, span): (usize, crate::proto::BodySpan)| {
            let len = usize::try_from(span.length).unwrap();
            match index % 3 {
                1 => BufferRef::of(&offsets),
                _ => BufferRef::of(&memory.as_slice()[..len]),
            }
        };
        spans.enumerate().map(at).collect()
    };
    let sent = [sent[0].clone(), (wide, Vec::new())];
    assert_eq!(decode_lent(&sent, Level::Structure, aliased).unwrap(), 0);
    let error = decode_lent(&sent, Level::Full, aliased).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
}

/// Rule A8: a delta with any number of values without bytes costs no memory.
#[test]
fn a_delta_of_many_empty_values_is_refused() {
    let values = StructArray::new_empty_fields(1, Some(vec![false].into()));
    let keys = Int32Array::from(vec![0]);
    let array = DictionaryArray::new(keys, Arc::new(values));
    let batch = RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap();
    let mut sent = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    let delta = edit(&sent[1].0, |parts| {
        parts.delta = true;
        parts.length = 1 << 38;
        parts.nodes = vec![(1 << 38, 0)];
        parts.buffers = vec![(0, 0)];
    });
    sent.truncate(2);
    sent.push((delta, Vec::new()));
    let bitmap = |header: &Header, _: &HostBuffer| {
        let of = |span: crate::proto::BodySpan| match span.length {
            0 => BufferRef::EMPTY,
            // The first value is null.
            length => BufferRef::of(&[0_u8; 64][..usize::try_from(length).unwrap()]),
        };
        header.buffers().map(of).collect()
    };
    let error = decode_lent(&sent, Level::Structure, bitmap).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory, "{error}");
}
