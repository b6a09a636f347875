//! Messages of batches with custom metadata, which the writer of the `arrow` crate leaves out.

use arrow::ipc;
use arrow::ipc::writer::EncodedData;
use dipc::{Error, Result};
use flatbuffers::FlatBufferBuilder;

/// The message of a batch with custom metadata.
///
/// # Errors
///
/// `InvalidData`: the message is not that of a batch.
pub fn with_metadata(
    mut message: EncodedData,
    metadata: &[(String, String)],
) -> Result<EncodedData> {
    if metadata.is_empty() {
        return Ok(message);
    }
    let root = ipc::root_as_message(&message.ipc_message);
    let root = root.map_err(|error| Error::invalid_data(error.to_string()))?;
    let missing = || Error::invalid_data("a batch has another message");
    let batch = root.header_as_record_batch().ok_or_else(missing)?;
    let mut builder = FlatBufferBuilder::new();
    let nodes: Vec<_> = batch.nodes().into_iter().flatten().copied().collect();
    let buffers: Vec<_> = batch.buffers().into_iter().flatten().copied().collect();
    let counts = batch.variadicBufferCounts();
    let args = ipc::RecordBatchArgs {
        length: batch.length(),
        nodes: Some(builder.create_vector(&nodes)),
        buffers: Some(builder.create_vector(&buffers)),
        // The writer packs no bodies.
        compression: None,
        variadicBufferCounts: counts
            .map(|counts| builder.create_vector(&counts.iter().collect::<Vec<_>>())),
    };
    let header = ipc::RecordBatch::create(&mut builder, &args);
    let pairs: Vec<_> = (metadata.iter())
        .map(|(key, value)| {
            let args = ipc::KeyValueArgs {
                key: Some(builder.create_string(key)),
                value: Some(builder.create_string(value)),
            };
            ipc::KeyValue::create(&mut builder, &args)
        })
        .collect();
    let args = ipc::MessageArgs {
        version: root.version(),
        header_type: ipc::MessageHeader::RecordBatch,
        header: Some(header.as_union_value()),
        bodyLength: root.bodyLength(),
        custom_metadata: Some(builder.create_vector(&pairs)),
    };
    let root = ipc::Message::create(&mut builder, &args);
    builder.finish(root, None);
    message.ipc_message = builder.finished_data().to_vec();
    Ok(message)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int32Array, RecordBatch};
    use arrow::ipc::writer::{
        DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
    };

    use super::*;
    use crate::get::narrow;
    use crate::source::{Metadata, Reading, Source};

    /// An Arrow stream whose batches have these metadata.
    fn stream(all: &[Metadata]) -> tempfile::NamedTempFile {
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..10));
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&numbers)), ("b", numbers)]);
        let batch = batch.unwrap();
        let (options, writer) = (IpcWriteOptions::default(), IpcDataGenerator::default());
        let mut tracker = DictionaryTracker::new(false);
        let schema = batch.schema();
        let schema =
            writer.schema_to_bytes_with_dictionary_tracker(&schema, &mut tracker, &options);
        let mut bytes = Vec::new();
        write_message(&mut bytes, schema, &options).unwrap();
        for metadata in all {
            let mut context = IpcWriteContext::default();
            let encoded = writer.encode(&batch, &mut tracker, &options, &mut context);
            let message = with_metadata(encoded.unwrap().1, metadata).unwrap();
            write_message(&mut bytes, message, &options).unwrap();
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    /// Promise of `serve` and `put`: batches keep their custom metadata, in order and with keys
    /// that come twice; slices of a batch have them all, and a batch without metadata has none.
    #[test]
    fn batches_keep_their_metadata() {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let first = vec![pair("k", "1"), pair("k", "2")];
        let last = vec![pair("z", "")];
        let file = stream(&[first.clone(), Metadata::new(), last.clone()]);
        let source = Source::File(file.path().to_path_buf());
        let reading = Reading {
            batch_rows: Some(5),
            ..Reading::default()
        };
        let reader = narrow(source.reader(reading).unwrap(), "b").unwrap();
        let mut found = Vec::new();
        for next in reader {
            let (batch, metadata) = next.unwrap();
            assert_eq!(batch.num_rows(), 5);
            found.push(metadata);
        }
        let none = Metadata::new();
        let expected = [&first, &first, &none, &none, &last, &last];
        assert!(found.iter().eq(expected), "{found:?}");
    }
}
