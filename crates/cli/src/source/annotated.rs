//! Tables whose batches have custom metadata, as those of Arrow files and streams may.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc;
use arrow::ipc::writer::EncodedData;
use arrow::record_batch::{RecordBatch, RecordBatchReader};
use dipc::arrow::format::{metadata_to_ipc, parse_metadata};
use dipc::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use dipc::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, annotate, export_batches};
use dipc::{Error, Result};
use flatbuffers::FlatBufferBuilder;
use parking_lot::Mutex;

use super::reader::Reader;

/// Exports a table as a stream whose arrays carry their batches' metadata.
pub fn export(reader: Reader) -> OwnedDeviceStream {
    let noted = Arc::default();
    let noting = Noting {
        reader,
        noted: Arc::clone(&noted),
    };
    export_device_stream(Box::new(Annotating {
        arrays: DeviceStreamReader::new(export_batches(Box::new(noting))),
        noted,
    }))
}

/// The message of a batch with custom metadata, which the writer of the `arrow` crate leaves out.
///
/// # Errors
///
/// `InvalidData` for metadata that are no pairs of texts.
pub fn with_metadata(mut message: EncodedData, metadata: &[u8]) -> Result<EncodedData> {
    if metadata.is_empty() {
        return Ok(message);
    }
    let pairs = parse_metadata(metadata).map_err(Error::invalid_data)?;
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
    let args = ipc::MessageArgs {
        version: root.version(),
        header_type: ipc::MessageHeader::RecordBatch,
        header: Some(header.as_union_value()),
        bodyLength: root.bodyLength(),
        custom_metadata: metadata_to_ipc(&pairs, &mut builder),
    };
    let root = ipc::Message::create(&mut builder, &args);
    builder.finish(root, None);
    message.ipc_message = builder.finished_data().to_vec();
    Ok(message)
}

/// Notes the metadata of the batch given last.
struct Noting {
    reader: Reader,
    noted: Arc<Mutex<Vec<u8>>>,
}

impl Iterator for Noting {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.reader.next();
        let mut noted = self.noted.lock();
        noted.clear();
        noted.extend_from_slice(self.reader.metadata());
        batch
    }
}

impl RecordBatchReader for Noting {
    fn schema(&self) -> SchemaRef {
        self.reader.schema()
    }
}

/// The arrays of the batches, with the metadata noted.
struct Annotating {
    arrays: DeviceStreamReader,
    noted: Arc<Mutex<Vec<u8>>>,
}

impl ArrayReader for Annotating {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.arrays.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let array = self.arrays.next()?;
        Ok(array.map(|array| annotate(array, &self.noted.lock())))
    }

    fn device_type(&self) -> i32 {
        self.arrays.device_type()
    }

    fn keeps_status(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array};
    use arrow::ipc::writer::{
        DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, write_message,
    };
    use dipc::arrow::annotation;
    use dipc::arrow::format::write_metadata;

    use super::*;
    use crate::get::narrow;
    use crate::source::{Reading, Source};

    /// An Arrow stream whose batches have these metadata.
    fn stream(all: &[Vec<u8>]) -> tempfile::NamedTempFile {
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
        let first = write_metadata(&[("k", "1"), ("k", "2")]).unwrap();
        let last = write_metadata(&[("z", "")]).unwrap();
        let file = stream(&[first.clone(), Vec::new(), last.clone()]);
        let source = Source::File(file.path().to_path_buf());
        let reading = Reading {
            batch_rows: Some(5),
            ..Reading::default()
        };
        let reader = narrow(source.reader(reading).unwrap(), "b").unwrap();
        let mut arrays = DeviceStreamReader::new(export(reader));
        let mut found = Vec::new();
        while let Some(array) = arrays.next().unwrap() {
            assert_eq!(array.raw().array.length, 5);
            found.push(annotation(array.raw()).to_vec());
        }
        let none = Vec::new();
        let expected = [&first, &first, &none, &none, &last, &last];
        assert!(found.iter().eq(expected), "{found:?}");
    }
}
