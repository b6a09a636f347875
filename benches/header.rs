//! Building and reading the header of a record batch, by columns and their type, beside arrow-rs.
//!
//! What is compared, on the same tables of 16 rows:
//!
//! - build: `Encoder::encode` (the whole message: header and list of buffers) against
//!   `IpcDataGenerator::encode`, which also copies the body, small here, and has no way not to;
//! - read: `Header::parse` and `Decoder::batch`, with the checks of level `structure`, and the
//!   release of the batch, against `root_as_message` and `RecordBatchDecoder` without validation of
//!   values, and the drop of its `RecordBatch`.
//!
//! `cargo bench -p libdipc --bench header -- --quick`; a part of a name picks cases, as
//! `read/int64`.

#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "in benchmarks a panic is how a failure shows"
)]

mod common;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::{RecordBatchDecoder, read_dictionary};
use arrow::ipc::root_as_message;
use arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_data::UnsafeFlag;
use common::{Arrived, Kind, Produced, table};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dipc::arrow::{EncodeOptions, Encoder};

const COLUMNS: [usize; 5] = [1, 10, 100, 1000, 10_000];

fn build(criterion: &mut Criterion) {
    for kind in Kind::ALL {
        let mut group = criterion.benchmark_group(format!("build/{}", kind.name()));
        for columns in COLUMNS {
            group.throughput(Throughput::Elements(columns as u64));
            let table = table(kind, columns);
            let produced = Produced::new(&table);
            let mut encoder = Encoder::new(&produced.schema, EncodeOptions::default()).unwrap();
            group.bench_function(BenchmarkId::new("dipc", columns), |bencher| {
                // SAFETY: the encoder, which may hold the array, is dropped before `produced`.
                bencher.iter(|| encoder.encode(unsafe { produced.again() }, None).unwrap());
            });
            let mut writer = ArrowWriter::new(&table);
            group.bench_function(BenchmarkId::new("arrow-rs", columns), |bencher| {
                bencher.iter(|| writer.write(&table));
            });
        }
    }
}

fn read(criterion: &mut Criterion) {
    for kind in Kind::ALL {
        let mut group = criterion.benchmark_group(format!("read/{}", kind.name()));
        for columns in COLUMNS {
            group.throughput(Throughput::Elements(columns as u64));
            let table = table(kind, columns);
            let produced = Produced::new(&table);
            let mut arrived = Arrived::new(&produced);
            group.bench_function(BenchmarkId::new("dipc", columns), |bencher| {
                bencher.iter(|| black_box(arrived.read()));
            });
            let reader = ArrowReader::new(&table);
            group.bench_function(BenchmarkId::new("arrow-rs", columns), |bencher| {
                bencher.iter(|| reader.read());
            });
        }
    }
}

/// arrow-rs' writer in the middle of a stream.
struct ArrowWriter {
    generator: IpcDataGenerator,
    tracker: DictionaryTracker,
    options: IpcWriteOptions,
    context: IpcWriteContext,
}

/// Headers and bodies: of the dictionaries, then of the batch.
type Messages = Vec<(Vec<u8>, Vec<u8>)>;

impl ArrowWriter {
    fn new(table: &RecordBatch) -> Self {
        let mut this = Self {
            generator: IpcDataGenerator::default(),
            tracker: DictionaryTracker::new(false),
            options: IpcWriteOptions::default(),
            context: IpcWriteContext::default(),
        };
        this.generator.schema_to_bytes_with_dictionary_tracker(
            &table.schema(),
            &mut this.tracker,
            &this.options,
        );
        this
    }

    fn write(&mut self, table: &RecordBatch) -> Messages {
        let (dictionaries, batch) = self
            .generator
            .encode(table, &mut self.tracker, &self.options, &mut self.context)
            .unwrap();
        let all = dictionaries.into_iter().chain([batch]);
        all.map(|data| (data.ipc_message, data.arrow_data))
            .collect()
    }
}

/// arrow-rs' reader, which has seen all dictionaries.
struct ArrowReader {
    schema: SchemaRef,
    dictionaries: HashMap<i64, ArrayRef>,
    header: Vec<u8>,
    body: Buffer,
}

impl ArrowReader {
    fn new(table: &RecordBatch) -> Self {
        let mut writer = ArrowWriter::new(table);
        let mut messages = writer.write(table);
        let (header, body) = messages.pop().unwrap();
        let mut dictionaries = HashMap::new();
        // The ids are in the fields of the schema as it is read back from its message.
        let schema = table.schema();
        let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
            &schema,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
        );
        let message = root_as_message(&encoded.ipc_message).unwrap();
        let read =
            arrow::ipc::convert::try_fb_to_schema(message.header_as_schema().unwrap()).unwrap();
        for (header, body) in messages {
            let message = root_as_message(&header).unwrap();
            read_dictionary(
                &Buffer::from(body),
                message.header_as_dictionary_batch().unwrap(),
                &read,
                &mut dictionaries,
                &message.version(),
            )
            .unwrap();
        }
        Self {
            schema: read.into(),
            dictionaries,
            header,
            body: Buffer::from(body),
        }
    }

    fn read(&self) -> RecordBatch {
        let message = root_as_message(&self.header).unwrap();
        let batch = message.header_as_record_batch().unwrap();
        let version = message.version();
        let mut unchecked = UnsafeFlag::new();
        // SAFETY: arrow-rs wrote the values itself.
        unsafe { unchecked.set(true) };
        let schema = Arc::clone(&self.schema);
        RecordBatchDecoder::try_new(&self.body, batch, schema, &self.dictionaries, &version)
            .unwrap()
            .with_skip_validation(unchecked)
            .read_record_batch()
            .unwrap()
    }
}

criterion_group!(benches, build, read);
criterion_main!(benches);
