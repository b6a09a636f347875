use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Int32Array, RecordBatch, RecordBatchIterator};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};

use super::*;
use crate::arrow::transfer::{to_host, to_target};
use crate::device::Target;

const _: () = assert!(size_of::<FFI_ArrowArrayStream>() == size_of::<ArrowArrayStream>());

fn batches() -> Vec<RecordBatch> {
    let schema = Arc::new(Schema::new(vec![Field::new("i", DataType::Int32, true)]));
    (0..3)
        .map(|row| {
            let column = Arc::new(Int32Array::from(vec![Some(row), None, Some(row * row)]));
            RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap()
        })
        .collect()
}

/// A host stream of arrow-rs.
fn theirs() -> OwnedStream {
    let batches = batches();
    let schema = batches[0].schema();
    let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
    let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
    // SAFETY: both are the struct of the C stream interface; their sizes are compared above.
    unsafe { OwnedStream::take((&raw mut stream).cast()) }
}

/// Reads a host stream with arrow-rs.
fn read(stream: OwnedStream) -> Vec<RecordBatch> {
    let mut raw = stream.into_raw();
    // SAFETY: as in `theirs`.
    let reader = unsafe { RecordBatchStreamReader::from_raw((&raw mut raw).cast()) }.unwrap();
    reader.map(Result::unwrap).collect()
}

/// The result of the test reader's `next`.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Empty,
    Fail,
    Panic,
    Foreign,
}

struct Acting {
    act: Act,
    device_type: i32,
    drops: Arc<AtomicUsize>,
    calls: Arc<AtomicUsize>,
}

impl Drop for Acting {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

impl ArrayReader for Acting {
    fn schema(&mut self) -> Result<OwnedSchema> {
        let mut reader = StreamReader::new(theirs());
        reader.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.act {
            Act::Empty => Ok(None),
            Act::Fail => Err(Error::new(Status::Disconnected, "the peer is gone\0really")),
            Act::Panic => panic!("a bug of the reader"),
            Act::Foreign => {
                let mut array = StreamReader::new(theirs()).next()?.unwrap().into_raw();
                array.device_type = 2;
                // SAFETY: the array was owned; a wrong device type changes no pointer.
                Ok(Some(unsafe { OwnedDeviceArray::from_raw(array) }))
            }
        }
    }

    fn device_type(&self) -> i32 {
        self.device_type
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        Some(self)
    }
}

fn acting(act: Act) -> (Box<Acting>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let (drops, calls) = (Arc::default(), Arc::default());
    let device_type = DeviceKind::CPU.0;
    let reader = Acting {
        act,
        device_type,
        drops: Arc::clone(&drops),
        calls: Arc::clone(&calls),
    };
    (Box::new(reader), drops, calls)
}

/// Calls `get_next` of a device stream as a C consumer does.
fn next(stream: &mut OwnedDeviceStream) -> (c_int, OwnedDeviceArray) {
    let mut array = ArrowDeviceArray::empty();
    let get_next = stream.raw().get_next.unwrap();
    // SAFETY: only the stream's own function gets the stream.
    let stream = unsafe { stream.raw_mut() };
    // SAFETY: the stream is live, and only this thread uses it; the array is writable.
    let errno = unsafe { get_next(stream, &raw mut array) };
    // SAFETY: the stream filled the array for this caller, or left it released.
    (errno, unsafe { OwnedDeviceArray::from_raw(array) })
}

fn last_error_of(stream: &OwnedDeviceStream) -> Option<Error> {
    // SAFETY: an owned stream follows the interface, and only this thread uses it.
    unsafe { last_error(stream.raw()) }.unwrap()
}

fn text_of(stream: &mut OwnedDeviceStream) -> Option<String> {
    let get_last_error = stream.raw().get_last_error.unwrap();
    // SAFETY: only the stream's own function gets the stream.
    let stream = unsafe { stream.raw_mut() };
    // SAFETY: the stream is live, and only this thread uses it.
    let text = unsafe { get_last_error(stream) };
    // SAFETY: a text that is not NULL is valid until the next call on the stream.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
}

/// Host streams convert to device streams and back with equal batches.
#[test]
fn streams_cross_both_ways() {
    assert_eq!(read(theirs()), batches());
    let device = to_device(theirs());
    assert_eq!(device.raw().device_type, DeviceKind::CPU.0);
    assert_eq!(read(to_host(device).unwrap()), batches());
    let twice = to_device(to_host(to_device(theirs())).unwrap());
    assert_eq!(read(to_host(twice).unwrap()), batches());
}

/// The schema can be read several times, before, between and after the arrays. The end is final,
/// and the reader is not called again.
#[test]
fn schemas_repeat_and_ends_stay() {
    let mut reader = DeviceStreamReader::new(to_device(theirs()));
    for _ in 0..3 {
        let _ = reader.schema().unwrap();
        assert_eq!(reader.next().unwrap().unwrap().raw().array.length, 3);
    }
    assert!(reader.next().unwrap().is_none());
    assert_eq!(reader.schema().unwrap().raw().n_children, 1);

    let (reader, drops, calls) = acting(Act::Empty);
    let mut stream = export_device_stream(reader);
    for _ in 0..3 {
        let (errno, array) = next(&mut stream);
        assert_eq!((errno, array.is_released()), (0, true));
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(text_of(&mut stream), None);
    drop(stream);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// An error becomes an `errno` and a text; `last_error` returns the typed error.
#[test]
fn errors_have_number_and_text() {
    let (reader, drops, _) = acting(Act::Fail);
    let mut stream = export_device_stream(reader);
    assert_eq!(last_error_of(&stream), None);
    let (errno, array) = next(&mut stream);
    assert_eq!((errno, array.is_released()), (libc::ECONNRESET, true));
    assert_eq!(text_of(&mut stream).unwrap(), "the peer is gone really");
    assert_eq!(
        last_error_of(&stream).unwrap().status(),
        Status::Disconnected
    );
    // The reader of this crate reports a failure of the provider, with its text.
    let error = DeviceStreamReader::new(stream).next().unwrap_err();
    assert_eq!(error.status(), Status::Provider);
    assert!(error.text().contains("the peer is gone really"), "{error}");
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// An error ends a stream, because later arrays may need lost data, for example a dictionary.
#[test]
fn errors_are_repeated() {
    let (reader, _, calls) = acting(Act::Fail);
    let mut stream = export_device_stream(reader);
    for _ in 0..3 {
        assert_eq!(next(&mut stream).0, libc::ECONNRESET);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// A converted stream that ended before the conversion keeps its error and its reader. A poisoned
/// one stays poisoned.
#[test]
fn conversions_keep_the_end() {
    let (reader, drops, calls) = acting(Act::Fail);
    let mut stream = export_device_stream(reader);
    assert_eq!(next(&mut stream).0, libc::ECONNRESET);
    let mut moved = to_target(stream, Target::Host).unwrap();
    assert_eq!(next(&mut moved).0, libc::ECONNRESET);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let error = last_error_of(&moved).unwrap();
    assert_eq!(error.status(), Status::Disconnected);
    // SAFETY: an owned stream follows the interface, and only this thread uses it.
    let reader = unsafe { super::reader(moved.raw()) }.unwrap();
    assert!(reader.as_any().unwrap().is::<Acting>());
    drop(moved);
    assert_eq!(drops.load(Ordering::SeqCst), 1);

    let (reader, drops, calls) = acting(Act::Panic);
    let mut stream = export_device_stream(reader);
    assert_eq!(next(&mut stream).0, libc::EIO);
    let mut moved = to_target(stream, Target::Host).unwrap();
    assert_ne!(next(&mut moved).0, 0);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(moved);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// A panic of the reader does not cross into C, and the reader is not called again.
#[test]
fn panics_are_errors() {
    let (reader, drops, calls) = acting(Act::Panic);
    let mut stream = export_device_stream(reader);
    for _ in 0..2 {
        assert_eq!(next(&mut stream).0, libc::EIO);
        assert!(
            text_of(&mut stream)
                .unwrap()
                .contains("a bug of the reader")
        );
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_eq!(last_error_of(&stream).unwrap().status(), Status::Panic);
    drop(stream);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

/// Memory that the processor cannot read is refused in a host stream: for the whole stream, or for
/// a single array.
#[test]
fn foreign_memory_is_refused() {
    let (mut reader, ..) = acting(Act::Empty);
    reader.device_type = 2;
    assert_eq!(
        export_stream(reader).unwrap_err().status(),
        Status::Unsupported
    );
    let (reader, ..) = acting(Act::Foreign);
    let error = StreamReader::new(export_stream(reader).unwrap())
        .next()
        .unwrap_err();
    assert!(error.text().contains("device type 2"), "{error}");
}

/// NULL targets, released streams and streams without functions are errors.
#[test]
fn misuse_is_an_error() {
    let mut stream = to_device(theirs());
    let (get_next, get_schema) = (
        stream.raw().get_next.unwrap(),
        stream.raw().get_schema.unwrap(),
    );
    // SAFETY: only the stream's own functions get the stream.
    let raw = unsafe { stream.raw_mut() };
    // SAFETY: the stream is live; NULL is under test.
    let errno = unsafe { get_next(raw, ptr::null_mut()) };
    assert_eq!(errno, libc::EINVAL);
    // SAFETY: as above.
    let errno = unsafe { get_schema(raw, ptr::null_mut()) };
    assert_eq!(errno, libc::EINVAL);
    assert!(text_of(&mut stream).unwrap().contains("get_schema"));
    let mut array = ArrowDeviceArray::empty();
    // SAFETY: NULL is under test.
    let errno = unsafe { get_next(ptr::null_mut(), &raw mut array) };
    assert_eq!(errno, libc::EINVAL);

    let mut raw = stream.into_raw();
    raw.get_next = None;
    // SAFETY: the stream was owned; the missing function is under test.
    let mut reader = DeviceStreamReader::new(unsafe { OwnedDeviceStream::from_raw(raw) });
    assert_eq!(reader.next().unwrap_err().status(), Status::InvalidArgument);
    // SAFETY: the stream is released.
    let released = unsafe { OwnedDeviceStream::from_raw(ArrowDeviceArrayStream::empty()) };
    let mut reader = DeviceStreamReader::new(released);
    assert!(reader.schema().is_err());
    // SAFETY: the stream is released.
    assert!(unsafe { last_error(&ArrowDeviceArrayStream::empty()) }.is_err());
}

unsafe extern "C" fn no_schema(_: *mut ArrowArrayStream, _: *mut ArrowSchema) -> c_int {
    0
}

unsafe extern "C" fn errno_only(_: *mut ArrowArrayStream, _: *mut ArrowArray) -> c_int {
    libc::ENOSPC
}

unsafe extern "C" fn release_nothing(stream: *mut ArrowArrayStream) {
    // SAFETY: the reader passes its own stream.
    unsafe { (*stream).release = None };
}

/// A producer that reports success without a schema, or an errno without a text, causes an error
/// with the name of the callback.
#[test]
fn careless_producers_are_errors() {
    let mut stream = ArrowArrayStream::empty();
    stream.get_schema = Some(no_schema);
    stream.get_next = Some(errno_only);
    stream.release = Some(release_nothing);
    // SAFETY: the functions need only the stream, and return nothing.
    let mut reader = StreamReader::new(unsafe { OwnedStream::from_raw(stream) });
    let error = reader.schema().unwrap_err();
    assert_eq!(error.status(), Status::Provider);
    assert!(error.text().contains("get_schema"), "{error}");
    let error = reader.next().unwrap_err();
    assert!(
        error.text().contains("get_next") && error.text().contains("space"),
        "{error}"
    );
}
