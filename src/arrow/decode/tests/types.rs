//! Every type of the format, as arrow-rs writes it.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;
use arrow::ipc::writer::IpcWriteOptions;
use arrow::ipc::{CompressionType, MetadataVersion};

use super::support::*;
use crate::arrow::decode::Level;

fn text(large: usize) -> Vec<Option<String>> {
    vec![
        Some("short".into()),
        None,
        Some(String::new()),
        Some("a text of more than twelve bytes, äöü".repeat(large)),
        Some("another text that does not fit a view".into()),
        Some("x".into()),
    ]
}

fn list_view<O: OffsetSizeTrait>(offsets: Vec<O>, sizes: Vec<O>) -> ArrayRef {
    let field = Arc::new(Field::new_list_field(DataType::Int32, true));
    let values = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let nulls = NullBuffer::from(vec![true, true, false, true, true, true]);
    Arc::new(GenericListViewArray::new(
        field,
        offsets.into(),
        sizes.into(),
        values,
        Some(nulls),
    ))
}

fn list<O: OffsetSizeTrait>() -> ArrayRef {
    let rows = vec![
        Some(vec![Some(1), None]),
        None,
        Some(vec![]),
        Some(vec![Some(3)]),
        Some(vec![Some(4), Some(5), Some(6)]),
        None,
    ];
    Arc::new(GenericListArray::<O>::from_iter_primitive::<Int64Type, _, _>(rows))
}

fn map() -> ArrayRef {
    let mut builder = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..6 {
        builder.keys().append_value(format!("key {row}"));
        builder
            .values()
            .append_option((row % 3 != 0).then_some(row));
        builder.append(row != 2).unwrap();
    }
    Arc::new(builder.finish())
}

fn union(dense: bool) -> ArrayRef {
    let fields = UnionFields::try_new(
        [3, 7],
        [
            Field::new("i", DataType::Int32, true),
            Field::new("s", DataType::Utf8, true),
        ],
    )
    .unwrap();
    let ids = ScalarBuffer::from(vec![3i8, 7, 7, 3, 3, 7]);
    let (offsets, ints, texts): (_, ArrayRef, ArrayRef) = if dense {
        (
            Some(ScalarBuffer::from(vec![0i32, 0, 1, 1, 2, 2])),
            Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(StringArray::from(vec!["a", "b", "c"])),
        )
    } else {
        (
            None,
            Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5, 6])),
            Arc::new(StringArray::from(text(1))),
        )
    };
    Arc::new(UnionArray::try_new(fields, ids, offsets, vec![ints, texts]).unwrap())
}

fn run_ends() -> ArrayRef {
    let ends = Int32Array::from(vec![2, 3, 6]);
    Arc::new(
        RunArray::try_new(&ends, &StringArray::from(vec![Some("a"), None, Some("c")])).unwrap(),
    )
}

fn decimals() -> Vec<(&'static str, ArrayRef)> {
    let values = [1, -2, 3, 4, 5, 6];
    let nulls = || Some(NullBuffer::from(vec![true, true, true, false, true, true]));
    vec![
        (
            "d32",
            Arc::new(Decimal32Array::new(values.to_vec().into(), nulls())),
        ),
        (
            "d64",
            Arc::new(Decimal64Array::new(
                values.map(i64::from).to_vec().into(),
                nulls(),
            )),
        ),
        (
            "d128",
            Arc::new(Decimal128Array::new(
                values.map(i128::from).to_vec().into(),
                nulls(),
            )),
        ),
        (
            "d256",
            Arc::new(Decimal256Array::new(
                values
                    .map(|value| arrow::datatypes::i256::from_i128(value.into()))
                    .to_vec()
                    .into(),
                nulls(),
            )),
        ),
    ]
}

/// Arrow's primitive types, under their own names.
fn primitives() -> Vec<(String, ArrayRef)> {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![
        Some(1),
        Some(2),
        None,
        Some(4),
        Some(5),
        Some(6),
    ]));
    let ints32 = arrow::compute::cast(&ints, &DataType::Int32).unwrap();
    let mut columns = Vec::new();
    for ty in [
        DataType::Int8,
        DataType::Int16,
        DataType::Int32,
        DataType::Int64,
        DataType::UInt8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float16,
        DataType::Float32,
        DataType::Float64,
        DataType::Boolean,
        DataType::Date64,
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Timestamp(TimeUnit::Second, None),
        DataType::Timestamp(TimeUnit::Millisecond, Some("Europe/Berlin".into())),
        DataType::Timestamp(TimeUnit::Microsecond, Some("+02:00".into())),
        DataType::Timestamp(TimeUnit::Nanosecond, None),
        DataType::Duration(TimeUnit::Second),
        DataType::Duration(TimeUnit::Millisecond),
        DataType::Duration(TimeUnit::Microsecond),
        DataType::Duration(TimeUnit::Nanosecond),
    ] {
        columns.push((format!("{ty}"), arrow::compute::cast(&ints, &ty).unwrap()));
    }
    for ty in [
        DataType::Date32,
        DataType::Time32(TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Interval(IntervalUnit::YearMonth),
    ] {
        columns.push((format!("{ty}"), arrow::compute::cast(&ints32, &ty).unwrap()));
    }
    let days: Vec<_> = (0..6).map(|day| IntervalDayTime::new(day, -day)).collect();
    columns.push((
        "day time".into(),
        Arc::new(IntervalDayTimeArray::from(days)),
    ));
    let nanos: Vec<_> = (0..6)
        .map(|n| IntervalMonthDayNano::new(n, -n, 1 << n))
        .collect();
    columns.push((
        "month day nano".into(),
        Arc::new(IntervalMonthDayNanoArray::from(nanos)),
    ));
    columns
}

fn dictionary() -> ArrayRef {
    let values = Arc::new(StringArray::from(vec!["one", "two", "three"]));
    let keys = Int16Array::from(vec![Some(0), None, Some(2), Some(1), Some(0), Some(2)]);
    Arc::new(DictionaryArray::new(keys, values))
}

/// A dictionary whose values are lists of a dictionary.
fn nested_dictionary() -> ArrayRef {
    let inner = dictionary();
    let field = Arc::new(Field::new("inner", inner.data_type().clone(), true));
    let offsets = OffsetBuffer::new(vec![0i32, 2, 2, 6].into());
    let values = Arc::new(ListArray::new(field, offsets, inner, None));
    Arc::new(DictionaryArray::new(
        UInt8Array::from(vec![2u8, 1, 0, 0, 1, 2]),
        values,
    ))
}

/// One batch of 6 rows with a column of every type.
pub fn every_type() -> RecordBatch {
    let mut columns: Vec<(String, ArrayRef)> = primitives();
    let fixed = vec![
        Some([1u8; 5]),
        None,
        Some([2; 5]),
        Some([3; 5]),
        None,
        Some([4; 5]),
    ];
    let structs = StructArray::new(
        Fields::from(vec![
            Field::new("a", DataType::Int32, false),
            Field::new("b", DataType::Utf8, true),
        ]),
        vec![
            Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5, 6])),
            Arc::new(StringArray::from(text(1))),
        ],
        Some(NullBuffer::from(vec![true, false, true, true, true, true])),
    );
    let fixed_lists = FixedSizeListArray::new(
        Arc::new(Field::new_list_field(DataType::Int16, true)),
        2,
        Arc::new(Int16Array::from_iter_values(0..12)),
        Some(NullBuffer::from(vec![true, false, true, true, true, true])),
    );
    let more: Vec<(&str, ArrayRef)> = vec![
        ("null", Arc::new(NullArray::new(6))),
        ("utf8", Arc::new(StringArray::from(text(1)))),
        ("large utf8", Arc::new(LargeStringArray::from(text(1)))),
        (
            "utf8 view",
            Arc::new(StringViewArray::from(
                text(1).iter().map(Option::as_deref).collect::<Vec<_>>(),
            )),
        ),
        ("binary", Arc::new(BinaryArray::from_iter(text(1)))),
        (
            "large binary",
            Arc::new(LargeBinaryArray::from_iter(text(1))),
        ),
        ("binary view", Arc::new(BinaryViewArray::from_iter(text(1)))),
        (
            "fixed binary",
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(fixed.into_iter(), 5).unwrap(),
            ),
        ),
        ("list", list::<i32>()),
        ("large list", list::<i64>()),
        (
            "list view",
            list_view(vec![2i32, 0, 0, 1, 0, 3], vec![2, 2, 0, 3, 4, 1]),
        ),
        (
            "large list view",
            list_view(vec![2i64, 0, 0, 1, 0, 3], vec![2, 2, 0, 3, 4, 1]),
        ),
        ("fixed list", Arc::new(fixed_lists)),
        ("struct", Arc::new(structs)),
        ("map", map()),
        ("sparse union", union(false)),
        ("dense union", union(true)),
        ("run ends", run_ends()),
        ("dictionary", dictionary()),
        ("nested dictionary", nested_dictionary()),
    ];
    columns.extend(
        more.into_iter()
            .chain(decimals())
            .map(|(name, array)| (name.to_owned(), array)),
    );
    RecordBatch::try_from_iter(columns).unwrap()
}

/// One column of [`every_type`], as messages.
pub fn column(index: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let batch = every_type();
    let batch = batch.project(&[index % batch.num_columns()]).unwrap();
    messages(&write(
        &batch.schema(),
        &[batch],
        IpcWriteOptions::default(),
    ))
}

fn check(batches: &[RecordBatch], options: &IpcWriteOptions) {
    let schema = batches[0].schema();
    let bytes = write(&schema, batches, options.clone());
    for level in LEVELS {
        for at in PLACES {
            let compressed = messages(&bytes)
                .iter()
                .any(|(header, _)| crate::proto::Header::parse(header).unwrap().compressed());
            if at == Place::Shared && compressed {
                continue;
            }
            let decoded = decode(&bytes, level, at).unwrap();
            if level == Level::Structure && at != Place::Misaligned && !compressed {
                // Promise of the decoder: buffers point into the received memory.
                assert!(
                    decoded.batches.iter().all(|batch| batch.copied == 0),
                    "{at:?}"
                );
            }
            touch(&decoded);
            let (read_schema, read) = read_back(decoded);
            assert_eq!(&read_schema, schema.as_ref());
            assert_eq!(read, batches, "{level:?} {at:?}");
        }
    }
}

/// Every type arrives equal, whole, sliced and empty (rules A5, A7).
#[test]
fn every_type_arrives_equal() {
    let batch = every_type();
    let options = IpcWriteOptions::default();
    for (start, len) in [(0, 6), (0, 0), (1, 4), (3, 3), (5, 1)] {
        for column in 0..batch.num_columns() {
            let name = batch.schema().field(column).name().clone();
            eprintln!("{name} {start} {len}");
            let one = batch.project(&[column]).unwrap().slice(start, len);
            check(std::slice::from_ref(&one), &options);
        }
    }
    check(&[batch], &options);
}

/// Bodies with a padding of 8 bytes (rule A2) and metadata version 4 (rule A6) are read.
#[test]
fn other_writers_choices_are_read() {
    check(
        &[every_type()],
        &IpcWriteOptions::try_new(8, false, MetadataVersion::V5).unwrap(),
    );
    check(
        &[every_type()],
        &IpcWriteOptions::try_new(64, false, MetadataVersion::V4).unwrap(),
    );
}

/// Rule A4: compressed bodies are read.
#[test]
fn compressed_bodies_are_read() {
    for codec in [CompressionType::LZ4_FRAME, CompressionType::ZSTD] {
        let options = IpcWriteOptions::default()
            .try_with_compression(Some(codec))
            .unwrap();
        check(&[every_type()], &options);
    }
}

/// Rule A4: a lent compressed body is refused, and the text names the reason.
#[test]
fn compressed_bodies_cannot_be_lent() {
    let codec = Some(CompressionType::ZSTD);
    let options = IpcWriteOptions::default()
        .try_with_compression(codec)
        .unwrap();
    let batch = every_type();
    let bytes = write(&batch.schema(), &[batch], options);
    let error = decode(&bytes, Level::Structure, Place::Shared)
        .err()
        .unwrap();
    assert!(error.text().contains("compressed body was lent"), "{error}");
    assert_eq!(error.status(), crate::error::Status::Protocol);
}

/// Rule A8: checked values are copied in shared memory, but not in private memory.
#[test]
fn checked_values_of_shared_memory_are_copied() {
    let batch =
        RecordBatch::try_from_iter([("s", Arc::new(StringArray::from(text(100))) as ArrayRef)])
            .unwrap();
    let bytes = write(
        &batch.schema(),
        std::slice::from_ref(&batch),
        IpcWriteOptions::default(),
    );
    let copied = |level, at| decode(&bytes, level, at).unwrap().batches[0].copied;
    assert_eq!(copied(Level::Full, Place::Packed), 0);
    assert_eq!(copied(Level::Structure, Place::Shared), 0);
    let values: usize = text(100).into_iter().flatten().map(|text| text.len()).sum();
    // Validity, 7 offsets, and the characters.
    assert_eq!(copied(Level::Full, Place::Shared), 1 + 28 + values as u64);
}

/// Rule A5: no columns, no rows, no batches.
#[test]
fn empty_streams_are_valid() {
    let empty = RecordBatch::try_new_with_options(
        Arc::new(Schema::empty()),
        vec![],
        &RecordBatchOptions::new().with_row_count(Some(5)),
    )
    .unwrap();
    let bytes = write(
        &empty.schema(),
        std::slice::from_ref(&empty),
        IpcWriteOptions::default(),
    );
    let decoded = decode(&bytes, Level::Full, Place::Packed).unwrap();
    assert_eq!(decoded.batches[0].rows, 5);
    assert_eq!(decoded.batches[0].array.raw().array.length, 5);
    let bytes = write(&every_type().schema(), &[], IpcWriteOptions::default());
    let (schema, batches) = read_back(decode(&bytes, Level::Full, Place::Packed).unwrap());
    assert_eq!(&schema, every_type().schema().as_ref());
    assert!(batches.is_empty());
}

/// Metadata, extension types and flags are in the C schema.
#[test]
fn metadata_and_flags_cross() {
    let metadata = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect::<std::collections::HashMap<_, _>>()
    };
    let extension = [
        ("ARROW:extension:name", "uuid"),
        ("ARROW:extension:metadata", ""),
    ];
    let ordered = Field::new_dictionary("o", DataType::Int8, DataType::Utf8, false)
        .with_dict_is_ordered(true)
        .with_metadata(metadata(&extension));
    let entries = Field::new_struct(
        "entries",
        vec![
            Field::new("k", DataType::Int32, false),
            Field::new("v", DataType::Int32, true),
        ],
        false,
    );
    let sorted = Field::new("m", DataType::Map(Arc::new(entries), true), true);
    let schema =
        Schema::new(vec![ordered, sorted]).with_metadata(metadata(&[("k", "v"), ("", "")]));
    let bytes = write(&Arc::new(schema.clone()), &[], IpcWriteOptions::default());
    let decoded = decode(&bytes, Level::Full, Place::Packed).unwrap();
    let (read, _) = read_back(decoded);
    assert_eq!(read, schema);
    assert_eq!(read.field(0).dict_is_ordered(), Some(true));
}

/// Metadata version 4 gives unions a validity bitmap. A bitmap without nulls is skipped.
#[test]
fn unions_of_version_4_are_read() {
    let batch = RecordBatch::try_from_iter([("s", union(false)), ("d", union(true))]).unwrap();
    check(
        &[batch],
        &IpcWriteOptions::try_new(64, false, MetadataVersion::V4).unwrap(),
    );
}

/// The exported offsets of an empty string array are a zero, which consumers read.
#[test]
fn absent_offsets_of_empty_arrays_are_zeros() {
    let data = ArrayData::builder(DataType::Utf8)
        .len(0)
        .add_buffer(Buffer::from_slice_ref([0i32]))
        .add_buffer(Buffer::from(Vec::<u8>::new()))
        .build()
        .unwrap();
    let batch = RecordBatch::try_from_iter([("s", make_array(data))]).unwrap();
    let bytes = write(&batch.schema(), &[batch], IpcWriteOptions::default());
    let decoded = decode(&bytes, Level::Full, Place::Packed).unwrap();
    let root = &decoded.batches[0].array.raw().array;
    // SAFETY: the batch has one column.
    let child = unsafe { *root.children };
    // SAFETY: the child lives as long as the batch.
    let buffers = unsafe { (*child).buffers };
    // SAFETY: a string array has three buffers.
    let offsets = unsafe { *buffers.wrapping_add(1) };
    assert!(!offsets.is_null());
    // SAFETY: consumers read offset 0 of every string array, which is under test.
    assert_eq!(unsafe { *offsets.cast::<i32>() }, 0);
}
