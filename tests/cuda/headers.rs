//! Headers of arrays on a GPU equal those of the arrays on the host, byte by byte; and the cost of
//! reading lengths.

use std::ffi::c_void;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, BooleanArray, Int32Array, ListArray, RecordBatch, StringArray,
    StringViewArray, StructArray,
};
use arrow::datatypes::{DataType, Int32Type, Schema};
use arrow::ipc::reader::StreamReader;
use dipc::arrow::abi::{ArrowArray, ArrowDeviceArray};
use dipc::arrow::{
    Compression, EncodeOptions, EncodedMessage, Encoder, OwnedDeviceArray, batch_to_c, schema_to_c,
};
use dipc::device::cuda::{Device, DeviceMemory, PinnedMemory, Purpose, Stream, SyncEvent};
use dipc::error::Status;

use crate::{Case, fake, places, run};

pub const CASES: &[Case] = &[
    ("golden", headers_are_the_hosts),
    ("rounds", lengths_are_fetched_at_once),
    ("late", encoding_waits_for_the_event),
    ("wrong", wrong_arrays_are_refused),
    ("places", arrays_move_between_places),
    ("faults", every_call_fails_while_encoding),
];

/// An array with buffers on the device, and their memory.
pub struct Uploaded {
    pub array: OwnedDeviceArray,
    pub memory: Vec<DeviceMemory>,
}

/// The length of each buffer of an exported array.
fn lengths(array: &ArrowArray, data: &ArrayData) -> Vec<usize> {
    let count = usize::try_from(array.n_buffers).unwrap();
    let kind = data.data_type();
    let validity = !matches!(
        kind,
        DataType::Null | DataType::Union(..) | DataType::RunEndEncoded(..)
    );
    let view = matches!(kind, DataType::Utf8View | DataType::BinaryView);
    (0..count)
        .map(|index| match index {
            0 if validity => (data.len() + data.offset()).div_ceil(8),
            _ if view && index == count - 1 => 8 * (count - 3),
            _ => data.buffers()[index - usize::from(validity)].len(),
        })
        .collect()
}

/// Copies the buffers of an array and its children to the device, into memory of exactly their
/// length.
fn upload(
    array: &mut ArrowArray,
    data: &ArrayData,
    device: &Arc<Device>,
    memory: &mut Vec<DeviceMemory>,
) {
    for (index, len) in lengths(array, data).into_iter().enumerate() {
        // SAFETY: the array has so many buffers, of these lengths; arrow-rs no longer reads its
        // list.
        unsafe {
            let slot = array.buffers.add(index);
            let host = (*slot).cast::<u8>();
            if host.is_null() || len == 0 {
                continue;
            }
            let buffer = DeviceMemory::new(device, len, Purpose::Own).unwrap();
            fake::write(buffer.address(), std::slice::from_raw_parts(host, len));
            *slot =
                std::ptr::without_provenance::<c_void>(usize::try_from(buffer.address()).unwrap());
            memory.push(buffer);
        }
    }
    let mut children = data.child_data().iter();
    for index in 0..usize::try_from(array.n_children).unwrap() {
        // SAFETY: the array has so many children, each an array of its own.
        let child = unsafe { &mut **array.children.add(index) };
        upload(child, children.next().unwrap(), device, memory);
    }
    if !array.dictionary.is_null() {
        // SAFETY: it is not NULL, so it is an array of its own.
        let dictionary = unsafe { &mut *array.dictionary };
        upload(dictionary, children.next().unwrap(), device, memory);
    }
}

/// The batch as an array on the host.
pub fn on_host(batch: &RecordBatch, change: impl Fn(&mut ArrowArray)) -> OwnedDeviceArray {
    let mut array = batch_to_c(batch.clone());
    // SAFETY: the change keeps to the C data interface.
    change(unsafe { &mut array.raw_mut().array });
    array
}

/// The batch as an array on the device, with a copy of every buffer there.
pub fn on_device(batch: &RecordBatch, change: impl Fn(&mut ArrowArray)) -> Uploaded {
    let device = Device::get(0).unwrap();
    let mut array = batch_to_c(batch.clone());
    let data = StructArray::from(batch.clone()).to_data();
    let mut memory = Vec::new();
    // SAFETY: only the places of the buffers change, and the fields that name the device.
    let raw: &mut ArrowDeviceArray = unsafe { array.raw_mut() };
    upload(&mut raw.array, &data, &device, &mut memory);
    change(&mut raw.array);
    raw.device_type = 2;
    raw.device_id = 0;
    Uploaded { array, memory }
}

fn encoder(schema: &Schema) -> Encoder {
    Encoder::new(&schema_to_c(schema).unwrap(), EncodeOptions::default()).unwrap()
}

/// Asserts that both have equal headers and bodies.
fn assert_same(host: &EncodedMessage, device: &EncodedMessage, what: &str) {
    assert_eq!(host.header, device.header, "{what}: the headers differ");
    assert_eq!(host.body_len, device.body_len, "{what}");
    device.owner.gpu().unwrap().1.synchronize().unwrap();
    assert!(host.owner.gpu().is_none());
    for (index, (host, device)) in host.buffers.iter().zip(&device.buffers).enumerate() {
        // SAFETY: the message on the host keeps its memory.
        let wanted = unsafe { host.as_slice() };
        let got = match device.len {
            0 => Vec::new(),
            len => fake::read(device.data as u64, len),
        };
        assert!(wanted == got, "{what}: buffer {index} differs");
    }
}

pub fn files() -> Vec<PathBuf> {
    let [ours, golden] = places::vectors();
    if !golden.is_dir() {
        println!(
            "skipped in part: no folder {}; DIPC_GOLDEN names another",
            golden.display()
        );
    }
    let mut files: Vec<_> = [ours, golden]
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "arrows" || end == "stream")
        })
        .collect();
    files.sort();
    assert!(files.len() > 25, "vectors are missing");
    files
}

/// Nothing is changed.
pub fn whole(_: &mut ArrowArray) {}

/// Rows from the fourth on, by the offset of the struct, so that bitmaps begin within a byte.
fn sliced(array: &mut ArrowArray) {
    let skipped = array.length.min(3);
    array.offset += skipped;
    array.length -= skipped;
}

/// The producer does not know any null count.
fn uncounted(array: &mut ArrowArray) {
    array.null_count = -1;
    for index in 0..usize::try_from(array.n_children).unwrap() {
        // SAFETY: the array has so many children, each an array of its own.
        uncounted(unsafe { &mut **array.children.add(index) });
    }
    // SAFETY: where it is not NULL, it is an array of its own.
    if let Some(dictionary) = unsafe { array.dictionary.as_mut() } {
        uncounted(dictionary);
    }
}

pub fn sliced_and_uncounted(array: &mut ArrowArray) {
    sliced(array);
    uncounted(array);
}

#[test]
fn headers_of_every_vector_are_those_of_the_host() {
    run("golden", &[]);
}

fn headers_are_the_hosts() {
    let device = Device::get(0).unwrap();
    let mut messages = 0;
    for path in files() {
        let reader = StreamReader::try_new(File::open(&path).unwrap(), None).unwrap();
        let schema = reader.schema();
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.unwrap()).collect();
        for (variant, change) in [whole, sliced, uncounted, sliced_and_uncounted]
            .into_iter()
            .enumerate()
        {
            let (mut on_the_host, mut on_the_device) = (encoder(&schema), encoder(&schema));
            let mut held = Vec::new();
            for (number, batch) in batches.iter().enumerate() {
                let what = format!("{}, batch {number}, variant {variant}", path.display());
                let host = on_the_host.encode(on_host(batch, change), None).unwrap();
                let Uploaded { array, memory } = on_device(batch, change);
                let remote = on_the_device
                    .encode(array, None)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(host.len(), remote.len(), "{what}: other messages");
                for (host, remote) in host.iter().zip(&remote) {
                    assert_eq!(host.kind, remote.kind, "{what}");
                    assert_same(host, remote, &what);
                    messages += 1;
                }
                // Dictionaries are compared with the batch before.
                held.push(memory);
            }
        }
        device.trim().unwrap();
        let live = fake::Live::now();
        assert_eq!(
            (live.allocations, live.pinned, live.events),
            (0, 0, 0),
            "{}",
            path.display()
        );
    }
    assert!(messages > 400, "{messages}");
}

pub fn list(rows: i32) -> ListArray {
    ListArray::from_iter_primitive::<Int32Type, _, _>((0..rows).map(|row| {
        (row % 4 != 0).then(|| {
            (0..row % 7)
                .map(|value| (value % 3 != 0).then_some(value))
                .collect::<Vec<_>>()
        })
    }))
}

/// A batch of many columns with lengths and null counts on the device.
pub fn wide() -> RecordBatch {
    let strings: Vec<_> = (0..1000)
        .map(|row| (row % 5 != 0).then(|| format!("a text of row {row}")))
        .collect();
    let columns = (0..40).map(|column| {
        let array: ArrayRef = match column % 5 {
            0 => Arc::new(StringArray::from(strings.clone())),
            1 => Arc::new(StringViewArray::from_iter(
                strings.iter().map(Option::as_deref),
            )),
            2 => Arc::new(Int32Array::from_iter(
                (0..1000).map(|row| (row % 3 != 0).then_some(row)),
            )),
            3 => Arc::new(BooleanArray::from_iter(
                (0..1000).map(|row| (row % 3 != 0).then_some(row % 2 == 0)),
            )),
            _ => Arc::new(list(1000)),
        };
        (format!("column {column}"), array)
    });
    RecordBatch::try_from_iter(columns).unwrap()
}

/// One batched fetch per record batch, not one per column.
#[test]
fn all_lengths_of_a_batch_are_fetched_at_once() {
    run("rounds", &[]);
}

fn lengths_are_fetched_at_once() {
    let batch = wide();
    let mut encoder = encoder(&batch.schema());
    let calls = [
        "cuLaunchKernel",
        "cuEventSynchronize",
        "cuMemcpyAsync",
        "cuStreamSynchronize",
    ];
    for (change, expected) in [
        // Values only; then counted bits too; then moved bitmaps, which the send waits for.
        (whole as fn(&mut ArrowArray), [1, 1, 0, 0]),
        (uncounted, [2, 1, 0, 0]),
        (sliced_and_uncounted, [3, 1, 0, 0]),
    ] {
        let uploaded = on_device(&batch, change);
        let before = calls.map(fake::count);
        let messages = encoder.encode(uploaded.array, None).unwrap();
        let counted: Vec<i64> = calls
            .iter()
            .zip(before)
            .map(|(call, was)| fake::count(call) - was)
            .collect();
        assert_eq!(counted, expected, "{calls:?}");
        let host = self::encoder(&batch.schema())
            .encode(on_host(&batch, change), None)
            .unwrap();
        assert_same(&host[0], &messages[0], "wide");
        drop(messages);
        drop(uploaded.memory);
    }
    // Numbers without nulls need no fetch.
    let column: ArrayRef = Arc::new(Int32Array::from_iter_values(0..100));
    let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
    let uploaded = on_device(&batch, whole);
    let before = calls.map(fake::count);
    self::encoder(&batch.schema())
        .encode(uploaded.array, None)
        .unwrap();
    assert_eq!(calls.map(fake::count), before);
}

#[test]
fn lengths_are_read_after_the_producers_event() {
    run("late", &[]);
}

fn encoding_waits_for_the_event() {
    let batch = wide();
    let host = encoder(&batch.schema())
        .encode(on_host(&batch, whole), None)
        .unwrap();
    let mut uploaded = on_device(&batch, whole);
    // The data comes late: until then the memory has other, invalid data.
    let device = Device::get(0).unwrap();
    let producer = Stream::new(&device).unwrap();
    fake::hold(producer.raw().cast(), 1);
    let staged: Vec<PinnedMemory> = (uploaded.memory.iter())
        .map(|buffer| {
            let mut staged = PinnedMemory::new(&device, buffer.len()).unwrap();
            let bytes = fake::read(buffer.address(), buffer.len());
            // SAFETY: no work was given to the device yet; and everything lives to the end.
            unsafe {
                staged.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
                producer
                    .copy(buffer.address(), staged.address(), bytes.len())
                    .unwrap();
            }
            fake::write(buffer.address(), &vec![0xEE; buffer.len()]);
            staged
        })
        .collect();
    let event = SyncEvent::record(&producer).unwrap();
    // SAFETY: the event lives to the end.
    unsafe { uploaded.array.raw_mut() }.sync_event = event.pointer();
    let waits = fake::count("cuStreamWaitEvent");
    let messages = std::thread::scope(|scope| {
        let array = uploaded.array;
        let encoding = scope.spawn(|| encoder(&batch.schema()).encode(array, None).unwrap());
        // The encoder's stream waits, or its work is done already; the thread does not wait.
        while fake::count("cuStreamWaitEvent") == waits && !encoding.is_finished() {
            std::thread::yield_now();
        }
        fake::hold(producer.raw().cast(), 0);
        encoding.join().unwrap()
    });
    assert_same(&host[0], &messages[0], "late");
    drop(messages);
    drop(staged);
}

#[test]
fn arrays_that_are_not_what_they_say_are_refused() {
    run("wrong", &[("FAKE_CUDA_DEVICES", "2")]);
}

fn wrong_arrays_are_refused() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["one", "two", "three"]));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let schema = batch.schema();
    let refused = |array: OwnedDeviceArray, status: Status, text: &str| {
        let mut encoder = encoder(&schema);
        let refused = encoder.try_encode(array, None).unwrap_err();
        let (error, array) = *refused;
        assert_eq!(error.status(), status, "{error}");
        assert!(error.text().contains(text), "{text}: {error}");
        // The array is given back, and the encoder goes on.
        assert!(!array.is_released());
        encoder
            .encode(on_device(&batch, whole).array, None)
            .map(drop)
            .unwrap();
    };
    // Host memory that claims to be device memory.
    let mut array = on_host(&batch, whole);
    // SAFETY: the test needs the wrong value.
    let raw = unsafe { array.raw_mut() };
    (raw.device_type, raw.device_id) = (2, 0);
    refused(
        array,
        Status::InvalidData,
        "field `text`: the buffer of 4 bytes",
    );
    for (id, status, text) in [
        (7, Status::InvalidArgument, "no GPU 7: the driver sees 2"),
        (-1, Status::InvalidArgument, "device type 2"),
        (1, Status::InvalidData, "is GPU 0's"),
    ] {
        let mut uploaded = on_device(&batch, whole);
        // SAFETY: as above.
        unsafe { uploaded.array.raw_mut() }.device_id = id;
        refused(uploaded.array, status, text);
    }
    // An offset beyond the allocation.
    let uploaded = on_device(&batch, |array| {
        // SAFETY: the array has one child.
        let child = unsafe { &mut **array.children };
        child.offset = 1000;
    });
    refused(
        uploaded.array,
        Status::InvalidData,
        "is said to be memory of GPU 0",
    );
    let mut compressing = Encoder::new(
        &schema_to_c(&schema).unwrap(),
        EncodeOptions {
            compression: Some(Compression::Zstd),
        },
    )
    .unwrap();
    let error = compressing
        .encode(on_device(&batch, whole).array, None)
        .unwrap_err();
    assert_eq!(error.status(), Status::Unsupported, "{error}");
}

/// A stream with batches on changing devices: each is read on its device, dictionaries too.
#[test]
fn batches_of_one_stream_may_lie_in_different_places() {
    run("places", &[]);
}

fn arrays_move_between_places() {
    let values: arrow::array::DictionaryArray<Int32Type> =
        ["a", "b", "a", "c"].into_iter().collect();
    let column: ArrayRef = Arc::new(values);
    let batch = RecordBatch::try_from_iter([("d", column)]).unwrap();
    let mut encoder = encoder(&batch.schema());
    let mut held = Vec::new();
    let mut count = |encoder: &mut Encoder, on_gpu: bool| {
        let array = if on_gpu {
            let Uploaded { array, memory } = on_device(&batch, whole);
            held.push(memory);
            array
        } else {
            on_host(&batch, whole)
        };
        encoder.encode(array, None).unwrap().len()
    };
    // The dictionary is sent again for another device, and once for the same device.
    let counts = [false, true, true, false, false, true].map(|on_gpu| count(&mut encoder, on_gpu));
    assert_eq!(counts, [2, 2, 1, 2, 1, 2]);
    // The processor reads pinned memory.
    let mut pinned = on_host(&batch, whole);
    // SAFETY: what the processor reads may be said to be pinned: nothing depends on it.
    unsafe { pinned.raw_mut() }.device_type = 3;
    assert_eq!(encoder.encode(pinned, None).unwrap().len(), 2);
}

#[test]
fn every_call_may_fail_while_encoding() {
    run("faults", &[]);
}

fn every_call_fails_while_encoding() {
    let batch = wide();
    let device = Device::get(0).unwrap();
    let encode = || {
        let mut encoder = encoder(&batch.schema());
        let Uploaded { array, memory } = on_device(&batch, sliced_and_uncounted);
        let was = fake::counts();
        (was, encoder.encode(array, None).map(drop), memory)
    };
    let (was, outcome, memory) = encode();
    outcome.unwrap();
    let calls: Vec<(String, i64)> = (fake::counts().into_iter())
        .map(|(name, count)| {
            let earlier = was.iter().find(|(known, _)| *known == name);
            (name, count - earlier.map_or(0, |(_, count)| *count))
        })
        .filter(|(name, count)| *count > 0 && name.starts_with("cu") && name != "cuMemcpy")
        .collect();
    drop(memory);
    device.trim().unwrap();
    let before = fake::Live::now();
    let mut failed = 0;
    for (function, count) in calls {
        // Of many equal calls the first, the last, and some between.
        for nth in (1..=count).filter(|nth| *nth < 6 || nth % 17 == 0 || *nth + 5 > count) {
            let mut encoder = encoder(&batch.schema());
            let Uploaded { array, memory } = on_device(&batch, sliced_and_uncounted);
            fake::fail_call(&function, nth, 999);
            let outcome = encoder.try_encode(array, None);
            fake::fail_call(&function, 0, 0);
            // A message that was made is dropped here.
            let refused = outcome.map(drop).err();
            if let Some(refused) = refused {
                let (error, array) = *refused;
                assert_eq!(error.status(), Status::Io, "{function} {nth}: {error}");
                assert!(error.text().contains(&function), "{error}");
                assert!(!array.is_released());
                failed += 1;
                // The encoder is as before.
                encoder.encode(array, None).map(drop).unwrap();
            }
            drop((encoder, memory));
            device.trim().unwrap();
            assert!(fake::current().is_null(), "{function} {nth} left a context");
            assert_eq!(fake::Live::now(), before, "{function} {nth}");
        }
    }
    assert!(failed > 20, "{failed}");
}
