//! Arrow's C streams: export of a reader as a C stream, import of a C stream as a reader, and
//! conversion between host and device streams.

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use crate::arrow::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
use crate::arrow::{CStruct, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status, panic_text};

mod imported;

pub use imported::{DeviceStreamReader, StreamReader};

/// A source of arrays of one schema.
pub trait ArrayReader: Send {
    /// A new copy of the schema. May be called at any time.
    ///
    /// # Errors
    ///
    /// The errors of the source.
    fn schema(&mut self) -> Result<OwnedSchema>;

    /// The next array, or `None` at the end.
    ///
    /// # Errors
    ///
    /// The errors of the source, which has then ended.
    fn next(&mut self) -> Result<Option<OwnedDeviceArray>>;

    /// The kind of memory of every array ([`DeviceKind`]).
    fn device_type(&self) -> i32;

    /// Whether a consumer in this process gets the errors as they are. Otherwise each error becomes
    /// a failure of the producer, like the errors of C streams, which have no status.
    fn keeps_status(&self) -> bool {
        false
    }

    /// The reader as its own type, for callers of the function [`reader`]. A reader that moves the
    /// arrays of another reader gives the other reader instead. `None` hides the type.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

/// Exports a reader as a device stream.
pub fn export_device_stream(reader: Box<dyn ArrayReader>) -> OwnedDeviceStream {
    let mut stream = ArrowDeviceArrayStream::empty();
    stream.device_type = reader.device_type();
    stream.get_schema = Some(get_schema::<ArrowDeviceArrayStream>);
    stream.get_next = Some(get_next::<ArrowDeviceArrayStream>);
    stream.get_last_error = Some(get_last_error::<ArrowDeviceArrayStream>);
    stream.release = Some(release::<ArrowDeviceArrayStream>);
    stream.private_data = ExportedStream::boxed(reader);
    // SAFETY: all four functions belong to `ExportedStream`, the type behind `private_data`, which
    // nobody else has. They return owned schemas and arrays of the reader.
    unsafe { OwnedDeviceStream::from_raw(stream) }
}

/// Exports a reader of host arrays as a host stream.
///
/// # Errors
///
/// `Unsupported` if the arrays are in other memory.
pub fn export_stream(reader: Box<dyn ArrayReader>) -> Result<OwnedStream> {
    DeviceKind(reader.device_type()).ensure_readable()?;
    let mut stream = ArrowArrayStream::empty();
    stream.get_schema = Some(get_schema::<ArrowArrayStream>);
    stream.get_next = Some(get_next::<ArrowArrayStream>);
    stream.get_last_error = Some(get_last_error::<ArrowArrayStream>);
    stream.release = Some(release::<ArrowArrayStream>);
    stream.private_data = ExportedStream::boxed(reader);
    // SAFETY: all four functions belong to `ExportedStream`, the type behind `private_data`, which
    // nobody else has. They return owned schemas and arrays of the reader. `CStream::array` refuses
    // arrays that a host stream cannot have.
    Ok(unsafe { OwnedStream::from_raw(stream) })
}

/// Converts a host stream into a device stream.
pub fn to_device(stream: OwnedStream) -> OwnedDeviceStream {
    export_device_stream(Box::new(StreamReader::new(stream)))
}

/// The last error of a stream that this crate exported; `None` without an error.
///
/// # Safety
///
/// `stream` is released or follows its C stream interface. Nobody calls its functions while the
/// result is in use.
///
/// # Errors
///
/// `InvalidArgument` if the stream is released, or another library made it.
pub unsafe fn last_error<S: CStream>(stream: &S) -> Result<Option<Error>> {
    let exported = as_exported(stream)?;
    // SAFETY: the caller promises that nobody uses the stream.
    Ok(unsafe { exported.as_ref() }.error.clone())
}

/// The error of the last failed call, if the stream is of a reader that [keeps
/// statuses](ArrayReader::keeps_status).
///
/// # Safety
///
/// As [`last_error`].
unsafe fn kept_error<S: CStream>(stream: &S) -> Option<Error> {
    let exported = as_exported(stream).ok()?;
    // SAFETY: the caller promises that nobody uses the stream.
    let exported = unsafe { exported.as_ref() };
    let is_kept = !exported.poisoned && exported.reader.keeps_status();
    exported.error.clone().filter(|_| is_kept)
}

/// The reader of a stream that this crate exported.
///
/// # Safety
///
/// `stream` is readable. Otherwise as for [`last_error`].
///
/// # Errors
///
/// As for [`last_error`], and `Poisoned` if an earlier call on the stream panicked.
pub unsafe fn reader<'a, S: CStream>(stream: *const S) -> Result<&'a mut dyn ArrayReader> {
    // SAFETY: the caller promises a readable stream.
    let mut exported = as_exported(unsafe { &*stream })?;
    // SAFETY: the caller promises that nobody uses the stream.
    let exported = unsafe { exported.as_mut() };
    if exported.poisoned {
        let text = "an earlier call on the stream panicked; it can only be released";
        return Err(Error::new(Status::Poisoned, text));
    }
    Ok(exported.reader.as_mut())
}

/// Notes that the reader of a stream has ended, with success or with an error, in a call that did
/// not go through the stream.
///
/// # Safety
///
/// As [`last_error`].
///
/// # Errors
///
/// As [`last_error`].
pub unsafe fn note_end<S: CStream>(stream: &S, end: Result<()>) -> Result<()> {
    let mut exported = as_exported(stream)?;
    // SAFETY: the caller promises that nobody uses the stream.
    let exported = unsafe { exported.as_mut() };
    if let Err(error) = &end {
        exported.keep(error.clone());
    }
    exported.ended = Some(end);
    Ok(())
}

/// A reader of a device stream. The content of a stream that this crate exported keeps the statuses
/// of its errors; any other stream becomes a [`DeviceStreamReader`].
pub fn into_reader(stream: OwnedDeviceStream) -> Box<dyn ArrayReader> {
    let exported = as_exported(stream.raw());
    // SAFETY: this function owns the stream, so nobody uses it.
    if !exported.is_ok_and(|exported| !unsafe { exported.as_ref() }.poisoned) {
        return Box::new(DeviceStreamReader::new(stream));
    }
    let exported = stream.into_raw().private_data.cast::<ExportedStream>();
    // SAFETY: `ExportedStream::boxed` made the pointer by `Box::into_raw`, and the stream that
    // could release it is gone.
    unsafe { Box::from_raw(exported) }
}

/// The content of a stream that this crate exported. The stream must follow the interface.
fn as_exported<S: CStream>(stream: &S) -> Result<NonNull<ExportedStream>> {
    // A stream that follows the interface, has this crate's functions and is not released has the
    // result of `ExportedStream::boxed` in `private_data`.
    let exported = (stream.is_exported() && !stream.is_released())
        .then(|| NonNull::new(stream.private_data().cast::<ExportedStream>()))
        .flatten();
    exported.ok_or_else(|| {
        Error::invalid_argument("the stream is released, or is not one that libdipc made")
    })
}

/// The content of an exported stream.
struct ExportedStream {
    reader: Box<dyn ArrayReader>,
    /// The result of the end. Batches after an error may need lost data, so the stream ends.
    ended: Option<Result<()>>,
    error: Option<Error>,
    /// The text of `error` for `get_last_error`.
    text: CString,
    /// A panic left the reader in an unknown state, so it is not called again.
    poisoned: bool,
}

impl ExportedStream {
    fn boxed(reader: Box<dyn ArrayReader>) -> *mut c_void {
        let exported = Self {
            reader,
            ended: None,
            error: None,
            text: CString::default(),
            poisoned: false,
        };
        Box::into_raw(Box::new(exported)).cast()
    }

    /// Runs a call of the consumer. Errors and panics become an `errno` and a text.
    fn run(&mut self, call: impl FnOnce(&mut Self) -> Result<()>) -> c_int {
        if self.poisoned {
            return Status::Poisoned.errno();
        }
        let error = match catch_unwind(AssertUnwindSafe(|| call(self))) {
            Ok(Ok(())) => return 0,
            Ok(Err(error)) => error,
            Err(panic) => {
                self.poisoned = true;
                let cause = panic_text(&*panic);
                Error::new(
                    Status::Panic,
                    format!("a bug in libdipc or the stream: {cause}"),
                )
            }
        };
        let errno = error.status().errno();
        self.keep(error);
        errno
    }

    /// Keeps an error for `get_last_error`.
    fn keep(&mut self, error: Error) {
        // A C string ends at the first NUL, so NUL characters become spaces.
        self.text = CString::new(error.text().replace('\0', " ")).unwrap_or_default();
        self.error = Some(error);
    }
}

impl ArrayReader for ExportedStream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.reader.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        if let Some(ended) = &self.ended {
            return ended.clone().map(|()| None);
        }
        let array = self.reader.next()?;
        if array.is_none() {
            self.ended = Some(Ok(()));
        }
        Ok(array)
    }

    fn device_type(&self) -> i32 {
        self.reader.device_type()
    }

    fn keeps_status(&self) -> bool {
        self.reader.keeps_status()
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        self.reader.as_any()
    }
}

/// The two kinds of C streams, which differ in the type of their arrays.
pub trait CStream: CStruct {
    /// The arrays of `get_next`.
    type Array: CStruct;

    /// Whether the functions of the stream are this crate's.
    fn is_exported(&self) -> bool;

    /// The member `private_data`, which belongs to the producer.
    fn private_data(&self) -> *mut c_void;

    /// An array as `get_next` gives it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the stream cannot have the array.
    fn array(array: OwnedDeviceArray) -> Result<Self::Array>;
}

/// Compares the address of `get_next` with that of this crate's function.
macro_rules! is_exported {
    ($stream:expr, $kind:ty, $array:ty) => {
        $stream.get_next.is_some_and(|function| {
            ptr::fn_addr_eq(
                function,
                get_next::<$kind> as unsafe extern "C" fn(*mut $kind, *mut $array) -> c_int,
            )
        })
    };
}

impl CStream for ArrowDeviceArrayStream {
    type Array = ArrowDeviceArray;

    fn is_exported(&self) -> bool {
        is_exported!(self, ArrowDeviceArrayStream, ArrowDeviceArray)
    }

    fn private_data(&self) -> *mut c_void {
        self.private_data
    }

    fn array(array: OwnedDeviceArray) -> Result<ArrowDeviceArray> {
        Ok(array.into_raw())
    }
}

impl CStream for ArrowArrayStream {
    type Array = ArrowArray;

    fn is_exported(&self) -> bool {
        is_exported!(self, ArrowArrayStream, ArrowArray)
    }

    fn private_data(&self) -> *mut c_void {
        self.private_data
    }

    fn array(array: OwnedDeviceArray) -> Result<ArrowArray> {
        DeviceKind(array.raw().device_type).ensure_readable()?;
        if !array.raw().sync_event.is_null() {
            return Err(Error::unsupported(
                "a host array comes with an event to wait for, which host arrays do not have",
            ));
        }
        Ok(array.into_raw().array)
    }
}

/// The content of a stream; `None` if the stream is NULL or released.
///
/// # Safety
///
/// `stream` is NULL or a stream with this crate's functions that nobody else uses for `'a`.
unsafe fn exported<'a, S: CStream>(stream: *mut S) -> Option<&'a mut ExportedStream> {
    // SAFETY: the caller promises that `stream` is NULL, or valid and not used by others.
    let stream = unsafe { stream.as_mut() }?;
    if stream.is_released() {
        return None;
    }
    // SAFETY: the stream is not released, so `private_data` is the result of
    // `ExportedStream::boxed`, and only the stream's current caller refers to it.
    unsafe { stream.private_data().cast::<ExportedStream>().as_mut() }
}

unsafe extern "C" fn get_schema<S: CStream>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the C stream interface makes one call at a time, with the function's own stream.
    let Some(exported) = (unsafe { exported(stream) }) else {
        return libc::EINVAL;
    };
    exported.run(|exported| {
        if out.is_null() {
            return Err(Error::new(
                Status::NullArgument,
                "get_schema needs a place for the schema",
            ));
        }
        let schema = exported.reader.schema()?.into_raw();
        // SAFETY: `out` is not NULL, and the C stream interface requires the consumer to pass
        // writable memory. `write` does not read the old content.
        unsafe { out.write(schema) };
        Ok(())
    })
}

unsafe extern "C" fn get_next<S: CStream>(stream: *mut S, out: *mut S::Array) -> c_int {
    // SAFETY: the C stream interface makes one call at a time, with the function's own stream.
    let Some(exported) = (unsafe { exported(stream) }) else {
        return libc::EINVAL;
    };
    exported.run(|exported| {
        if out.is_null() {
            return Err(Error::new(
                Status::NullArgument,
                "get_next needs a place for the array",
            ));
        }
        let array = exported
            .next()
            .and_then(|array| array.map_or(Ok(S::Array::EMPTY), S::array));
        let array = array.inspect_err(|error| exported.ended = Some(Err(error.clone())))?;
        // SAFETY: `out` is not NULL, and the C stream interface requires the consumer to pass
        // writable memory. `write` does not read the old content.
        unsafe { out.write(array) };
        Ok(())
    })
}

unsafe extern "C" fn get_last_error<S: CStream>(stream: *mut S) -> *const c_char {
    // SAFETY: the C stream interface makes one call at a time, with the function's own stream.
    match unsafe { exported(stream) } {
        Some(exported) if exported.error.is_some() => exported.text.as_ptr(),
        _ => ptr::null(),
    }
}

unsafe extern "C" fn release<S: CStream>(stream: *mut S) {
    // SAFETY: the C stream interface makes one call at a time, with the function's own stream. NULL
    // becomes `None`.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    if stream.is_released() {
        return;
    }
    stream.disarm();
    let exported = stream.private_data();
    // SAFETY: `ExportedStream::boxed` made the pointer by `Box::into_raw`. The stream is disarmed
    // above, so the pointer is taken back only once.
    let exported = unsafe { Box::from_raw(exported.cast::<ExportedStream>()) };
    // A panic in the reader's drop must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(exported)));
}

#[cfg(test)]
mod tests;
