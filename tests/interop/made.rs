//! Vectors that pyarrow cannot write, made with arrow-rs; and metadata of batches in IPC files.
//!
//!     DIPC_WRITE_VECTORS=1 cargo test --test interop made

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, DictionaryArray, Int8Array, IntervalDayTimeArray, IntervalYearMonthArray,
    RecordBatch, StringArray,
};
use arrow::datatypes::{IntervalDayTime, Schema};
use arrow::ipc::writer::StreamWriter;
use dipc::arrow::stream::ArrayReader;
use dipc::client::{Client, ClientOptions, GetOptions};
use dipc::server::{ServerHandle, ServerOptions};

use crate::common::{export, export_schema, import};
use crate::files::{File, folder, split};

/// A stream of these batches, of one schema.
fn stream(batches: &[RecordBatch]) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batches[0].schema()).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
    }
    writer.into_inner().unwrap()
}

/// The two kinds of interval without values in Python.
fn intervals() -> Vec<u8> {
    let batches: Vec<_> = [13, 0, 70]
        .into_iter()
        .map(|rows| {
            let months = (0..rows).map(|row| (row % 3 != 1).then_some(row * 37 - 400));
            let days = (0..rows).map(|row| {
                (row % 4 != 2).then(|| IntervalDayTime::new(row - 20, 86_399_999 - row * 1_000_003))
            });
            let columns: [(&str, ArrayRef); 2] = [
                (
                    "year_month",
                    Arc::new(months.collect::<IntervalYearMonthArray>()),
                ),
                ("day_time", Arc::new(days.collect::<IntervalDayTimeArray>())),
            ];
            RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap()
        })
        .collect();
    stream(&batches)
}

/// One dictionary, sent once, whose id two fields name. arrow-rs gives each field its own id, so
/// the second id is replaced by the first, and the second dictionary is left out.
fn shared_dictionary() -> Vec<u8> {
    let values: ArrayRef = Arc::new(StringArray::from(vec!["one", "two", "a third one"]));
    let column = |shift: i8| -> ArrayRef {
        let keys = (0..21_i8).map(|row| (row % 5 != 4).then_some((row + shift) % 3));
        Arc::new(DictionaryArray::new(
            keys.collect::<Int8Array>(),
            Arc::clone(&values),
        ))
    };
    let columns = [("a", column(0)), ("b", column(1))];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(n, c)| (n, c, true))).unwrap();
    let mut messages = split(&stream(&[batch.clone(), batch.slice(0, 9)]));
    let header = &mut messages[0].header;
    let id = {
        let message = arrow::ipc::root_as_message(header).unwrap();
        let schema = message.header_as_schema().unwrap();
        let encoding = schema.fields().unwrap().get(1).dictionary().unwrap();
        assert_eq!(encoding.id(), 1);
        let table = encoding._tab;
        let slot = table.vtable().get(arrow::ipc::DictionaryEncoding::VT_ID);
        table.loc() + usize::from(slot)
    };
    header[id..id + 8].copy_from_slice(&0_i64.to_le_bytes());
    messages.retain(|message| {
        let header = arrow::ipc::root_as_message(&message.header).unwrap();
        header
            .header_as_dictionary_batch()
            .is_none_or(|dictionary| dictionary.id() == 0)
    });
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(message.header.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(&message.header);
        bytes.extend_from_slice(&message.body);
    }
    bytes.extend_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0]);
    bytes
}

/// The vectors of this file are up to date.
#[test]
fn made_vectors_are_up_to_date() {
    let made = [
        ("intervals.arrows", intervals()),
        ("shared_dictionary.arrows", shared_dictionary()),
    ];
    for (name, bytes) in made {
        let path = folder().join(name);
        if std::env::var_os("DIPC_WRITE_VECTORS").is_some() {
            fs::write(&path, &bytes).unwrap();
        }
        assert!(
            fs::read(&path).unwrap() == bytes,
            "{name} is not what this generator writes"
        );
    }
}

/// The metadata of each batch of a stream.
fn batch_metadata(file: &File) -> Vec<HashMap<String, String>> {
    file.messages()
        .iter()
        .filter_map(|message| {
            let message = arrow::ipc::root_as_message(&message.header).unwrap();
            message.header_as_record_batch()?;
            let pairs = message.custom_metadata().into_iter().flatten();
            Some(
                pairs
                    .map(|pair| {
                        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
                        (text(pair.key()), text(pair.value()))
                    })
                    .collect(),
            )
        })
        .collect()
}

/// Metadata in the C data interface's encoding.
fn encoded(pairs: &HashMap<String, String>) -> Vec<u8> {
    let length = |length: usize| i32::try_from(length).unwrap().to_ne_bytes();
    let mut bytes = length(pairs.len()).to_vec();
    for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
        bytes.extend(length(text.len()));
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// Metadata of a batch arrives with that batch.
#[test]
fn batch_metadata_arrives() {
    let file = File {
        name: "batch_metadata.arrows".into(),
        bytes: fs::read(folder().join("batch_metadata.arrows")).unwrap(),
    };
    let (schema, batches) = file.read();
    let metadata = batch_metadata(&file);
    assert_eq!(metadata.len(), batches.len());
    assert!(metadata.iter().any(|pairs| pairs.len() == 2));

    let server = ServerHandle::new(ServerOptions::default()).unwrap();
    let uri = server.listen(&format!("shm:@{}", crate::name())).unwrap();
    server.serve_pull(b"t").unwrap();
    let (pushed, pushed_with) = (batches.clone(), metadata.clone());
    let pushed_schema: Arc<Schema> = Arc::clone(&schema);
    let server_thread = std::thread::spawn(move || {
        let request = server.next_request(None, None).unwrap().unwrap();
        request.start(&export_schema(&pushed_schema), 1).unwrap();
        for (batch, pairs) in pushed.iter().zip(&pushed_with) {
            let bytes = (!pairs.is_empty()).then(|| encoded(pairs));
            request
                .push(export(batch), bytes.as_deref(), None)
                .map_err(|(error, _)| error)
                .unwrap();
        }
        request.finish(None).unwrap();
        server
    });
    let client = Client::new(ClientOptions::default()).unwrap();
    let mut stream = client
        .get(&[&uri], b"t", &GetOptions::default(), None)
        .unwrap();
    let received_schema = stream.schema().unwrap();
    for (expected, pairs) in batches.iter().zip(&metadata) {
        let array = stream.next().unwrap().expect("a batch");
        let received: HashMap<_, _> = stream.custom_metadata().iter().cloned().collect();
        assert_eq!(&received, pairs);
        assert_eq!(&import(array, &received_schema), expected);
    }
    assert!(stream.next().unwrap().is_none());
    drop(stream);
    drop(server_thread.join().unwrap());
}
