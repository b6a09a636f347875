//! Tests of the types of each format.

use std::path::Path;
use std::sync::Arc;

use ::parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use anyhow::Result;
use arrow::array::*;
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::*;

use super::super::{Sink, Target};
use crate::calm;
use crate::source::{Reading, Source};

fn leaf_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
    ];
    types.extend([TimeUnit::Second, TimeUnit::Millisecond].map(Time32));
    types.extend([TimeUnit::Microsecond, TimeUnit::Nanosecond].map(Time64));
    types.extend([
        Decimal32(9, 2),
        Decimal64(18, 2),
        Decimal32(5, -2),
        Decimal128(5, -2),
    ]);
    types.extend([
        Decimal128(9, 2),
        Decimal128(38, 2),
        Decimal256(9, 2),
        Decimal256(76, 2),
    ]);
    for unit in [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ] {
        types.extend([Duration(unit), Timestamp(unit, None)]);
        types.push(Timestamp(unit, Some("Europe/Berlin".into())));
    }
    types
}

/// Columns of three rows, one of each type without children; the second row is null.
fn leaves() -> Vec<ArrayRef> {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(100), None, Some(300)]));
    let mut columns: Vec<ArrayRef> = Vec::new();
    for ty in leaf_types() {
        columns.push(match &ty {
            DataType::Null => new_null_array(&ty, 3),
            DataType::Int8 => Arc::new(Int8Array::from(vec![Some(1), None, Some(3)])),
            DataType::UInt8 => Arc::new(UInt8Array::from(vec![Some(1), None, Some(3)])),
            DataType::Date64 => Arc::new(Date64Array::from(vec![
                Some(86_400_000),
                None,
                Some(-86_400_000),
            ])),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
                cast(&cast(&numbers, &DataType::Utf8).unwrap(), &ty).unwrap()
            }
            DataType::Date32 | DataType::Time32(_) => {
                cast(&cast(&numbers, &DataType::Int32).unwrap(), &ty).unwrap()
            }
            _ => cast(&numbers, &ty).unwrap(),
        });
    }
    columns.push(Arc::new(IntervalYearMonthArray::from(vec![
        Some(1),
        None,
        Some(3),
    ])));
    let days = |days| Some(IntervalDayTime::new(days, 2));
    columns.push(Arc::new(IntervalDayTimeArray::from(vec![
        days(1),
        None,
        days(-3),
    ])));
    let months = |months| Some(IntervalMonthDayNano::new(months, 2, 3));
    columns.push(Arc::new(IntervalMonthDayNanoArray::from(vec![
        months(1),
        None,
        months(-3),
    ])));
    for size in [0, 1, 16] {
        let mut builder = FixedSizeBinaryBuilder::new(size);
        let size = usize::try_from(size).unwrap();
        builder.append_value(vec![b'x'; size]).unwrap();
        builder.append_null();
        builder.append_value(vec![b'y'; size]).unwrap();
        columns.push(Arc::new(builder.finish()));
    }
    columns
}

/// A column within columns of every type with children.
fn nested(column: &ArrayRef) -> Vec<ArrayRef> {
    let item = || Arc::new(Field::new("item", column.data_type().clone(), true));
    let nulls = || Some(NullBuffer::from(vec![true, false]));
    let column = || Arc::clone(column);
    let keys: ArrayRef = Arc::new(Int32Array::from(vec![7, 8, 9]));
    let pair = vec![
        Arc::new(Field::new("key", DataType::Int32, false)),
        Arc::new(item().as_ref().clone().with_name("value")),
    ];
    let entries = StructArray::new(pair.into(), vec![keys, column()], None);
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let two = column().slice(0, 2);
    let offsets = || OffsetBuffer::new(vec![0, 3, 3].into());
    let long = OffsetBuffer::new(vec![0_i64, 3, 3].into());
    let (starts, sizes) = (|| vec![0, 3].into(), || vec![3, 0].into());
    let fields = [(0, Arc::new(Field::new("a", two.data_type().clone(), true)))];
    let union = UnionArray::try_new(
        fields.into_iter().collect(),
        vec![0, 0].into(),
        None,
        vec![Arc::clone(&two)],
    );
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2, 3]), &column());
    vec![
        Arc::new(ListArray::new(item(), offsets(), column(), nulls())),
        Arc::new(LargeListArray::new(item(), long, column(), nulls())),
        Arc::new(FixedSizeListArray::new(
            item(),
            1,
            Arc::clone(&two),
            nulls(),
        )),
        Arc::new(FixedSizeListArray::new(item(), 0, two.slice(0, 0), nulls())),
        Arc::new(ListViewArray::new(
            item(),
            starts(),
            sizes(),
            column(),
            nulls(),
        )),
        Arc::new(StructArray::new(vec![item()].into(), vec![two], nulls())),
        Arc::new(MapArray::new(entry, offsets(), entries, nulls(), false)),
        Arc::new(union.unwrap()),
        Arc::new(runs.unwrap()),
    ]
}

/// The first and the last value, which is not null in a column of three.
fn dictionary(values: ArrayRef) -> ArrayRef {
    let last = i8::try_from(values.len() - 1).unwrap();
    let keys = Int8Array::from(vec![Some(0), None, Some(last)]);
    Arc::new(DictionaryArray::new(keys, values))
}

/// Columns of each type, and of most combinations of two and three.
fn columns() -> Vec<ArrayRef> {
    let empty = StructArray::new_empty_fields(3, None);
    let mut columns: Vec<ArrayRef> = vec![Arc::new(empty)];
    for leaf in leaves() {
        let packed = dictionary(Arc::clone(&leaf));
        columns.extend(nested(&leaf));
        columns.extend(nested(&packed));
        columns.extend(nested(&leaf).into_iter().map(dictionary));
        columns.extend([leaf, packed]);
    }
    columns
}

fn table(column: &ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("c", Arc::clone(column), true)]).unwrap()
}

fn write(path: &Path, batch: &RecordBatch) -> Result<()> {
    let mut sink = Sink::create(&Target::file(path.to_path_buf())?, &batch.schema())?;
    sink.write(batch, &|| Ok(()))?;
    sink.finish()
}

fn read(path: &Path) -> Result<RecordBatch> {
    let reader = Source::File(path.to_path_buf()).reader(Reading::default())?;
    let schema = reader.schema();
    Ok(concat_batches(&schema, &reader.batches()?)?)
}

/// Promise of `--output` and `--accept`: each type comes back as it was, or is refused by column,
/// type and remedy before a byte is written. The remedy is one: a format that it names takes the
/// column.
#[test]
fn every_type_comes_back_or_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut refused = 0;
    for column in columns() {
        let (batch, ty) = (table(&column), column.data_type());
        let parquet = folder.path().join("t.parquet");
        let written = calm::catch(|| write(&parquet, &batch)).unwrap();
        let holds = written.is_ok();
        match written {
            Ok(()) => {
                let back = read(&parquet).unwrap_or_else(|error| panic!("{ty}: {error:#}"));
                assert_eq!(back.column(0).data_type(), ty);
                assert_eq!(back.column(0), &column, "{ty}");
            }
            Err(error) => {
                refused += 1;
                let told = format!("{error:#}");
                let begins = told.starts_with("Parquet cannot hold column \"c");
                assert!(
                    begins && told.contains("write .arrow or .arrows"),
                    "{ty}: {told}"
                );
            }
        }
        let csv = folder.path().join("t.csv");
        if let Err(error) = calm::catch(|| write(&csv, &batch)).unwrap() {
            let told = format!("{error:#}");
            let begins = told.starts_with("CSV cannot hold column \"c");
            assert!(begins && told.contains(".parquet") == holds, "{ty}: {told}");
        }
        let stream = folder.path().join("t.arrows");
        write(&stream, &batch).unwrap_or_else(|error| panic!("{ty}: {error:#}"));
        assert_eq!(read(&stream).unwrap().column(0), &column, "{ty}");
    }
    assert!(refused > 0);
}

/// Promise of the table of formats: readers that do not know Arrow's schema see times and dates, as
/// Arrow C++ writes them, wherever they stand.
#[test]
fn other_readers_see_times_and_dates() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let zone = || Some("Europe/Berlin".into());
    let (s, ms) = (TimeUnit::Second, TimeUnit::Millisecond);
    for (ty, seen) in [
        (DataType::Timestamp(s, None), DataType::Timestamp(ms, None)),
        (
            DataType::Timestamp(s, zone()),
            DataType::Timestamp(ms, Some("UTC".into())),
        ),
        (DataType::Time32(s), DataType::Time32(ms)),
        (DataType::Date64, DataType::Date32),
    ] {
        let days = Int64Array::from(vec![Some(0), None, Some(0)]);
        let column = match ty {
            DataType::Time32(_) => cast(&cast(&days, &DataType::Int32).unwrap(), &ty).unwrap(),
            _ => cast(&days, &ty).unwrap(),
        };
        for (column, depth) in [(Arc::clone(&column), 0), (dictionary(column.clone()), 0)]
            .into_iter()
            .chain([(nested(&dictionary(column))[5].clone(), 1)])
        {
            write(&path, &table(&column)).unwrap();
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let file = std::fs::File::open(&path).unwrap();
            let plain = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options);
            let plain = plain.unwrap();
            let field = plain.schema().field(0);
            match field.data_type() {
                DataType::Struct(fields) if depth == 1 => {
                    assert_eq!(fields[0].data_type(), &seen, "{ty}");
                }
                found => assert_eq!(found, &seen, "{ty}"),
            }
            assert_eq!(read(&path).unwrap().column(0), &column);
        }
    }
}

/// Values that milliseconds and days cannot say are refused, and not rounded.
#[test]
fn times_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let columns: [ArrayRef; 3] = [
        Arc::new(TimestampSecondArray::from(vec![1 << 62])),
        Arc::new(Date64Array::from(vec![1])),
        dictionary(Arc::new(Date64Array::from(vec![0, 86_399_999]))),
    ];
    for column in columns {
        let told = format!("{:#}", write(&path, &table(&column)).unwrap_err());
        assert!(
            told.contains("column \"c\"") && told.contains(".arrow"),
            "{told}"
        );
        assert!(!path.exists());
    }
}

/// Promise of `--output`: durations out of range are refused, as times are, and not written as
/// `<invalid>`.
#[test]
fn durations_without_a_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv");
    let seconds: ArrayRef = Arc::new(DurationSecondArray::from(vec![
        Some(1),
        None,
        Some(1 << 62),
    ]));
    let thousandths: ArrayRef = Arc::new(DurationMillisecondArray::from(vec![0, i64::MIN]));
    let runs = RunArray::try_new(&Int32Array::from(vec![2, 3, 4]), &seconds).unwrap();
    let keys = Int8Array::from(vec![2]);
    let packed = DictionaryArray::new(keys, Arc::clone(&seconds));
    for column in [seconds, thousandths, Arc::new(runs), Arc::new(packed)] {
        let told = format!("{:#}", write(&path, &table(&column)).unwrap_err());
        assert!(told.contains("column \"c\" has a duration of "), "{told}");
        assert!(!path.exists());
    }
    let most: ArrayRef = Arc::new(DurationSecondArray::from(vec![i64::MAX / 1000]));
    write(&path, &table(&most)).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, "c\nPT9223372036854775S\n");
}
