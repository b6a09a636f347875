//! Streams moved to a GPU and to the host, through the C streams.

use std::collections::VecDeque;
use std::fs::File;
use std::ptr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use dipc::arrow::abi::{ArrowArrayStream, ArrowDeviceArrayStream};
use dipc::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream, to_device};
use dipc::arrow::transfer::{to_host, to_target};
use dipc::arrow::{
    BatchReader, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream, export_batches,
    schema_to_c,
};
use dipc::device::cuda::{Device, DeviceMemory, PinnedMemory, Purpose, Stream, SyncEvent};
use dipc::device::{DeviceKind, Target};
use dipc::error::{Error, Result, Status};
use dipc::ffi::{dipc_error_free, dipc_error_text, dipc_stream_to_device, dipc_stream_to_host};

use crate::decoding::{assert_at, assert_clean};
use crate::headers::{Uploaded, files, on_device, on_host, whole, wide};
use crate::{Case, end_on_panic, fake, run, run_in};

pub const CASES: &[Case] = &[
    ("move-golden", streams_come_back),
    ("move-kinds", memory_of_cuda_is_read),
    ("move-late", events_are_waited_for),
    ("move-failing", failures_keep_their_words),
    ("move-refused", what_cannot_be_moved_stays),
    ("move-alone", nothing_is_moved_without_a_driver),
    ("move-memory", streams_are_larger_than_the_device),
];

fn stream_of(schema: &SchemaRef, batches: &[RecordBatch]) -> OwnedDeviceStream {
    let batches: Vec<_> = batches.iter().cloned().map(Ok).collect();
    export_batches(Box::new(RecordBatchIterator::new(
        batches,
        Arc::clone(schema),
    )))
}

/// Reads a host stream.
fn read(stream: OwnedStream) -> Result<Vec<RecordBatch>> {
    // SAFETY: the library made the stream, of valid batches.
    let mut reader = unsafe { BatchReader::new(to_device(stream)) }?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch()? {
        batches.push(batch);
    }
    Ok(batches)
}

/// A producer of arrays, played by the test.
struct Producer {
    schema: SchemaRef,
    device_type: i32,
    arrays: VecDeque<Result<OwnedDeviceArray>>,
}

impl ArrayReader for Producer {
    fn schema(&mut self) -> Result<OwnedSchema> {
        schema_to_c(&self.schema)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.arrays.pop_front().transpose()
    }

    fn device_type(&self) -> i32 {
        self.device_type
    }
}

fn produce(
    schema: &SchemaRef,
    device_type: i32,
    arrays: impl IntoIterator<Item = Result<OwnedDeviceArray>>,
) -> OwnedDeviceStream {
    export_device_stream(Box::new(Producer {
        schema: Arc::clone(schema),
        device_type,
        arrays: arrays.into_iter().collect(),
    }))
}

/// Promise of `dipc_stream_to_device` and `dipc_stream_to_host`: a table that goes to a GPU and
/// back is equal, for every type.
#[test]
fn every_vector_goes_to_the_gpu_and_comes_back() {
    run("move-golden", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn streams_come_back() {
    let mut rows = 0;
    for path in files() {
        let what = path.display().to_string();
        let reader = StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
        let schema = reader.schema();
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        let there = to_target(stream_of(&schema, &batches), Target::Cuda(0)).unwrap();
        assert_eq!(there.raw().device_type, DeviceKind::CUDA.0);
        // From one GPU to the other, and to its own device.
        let there = to_target(there, Target::Cuda(1)).unwrap();
        let there = to_target(there, Target::Cuda(1)).unwrap();
        let back = read(to_host(there).unwrap()).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(back.len(), batches.len(), "{what}");
        for (back, batch) in back.iter().zip(&batches) {
            assert_eq!(back.schema().fields(), schema.fields(), "{what}");
            assert_eq!(back.columns(), batch.columns(), "{what}");
            back.columns()
                .iter()
                .for_each(|column| column.to_data().validate_full().unwrap());
            rows += back.num_rows();
        }
        drop(back);
        assert_clean(&what);
    }
    assert!(rows > 1000, "{rows}");
}

/// Pinned memory counts as host memory, managed memory as device memory: both are copied to the
/// target.
#[test]
fn pinned_and_managed_memory_is_read() {
    run("move-kinds", &[]);
}

fn memory_of_cuda_is_read() {
    let batch = wide();
    let schema = batch.schema();
    for kind in [
        DeviceKind::CUDA,
        DeviceKind::CUDA_HOST,
        DeviceKind::CUDA_MANAGED,
    ] {
        for target in [Target::Host, Target::Cuda(0)] {
            let mut held = Vec::new();
            let arrays: Vec<_> = (0..2)
                .map(|_| {
                    let mut array = if kind == DeviceKind::CUDA_HOST {
                        on_host(&batch, whole)
                    } else {
                        let Uploaded { array, memory } = on_device(&batch, whole);
                        held.push(memory);
                        array
                    };
                    // SAFETY: device memory may be labelled managed, and host memory pinned:
                    // nothing depends on it.
                    unsafe { array.raw_mut() }.device_type = kind.0;
                    Ok(array)
                })
                .collect();
            let moved = to_target(produce(&schema, kind.0, arrays), target).unwrap();
            let back = read(to_host(moved).unwrap()).unwrap();
            assert!(back == [batch.clone(), batch.clone()], "{kind:?}");
        }
    }
    assert_clean("kinds");
}

/// Unfinished work of a producer is waited for, on a GPU and in pinned memory.
#[test]
fn late_arrays_are_waited_for() {
    run("move-late", &[]);
}

fn events_are_waited_for() {
    end_on_panic();
    let device = Device::get(0).unwrap();
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let data = batch.column(0).to_data();
    let values = data.buffers()[0].as_slice().to_vec();
    let pinned = PinnedMemory::new(&device, values.len()).unwrap();
    let memory = DeviceMemory::new(&device, values.len(), Purpose::Own).unwrap();
    for (kind, at) in [(2, memory.address()), (3, pinned.address())] {
        fake::write(at, &vec![0xEE; values.len()]);
        let producer = Stream::new(&device).unwrap();
        fake::hold(producer.raw().cast(), 1);
        // SAFETY: all live to the end.
        unsafe { producer.copy(at, values.as_ptr() as u64, values.len()) }.unwrap();
        let event = SyncEvent::record(&producer).unwrap();
        let mut array = on_host(&batch, |array| {
            // SAFETY: the array has one child, of two buffers.
            let child = unsafe { &**array.children };
            // SAFETY: as above.
            let slot = unsafe { &mut *child.buffers.add(1) };
            *slot = ptr::without_provenance(usize::try_from(at).unwrap());
        });
        // SAFETY: this is where the buffer lies now; the event lives to the end.
        let raw = unsafe { array.raw_mut() };
        (raw.device_type, raw.device_id, raw.sync_event) = (kind, 0, event.pointer());
        let stream = to_host(produce(&batch.schema(), kind, [Ok(array)])).unwrap();
        let reading = std::thread::spawn(move || read(stream).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!reading.is_finished(), "type {kind}: not waited for");
        fake::hold(producer.raw().cast(), 0);
        assert!(reading.join().unwrap() == [batch.clone()], "type {kind}");
    }
}

/// Errors of the source keep their status and text, and errors of its arrays name the field.
#[test]
fn failures_of_a_moved_stream_keep_their_words() {
    run("move-failing", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn failures_keep_their_words() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["one", "two"]));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let schema = batch.schema();
    let error = Error::new(Status::Provider, "the pipe dream is broken");
    let Uploaded { array, memory } = on_device(&batch, whole);
    let moved = to_host(produce(&schema, 2, [Ok(array), Err(error)])).unwrap();
    let error = read(moved).unwrap_err();
    assert!(error.text().contains("the pipe dream is broken"), "{error}");
    drop(memory);

    // Memory of one GPU that claims to be on the other.
    let Uploaded { mut array, memory } = on_device(&batch, whole);
    // SAFETY: that it is wrong is what is tested.
    unsafe { array.raw_mut() }.device_id = 1;
    let error = read(to_host(produce(&schema, 2, [Ok(array)])).unwrap()).unwrap_err();
    assert!(error.text().contains("field `text`"), "{error}");
    assert!(error.text().contains("is GPU 0's"), "{error}");
    drop(memory);

    // An error of the driver ends the stream with the call's name.
    let Uploaded { array, memory } = on_device(&batch, whole);
    let moved = to_host(produce(&schema, 2, [Ok(array)])).unwrap();
    fake::fail_call("cuMemcpyAsync", 1, 999);
    let error = read(moved).unwrap_err();
    assert!(error.text().contains("cuMemcpyAsync"), "{error}");
    drop(memory);
    // A stream that is released early leaves nothing.
    let moved = to_target(
        stream_of(&schema, &[batch.clone(), batch.clone()]),
        Target::Cuda(1),
    );
    let mut moved = DeviceStreamReader::new(moved.unwrap());
    let array = moved.next().unwrap().unwrap();
    assert_at(&array, Some(1), "the first");
    drop(moved);
    drop(array);
    assert_clean("failing");
}

/// The outcome of a C call: a status and the text of the error.
fn outcome(call: impl FnOnce(*mut *mut dipc::ffi::dipc_error) -> i32) -> (i32, String) {
    let mut error = ptr::null_mut();
    let status = call(&raw mut error);
    // SAFETY: it is NULL or an error that the call gave.
    let text = unsafe { dipc_error_text(error) };
    let text = match text.is_null() {
        true => String::new(),
        // SAFETY: the text of an error is a C string until it is freed.
        false => unsafe { std::ffi::CStr::from_ptr(text) }
            .to_str()
            .unwrap()
            .to_owned(),
    };
    // SAFETY: it is NULL or an error that nobody has freed.
    unsafe { dipc_error_free(error) };
    (status, text)
}

/// Ownership moves on success only: a stream that cannot be moved stays unchanged with the caller.
#[test]
fn streams_that_cannot_be_moved_stay() {
    run("move-refused", &[]);
}

fn what_cannot_be_moved_stays() {
    let batch = wide();
    let mut source = stream_of(&batch.schema(), std::slice::from_ref(&batch)).into_raw();
    let mut out = ArrowDeviceArrayStream::empty();
    for (from, device_type, id, told) in [
        (1, 2, 1, "there is no GPU 1"),
        (1, 2, -1, "-1"),
        (1, 3, 0, "device type 3"),
        (1, 0, 0, "device type 1"),
        (10, 2, 0, "device type 10"),
        (8, 1, 0, "device type 8"),
    ] {
        source.device_type = from;
        let (source, out) = (&raw mut source, &raw mut out);
        let (status, text) = outcome(|error| {
            // SAFETY: all three are writable; nobody else uses the stream.
            unsafe { dipc_stream_to_device(source, device_type, id, out, error) }
        });
        assert!(status < 0 && text.contains(told), "{told}: {status} {text}");
    }
    source.device_type = 10;
    let mut host = ArrowArrayStream::empty();
    let (status, text) = {
        let (source, host) = (&raw mut source, &raw mut host);
        // SAFETY: as above.
        outcome(|error| unsafe { dipc_stream_to_host(source, host, error) })
    };
    assert!(status < 0 && text.contains("device type 10"), "{text}");
    assert!(source.release.is_some() && out.release.is_none() && host.release.is_none());

    source.device_type = 1;
    let (status, text) = {
        let (source, out) = (&raw mut source, &raw mut out);
        // SAFETY: as above.
        outcome(|error| unsafe { dipc_stream_to_device(source, 2, 0, out, error) })
    };
    assert_eq!(status, 0, "{text}");
    assert!(source.release.is_none());
    assert_eq!(out.device_type, 2);
    let (status, text) = {
        let (out, host) = (&raw mut out, &raw mut host);
        // SAFETY: as above.
        outcome(|error| unsafe { dipc_stream_to_host(out, host, error) })
    };
    assert_eq!(status, 0, "{text}");
    // SAFETY: the stream was made by the call, and is moved here.
    let host = unsafe { OwnedStream::take(&raw mut host) };
    assert!(read(host).unwrap() == [batch]);
    assert_clean("refused");
}

/// Without a driver the error says so, and host streams pass.
#[test]
fn without_a_driver_arrays_of_cuda_are_refused() {
    let nothing = crate::places::scratch("no_cuda_to_move");
    // The name of the driver leads to no library, so that an installed driver is not used.
    std::fs::write(nothing.join("libcuda.so.1"), "").unwrap();
    run_in("move-alone", &nothing, &[]);
}

fn nothing_is_moved_without_a_driver() {
    let batch = wide();
    let schema = batch.schema();
    for kind in [2, 3, 13] {
        let error = to_host(produce(&schema, kind, [])).unwrap_err();
        assert_eq!(error.status(), Status::Unsupported, "{error}");
        let text = error.text();
        assert!(text.contains(&format!("device type {kind}")), "{text}");
        assert!(text.contains("libcuda.so.1"), "{text}");
    }
    let error = to_target(
        stream_of(&schema, std::slice::from_ref(&batch)),
        Target::Cuda(0),
    )
    .unwrap_err();
    assert_eq!(error.status(), Status::Unsupported, "{error}");
    let host = to_target(
        stream_of(&schema, std::slice::from_ref(&batch)),
        Target::Host,
    )
    .unwrap();
    assert!(read(to_host(host).unwrap()).unwrap() == [batch]);
}

/// Memory is reused: a stream larger than the GPU passes through it, in chunks larger than the
/// pinned memory.
#[test]
fn a_stream_may_be_larger_than_the_gpu() {
    run("move-memory", &[("FAKE_CUDA_MEMORY", "67108864")]);
}

fn streams_are_larger_than_the_device() {
    let batch = |number: i32| {
        let numbers = (0..3 << 20).map(|row: i32| row.wrapping_mul(7) ^ number);
        let texts = (0..1000)
            .cycle()
            .take(3 << 20)
            .map(|row| (row % 3 != 0).then_some("abc"));
        let columns: [(&str, ArrayRef); 2] = [
            ("n", Arc::new(Int32Array::from_iter_values(numbers))),
            ("t", Arc::new(StringArray::from_iter(texts))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    };
    let batches = [batch(1), batch(2), batch(3)];
    let there = to_target(stream_of(&batches[0].schema(), &batches), Target::Cuda(0)).unwrap();
    let back = read(to_host(there).unwrap()).unwrap();
    assert!(back == batches);
    assert_clean("memory");
}
