//! The memory limits of one message, and of all dictionaries of a stream (rule A8).

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::*;
use arrow::ipc;
use arrow::ipc::CompressionType;
use arrow::ipc::writer::{DictionaryHandling, IpcWriteOptions};

use super::support::*;
use crate::arrow::decode::{DecodeOptions, Decoder, Level};
use crate::client::GetOptions;
use crate::error::{Result, Status};
use crate::proto::{Header, HeaderKind};

pub(super) type Messages = [(Vec<u8>, Vec<u8>)];

/// Decodes a stream with a limit. Returns the copied bytes, and the final bytes of dictionaries.
pub(super) fn decode_within(
    sent: &Messages,
    level: Level,
    message_limit: u64,
) -> Result<(u64, u64)> {
    let options = DecodeOptions {
        level,
        message_limit,
    };
    let (first, rest) = sent.split_first().unwrap();
    let mut decoder = Decoder::new(&Header::parse(&first.0)?, options)?;
    let mut copied = 0;
    for (header, body) in rest {
        let header = Header::parse(header)?;
        let body = place(&header, body, Place::Packed, &Arc::default());
        copied += match header.kind() {
            HeaderKind::Dictionary => decoder.add_dictionary(&header, &body)?,
            _ => decoder.batch(&header, &body)?.copied,
        };
    }
    Ok((copied, decoder.held))
}

fn compressed(codec: CompressionType) -> IpcWriteOptions {
    IpcWriteOptions::default()
        .try_with_compression(Some(codec))
        .unwrap()
        .with_dictionary_handling(DictionaryHandling::Delta)
}

/// By default a peer of another user gets a limit far below 2 GiB.
#[test]
fn strangers_have_a_smaller_limit() {
    let mut options = GetOptions::default();
    let (ours, others) = (options.decode(true), options.decode(false));
    assert_eq!((ours.level, others.level), (Level::Structure, Level::Full));
    assert_eq!(others.message_limit, 512 << 20);
    assert!(ours.message_limit > 2 << 30);
    assert_eq!(others, DecodeOptions::default());
    options.message_limit = Some(5);
    for same_user in [true, false] {
        assert_eq!(options.decode(same_user).message_limit, 5);
    }
}

/// All buffers of a message share the limit, and a batch within the limit is accepted.
#[test]
fn what_is_unpacked_is_counted_over_all_buffers() {
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 100_000]));
    let columns = (0..10).map(|index| (format!("c{index}"), Arc::clone(&zeros)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    for codec in [CompressionType::ZSTD, CompressionType::LZ4_FRAME] {
        let sent = messages(&write(
            &batch.schema(),
            std::slice::from_ref(&batch),
            compressed(codec),
        ));
        assert!(sent[1].1.len() < 100_000, "{}", sent[1].1.len());
        for level in LEVELS {
            let error = decode_within(&sent, level, 7_900_000).unwrap_err();
            assert_eq!(error.status(), Status::OutOfMemory);
            assert!(error.text().contains("message_limit"), "{error}");
            let (copied, _) = decode_within(&sent, level, 8_100_000).unwrap();
            assert_eq!(copied, 8_000_000);
        }
    }
}

/// A batch of `columns` columns, each with a dictionary of `count` values.
fn dictionaries(columns: usize, count: usize) -> RecordBatch {
    let columns = (0..columns).map(|index| {
        let values = Int64Array::from(vec![i64::try_from(index).unwrap(); count]);
        let array = DictionaryArray::new(Int32Array::from(vec![0]), Arc::new(values));
        (format!("c{index}"), Arc::new(array) as ArrayRef)
    });
    RecordBatch::try_from_iter(columns).unwrap()
}

/// Small dictionaries that unpack to many bytes share the limit of one message.
#[test]
fn dictionaries_of_a_stream_share_the_limit() {
    let batch = dictionaries(10, 100_000);
    let sent = messages(&write(
        &batch.schema(),
        &[batch],
        compressed(CompressionType::ZSTD),
    ));
    for level in LEVELS {
        let error = decode_within(&sent, level, 7_900_000).unwrap_err();
        assert_eq!(error.status(), Status::OutOfMemory);
        let (_, held) = decode_within(&sent, level, 8_100_000).unwrap();
        assert_eq!(held, 8_000_000);
    }
    // A replaced dictionary returns its bytes to the budget.
    let mut repeated = sent.clone();
    for _ in 0..3 {
        repeated.extend_from_slice(&sent[1..]);
    }
    let (_, held) = decode_within(&repeated, Level::Full, 8_100_000).unwrap();
    assert_eq!(held, 8_000_000);
    // Uncompressed dictionaries cost nothing, and may have any size.
    let batch = dictionaries(10, 10_000);
    let sent = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    assert_eq!(decode_within(&sent, Level::Full, 100_000).unwrap().1, 0);
}

/// A stream of a dictionary and `count` deltas with the same `values`. After each follows a batch
/// that uses the first value.
fn with_deltas(
    values: &ArrayRef,
    count: usize,
    options: IpcWriteOptions,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let array = DictionaryArray::new(Int32Array::from(vec![0]), Arc::clone(values));
    let batch = RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap();
    let mut sent = messages(&write(&batch.schema(), &[batch], options));
    assert_eq!(sent.len(), 3);
    let mut delta = sent[1].clone();
    delta.0 = as_delta(&delta.0);
    let batch = sent[2].clone();
    for _ in 0..count {
        sent.extend([delta.clone(), batch.clone()]);
    }
    sent
}

/// The header of a dictionary, changed into a delta, with its compression.
pub(super) fn as_delta(header: &[u8]) -> Vec<u8> {
    let old = ipc::root_as_message(header).unwrap();
    let codec = old
        .header_as_dictionary_batch()
        .and_then(|dictionary| dictionary.data()?.compression())
        .map(|compression| compression.codec());
    edit_compressed(header, codec, |parts| parts.delta = true)
}

/// Rule A3: the cost of a delta is that of its own bytes, for every type, with batches in between.
#[test]
fn many_deltas_are_not_copied_again_and_again() {
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..100).map(|row| format!("value {row}, long enough for a view")),
    ));
    let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(
        (0..100).map(|row| format!("value {row}, long enough for a view")),
    ));
    let mut lists = ListBuilder::new(Int64Builder::new());
    (0..100).for_each(|row| lists.append_value([Some(row), Some(row + 1)]));
    let fields = vec![
        Field::new("a", text.data_type().clone(), true),
        Field::new("b", views.data_type().clone(), true),
    ];
    let both = StructArray::new(fields.into(), vec![text.clone(), views.clone()], None);
    let columns: [ArrayRef; 5] = [
        Arc::new(Int64Array::from_iter_values(0..100)),
        text,
        views,
        Arc::new(lists.finish()),
        Arc::new(both),
    ];
    const DELTAS: usize = 300;
    for values in columns {
        let ty = values.data_type();
        let sent = with_deltas(&values, DELTAS, IpcWriteOptions::default());
        let once = sent[1].1.len() as u64;
        for level in LEVELS {
            let (copied, _) = decode_within(&sent, level, 64 << 20).unwrap();
            // Each delta is copied once, and the whole only when the room is used up.
            assert!(
                copied < once * DELTAS as u64 * 6,
                "{ty}: {copied} of {once} each"
            );
        }
        // Earlier batches still see their own values.
        let decoded = decode_messages(&sent, Level::Full, Place::Packed).unwrap();
        let (_, batches) = read_back(decoded);
        let last = batches[DELTAS].column(0).as_dictionary::<Int32Type>();
        assert_eq!(last.values().len(), 100 * (DELTAS + 1));
        for (index, batch) in batches.iter().enumerate() {
            let read = batch.column(0).as_dictionary::<Int32Type>().values();
            assert_eq!(read.len(), 100 * (index + 1));
            let tail = read.slice(100 * index, 100);
            assert_eq!(tail.as_ref(), values.as_ref(), "{ty} {index}");
        }
    }
}

/// Rule A8: deltas that unpack to many bytes, and small deltas of many values, are refused at the
/// limit.
#[test]
fn deltas_end_at_the_limit() {
    let zeros: ArrayRef = Arc::new(Int64Array::from(vec![0; 100_000]));
    let sent = with_deltas(&zeros, 100, compressed(CompressionType::ZSTD));
    assert!(sent[1].1.len() < 10_000);
    let error = decode_within(&sent, Level::Full, 8 << 20).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);

    let nulls: ArrayRef = Arc::new(StructArray::new_empty_fields(1, Some(vec![false].into())));
    let mut sent = with_deltas(&nulls, 1, IpcWriteOptions::default());
    let many = edit(&sent[3].0, |parts| {
        parts.length = 1 << 20;
        parts.nodes = vec![(1 << 20, 0)];
        parts.buffers = vec![(0, 0)];
    });
    sent.truncate(3);
    sent.extend((0..100).map(|_| (many.clone(), Vec::new())));
    let error = decode_within(&sent, Level::Structure, 8 << 20).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
}

/// A dictionary does not hold its predecessors, so its drop needs no deep recursion.
#[test]
fn deltas_of_nulls_do_not_hold_each_other() {
    let inner = DictionaryArray::new(
        Int32Array::from(vec![Some(0), None]),
        Arc::new(StringArray::from(vec!["a"])),
    );
    let fields = vec![Field::new("inner", inner.data_type().clone(), true)];
    let values = StructArray::new(fields.into(), vec![Arc::new(inner)], None);
    let array = DictionaryArray::new(Int32Array::from(vec![0]), Arc::new(values.clone()));
    let batch = RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap();
    let mut sent = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    // The inner dictionary is replaced, and the outer dictionary continues with nulls only.
    let replaced = sent[1].clone();
    let nulls = StructArray::from(values.to_data().slice(1, 1));
    let array = DictionaryArray::new(Int32Array::from(vec![0]), Arc::new(nulls));
    let batch = RecordBatch::try_from_iter([("d", Arc::new(array) as ArrayRef)]).unwrap();
    let other = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    let delta = (as_delta(&other[2].0), other[2].1.clone());
    for _ in 0..3000 {
        sent.extend([replaced.clone(), delta.clone()]);
    }
    let small = std::thread::Builder::new().stack_size(256 << 10);
    let decoded = small
        .spawn(move || decode_within(&sent, Level::Full, 64 << 20).map(|_| ()))
        .unwrap();
    decoded.join().unwrap().unwrap();
}

/// A dictionary with many buffers counts for each column that uses it.
#[test]
fn columns_that_share_a_dictionary_are_counted() {
    let mut views = StringViewBuilder::new();
    for row in 0..1000 {
        let block = views.append_block(format!("a string of its own: {row}").into_bytes().into());
        views.try_append_view(block, 0, 20).unwrap();
    }
    let values: ArrayRef = Arc::new(views.finish());
    let array = DictionaryArray::new(Int32Array::from(vec![0]), values);
    let array: ArrayRef = Arc::new(array);
    let columns = (0..200).map(|index| (format!("c{index}"), Arc::clone(&array)));
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let sent = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    // All columns use the first dictionary.
    let sent = [
        (one_dictionary(&sent[0].0), Vec::new()),
        sent[1].clone(),
        sent.last().unwrap().clone(),
    ];
    let error = decode_within(&sent, Level::Structure, 4 << 20).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory);
    decode_within(&sent, Level::Structure, 64 << 20).unwrap();
}

/// The schema with dictionary 0 for every field.
fn one_dictionary(header: &[u8]) -> Vec<u8> {
    let schema = ipc::root_as_message(header)
        .unwrap()
        .header_as_schema()
        .unwrap();
    let names: Vec<_> = schema
        .fields()
        .unwrap()
        .iter()
        .map(|f| f.name().unwrap())
        .collect();
    let mut fbb = flatbuffers::FlatBufferBuilder::new();
    let fields: Vec<_> = (names.iter())
        .map(|name| field(&mut fbb, name, ipc::Type::Utf8View, Some(0), &[]))
        .collect();
    schema_of(fbb, &fields)
}

pub(super) type Offset<'a> = flatbuffers::WIPOffset<ipc::Field<'a>>;

pub(super) fn field<'a>(
    fbb: &mut flatbuffers::FlatBufferBuilder<'a>,
    name: &str,
    ty: ipc::Type,
    dictionary: Option<i64>,
    children: &[Offset<'a>],
) -> Offset<'a> {
    let type_ = match ty {
        ipc::Type::Struct_ => ipc::Struct_::create(fbb, &ipc::Struct_Args {}).as_union_value(),
        _ => ipc::Utf8View::create(fbb, &ipc::Utf8ViewArgs {}).as_union_value(),
    };
    let dictionary = dictionary.map(|id| {
        let args = ipc::DictionaryEncodingArgs {
            id,
            ..Default::default()
        };
        ipc::DictionaryEncoding::create(fbb, &args)
    });
    let args = ipc::FieldArgs {
        name: Some(fbb.create_string(name)),
        nullable: true,
        type_type: ty,
        type_: Some(type_),
        dictionary,
        children: Some(fbb.create_vector(children)),
        custom_metadata: None,
    };
    ipc::Field::create(fbb, &args)
}

pub(super) fn schema_of<'a>(
    mut fbb: flatbuffers::FlatBufferBuilder<'a>,
    fields: &[Offset<'a>],
) -> Vec<u8> {
    let fields = Some(fbb.create_vector(fields));
    let schema = ipc::SchemaArgs {
        fields,
        ..Default::default()
    };
    let schema = ipc::Schema::create(&mut fbb, &schema).as_union_value();
    let message = ipc::MessageArgs {
        version: ipc::MetadataVersion::V5,
        header_type: ipc::MessageHeader::Schema,
        header: Some(schema),
        bodyLength: 0,
        custom_metadata: None,
    };
    let message = ipc::Message::create(&mut fbb, &message);
    fbb.finish(message, None);
    fbb.finished_data().to_vec()
}

/// Rule A8: a table that stands for many fields is not read many times, and a schema of many fields
/// has a limit.
#[test]
fn a_schema_is_as_large_as_its_header() {
    let open = |header: &[u8], message_limit: u64| {
        let options = DecodeOptions {
            level: Level::Structure,
            message_limit,
        };
        Header::parse(header)
            .map_err(crate::error::Error::from)
            .and_then(|header| Decoder::new(&header, options))
            .map(|_| ())
    };
    for ty in [ipc::Type::Utf8View, ipc::Type::Struct_] {
        let mut fbb = flatbuffers::FlatBufferBuilder::new();
        let one = match ty {
            ipc::Type::Struct_ => {
                let leaf = field(&mut fbb, "", ipc::Type::Utf8View, None, &[]);
                field(&mut fbb, "", ty, None, &[leaf; 10])
            }
            _ => field(&mut fbb, "", ty, None, &[]),
        };
        // Padding, because a verifier's limits depend on the length of the header.
        let long = field(&mut fbb, &"x".repeat(3500), ipc::Type::Utf8View, None, &[]);
        let mut fields = vec![one; if ty == ipc::Type::Struct_ { 30 } else { 400 }];
        fields.push(long);
        let error = open(&schema_of(fbb, &fields), u64::MAX).unwrap_err();
        assert!(error.text().contains("more fields"), "{error}");
    }
    let honest = |count: usize| {
        let mut fbb = flatbuffers::FlatBufferBuilder::new();
        let fields: Vec<_> = (0..count)
            .map(|_| field(&mut fbb, "", ipc::Type::Utf8View, None, &[]))
            .collect();
        schema_of(fbb, &fields)
    };
    open(&honest(2000), 4 << 20).unwrap();
    let error = open(&honest(10_000), 4 << 20).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory, "{error}");
}

/// A peer's field names do not make an error text longer at each level of nesting.
#[test]
fn texts_of_errors_stay_short() {
    let mut fbb = flatbuffers::FlatBufferBuilder::new();
    let name = "\u{1}".repeat(100_000);
    let name = fbb.create_shared_string(&name);
    // A list must have one child.
    let mut inner: Vec<Offset<'_>> = Vec::new();
    for level in 0..50 {
        let (ty, type_) = match level {
            0 => (
                ipc::Type::List,
                ipc::List::create(&mut fbb, &ipc::ListArgs {}).as_union_value(),
            ),
            _ => {
                let args = ipc::Struct_Args {};
                (
                    ipc::Type::Struct_,
                    ipc::Struct_::create(&mut fbb, &args).as_union_value(),
                )
            }
        };
        let args = ipc::FieldArgs {
            name: Some(name),
            type_type: ty,
            type_: Some(type_),
            children: Some(fbb.create_vector(&inner)),
            ..Default::default()
        };
        inner = vec![ipc::Field::create(&mut fbb, &args)];
    }
    // Padding, because a verifier's limits depend on the length of the header.
    let pad = fbb.create_string(&"x".repeat(1 << 20));
    let args = ipc::FieldArgs {
        name: Some(pad),
        type_type: ipc::Type::Utf8View,
        type_: Some(ipc::Utf8View::create(&mut fbb, &ipc::Utf8ViewArgs {}).as_union_value()),
        ..Default::default()
    };
    inner.insert(0, ipc::Field::create(&mut fbb, &args));
    let header = Header::parse(&schema_of(fbb, &inner)).unwrap();
    let error = Decoder::new(&header, DecodeOptions::default()).unwrap_err();
    assert!(error.text().contains("children"), "{:.200}", error.text());
    assert!(error.text().len() < 64 << 10, "{}", error.text().len());
}

/// The lists of rows at level full count against the budget. A row may be one byte, and each row in
/// a null struct may have an entry.
#[test]
fn rows_that_are_noted_are_counted() {
    let keys = Int8Array::from(vec![7; 200_000]);
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    // SAFETY: the array is wrong on purpose; arrow-rs only writes it.
    let inner = unsafe { DictionaryArray::new_unchecked(keys, values) };
    let field = Field::new("d", inner.data_type().clone(), true);
    let nulls = vec![false; 200_000].into();
    let outer = StructArray::new(vec![field].into(), vec![Arc::new(inner)], Some(nulls));
    let batch = RecordBatch::try_from_iter([("s", Arc::new(outer) as ArrayRef)]).unwrap();
    let sent = messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ));
    let error = decode_within(&sent, Level::Full, 1 << 20).unwrap_err();
    assert_eq!(error.status(), Status::OutOfMemory, "{error}");
    decode_within(&sent, Level::Full, 8 << 20).unwrap();
}
