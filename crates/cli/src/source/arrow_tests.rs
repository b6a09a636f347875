//! Tests of Arrow streams and files: those with false claims are refused.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use arrow::ipc::convert::{IpcSchemaEncoder, try_fb_to_schema};
use arrow::ipc::writer::{
    DictionaryHandling, DictionaryTracker, FileWriter, IpcWriteOptions, StreamWriter,
};
use arrow::ipc::{self, Block, Endianness, MetadataVersion};
use arrow::record_batch::RecordBatch;
use flatbuffers::FlatBufferBuilder;

use super::tests::{arrow_file, arrow_stream, batch, failure, file, read};
use super::*;

/// A message: its offset, its length without the body, and the length of the body.
type MessagePlace = (i64, i32, i64);

/// The content of a footer.
#[derive(Clone)]
struct FooterParts {
    version: MetadataVersion,
    schema: Schema,
    /// Whether the dictionaries have other numbers than in the stream.
    other_ids: bool,
    endianness: Endianness,
    dictionaries: Vec<MessagePlace>,
    batches: Vec<MessagePlace>,
}

/// Splits an Arrow file into the bytes before the footer, and the footer.
fn take_apart(bytes: &[u8]) -> (Vec<u8>, FooterParts) {
    let end = bytes.len() - 10;
    let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
    let footer = ipc::root_as_footer(&bytes[end - length..end]).unwrap();
    let places = |blocks: Option<flatbuffers::Vector<'_, Block>>| {
        let blocks = blocks.into_iter().flatten();
        blocks
            .map(|block| (block.offset(), block.metaDataLength(), block.bodyLength()))
            .collect()
    };
    let taken = FooterParts {
        version: footer.version(),
        schema: try_fb_to_schema(footer.schema().unwrap()).unwrap(),
        other_ids: false,
        endianness: Endianness::Little,
        dictionaries: places(footer.dictionaries()),
        batches: places(footer.recordBatches()),
    };
    (bytes[..end - length].to_vec(), taken)
}

fn put_together(messages: &[u8], footer: &FooterParts) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut ids = DictionaryTracker::new(false);
    if footer.other_ids {
        ids.next_dict_id();
    }
    let schema = match footer.endianness {
        Endianness::Little => IpcSchemaEncoder::new()
            .with_dictionary_tracker(&mut ids)
            .schema_to_fb_offset(&mut builder, &footer.schema),
        endianness => {
            let schema = ipc::SchemaArgs {
                endianness,
                ..Default::default()
            };
            ipc::Schema::create(&mut builder, &schema)
        }
    };
    let blocks = |places: &[MessagePlace]| -> Vec<Block> {
        let blocks = places.iter();
        blocks
            .map(|(offset, metadata, body)| Block::new(*offset, *metadata, *body))
            .collect()
    };
    let dictionaries = builder.create_vector(&blocks(&footer.dictionaries));
    let batches = builder.create_vector(&blocks(&footer.batches));
    let args = ipc::FooterArgs {
        version: footer.version,
        schema: Some(schema),
        dictionaries: Some(dictionaries),
        recordBatches: Some(batches),
        custom_metadata: None,
    };
    let made = ipc::Footer::create(&mut builder, &args);
    builder.finish(made, None);
    let made = builder.finished_data();
    let length = u32::try_from(made.len()).unwrap().to_le_bytes();
    [messages, made, &length, b"ARROW1"].concat()
}

/// Three batches, and two dictionaries.
fn three_batches() -> Vec<u8> {
    let words = ["x", "y"].into_iter().cycle().take(20);
    let kinds: arrow::array::DictionaryArray<arrow::datatypes::Int8Type> = words.collect();
    let whole = batch(20);
    let table = RecordBatch::try_from_iter([
        ("number", Arc::clone(whole.column(0))),
        ("kind", Arc::new(kinds.clone())),
        ("other", Arc::new(kinds)),
    ])
    .unwrap();
    let mut bytes = Vec::new();
    let mut writer = FileWriter::try_new(&mut bytes, &table.schema()).unwrap();
    for start in [0, 5, 15] {
        writer.write(&table.slice(start, 5)).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    bytes
}

/// A footer with false claims about the places, the number or the schema of messages.
#[test]
fn a_footer_that_lies_is_refused() {
    let (messages, right) = take_apart(&three_batches());
    let end = i64::try_from(messages.len()).unwrap();
    assert_eq!((right.dictionaries.len(), right.batches.len()), (2, 3));
    let whole = read(file(&put_together(&messages, &right)).path(), None).unwrap();
    assert_eq!(whole.len(), 3);
    let other = |change: &dyn Fn(Field) -> Field| {
        let mut fields = right.schema.fields().to_vec();
        fields[0] = change(fields[0].as_ref().clone()).into();
        Schema::new(fields)
    };
    let types = other(&|field| field.with_data_type(DataType::UInt32));
    let names = other(&|field| field.with_name("numb3r"));
    let nullable = other(&|field| {
        let nullable = !field.is_nullable();
        field.with_nullable(nullable)
    });
    let fewer = right.schema.project(&[0, 1]).unwrap();
    type Change<'a> = &'a dyn Fn(&mut FooterParts);
    let changes: &[(Change<'_>, &str)] = &[
        (&|f| f.version = MetadataVersion(5), "metadata version V6"),
        (&|f| f.endianness = Endianness::Big, "big-endian"),
        (&|f| f.schema = types.clone(), "another schema"),
        (&|f| f.schema = names.clone(), "another schema"),
        (&|f| f.schema = nullable.clone(), "another schema"),
        (&|f| f.other_ids = true, "another schema"),
        (&|f| f.schema = fewer.clone(), "another schema"),
        // Messages that no block names.
        (&|f| f.batches.truncate(2), "in no block"),
        (&|f| f.batches = f.batches.split_off(1), "in no block"),
        (&|f| f.batches.clear(), "in no block"),
        (&|f| f.dictionaries.truncate(1), "in no block"),
        // Blocks that overlap each other or the schema.
        (&|f| f.batches.push(f.batches[1]), "lies over"),
        (&|f| f.batches.push(f.dictionaries[0]), "lies over"),
        (&|f| f.batches[1].0 -= 8, "lies over"),
        (&|f| f.batches[0].0 = 8, "lies over"),
        // Blocks outside the file.
        (&|f| f.batches[0].0 = 0, "outside"),
        (&|f| f.batches[0].0 = -8, "outside"),
        (&|f| f.batches[0].0 = i64::MAX, "outside"),
        (&|f| f.batches[2].0 = end, "outside"),
        (&|f| f.batches[2].1 = -1, "outside"),
        (&|f| f.batches[2].1 = 0, "outside"),
        (&|f| f.batches[2].2 = -1, "outside"),
        (&|f| f.batches[2].2 = i64::MAX, "outside"),
        (&|f| f.batches[2].2 += end, "outside"),
        // Blocks that differ from the messages at their place.
        (&|f| f.batches[1].1 += 8, "lies over"),
        (&|f| f.batches[1].1 -= 8, "bytes"),
        (&|f| f.batches[1].2 -= 8, "bytes"),
        (&|f| f.batches[2].0 += 8, "in no block"),
        (
            &|f| f.batches.insert(0, f.dictionaries.remove(1)),
            "not what the footer calls it",
        ),
        (
            &|f| f.dictionaries.push(f.batches.remove(1)),
            "not what the footer calls it",
        ),
    ];
    for (number, (change, said)) in changes.iter().enumerate() {
        let mut footer = right.clone();
        change(&mut footer);
        let told = failure(&put_together(&messages, &footer));
        assert!(told.contains(said), "change {number}: {told}");
    }
}

/// The order of the footer is the order of the rows, for any places; and a footer may lack its
/// version, as Java's did.
#[test]
fn the_footer_has_the_order() {
    let (messages, mut footer) = take_apart(&three_batches());
    footer.batches.reverse();
    footer.version = MetadataVersion::V1;
    let batches = read(file(&put_together(&messages, &footer)).path(), None).unwrap();
    let rows = arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap();
    let numbers: &arrow::array::Int32Array = rows.column(0).as_any().downcast_ref().unwrap();
    assert_eq!(numbers.values()[..6], [15, 16, 17, 18, 19, 5]);
}

/// Deltas of a dictionary count for earlier batches too. The file format has no replacement of a
/// dictionary.
#[test]
fn dictionaries_of_files_grow_and_are_not_replaced() {
    let kinds = |words: &[&str]| {
        let kinds: arrow::array::DictionaryArray<arrow::datatypes::Int8Type> =
            words.iter().copied().collect();
        RecordBatch::try_from_iter([("kind", Arc::new(kinds) as _)]).unwrap()
    };
    let tables = [kinds(&["x", "y"]), kinds(&["x", "y", "z"])];
    let options = IpcWriteOptions::default().with_dictionary_handling(DictionaryHandling::Delta);
    let mut bytes = Vec::new();
    let mut writer =
        FileWriter::try_new_with_options(&mut bytes, &tables[0].schema(), options).unwrap();
    for table in &tables {
        writer.write(table).unwrap();
    }
    writer.finish().unwrap();
    drop(writer);
    let back = read(file(&bytes).path(), None).unwrap();
    let text = |batch: &RecordBatch| {
        let words = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Utf8);
        let words = words.unwrap();
        let words: &arrow::array::StringArray = words.as_any().downcast_ref().unwrap();
        words.iter().flatten().collect::<Vec<_>>().join("")
    };
    assert_eq!(back.iter().map(text).collect::<Vec<_>>(), ["xy", "xyz"]);

    // The messages of a stream, with a footer after them.
    let mut stream = Vec::new();
    let mut writer = StreamWriter::try_new(&mut stream, &tables[0].schema()).unwrap();
    writer.write(&kinds(&["x", "y"])).unwrap();
    writer.write(&kinds(&["z", "y"])).unwrap();
    writer.finish().unwrap();
    drop(writer);
    let (_, mut footer) = take_apart(&bytes);
    let messages = [b"ARROW1\0\0", stream.as_slice()].concat();
    footer.dictionaries.clear();
    footer.batches.clear();
    let mut at = 8;
    loop {
        let length = u32::from_le_bytes(messages[at + 4..at + 8].try_into().unwrap()) as usize;
        if length == 0 {
            break;
        }
        let header = messages[at + 8..at + 8 + length].to_vec();
        let message = ipc::root_as_message(&header).unwrap();
        let place = (
            i64::try_from(at).unwrap(),
            i32::try_from(length + 8).unwrap(),
            message.bodyLength(),
        );
        match message.header_type() {
            ipc::MessageHeader::DictionaryBatch => footer.dictionaries.push(place),
            ipc::MessageHeader::RecordBatch => footer.batches.push(place),
            _ => {}
        }
        at += 8 + length + usize::try_from(message.bodyLength()).unwrap();
    }
    let told = failure(&put_together(&messages, &footer));
    assert!(told.contains("comes twice"), "{told}");
}

/// A cut file is refused, and so is a stream that is not cut between two messages.
#[test]
fn cut_files_are_refused() {
    let table = batch(20);
    let bytes = three_batches();
    for cut in 1..bytes.len() {
        read(file(&bytes[..cut]).path(), None).unwrap_err();
    }
    for legacy in [false, true] {
        let bytes = arrow_stream(&table, legacy);
        let marks = if legacy { 4 } else { 8 };
        let end = bytes.len() - marks;
        // After the schema, and after the batch.
        let whole: Vec<_> = (1..bytes.len())
            .filter(|cut| read(file(&bytes[..*cut]).path(), None).is_ok())
            .collect();
        assert_eq!(whole.len(), 2, "{whole:?} of {}", bytes.len());
        assert_eq!(whole[1], end);
        let told = failure(&bytes[..end + 1]);
        assert!(told.contains("cut off"), "{told}");
    }
}

/// Bytes after the end of a stream are an error, and bytes after a file hide its end.
#[test]
fn bytes_behind_the_end_are_refused() {
    let table = batch(20);
    let stream = arrow_stream(&table, false);
    for more in [&b"\0"[..], b"some text", &stream] {
        let told = failure(&[&stream, more].concat());
        assert!(told.contains("follow the end"), "{told}");
        failure(&[&arrow_file(&table), more].concat());
    }
    // Two files in one have the footer of the second, whose offsets are those of the first.
    let two = [arrow_file(&table), arrow_file(&table)].concat();
    failure(&two);
}

/// Promise of `serve`: the streams of Arrow's integration tests are read as by the `arrow` crate;
/// the inputs of its fuzzers give an error or batches.
#[test]
fn golden_files_are_read() {
    calm::install();
    let root = std::env::var_os("DIPC_GOLDEN").map_or_else(
        || Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("../shared/golden"),
        PathBuf::from,
    );
    let files = |kind| match fs::read_dir(root.join(kind)) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => {
            println!(
                "skipped: there is no {}; DIPC_GOLDEN names another",
                root.display()
            );
            Vec::new()
        }
    };
    for path in files("streams") {
        let bytes = fs::read(&path).unwrap();
        let theirs = ipc::reader::StreamReader::try_new(bytes.as_slice(), None).unwrap();
        let schema = theirs.schema();
        let theirs = theirs.collect::<Result<Vec<_>, _>>().unwrap();
        let ours = Source::File(path.clone())
            .reader(Reading::default())
            .unwrap();
        assert_eq!(ours.schema(), schema, "{}", path.display());
        assert_eq!(ours.batches().unwrap(), theirs, "{}", path.display());
    }
    for path in files("fuzz") {
        if let Err(error) = read(&path, None) {
            assert!(!format!("{error:#}").contains("panicked"), "{error:#}");
        }
    }
}

/// Promise of `describe`: Arrow files and streams say rows, batches and bytes of their bodies, as
/// they are served.
#[test]
fn files_say_their_size() {
    let table = batch(30);
    for bytes in [arrow_file(&table), arrow_stream(&table, false)] {
        let file = file(&bytes);
        let source = Source::File(file.path().to_path_buf());
        let figures = |batch_rows| {
            let reading = Reading {
                batch_rows,
                ..Reading::default()
            };
            let batches = read(file.path(), batch_rows).unwrap().len();
            let figures = source.figures(reading).unwrap();
            assert_eq!(figures.rows, Some(30));
            assert_eq!(figures.batches, Some(batches as u64));
            figures.bytes.unwrap()
        };
        assert!(figures(None) >= 30 && figures(None) < bytes.len() as u64);
        assert_eq!(figures(Some(7)), figures(None));
    }
}
