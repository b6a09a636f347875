//! Arrays decoded from bodies on a GPU, and for a GPU: their values, place, cost and waits.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, DictionaryArray, Int32Array, RecordBatch};
use arrow::datatypes::{Int32Type, Schema};
use arrow::ipc::reader::StreamReader;
use dipc::arrow::abi::ArrowArray;
use dipc::arrow::decode::{DecodeOptions, DecodedBatch, Decoder, Level, ReceivedBody};
use dipc::arrow::{EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, schema_to_c};
use dipc::device::cuda::pointer::Pointer;
use dipc::device::cuda::{Device, DeviceMemory, Purpose};
use dipc::device::{BufferRef, DeviceKind, Target};
use dipc::error::Result;
use dipc::proto::{Header, HeaderKind};

use crate::headers::{Uploaded, files, on_device, on_host, sliced_and_uncounted, whole, wide};
use crate::{Case, fake, run};

pub const CASES: &[Case] = &[
    ("decode-golden", arrays_are_those_that_were_sent),
    ("decode-free", bodies_are_used_where_they_lie),
    ("decode-rounds", values_are_fetched_at_once),
    ("decode-misaligned", misaligned_buffers_are_copied_there),
];

/// The encoder and decoder of a test.
pub struct Decoding {
    pub encoder: Encoder,
    pub decoder: Decoder,
}

pub fn encoder(schema: &Schema) -> Encoder {
    Encoder::new(&schema_to_c(schema).unwrap(), EncodeOptions::default()).unwrap()
}

pub fn decoder(encoder: &Encoder, level: Level, target: Target) -> Decoder {
    let options = DecodeOptions {
        level,
        ..DecodeOptions::default()
    };
    let header = Header::parse(encoder.schema_header()).unwrap();
    Decoder::with_target(&header, options, target).unwrap()
}

impl Decoding {
    pub fn new(schema: &Schema, level: Level, target: Target) -> Self {
        let encoder = encoder(schema);
        let decoder = decoder(&encoder, level, target);
        Self { encoder, decoder }
    }

    /// Encodes an array and decodes the messages. `shared`: as if a peer had lent it.
    pub fn pass(&mut self, array: OwnedDeviceArray, shared: bool) -> Result<DecodedBatch> {
        let messages = self.encoder.encode(array, None).unwrap();
        let mut batch = None;
        for message in messages {
            let body = message.received(shared);
            batch = feed(&mut self.decoder, &message.header, &body)?;
        }
        Ok(batch.unwrap())
    }
}

/// Gives a message to a decoder.
pub fn feed(
    decoder: &mut Decoder,
    header: &[u8],
    body: &ReceivedBody,
) -> Result<Option<DecodedBatch>> {
    let header = Header::parse(header).unwrap();
    if header.kind() == HeaderKind::Dictionary {
        return decoder.add_dictionary(&header, body).map(|_| None);
    }
    decoder.batch(&header, body).map(Some)
}

/// A message's header and the bytes of its buffers, on any device.
pub fn bytes_of(message: &EncodedMessage) -> (Vec<u8>, Vec<Vec<u8>>) {
    if let Some((_, ready)) = message.owner.gpu() {
        ready.synchronize().unwrap();
    }
    let on_gpu = message.owner.gpu().is_some();
    let bytes = message.buffers.iter().map(|buffer| match buffer.len {
        0 => Vec::new(),
        len if on_gpu => fake::read(buffer.data as u64, len),
        // SAFETY: the message keeps its memory, on the host.
        _ => unsafe { buffer.as_slice() }.to_vec(),
    });
    (message.header.to_vec(), bytes.collect())
}

/// Asserts that an array encodes to the same messages as one on the host, byte by byte.
pub fn assert_same(
    (wanted, host): (&mut Encoder, OwnedDeviceArray),
    (got, array): (&mut Encoder, OwnedDeviceArray),
    what: &str,
) {
    let wanted = wanted.encode(host, None).unwrap();
    let got = got
        .encode(array, None)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(wanted.len(), got.len(), "{what}: other messages");
    for (wanted, got) in wanted.iter().zip(&got) {
        let (wanted, got) = (bytes_of(wanted), bytes_of(got));
        assert_eq!(wanted.0, got.0, "{what}: the headers differ");
        assert!(wanted.1 == got.1, "{what}: the buffers differ");
    }
}

/// Calls `look` with each buffer of an array that is not NULL.
pub fn buffers(array: &ArrowArray, look: &mut impl FnMut(u64)) {
    for index in 0..usize::try_from(array.n_buffers).unwrap() {
        // SAFETY: the array has so many buffers.
        let buffer = unsafe { *array.buffers.add(index) };
        if !buffer.is_null() {
            look(buffer as u64);
        }
    }
    for index in 0..usize::try_from(array.n_children).unwrap() {
        // SAFETY: the array has so many children, each an array of its own.
        buffers(unsafe { &**array.children.add(index) }, look);
    }
    // SAFETY: where it is not NULL, it is an array of its own.
    if let Some(dictionary) = unsafe { array.dictionary.as_ref() } {
        buffers(dictionary, look);
    }
}

/// Asserts that all of an array lies on the device that it names.
pub fn assert_at(array: &OwnedDeviceArray, gpu: Option<i32>, what: &str) {
    let raw = array.raw();
    let Some(ordinal) = gpu else {
        assert_eq!(raw.device_type, DeviceKind::CPU.0, "{what}");
        assert!(raw.sync_event.is_null(), "{what}");
        return;
    };
    assert_eq!(raw.device_type, DeviceKind::CUDA.0, "{what}");
    assert_eq!(raw.device_id, i64::from(ordinal), "{what}");
    let device = Device::get(ordinal.into()).unwrap();
    buffers(&raw.array, &mut |address| {
        Pointer::on_device(&device, address, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
    });
}

/// Asserts that the driver has no handles of the library, after its background threads have
/// finished.
pub fn assert_clean(what: &str) {
    let start = Instant::now();
    loop {
        for ordinal in 0..2 {
            if let Ok(device) = Device::get(ordinal) {
                device.trim().unwrap();
            }
        }
        let live = fake::Live::now();
        if (live.allocations, live.pinned, live.events, live.streams) == (0, 0, 0, 0) {
            return;
        }
        let in_time = start.elapsed() < Duration::from_secs(10);
        assert!(in_time, "{what}: {live:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn arrays_of_every_vector_are_those_that_were_sent() {
    run("decode-golden", &[]);
}

fn arrays_are_those_that_were_sent() {
    let mut arrays = 0;
    for path in files() {
        let reader = StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
        let schema = reader.schema();
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        for change in [whole as fn(&mut ArrowArray), sliced_and_uncounted] {
            for (from_gpu, target, to) in [
                (true, Target::Cuda(0), Some(0)),
                (true, Target::Host, None),
                (false, Target::Cuda(0), Some(0)),
                (true, Target::AsSent, Some(0)),
            ] {
                for level in [Level::Structure, Level::Full] {
                    let name = path.file_name().unwrap().display().to_string();
                    let what = format!("{name}, GPU {from_gpu}, {target:?}, {level:?}");
                    let mut passing = Decoding::new(&schema, level, target);
                    let (mut wanted, mut got) = (encoder(&schema), encoder(&schema));
                    // Dictionaries are compared with the previous batch.
                    let mut held = Vec::new();
                    for batch in &batches {
                        let array = if from_gpu {
                            let Uploaded { array, memory } = on_device(batch, change);
                            held.push(memory);
                            array
                        } else {
                            on_host(batch, change)
                        };
                        let decoded = passing
                            .pass(array, true)
                            .unwrap_or_else(|error| panic!("{what}: {error}"));
                        assert_eq!(decoded.rows, decoded.array.raw().array.length as u64);
                        assert_at(&decoded.array, to, &what);
                        let host = (&mut wanted, on_host(batch, change));
                        assert_same(host, (&mut got, decoded.array), &what);
                        arrays += 1;
                    }
                    drop((passing, wanted, got, held));
                    assert_clean(&what);
                }
            }
        }
    }
    assert!(arrays > 1000, "{arrays}");
}

/// A body on the target GPU is used there without a copy.
#[test]
fn bodies_on_the_target_are_not_copied() {
    run("decode-free", &[]);
}

fn bodies_are_used_where_they_lie() {
    let batch = wide();
    for target in [Target::Cuda(0), Target::AsSent] {
        let mut passing = Decoding::new(&batch.schema(), Level::Structure, target);
        let Uploaded { array, memory } = on_device(&batch, whole);
        let decoded = passing.pass(array, true).unwrap();
        let took = (decoded.copied, decoded.copied_on_device, decoded.staged);
        assert_eq!(took, (0, 0, 0));
        let mut elsewhere = 0;
        buffers(&decoded.array.raw().array, &mut |address| {
            let inside = |memory: &DeviceMemory| {
                (memory.address()..memory.address() + memory.len() as u64).contains(&address)
            };
            elsewhere += usize::from(!memory.iter().any(inside));
        });
        // The lengths of the view buffers of 8 columns, which Arrow's format does not carry, and of
        // the optional data buffers.
        assert!(
            elsewhere <= 16,
            "{elsewhere} buffers are not the producer's"
        );
        drop(decoded);
    }
}

/// One fetch for each record batch, not for each column.
#[test]
fn all_values_that_checking_needs_are_fetched_at_once() {
    run("decode-rounds", &[]);
}

fn values_are_fetched_at_once() {
    let calls = [
        "cuLaunchKernel",
        "cuEventSynchronize",
        "cuStreamSynchronize",
    ];
    let rounds = |batch: &RecordBatch| {
        let mut passing = Decoding::new(&batch.schema(), Level::Structure, Target::Cuda(0));
        let Uploaded { array, memory } = on_device(batch, whole);
        let messages = passing.encoder.encode(array, None).unwrap();
        messages[0].owner.gpu().unwrap().1.synchronize().unwrap();
        let body = messages[0].received(true);
        let before = calls.map(fake::count);
        let decoded = feed(&mut passing.decoder, &messages[0].header, &body);
        let after = calls.map(fake::count);
        let decoded = decoded.unwrap().unwrap();
        let mut expected = (encoder(&batch.schema()), encoder(&batch.schema()));
        assert_same(
            (&mut expected.0, on_host(batch, whole)),
            (&mut expected.1, decoded.array),
            "rounds",
        );
        drop((messages, body, passing, memory));
        [0, 1, 2].map(|index| after[index] - before[index])
    };
    assert_eq!(rounds(&wide()), [1, 1, 0], "{calls:?}");
    // Numbers need no fetch.
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let numbers = RecordBatch::try_from_iter([("n", column)]).unwrap();
    assert_eq!(rounds(&numbers), [0, 0, 0], "{calls:?}");
}

/// A packed body on a GPU, `skip` bytes after an alignment boundary.
pub fn packed_on_gpu(message: &EncodedMessage, device: &Arc<Device>, skip: usize) -> ReceivedBody {
    let (_, bytes) = bytes_of(message);
    let len = usize::try_from(message.body_len).unwrap() + skip;
    let memory = DeviceMemory::new(device, len.max(1), Purpose::Own).unwrap();
    let mut list = Vec::new();
    for (span, bytes) in message.spans().zip(&bytes) {
        let at = memory.address() + span.offset + skip as u64;
        if !bytes.is_empty() {
            fake::write(at, bytes);
        }
        list.push(BufferRef {
            data: std::ptr::without_provenance(usize::try_from(at).unwrap()),
            len: bytes.len(),
        });
    }
    // SAFETY: the buffers lie in the memory, which the body holds.
    unsafe { ReceivedBody::on_gpu(list, Arc::new(memory), true, Arc::clone(device), None) }
}

/// Misaligned buffers are copied on the device, because Arrow requires alignment.
#[test]
fn misaligned_buffers_are_aligned_on_the_device() {
    run("decode-misaligned", &[]);
}

fn misaligned_buffers_are_copied_there() {
    let device = Device::get(0).unwrap();
    let batch = wide();
    for (target, to) in [(Target::Cuda(0), Some(0)), (Target::Host, None)] {
        let mut passing = Decoding::new(&batch.schema(), Level::Structure, target);
        let messages = passing
            .encoder
            .encode(on_host(&batch, whole), None)
            .unwrap();
        let body = packed_on_gpu(&messages[0], &device, 1);
        let decoded = feed(&mut passing.decoder, &messages[0].header, &body);
        let decoded = decoded.unwrap().unwrap();
        drop(body);
        if to.is_some() {
            assert!(decoded.copied_on_device > 0);
            assert_eq!((decoded.copied, decoded.staged), (0, 0));
        } else {
            assert!(decoded.staged > 0);
        }
        assert_at(&decoded.array, to, "misaligned");
        let mut encoders = (encoder(&batch.schema()), encoder(&batch.schema()));
        assert_same(
            (&mut encoders.0, on_host(&batch, whole)),
            (&mut encoders.1, decoded.array),
            "misaligned",
        );
    }
    assert_clean("misaligned");
}

pub fn dictionary(values: &[&str]) -> RecordBatch {
    let column: DictionaryArray<Int32Type> = values.iter().copied().collect();
    let column: ArrayRef = Arc::new(column);
    RecordBatch::try_from_iter([("d", column)]).unwrap()
}

/// A value that reports its drop.
pub struct Told<T>(pub T, pub Arc<AtomicBool>);

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::SeqCst);
    }
}
