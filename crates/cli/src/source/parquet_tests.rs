//! Tests of Parquet files: footers with false claims are refused.

use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::data_type::{
    ByteArray, ByteArrayType, DataType as Physical, FixedLenByteArray, FixedLenByteArrayType,
    Int96, Int96Type,
};
use ::parquet::file::metadata::{
    ColumnChunkMetaDataBuilder, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter,
    RowGroupMetaData,
};
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;

use arrow::array::{ArrayRef, AsArray as _, Int32Array, TimestampSecondArray};
use arrow::datatypes::{DataType, Field as ArrowField, TimestampNanosecondType};
use arrow::record_batch::RecordBatch;

use super::tests::{batch, failure, file, parquet, read};

/// Two row groups of 10 rows.
fn two_groups() -> (Vec<u8>, ParquetMetaData) {
    let table = batch(20);
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(10))
        .build();
    let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties)).unwrap();
    writer.write(&table).unwrap();
    writer.close().unwrap();
    let end = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let footer = ParquetMetaDataReader::decode_metadata(&bytes[end - length..end]).unwrap();
    bytes.truncate(end - length);
    (bytes, footer)
}

fn put_together(pages: &[u8], groups: Vec<RowGroupMetaData>) -> Vec<u8> {
    let (_, footer) = two_groups();
    let file = footer.file_metadata().clone();
    let mut bytes = pages.to_vec();
    ParquetMetaDataWriter::new(&mut bytes, &ParquetMetaData::new(file, groups))
        .finish()
        .unwrap();
    bytes
}

/// A row group with another number of rows and changed columns.
fn changed(
    group: &RowGroupMetaData,
    rows: i64,
    change: impl Fn(usize, ColumnChunkMetaDataBuilder) -> ColumnChunkMetaDataBuilder,
) -> RowGroupMetaData {
    let columns = group.columns().iter().cloned().enumerate();
    let columns = columns
        .map(|(index, column)| {
            let builder = column.into_builder().set_num_values(rows);
            change(index, builder).build().unwrap()
        })
        .collect();
    let builder = group.clone().into_builder().set_num_rows(rows);
    builder.set_column_metadata(columns).build().unwrap()
}

/// The numbers of rows of footer, row groups and pages must agree.
#[test]
fn rows_that_do_not_agree_are_refused() {
    let (pages, footer) = two_groups();
    let groups = footer.row_groups().to_vec();
    let right = put_together(&pages, groups.clone());
    assert_eq!(
        read(file(&right).path(), None).unwrap(),
        [batch(20).slice(0, 10), batch(20).slice(10, 10)]
    );
    // The number of rows, zig-zag encoded, stands between the schema and the row groups.
    for rows in [0, 19, 21, -1_i8] {
        let number = (rows << 1 ^ rows >> 7).to_le_bytes()[0];
        let lying = patched(right.clone(), b"\x16\x28\x19", &[0x16, number, 0x19]);
        let told = failure(&lying);
        assert!(told.contains("20 together"), "{told}");
    }
    let same = |_, column| column;
    // One row more here and one less there.
    for (first, second) in [(9, 11), (11, 9), (20, 0), (0, 20)] {
        let lying = vec![
            changed(&groups[0], first, same),
            changed(&groups[1], second, same),
        ];
        let told = failure(&put_together(&pages, lying));
        assert!(told.contains("row group"), "{told}");
    }
    let negative = vec![changed(&groups[0], -1, same), groups[1].clone()];
    let told = failure(&put_together(&pages, negative));
    assert!(told.contains("-1 rows"), "{told}");
    // A column with more or fewer values than its row group has rows.
    for values in [0, 9, 11, -1] {
        let lying = changed(&groups[0], 10, |index, column| match index {
            1 => column.set_num_values(values),
            _ => column,
        });
        let told = failure(&put_together(&pages, vec![lying, groups[1].clone()]));
        assert!(told.contains(&format!("{values} values")), "{told}");
    }
    // One row group with the rows of both.
    let told = failure(&put_together(&pages, vec![changed(&groups[0], 20, same)]));
    assert!(told.contains("ends 10 rows before"), "{told}");
}

/// Columns outside the file, columns that overlap the footer, or each other.
#[test]
fn columns_that_lie_elsewhere_are_refused() {
    let (pages, footer) = two_groups();
    let groups = footer.row_groups().to_vec();
    let end = i64::try_from(pages.len()).unwrap();
    for (at, said) in [(0, "outside"), (-8, ""), (end, "outside"), (i64::MAX, "")] {
        let lying = changed(&groups[0], 10, |index, column| match index {
            1 => column
                .set_dictionary_page_offset(None)
                .set_data_page_offset(at),
            _ => column,
        });
        let told = failure(&put_together(&pages, vec![lying, groups[1].clone()]));
        assert!(told.contains(said), "{told}");
    }
    // The second row group repeats the first.
    let told = failure(&put_together(
        &pages,
        vec![groups[0].clone(), groups[0].clone()],
    ));
    assert!(told.contains("one over the other"), "{told}");
}

/// Replaces the last `from` in the footer of `bytes`.
fn patched(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    let at = bytes.windows(from.len()).rposition(|window| window == from);
    let at = at.unwrap();
    bytes[at..at + from.len()].copy_from_slice(to);
    bytes
}

/// A column with another name or type in the row group than in the schema.
#[test]
fn columns_of_another_schema_are_refused() {
    let told = failure(&patched(parquet(&batch(5)), b"\x04word", b"\x04wurd"));
    assert!(told.contains("another column"), "{told}");
    // The type comes first in a column's metadata: int32 is 1, int64 is 2, and zig-zag doubles
    // both. The encodings follow.
    let number = parquet(&batch(5));
    let at = number
        .windows(8)
        .rposition(|window| window == b"\x06number\x15")
        .unwrap();
    let start = number[..at]
        .windows(3)
        .rposition(|window| window == b"\x15\x02\x19")
        .unwrap();
    let mut lying = number.clone();
    lying[start + 1] = 4;
    let told = failure(&lying);
    assert!(told.contains("physical type 2, and of 1"), "{told}");
}

/// A Parquet file cut anywhere is refused.
#[test]
fn cut_files_are_refused() {
    let bytes = parquet(&batch(20));
    for cut in 1..bytes.len() {
        read(file(&bytes[..cut]).path(), None).unwrap_err();
    }
    failure(&[&bytes[..], b"\0"].concat());
}

/// Fields may nest as deeply as Arrow's fields, and no deeper.
#[test]
fn deep_fields_are_refused_before_they_are_followed() {
    for depth in [30, 130, 5000, 200_000] {
        // A root, groups of one group each, and an int32: name, repetition and number of children,
        // or type, repetition and name.
        let mut footer = b"\x15\x02\x19\xfc".to_vec();
        let mut count: u32 = depth + 2;
        while count > 0x7f {
            footer.push(count.to_le_bytes()[0] | 0x80);
            count >>= 7;
        }
        footer.push(count.to_le_bytes()[0]);
        footer.extend_from_slice(b"\x48\x01r\x15\x02\x00");
        for _ in 0..depth {
            footer.extend_from_slice(b"\x35\x02\x18\x01g\x15\x02\x00");
        }
        footer.extend_from_slice(b"\x15\x02\x25\x02\x18\x01i\x00");
        // No rows and no row groups.
        footer.extend_from_slice(b"\x16\x00\x19\x0c\x00");
        let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
        let bytes = [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat();
        let outcome = read(file(&bytes).path(), None);
        if depth == 30 {
            assert_eq!(outcome.unwrap().len(), 0);
        } else {
            let told = format!("{:#}", outcome.unwrap_err());
            assert!(told.contains("fields nest deeper than 60 levels"), "{told}");
        }
    }
}

/// A false number of children is not allocated.
#[test]
fn claims_of_children_are_refused() {
    // The root has 2^31 - 1 children.
    let footer = b"\x15\x02\x19\x1c\x48\x01r\x15\xfe\xff\xff\xff\x0f\x00\x16\x00\x19\x0c\x00";
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    let bytes = [b"PAR1", footer.as_slice(), &length, b"PAR1"].concat();
    let told = failure(&bytes);
    assert!(told.contains("cannot have 2147483647 fields"), "{told}");
}

/// Integers of 8 and 16 bits have 32 bits in the file; a larger value is refused, not truncated.
#[test]
fn integers_past_their_width_are_refused() {
    let numbers: Vec<i32> = vec![-5, 127, 300, 7];
    let fields = |ty: DataType| {
        let item = Arc::new(ArrowField::new("item", ty.clone(), true));
        vec![
            ArrowField::new("n", ty, true),
            ArrowField::new("l", DataType::List(item), true),
        ]
    };
    for (ty, good) in [
        (DataType::Int8, &[-5, 127, -128][..]),
        (DataType::Int16, &[-5, 127, 300, -32768]),
        (DataType::UInt8, &[5, 127, 255]),
        (DataType::UInt16, &[5, 127, 300, 65535]),
    ] {
        for (numbers, sound) in [(good, true), (&numbers, ty == DataType::Int16)] {
            // Values of 32 bits, with a footer that claims fewer bits.
            let signed = matches!(ty, DataType::Int8 | DataType::Int16);
            let plain: ArrayRef = match signed {
                true => Arc::new(Int32Array::from(numbers.to_vec())),
                false => Arc::new(
                    numbers
                        .iter()
                        .map(|number| number.cast_unsigned())
                        .collect::<arrow::array::UInt32Array>(),
                ),
            };
            let rows = numbers.len();
            let lists = arrow::array::ListArray::new(
                Arc::new(ArrowField::new("item", plain.data_type().clone(), true)),
                arrow::buffer::OffsetBuffer::from_lengths(vec![1; rows]),
                Arc::clone(&plain),
                None,
            );
            let written = RecordBatch::try_new(
                Arc::new(arrow::datatypes::Schema::new(fields(
                    plain.data_type().clone(),
                ))),
                vec![plain, Arc::new(lists)],
            )
            .unwrap();
            let mut bytes = Vec::new();
            let options = ::parquet::arrow::arrow_writer::ArrowWriterOptions::new()
                .with_skip_arrow_metadata(true);
            let mut writer =
                ArrowWriter::try_new_with_options(&mut bytes, written.schema(), options).unwrap();
            writer.write(&written).unwrap();
            writer.close().unwrap();
            let narrow = Arc::new(arrow::datatypes::Schema::new(fields(ty.clone())));
            let mut small = Vec::new();
            let options = ::parquet::arrow::arrow_writer::ArrowWriterOptions::new()
                .with_skip_arrow_metadata(true);
            let mut writer =
                ArrowWriter::try_new_with_options(&mut small, Arc::clone(&narrow), options)
                    .unwrap();
            writer
                .write(&RecordBatch::new_empty(Arc::clone(&narrow)))
                .unwrap();
            let small = writer.close().unwrap();
            // The columns of one under the schema of the other.
            let end = bytes.len() - 8;
            let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
            let wide = ParquetMetaDataReader::decode_metadata(&bytes[end - length..end]).unwrap();
            bytes.truncate(end - length);
            let footer =
                ParquetMetaData::new(small.file_metadata().clone(), wide.row_groups().to_vec());
            ParquetMetaDataWriter::new(&mut bytes, &footer)
                .finish()
                .unwrap();
            let outcome = read(file(&bytes).path(), None);
            assert_eq!(outcome.is_ok(), sound, "{ty}: {outcome:?}");
            match outcome {
                Ok(batches) => {
                    assert_eq!(batches[0].schema().field(0).data_type(), &ty);
                    let back = arrow::compute::cast(batches[0].column(0), &DataType::Int32);
                    assert_eq!(
                        back.unwrap()
                            .as_primitive::<arrow::datatypes::Int32Type>()
                            .values()[..],
                        *numbers
                    );
                }
                Err(error) => {
                    assert!(
                        error.to_string().contains("its type cannot have"),
                        "{error}"
                    );
                }
            }
        }
    }
}

/// A file of one column of this type, a value in each row, by the writer of pages.
fn one_column<T: Physical>(ty: &str, values: &[T::T]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message m {{ {ty}; }}")).unwrap());
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

/// Times of INT96 that nanoseconds do not reach are refused by column, and none wraps.
#[test]
fn far_times_are_refused() {
    let time = |day: u32| {
        let mut time = Int96::new();
        time.set_data(1000, 0, day);
        time
    };
    // The days of 1970, 2262 and 9999, and the first one.
    let epoch = 2_440_588;
    for (day, near) in [
        (epoch, true),
        (epoch + 106_750, true),
        (5_373_484, false),
        (0, false),
    ] {
        let bytes = one_column::<Int96Type>("REQUIRED INT96 t", &[time(epoch), time(day)]);
        if near {
            let batches = read(file(&bytes).path(), None).unwrap();
            let times = batches[0].column(0);
            let times = times.as_primitive::<TimestampNanosecondType>();
            let days = i64::from(day - epoch);
            assert_eq!(times.value(1), days * 86_400_000_000_000 + 1000);
        } else {
            let told = failure(&bytes);
            assert!(
                told.contains("column t") && told.contains("INT64"),
                "{told}"
            );
        }
    }
}

/// Parquet's own types become Arrow's extension types if no schema of Arrow is in the file, as
/// Arrow C++ reads them.
#[test]
fn logical_types_become_extension_types() {
    let uuid = FixedLenByteArray::from(vec![7; 16]);
    let json = ByteArray::from("{}");
    let uuid =
        one_column::<FixedLenByteArrayType>("REQUIRED FIXED_LEN_BYTE_ARRAY (16) c (UUID)", &[uuid]);
    let json = one_column::<ByteArrayType>("REQUIRED BINARY c (JSON)", &[json]);
    for (bytes, name) in [(uuid, "arrow.uuid"), (json, "arrow.json")] {
        let schema = read(file(&bytes).path(), None).unwrap()[0].schema();
        assert_eq!(schema.field(0).extension_type_name(), Some(name));
    }
}

/// Seconds that another writer has written as plain integers stay what they are.
#[test]
fn plain_seconds_are_read_as_seconds() {
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1, 2]));
    let table = RecordBatch::try_from_iter([("t", seconds)]).unwrap();
    let back = read(file(&parquet(&table)).path(), None).unwrap();
    assert_eq!(back[0].columns(), table.columns());
}

/// A field of another type than Parquet has there, which other readers skip, is refused by name.
#[test]
fn fields_of_another_type_are_refused_by_name() {
    let (pages, footer) = two_groups();
    let bytes = put_together(&pages, footer.row_groups().to_vec());
    let at = bytes.len() - 8;
    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let key = bytes
        .windows(12)
        .rposition(|part| part == b"ARROW:schema")
        .unwrap();
    assert!(key > at - length);
    // A field, a list of one struct, and in the struct a text of 12 bytes.
    assert_eq!(bytes[key - 4..key], [0x19, 0x1c, 0x18, 12]);
    // A list of one text.
    let mut wrong = bytes;
    wrong[key - 3] = 0x18;
    let told = failure(&wrong);
    assert!(told.contains("field key_value_metadata"), "{told}");
}
