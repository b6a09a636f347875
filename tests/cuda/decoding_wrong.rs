//! Failures while arrays are decoded from a GPU and for a GPU: invalid bodies, and late producers.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{
    Array, ArrayData, ArrayRef, Int32Array, RecordBatch, RunArray, StringArray, make_array,
};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Int32Type};
use dipc::arrow::decode::{Level, ReceivedBody};
use dipc::arrow::{Compression, EncodeOptions, EncodedMessage, Encoder, schema_to_c};
use dipc::device::cuda::{Device, DeviceMemory, Event, Purpose, Stream};
use dipc::device::{BufferRef, HostBuffer, Target};
use dipc::error::Status;

use crate::decoding::{
    Decoding, Told, assert_at, assert_clean, assert_same, bytes_of, decoder, encoder, feed,
    packed_on_gpu,
};
use crate::headers::{on_host, whole, wide};
use crate::{Case, end_on_panic, fake, run};

pub const CASES: &[Case] = &[
    ("wrong-values", wrong_values_are_refused),
    ("wrong-lengths", wrong_lengths_are_refused),
    ("wrong-compressed", compressed_bodies_are_unpacked),
    ("wrong-late", late_producers_are_waited_for),
    ("wrong-held", memory_goes_back_at_once),
];

const TARGETS: [Target; 3] = [Target::Cuda(0), Target::Host, Target::AsSent];

/// A batch of one column, possibly invalid.
fn one(data: ArrayData) -> RecordBatch {
    RecordBatch::try_from_iter([("column", make_array(data))]).unwrap()
}

/// An array of these parts, unchecked.
fn raw(kind: DataType, len: usize, buffers: Vec<Buffer>, children: Vec<ArrayData>) -> ArrayData {
    let builder = ArrayData::builder(kind).len(len).buffers(buffers);
    // SAFETY: the values are wrong on purpose; only the encoder and the decoder see them.
    unsafe { builder.child_data(children).build_unchecked() }
}

fn text(offsets: &[i32], bytes: &[u8]) -> ArrayData {
    let buffers = vec![Buffer::from_slice_ref(offsets), Buffer::from(bytes)];
    raw(DataType::Utf8, offsets.len() - 1, buffers, Vec::new())
}

/// Rule A8, level full: wrong values are found on a GPU as on the host, and the next batch is not
/// affected.
#[test]
fn wrong_values_on_a_gpu_are_refused() {
    run("wrong-values", &[]);
}

fn wrong_values_are_refused() {
    let device = Device::get(0).unwrap();
    let values: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let kind = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let indices = vec![Buffer::from_slice_ref([0, 2, 1_i32])];
    let cases = [
        (text(&[0, 1, 2], &[b'a', 0xFF]), "not UTF-8"),
        (text(&[0, 5, 3, 6], b"abcdef"), "offset 3 of row 2"),
        (
            raw(kind, 3, indices, vec![values.to_data()]),
            "row 1 refers to",
        ),
    ];
    for (data, told) in cases {
        let wrong = one(data);
        for target in TARGETS {
            let mut passing = Decoding::new(&wrong.schema(), Level::Full, target);
            let messages = passing
                .encoder
                .encode(on_host(&wrong, whole), None)
                .unwrap();
            let outcome = messages.iter().try_for_each(|message| {
                let body = packed_on_gpu(message, &device, 0);
                feed(&mut passing.decoder, &message.header, &body).map(drop)
            });
            let error = outcome.unwrap_err();
            assert_eq!(error.status(), Status::InvalidData, "{error}");
            assert!(error.text().contains(told), "{told}: {error}");
            assert!(error.text().contains("column"), "{error}");
        }
    }
    // The peer may write between check and use: the array has the checked values.
    let good = one(text(&[0, 1, 2], b"ab"));
    let mut passing = Decoding::new(&good.schema(), Level::Full, Target::Cuda(0));
    let messages = passing.encoder.encode(on_host(&good, whole), None).unwrap();
    let memory = DeviceMemory::new(&device, 4096, Purpose::Own).unwrap();
    let address = memory.address();
    let mut at = address;
    let buffers = bytes_of(&messages[0]).1.into_iter().map(|bytes| {
        if !bytes.is_empty() {
            fake::write(at, &bytes);
        }
        let data = std::ptr::without_provenance(usize::try_from(at).unwrap());
        at += 64;
        let len = bytes.len();
        BufferRef { data, len }
    });
    let buffers = buffers.collect();
    // SAFETY: the buffers lie in the memory, which the body holds.
    let body =
        unsafe { ReceivedBody::on_gpu(buffers, Arc::new(memory), true, Arc::clone(&device), None) };
    let decoded = feed(&mut passing.decoder, &messages[0].header, &body);
    let decoded = decoded.unwrap().unwrap();
    fake::write(address, &[0xEE; 4096]);
    let mut encoders = (encoder(&good.schema()), encoder(&good.schema()));
    let (wanted, got) = (on_host(&good, whole), decoded.array);
    assert_same((&mut encoders.0, wanted), (&mut encoders.1, got), "checked");
    drop((body, messages, passing, encoders));
    assert_clean("values");
}

/// Rule A8, level structure: wrong lengths are found by reading only the first and last offsets.
#[test]
fn wrong_lengths_on_a_gpu_are_refused() {
    run("wrong-lengths", &[]);
}

fn wrong_lengths_are_refused() {
    let device = Device::get(0).unwrap();
    let ends = Int32Array::from(vec![2, 4]);
    let values = StringArray::from(vec!["a", "b"]);
    let runs: ArrayRef = Arc::new(RunArray::<Int32Type>::try_new(&ends, &values).unwrap());
    let runs = RecordBatch::try_from_iter([("column", runs)]).unwrap();
    // The changed buffer, and its new content.
    for (batch, buffer, bytes, told) in [
        (
            one(text(&[0, 1, 2], b"ab")),
            1,
            [0, 1, 9].to_vec(),
            "has 2 bytes, 9 are needed",
        ),
        (
            one(text(&[0, 1, 2], b"ab")),
            1,
            [-1, 1, 2].to_vec(),
            "run from -1 to 2",
        ),
        (
            one(text(&[0, 1, 2], b"ab")),
            1,
            [2, 1, 1].to_vec(),
            "run from 2 to 1",
        ),
        (runs, 1, [2, 3].to_vec(), "the last run ends at 3"),
    ] {
        for target in [Target::Cuda(0), Target::AsSent] {
            let mut passing = Decoding::new(&batch.schema(), Level::Structure, target);
            let messages = passing
                .encoder
                .encode(on_host(&batch, whole), None)
                .unwrap();
            let message = &messages[0];
            let memory = DeviceMemory::new(&device, 4096, Purpose::Own).unwrap();
            let mut buffers = Vec::new();
            for (index, mut wanted) in bytes_of(message).1.into_iter().enumerate() {
                if index == buffer {
                    wanted = bytes.iter().flat_map(|n: &i32| n.to_le_bytes()).collect();
                }
                let at = memory.address() + 64 * index as u64;
                if !wanted.is_empty() {
                    fake::write(at, &wanted);
                }
                let data = std::ptr::without_provenance(usize::try_from(at).unwrap());
                let len = wanted.len();
                buffers.push(BufferRef { data, len });
            }
            let short: Vec<_> = buffers.iter().skip(1).copied().collect();
            let owner: Arc<dyn Any + Send + Sync> = Arc::new(memory);
            let body = |buffers| {
                let (owner, device) = (Arc::clone(&owner), Arc::clone(&device));
                // SAFETY: the buffers lie in the memory, which the body holds.
                unsafe { ReceivedBody::on_gpu(buffers, owner, true, device, None) }
            };
            let error = feed(&mut passing.decoder, &message.header, &body(buffers)).unwrap_err();
            assert_eq!(error.status(), Status::InvalidData, "{error}");
            assert!(error.text().contains(told), "{told}: {error}");
            let error = feed(&mut passing.decoder, &message.header, &body(short)).unwrap_err();
            assert_eq!(error.status(), Status::Protocol, "{error}");
            // The stream goes on.
            passing.pass(on_host(&batch, whole), true).unwrap();
        }
    }
    assert_clean("lengths");
}

/// Rule A4 on a GPU: compressed bodies are unpacked on the host, and must not have been lent.
#[test]
fn compressed_bodies_on_a_gpu_are_unpacked() {
    run("wrong-compressed", &[]);
}

fn compressed_bodies_are_unpacked() {
    let device = Device::get(0).unwrap();
    let batch = wide();
    let options = EncodeOptions {
        compression: Some(Compression::Zstd),
    };
    let mut compressing = Encoder::new(&schema_to_c(&batch.schema()).unwrap(), options).unwrap();
    let messages = compressing.encode(on_host(&batch, whole), None).unwrap();
    let header = &messages[0].header;
    let lent = packed_on_gpu(&messages[0], &device, 0);
    for (target, to) in TARGETS.into_iter().zip([Some(0), None, Some(0)]) {
        for level in [Level::Structure, Level::Full] {
            let mut encoders = (encoder(&batch.schema()), encoder(&batch.schema()));
            let mut decoder = decoder(&encoders.0, level, target);
            let error = feed(&mut decoder, header, &lent).unwrap_err();
            assert_eq!(error.status(), Status::Protocol, "{error}");
            let body = sent_to_gpu(&messages[0], &device);
            let decoded = feed(&mut decoder, header, &body).unwrap().unwrap();
            assert!(decoded.copied > 0 && decoded.staged > 0);
            assert_at(&decoded.array, to, "compressed");
            let (wanted, got) = (on_host(&batch, whole), decoded.array);
            assert_same(
                (&mut encoders.0, wanted),
                (&mut encoders.1, got),
                "compressed",
            );
        }
    }
}

/// GPU memory with a packed body, and the place of each buffer.
fn upload(message: &EncodedMessage, device: &Arc<Device>) -> (DeviceMemory, Vec<BufferRef>) {
    let len = usize::try_from(message.body_len).unwrap();
    let memory = DeviceMemory::new(device, len, Purpose::Own).unwrap();
    let buffers = message.spans().zip(bytes_of(message).1);
    let buffers = buffers.map(|(span, bytes)| {
        let at = memory.address() + span.offset;
        if !bytes.is_empty() {
            fake::write(at, &bytes);
        }
        let data = std::ptr::without_provenance(usize::try_from(at).unwrap());
        let len = bytes.len();
        BufferRef { data, len }
    });
    let buffers = buffers.collect();
    (memory, buffers)
}

/// A body received into GPU memory, which no peer writes to.
fn sent_to_gpu(message: &EncodedMessage, device: &Arc<Device>) -> ReceivedBody {
    let (memory, buffers) = upload(message, device);
    // SAFETY: the buffers lie in the memory, which the body holds.
    unsafe { ReceivedBody::on_gpu(buffers, Arc::new(memory), false, Arc::clone(device), None) }
}

/// A body is read only after its event.
#[test]
fn late_producers_are_waited_for_on_the_device() {
    run("wrong-late", &[]);
}

fn late_producers_are_waited_for() {
    end_on_panic();
    let device = Device::get(0).unwrap();
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let numbers = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
    for (batch, level, target, waits) in [
        // Values that are checked are waited for; numbers are passed on with an event.
        (wide(), Level::Structure, Target::Cuda(0), true),
        (wide(), Level::Full, Target::Cuda(0), true),
        (wide(), Level::Structure, Target::Host, true),
        (numbers.clone(), Level::Structure, Target::Cuda(0), false),
        (numbers, Level::Structure, Target::Host, true),
    ] {
        let what = format!("{} columns, {level:?}, {target:?}", batch.num_columns());
        let mut encoders = (encoder(&batch.schema()), encoder(&batch.schema()));
        let mut decoder = decoder(&encoders.0, level, target);
        let messages = encoders.0.encode(on_host(&batch, whole), None).unwrap();
        // Until the producer's stream continues the memory has other, invalid data.
        let len = usize::try_from(messages[0].body_len).unwrap();
        let memory = DeviceMemory::new(&device, len, Purpose::Own).unwrap();
        let mut staged = HostBuffer::new(len).unwrap();
        let mut buffers = Vec::new();
        for (span, bytes) in messages[0].spans().zip(bytes_of(&messages[0]).1) {
            let start = usize::try_from(span.offset).unwrap();
            staged.as_mut_slice()[start..start + bytes.len()].copy_from_slice(&bytes);
            let at = usize::try_from(memory.address()).unwrap() + start;
            let data = std::ptr::without_provenance(at);
            buffers.push(BufferRef {
                data,
                len: bytes.len(),
            });
        }
        fake::write(memory.address(), &vec![0xEE; len]);
        let producer = Stream::new(&device).unwrap();
        fake::hold(producer.raw().cast(), 1);
        let ready = Arc::new(Event::new(&device).unwrap());
        // SAFETY: both live to the end.
        unsafe { producer.copy(memory.address(), staged.as_ref().data as u64, len) }.unwrap();
        ready.record(&producer).unwrap();
        // SAFETY: the buffers lie in the memory, which the body holds.
        let body = unsafe {
            let owner = Arc::new(memory);
            ReceivedBody::on_gpu(buffers, owner, true, Arc::clone(&device), Some(ready))
        };
        let before = fake::count("cuStreamWaitEvent");
        let array = std::thread::scope(|scope| {
            let header = &messages[0].header;
            let decoding = scope.spawn(|| feed(&mut decoder, header, &body).unwrap().unwrap());
            while fake::count("cuStreamWaitEvent") == before && !decoding.is_finished() {
                std::thread::yield_now();
            }
            if waits {
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(
                    !decoding.is_finished(),
                    "{what}: it has read what is not there"
                );
                fake::hold(producer.raw().cast(), 0);
                decoding.join().unwrap().array
            } else {
                let array = decoding.join().unwrap().array;
                assert!(!array.raw().sync_event.is_null(), "{what}");
                fake::hold(producer.raw().cast(), 0);
                array
            }
        });
        drop((body, decoder));
        let mut wanted = encoder(&batch.schema());
        assert_same(
            (&mut wanted, on_host(&batch, whole)),
            (&mut encoders.1, array),
            &what,
        );
        drop(staged);
    }
    assert_clean("late");
}

/// Lent memory goes back after its copy, not after the release of the arrays.
#[test]
fn lent_memory_goes_back_when_it_was_copied() {
    run("wrong-held", &[]);
}

fn memory_goes_back_at_once() {
    let device = Device::get(0).unwrap();
    let batch = wide();
    for (from_gpu, target, level) in [
        (false, Target::Cuda(0), Level::Structure),
        (false, Target::Cuda(0), Level::Full),
        (true, Target::Cuda(0), Level::Full),
        (true, Target::Host, Level::Structure),
        (true, Target::Host, Level::Full),
    ] {
        let mut passing = Decoding::new(&batch.schema(), level, target);
        let messages = passing
            .encoder
            .encode(on_host(&batch, whole), None)
            .unwrap();
        let gone = Arc::new(AtomicBool::new(false));
        let body = lent(&messages[0], from_gpu.then_some(&device), &gone);
        let decoded = feed(&mut passing.decoder, &messages[0].header, &body);
        let decoded = decoded.unwrap().unwrap();
        assert!(!gone.load(Ordering::SeqCst));
        drop(body);
        assert!(
            gone.load(Ordering::SeqCst),
            "{from_gpu}, {target:?}, {level:?}"
        );
        // The array is valid without it.
        drop(messages);
        let mut encoders = (encoder(&batch.schema()), encoder(&batch.schema()));
        let (wanted, got) = (on_host(&batch, whole), decoded.array);
        assert_same((&mut encoders.0, wanted), (&mut encoders.1, got), "held");
    }
    assert_clean("held");
}

/// A lent body, on the host or on a GPU, that reports its return.
fn lent(
    message: &EncodedMessage,
    device: Option<&Arc<Device>>,
    gone: &Arc<AtomicBool>,
) -> ReceivedBody {
    let gone = Arc::clone(gone);
    let Some(device) = device else {
        let owner = Arc::new(Told(message.clone(), gone));
        // SAFETY: the buffers lie on the host, where the message keeps them.
        return unsafe { ReceivedBody::new(message.buffers.to_vec(), owner, true) };
    };
    let (memory, buffers) = upload(message, device);
    let owner = Arc::new(Told(memory, gone));
    // SAFETY: the buffers lie in the memory, which the body holds.
    unsafe { ReceivedBody::on_gpu(buffers, owner, true, Arc::clone(device), None) }
}
