//! Tests of small Parquet files that need much memory. Most are built page by page, as no writer
//! does.

use std::io::Write as _;
use std::sync::Arc;

use ::parquet::arrow::ArrowWriter;
use ::parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use ::parquet::column::page::{CompressedPage, Page, PageWriter as _};
use ::parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use ::parquet::file::properties::{WriterProperties, WriterVersion};
use ::parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::SchemaDescriptor;
use arrow::array::{
    ArrayRef, AsArray as _, FixedSizeListArray, Int64Array, ListArray, NullArray, StringArray,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field};
use arrow::record_batch::RecordBatch;

use super::tests::{batch, file};
use super::{Reader, Reading, Source};

const MIB: u64 = 1 << 20;

/// A column of one page, or of a dictionary and a page.
struct PageColumn {
    schema: &'static str,
    codec: Compression,
    /// Pages, each with its unpacked size by its header.
    pages: Vec<(Page, usize)>,
    values: i64,
    rows: i64,
}

impl PageColumn {
    /// The file.
    fn write(&self) -> Vec<u8> {
        let schema = parse_message_type(self.schema).unwrap();
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        let mut bytes = TrackedWrite::new(b"PAR1".to_vec());
        let mut start = None;
        let mut first = None;
        for (page, unpacked) in &self.pages {
            let page = CompressedPage::new(page.clone(), *unpacked);
            let written = SerializedPageWriter::new(&mut bytes).write_page(page);
            let offset = i64::try_from(written.unwrap().offset).unwrap() + 4;
            start.get_or_insert(offset);
            first = Some(offset);
        }
        let mut bytes = bytes.into_inner().unwrap();
        let mut column = ColumnChunkMetaData::builder(schema.column(0))
            .set_compression(self.codec)
            .set_num_values(self.values)
            .set_total_compressed_size(i64::try_from(bytes.len()).unwrap() - 4)
            .set_total_uncompressed_size(100)
            .set_data_page_offset(first.unwrap());
        if self.pages.len() > 1 {
            column = column.set_dictionary_page_offset(start);
        }
        let group = RowGroupMetaData::builder(Arc::clone(&schema))
            .set_num_rows(self.rows)
            .set_total_byte_size(100)
            .set_column_metadata(vec![column.build().unwrap()])
            .build()
            .unwrap();
        let file = FileMetaData::new(1, self.rows, None, None, schema, None);
        ParquetMetaDataWriter::new(&mut bytes, &ParquetMetaData::new(file, vec![group]))
            .finish()
            .unwrap();
        bytes
    }
}

fn data(bytes: Vec<u8>, values: u32, encoding: Encoding) -> (Page, usize) {
    let len = bytes.len();
    let page = Page::DataPage {
        buf: bytes.into(),
        num_values: values,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    (page, len)
}

fn dictionary(bytes: Vec<u8>, values: u32) -> (Page, usize) {
    let len = bytes.len();
    let page = Page::DictionaryPage {
        buf: bytes.into(),
        num_values: values,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    (page, len)
}

/// A text in plain encoding: its length, then `len` times the same byte.
fn plain(len: u32) -> Vec<u8> {
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.resize(4 + len as usize, b'x');
    bytes
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

/// A run that repeats a value of one byte `count` times.
fn run(count: u64, value: u8) -> Vec<u8> {
    let mut bytes = varint(count << 1);
    bytes.push(value);
    bytes
}

/// Encoded levels: their length, then the runs.
fn levels(runs: &[u8]) -> Vec<u8> {
    let length = u32::try_from(runs.len()).unwrap().to_le_bytes();
    [&length, runs].concat()
}

/// Delta-encoded lengths: `first`, then `next` each time.
fn lengths(count: u32, first: u32, next: u32) -> Vec<u8> {
    let zigzag = |number: i64| varint((number << 1 ^ number >> 63).cast_unsigned());
    // Blocks of one miniblock of width 0: each number differs by the least delta.
    let mut bytes = [varint(1 << 20), varint(1), varint(count.into())].concat();
    bytes.extend(zigzag(first.into()));
    if count > 1 {
        // The second number differs by 1 in 32 bits, all others by 0.
        let mut part = vec![0_u8; (1 << 20) / 8 * 32];
        let least = i64::from(next).min(i64::from(first)) - i64::from(first);
        assert!(least <= 0);
        let rest = u32::try_from(-least).unwrap().to_le_bytes();
        for number in part.chunks_mut(4).skip(1) {
            number.copy_from_slice(&rest);
        }
        bytes.extend(zigzag(least));
        bytes.push(32);
        bytes.extend(part);
    }
    bytes
}

fn open(bytes: &[u8], limit: u64) -> (Reader, tempfile::NamedTempFile) {
    let file = file(bytes);
    let reading = Reading {
        message_limit: Some(limit),
        ..Reading::default()
    };
    let reader = Source::File(file.path().to_path_buf()).reader(reading);
    (reader.unwrap(), file)
}

/// The error of reading a file to its end.
fn refused(bytes: &[u8], limit: u64) -> String {
    let (reader, _file) = open(bytes, limit);
    let mut failures = reader.take(1000).filter_map(Result::err);
    failures.next().unwrap().to_string()
}

fn assert_past(bytes: &[u8], limit: u64) {
    let told = refused(bytes, limit);
    assert!(
        told.contains(&format!("past the limit of {limit} bytes"))
            && told.contains("--max-message"),
        "{told}"
    );
}

/// The first batches, each near the limit, of a file with too many rows to read them all.
fn assert_small(bytes: &[u8], limit: u64) -> Vec<RecordBatch> {
    let (reader, _file) = open(bytes, limit);
    let batches: Vec<_> = reader.take(5).map(|next| next.unwrap().0).collect();
    assert_eq!(batches.len(), 5);
    for batch in &batches {
        assert!(batch.num_rows() > 0);
        let most = 2 * (limit + 8 * bytes.len() as u64);
        assert!(batch.get_array_memory_size() as u64 <= most);
    }
    batches
}

const TEXT: &str = "message m { required binary t (UTF8); }";
const NUMBER: &str = "message m { required int64 n; }";
const LISTS: &str = "message m { required group l (LIST) { repeated group list {
    required int32 element; } } }";
const TEXT_LISTS: &str = "message m { required group l (LIST) { repeated group list {
    required binary element (UTF8); } } }";

/// Promise of `--max-message`: a large page from few bytes of zstd, gzip or lz4.
#[test]
fn packed_pages_are_bounded() {
    let value = plain(64 << 20);
    let len = value.len();
    let zstd = zstd::encode_all(value.as_slice(), 1).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&value).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&value).unwrap();
    for (codec, packed) in [
        (Compression::ZSTD(ZstdLevel::default()), zstd),
        (
            Compression::GZIP(GzipLevel::default()),
            gzip.finish().unwrap(),
        ),
        (Compression::LZ4, lz4.finish().unwrap()),
    ] {
        let column = |unpacked| PageColumn {
            schema: TEXT,
            codec,
            pages: vec![(data(packed.clone(), 1, Encoding::PLAIN).0, unpacked)],
            values: 1,
            rows: 1,
        };
        let sound = column(len).write();
        assert_past(&sound, MIB);
        let (reader, _file) = open(&sound, 512 * MIB);
        let batches = reader.batches().unwrap();
        assert_eq!(
            batches[0].column(0).as_string::<i32>().value(0).len(),
            64 << 20
        );
        // The header claims a small page.
        let told = refused(&column(1000).write(), 256 << 10);
        let said = match codec {
            Compression::ZSTD(_) => "too small",
            _ => "more than the 1000 bytes",
        };
        assert!(told.contains(said), "{told}");
        // The header claims a large page.
        assert_past(&column(i32::MAX as usize).write(), MIB);
    }
}

/// Promise of `--max-message`: a run of one index, which repeats a value without further bytes.
#[test]
fn repeated_values_are_bounded() {
    let rows = u32::MAX >> 1;
    let indices = [vec![1], run(rows.into(), 0)].concat();
    let column = |schema, value| PageColumn {
        schema,
        codec: Compression::UNCOMPRESSED,
        pages: vec![
            dictionary(value, 1),
            data(indices.clone(), rows, Encoding::RLE_DICTIONARY),
        ],
        values: rows.into(),
        rows: rows.into(),
    };
    let batches = assert_small(&column(TEXT, plain(100_000)).write(), 4 * MIB);
    assert!(batches[0].num_rows() > 10);
    assert_eq!(
        batches[4].column(0).as_string::<i32>().value(0).len(),
        100_000
    );
    assert_small(&column(NUMBER, 7_i64.to_le_bytes().to_vec()).write(), MIB);
    // A dictionary that is too short for its number of values.
    let mut claiming = column(TEXT, plain(10));
    claiming.pages[0] = dictionary(plain(10), rows);
    let told = refused(&claiming.write(), 512 * MIB);
    assert!(told.contains("cannot have 2147483647 values"), "{told}");
    claiming.schema = NUMBER;
    let told = refused(&claiming.write(), 512 * MIB);
    assert!(told.contains("cannot have 2147483647 values"), "{told}");
}

/// Promise of `--max-message`: a run of levels makes one row a list of very many values.
#[test]
fn lists_of_repeated_values_are_bounded() {
    let values = 1_u32 << 30;
    let rep = [run(1, 0), run(u64::from(values) - 1, 1)].concat();
    let def = run(values.into(), 1);
    let indices = [vec![1], run(values.into(), 0)].concat();
    for (schema, value) in [
        (LISTS, 7_i32.to_le_bytes().to_vec()),
        (TEXT_LISTS, plain(10)),
    ] {
        let page = [levels(&rep), levels(&def), indices.clone()].concat();
        let column = PageColumn {
            schema,
            codec: Compression::UNCOMPRESSED,
            pages: vec![
                dictionary(value, 1),
                data(page, values, Encoding::RLE_DICTIONARY),
            ],
            values: values.into(),
            rows: 1,
        };
        assert_past(&column.write(), 512 * MIB);
    }
}

/// Promise of `--max-message`: texts that repeat the previous text, and false lengths.
#[test]
fn texts_that_repeat_each_other_are_bounded() {
    let rows = 20_000;
    let column = |page, encoding| PageColumn {
        schema: TEXT,
        codec: Compression::UNCOMPRESSED,
        pages: vec![data(page, rows, encoding)],
        values: rows.into(),
        rows: rows.into(),
    };
    // No prefix, and then a prefix longer than the previous text.
    let head = [varint(1 << 20), varint(1), varint(rows.into()), varint(0)];
    let prefixes = [head.concat(), varint(100_000 << 1), vec![0]].concat();
    let suffixes = [lengths(rows, 100_000, 0), vec![b'x'; 100_000]].concat();
    let page = [prefixes, suffixes].concat();
    let batches = assert_small(&column(page, Encoding::DELTA_BYTE_ARRAY).write(), 8 * MIB);
    assert_eq!(
        batches[1].column(0).as_string::<i32>().value(0).len(),
        100_000
    );

    let claims = [
        varint(1 << 20),
        varint(1),
        varint(u64::from(u32::MAX >> 1)),
        varint(0),
    ]
    .concat();
    let claims = [claims, varint(0), vec![0]].concat();
    for encoding in [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ] {
        assert_past(&column(claims.clone(), encoding).write(), 512 * MIB);
    }
    // Few prefixes, and false suffixes.
    let claims = [lengths(1, 0, 0), claims].concat();
    let told = refused(
        &column(claims, Encoding::DELTA_BYTE_ARRAY).write(),
        512 * MIB,
    );
    assert!(told.contains("damaged"), "{told}");
}

/// Promise of `--max-message`: null lists of a fixed size, which take as much memory as others but
/// no bytes in the file.
#[test]
fn null_lists_of_a_fixed_size_are_bounded() {
    let rows = 200;
    let size = 10_000;
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let values = Int64Array::from(vec![None; rows * size]);
    let nulls = NullBuffer::new_null(rows);
    let size = i32::try_from(size).unwrap();
    let lists = FixedSizeListArray::new(item, size, Arc::new(values), Some(nulls));
    let lists: ArrayRef = Arc::new(lists);
    let table = RecordBatch::try_from_iter([("l", lists)]).unwrap();
    let bytes = written(&table, WriterProperties::default());
    assert!(bytes.len() < 10_000);
    let batches = assert_small(&bytes, MIB);
    assert!(batches[0].num_rows() < 10);
    assert_past(&bytes, 10_000);
}

fn written(table: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, table.schema(), Some(properties)).unwrap();
    writer.write(table).unwrap();
    writer.close().unwrap();
    bytes
}

/// Rows of many types, short at first and long later.
fn mixed(rows: usize) -> RecordBatch {
    let text = |row: usize| match row {
        row if row < rows / 2 => format!("{}", row % 7),
        row => format!("{}{}", row % 100, "long ".repeat(20 + row % 5)),
    };
    let words = StringArray::from_iter((0..rows).map(|row| (row % 11 != 0).then(|| text(row))));
    let items = Arc::new(Field::new("item", DataType::Utf8, true));
    let offsets = OffsetBuffer::<i32>::from_lengths((0..rows).map(|row| row % 3));
    let count = (0..rows).map(|row| row % 3).sum::<usize>();
    let inner = StringArray::from_iter((0..count).map(|row| Some(text(row % rows))));
    let lists = ListArray::new(items, offsets, Arc::new(inner), None);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter((0..rows as i64).map(|n| n * n % 100)));
    let sizes = Arc::new(Field::new("item", DataType::Int64, false));
    let fixed = Int64Array::from_iter_values((0..3 * rows as i64).map(|n| n % 50));
    let fixed = FixedSizeListArray::new(sizes, 3, Arc::new(fixed), None);
    let parts = vec![(
        Arc::new(Field::new("n", DataType::Int64, true)),
        ArrayRef::clone(&numbers),
    )];
    let columns: [(&str, ArrayRef); 6] = [
        ("words", Arc::new(words)),
        ("lists", Arc::new(lists)),
        ("fixed", Arc::new(fixed)),
        ("parts", Arc::new(StructArray::from(parts))),
        ("nothing", Arc::new(NullArray::new(rows))),
        ("numbers", numbers),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

/// Promise of `serve`: a valid file is served whole under each limit that admits its largest row,
/// in smaller batches if necessary.
#[test]
fn sound_files_come_whole() {
    let table = mixed(3000);
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::LZ4_RAW,
        Compression::LZ4,
    ];
    for (index, codec) in codecs.into_iter().enumerate() {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for is_dictionary in [true, false] {
                let properties = WriterProperties::builder()
                    .set_compression(codec)
                    .set_writer_version(version)
                    .set_dictionary_enabled(is_dictionary)
                    .set_write_batch_size(50)
                    .set_data_page_row_count_limit(50 + index)
                    .set_max_row_group_row_count(Some(2500))
                    .build();
                let bytes = written(&table, properties);
                let mut counts = Vec::new();
                for limit in [512 * MIB, MIB, 160_000] {
                    let (reader, _file) = open(&bytes, limit);
                    let schema = reader.schema();
                    let batches = reader.batches().unwrap();
                    let whole = concat_batches(&schema, &batches).unwrap();
                    assert_eq!(
                        whole, table,
                        "{codec:?} {version:?} {is_dictionary} {limit}"
                    );
                    counts.push(batches.len());
                }
                // One batch for each row group, and more for a low limit.
                assert!(counts[0] == 2 && counts[2] > 2, "{counts:?}");
            }
        }
    }
}

/// The table of the other tests with each byte changed: no cut or changed page header exceeds the
/// limit or ends the process.
#[test]
fn changed_pages_end_in_errors() {
    super::calm::install();
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let bytes = written(&batch(50), properties);
    for at in 4..bytes.len() - 8 {
        for flip in [0x01, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] ^= flip;
            let file = file(&changed);
            let reading = Reading {
                message_limit: Some(MIB),
                ..Reading::default()
            };
            if let Ok(reader) = Source::File(file.path().to_path_buf()).reader(reading) {
                reader.for_each(drop);
            }
        }
    }
}
