//! Bodies and dictionaries on several devices, and the devices of their arrays.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{ArrayRef, Int32Array, RecordBatch};
use dipc::arrow::decode::{DecodeOptions, Decoder, Level, ReceivedBody};
use dipc::device::cuda::{Device, DeviceMemory, Event, Purpose, Stream, later};
use dipc::device::{BufferRef, HostBuffer, Target};
use dipc::error::Status;
use dipc::proto::Header;

use crate::decoding::{
    Decoding, Told, assert_at, assert_clean, assert_same, bytes_of, dictionary, encoder, feed,
    packed_on_gpu,
};
use crate::headers::{on_host, whole};
use crate::{Case, end_on_panic, fake, run};

pub const CASES: &[Case] = &[
    ("decode-twins", dictionaries_are_moved_once),
    ("decode-places", bodies_come_from_different_places),
    ("decode-between", bodies_go_from_one_gpu_to_another),
];

/// A dictionary is copied to the GPU after a change, not with every batch.
#[test]
fn dictionaries_go_to_the_gpu_once() {
    run("decode-twins", &[]);
}

fn dictionaries_are_moved_once() {
    let batch = |first: &[&str], second: &[&str]| {
        let column = |values| Arc::clone(dictionary(values).column(0));
        RecordBatch::try_from_iter([("d", column(first)), ("e", column(second))]).unwrap()
    };
    let batches = [
        batch(&["a", "b", "a"], &["p", "q", "p"]),
        // Unchanged; one more value in one of them; unchanged; other values in the other.
        batch(&["a", "b", "a"], &["p", "q", "p"]),
        batch(&["a", "b", "c"], &["p", "q", "p"]),
        batch(&["a", "b", "c"], &["p", "q", "p"]),
        batch(&["a", "b", "c"], &["x", "y", "x"]),
    ];
    let schema = batches[0].schema();
    let mut passing = Decoding::new(&schema, Level::Structure, Target::Cuda(0));
    let mut encoders = (encoder(&schema), encoder(&schema));
    let mut staged = Vec::new();
    let mut kept = Vec::new();
    for batch in &batches {
        let decoded = passing.pass(on_host(batch, whole), true).unwrap();
        staged.push(decoded.staged);
        kept.push(decoded.array);
    }
    // Always twice three indices of four bytes; for a dictionary also its offsets and letters.
    let (two, three) = (12 + 2, 16 + 3);
    assert_eq!(staged, [24 + two + two, 24, 24 + three, 24, 24 + two]);
    // Batches keep their dictionary.
    for (batch, array) in batches.iter().zip(kept) {
        assert_same(
            (&mut encoders.0, on_host(batch, whole)),
            (&mut encoders.1, array),
            "kept",
        );
    }
    drop((passing, encoders));
    assert_clean("twins");
}

/// Bodies on changing devices, with one dictionary: each batch lies on its body's device, or on the
/// target.
#[test]
fn bodies_of_one_stream_may_lie_in_different_places() {
    run("decode-places", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn bodies_come_from_different_places() {
    let devices = [0, 1].map(|ordinal| Device::get(ordinal).unwrap());
    let batches = [
        dictionary(&["a", "b"]),
        dictionary(&["a", "b", "c"]),
        dictionary(&["a", "b", "c", "d"]),
    ];
    let schema = batches[0].schema();
    for target in [Target::AsSent, Target::Host, Target::Cuda(1)] {
        for level in [Level::Structure, Level::Full] {
            // Each message, also dictionaries, on the host or on one of two GPUs: not all
            // combinations, but each pair of devices for successive messages.
            for places in (0..3_u32.pow(6)).step_by(13) {
                let mut passing = Decoding::new(&schema, level, target);
                let mut encoders = (encoder(&schema), encoder(&schema));
                let mut number = 0;
                for batch in &batches {
                    let messages = passing.encoder.encode(on_host(batch, whole), None).unwrap();
                    assert_eq!(messages.len(), 2);
                    let mut last = None;
                    for message in &messages {
                        let on_gpu = (places / 3_u32.pow(number) % 3).checked_sub(1);
                        number += 1;
                        let body = match on_gpu {
                            Some(gpu) => packed_on_gpu(message, &devices[gpu as usize], 0),
                            None => message.received(true),
                        };
                        let decoded = feed(&mut passing.decoder, &message.header, &body).unwrap();
                        last = decoded.map(|decoded| (decoded, on_gpu));
                    }
                    let (decoded, on_gpu) = last.unwrap();
                    let to = match target {
                        Target::Host => None,
                        Target::Cuda(ordinal) => Some(ordinal),
                        Target::AsSent => on_gpu.map(u32::cast_signed),
                    };
                    let what = format!("{target:?}, {level:?}, {places}");
                    assert_at(&decoded.array, to, &what);
                    // A separate encoder for each combination, because dictionaries differ by
                    // device.
                    encoders.1 = encoder(&schema);
                    encoders.0 = encoder(&schema);
                    assert_same(
                        (&mut encoders.0, on_host(batch, whole)),
                        (&mut encoders.1, decoded.array),
                        &what,
                    );
                }
            }
        }
    }
    assert_clean("places");
}

/// A body on another GPU than the target is copied there, at once if its producer is done. Its
/// memory goes back after the copy, even while the arrays are kept.
#[test]
fn bodies_go_to_another_gpu() {
    run("decode-between", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn bodies_go_from_one_gpu_to_another() {
    end_on_panic();
    let device = Device::get(0).unwrap();
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let producer = Stream::new(&device).unwrap();
    let (mut wanted, mut got) = (encoder(&batch.schema()), encoder(&batch.schema()));
    let mut passing = Decoding::new(&batch.schema(), Level::Structure, Target::Cuda(1));
    let messages = passing
        .encoder
        .encode(on_host(&batch, whole), None)
        .unwrap();
    let header = &messages[0].header;
    let bytes = bytes_of(&messages[0]).1;

    // The values come late.
    let memory = DeviceMemory::new(&device, 4000, Purpose::Own).unwrap();
    let mut values = HostBuffer::new(4000).unwrap();
    values.as_mut_slice().copy_from_slice(&bytes[1]);
    let address = memory.address();
    fake::hold(producer.raw().cast(), 1);
    // SAFETY: both live to the end.
    unsafe { producer.copy(address, values.as_ref().data as u64, 4000) }.unwrap();
    let ready = Arc::new(Event::new(&device).unwrap());
    ready.record(&producer).unwrap();
    let gone = Arc::new(AtomicBool::new(false));
    let owner: Arc<dyn Any + Send + Sync> = Arc::new(Told(memory, Arc::clone(&gone)));
    let buffers = vec![
        BufferRef::EMPTY,
        BufferRef {
            data: std::ptr::without_provenance(usize::try_from(address).unwrap()),
            len: 4000,
        },
    ];
    // SAFETY: the buffer lies in the memory that the owner holds.
    let body = unsafe { ReceivedBody::on_gpu(buffers, owner, true, device, Some(ready)) };
    let decoded = feed(&mut passing.decoder, header, &body).unwrap().unwrap();
    drop(body);
    assert_at(&decoded.array, Some(1), "late");
    assert_eq!(decoded.copied_on_device, 4000);
    assert!(
        !decoded.array.raw().sync_event.is_null(),
        "nothing to wait for"
    );
    assert!(
        !gone.load(Ordering::SeqCst),
        "what is still to be read is gone"
    );
    // The release of an array does not wait for its work: the memory stays until the work is done,
    // and is reused only then.
    let second = feed(&mut passing.decoder, header, &messages[0].received(true));
    let second = second.unwrap().unwrap().array;
    assert!(!second.raw().sync_event.is_null());
    let mut places = Vec::new();
    crate::decoding::buffers(&second.raw().array, &mut |address| places.push(address));
    drop(second);
    let other = Device::get(1).unwrap();
    let memory = || DeviceMemory::new(&other, 4000, Purpose::Own).unwrap();
    let first = memory();
    assert!(
        !places.contains(&first.address()),
        "memory was given up that work is using"
    );
    fake::hold(producer.raw().cast(), 0);
    assert!(later::wait(std::time::Duration::from_secs(10)));
    let next = memory();
    assert!(
        places.contains(&next.address()),
        "memory is kept that no work uses"
    );
    drop((first, next));
    assert_same(
        (&mut wanted, on_host(&batch, whole)),
        (&mut got, decoded.array),
        "late",
    );
    // The next batch notices that the work is done.
    feed(&mut passing.decoder, header, &messages[0].received(true)).unwrap();
    assert!(gone.load(Ordering::SeqCst), "what was read is held");
    drop((passing, got, producer));
    let refused = Decoder::with_target(
        &Header::parse(wanted.schema_header()).unwrap(),
        DecodeOptions::default(),
        Target::Cuda(2),
    );
    assert_eq!(refused.unwrap_err().status(), Status::InvalidArgument);
    assert_clean("between");
}
