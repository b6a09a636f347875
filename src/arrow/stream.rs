//! Arrow's C streams in and out: any reader of ours as a stream for others, theirs as a reader,
//! and host streams where a device stream is wanted and back.

use std::any::Any;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use crate::arrow::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
use crate::arrow::{CStruct, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};

/// A source of arrays of one schema.
pub trait ArrayReader: Send {
    /// The schema, each call a copy of its own. Allowed at any time.
    ///
    /// # Errors
    ///
    /// Those of the source.
    fn schema(&mut self) -> Result<OwnedSchema>;

    /// The next array, or `None` at the end.
    ///
    /// # Errors
    ///
    /// Those of the source, which is over then.
    fn next(&mut self) -> Result<Option<OwnedDeviceArray>>;

    /// The kind of memory of every array ([`DeviceKind`]).
    fn device_type(&self) -> i32;

    /// The reader itself, where whoever finds it behind a C stream ([`reader`]) may know it.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

/// Hands a reader out as a device stream.
pub fn export_device_stream(reader: Box<dyn ArrayReader>) -> OwnedDeviceStream {
    let mut stream = ArrowDeviceArrayStream::empty();
    stream.device_type = reader.device_type();
    stream.get_schema = Some(get_schema::<ArrowDeviceArrayStream>);
    stream.get_next = Some(get_next::<ArrowDeviceArrayStream>);
    stream.get_last_error = Some(get_last_error::<ArrowDeviceArrayStream>);
    stream.release = Some(release::<ArrowDeviceArrayStream>);
    stream.private_data = ExportedStream::boxed(reader);
    // SAFETY: all four functions are those of `Exported`, which `private_data` is, and nobody else
    // has it. What they hand out are owned schemas and arrays of the reader's.
    unsafe { OwnedDeviceStream::from_raw(stream) }
}

/// Hands a reader of host arrays out as a host stream.
///
/// # Errors
///
/// `Unsupported` where the arrays lie in other memory.
pub fn export_stream(reader: Box<dyn ArrayReader>) -> Result<OwnedStream> {
    DeviceKind(reader.device_type()).ensure_readable()?;
    let mut stream = ArrowArrayStream::empty();
    stream.get_schema = Some(get_schema::<ArrowArrayStream>);
    stream.get_next = Some(get_next::<ArrowArrayStream>);
    stream.get_last_error = Some(get_last_error::<ArrowArrayStream>);
    stream.release = Some(release::<ArrowArrayStream>);
    stream.private_data = ExportedStream::boxed(reader);
    // SAFETY: as in `export_device_stream`; `CStream::array` refuses arrays that no host stream can
    // hand out.
    Ok(unsafe { OwnedStream::from_raw(stream) })
}

/// A host stream as a device stream.
pub fn to_device(stream: OwnedStream) -> OwnedDeviceStream {
    export_device_stream(Box::new(StreamReader::new(stream)))
}

/// Why a device stream that [`export_device_stream`] made failed last; `None` where it did not.
///
/// # Safety
///
/// `stream` is released or follows the C device stream interface, and nobody calls its functions
/// while the result is in use.
///
/// # Errors
///
/// `InvalidArgument` when the stream is released or is not one of ours.
pub unsafe fn last_error(stream: &ArrowDeviceArrayStream) -> Result<Option<Error>> {
    let ours = ours(stream)?;
    // SAFETY: nobody uses it, as the caller promises.
    Ok(unsafe { ours.as_ref() }.error.clone())
}

/// The reader behind a device stream that [`export_device_stream`] made.
///
/// # Safety
///
/// As [`last_error`].
///
/// # Errors
///
/// As [`last_error`].
pub unsafe fn reader<'a>(stream: *const ArrowDeviceArrayStream) -> Result<&'a mut dyn ArrayReader> {
    // SAFETY: the caller promises a stream, which is readable.
    let mut ours = ours(unsafe { &*stream })?;
    // SAFETY: nobody uses it, as the caller promises.
    Ok(unsafe { ours.as_mut() }.reader.as_mut())
}

/// What a stream of ours holds, where the stream follows the interface.
fn ours(stream: &ArrowDeviceArrayStream) -> Result<NonNull<ExportedStream>> {
    let ours = stream.get_next.is_some_and(|function| {
        ptr::fn_addr_eq(
            function,
            get_next::<ArrowDeviceArrayStream>
                as unsafe extern "C" fn(
                    *mut ArrowDeviceArrayStream,
                    *mut ArrowDeviceArray,
                ) -> c_int,
        )
    });
    // A stream that follows the interface, carries our functions and is not released has in
    // `private_data` what `Exported::boxed` gave.
    let exported = (ours && stream.release.is_some())
        .then(|| NonNull::new(stream.private_data.cast::<ExportedStream>()))
        .flatten();
    exported.ok_or_else(|| {
        Error::invalid_argument("the stream is released, or is not one that libdipc made")
    })
}

/// What a stream of ours holds.
struct ExportedStream {
    reader: Box<dyn ArrayReader>,
    /// How it ended. What an error lost is not made up for, so the batches after it are not given.
    ended: Option<Result<()>>,
    error: Option<Error>,
    /// The text of `error`, as `get_last_error` gives it.
    text: CString,
    /// A panic left the reader in an unknown state: it is not called again.
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

    /// Runs a call of the consumer: errors become their `errno` and text, panics too.
    fn run(&mut self, call: impl FnOnce(&mut Self) -> Result<()>) -> c_int {
        if self.poisoned {
            return Status::Poisoned.errno();
        }
        let error = match catch_unwind(AssertUnwindSafe(|| call(self))) {
            Ok(Ok(())) => return 0,
            Ok(Err(error)) => error,
            Err(panic) => {
                self.poisoned = true;
                let cause = panic
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                    .unwrap_or("no message");
                Error::new(
                    Status::Panic,
                    format!("a bug in libdipc or the stream: {cause}"),
                )
            }
        };
        let errno = error.status().errno();
        // A text that holds NUL characters loses them, not the rest.
        self.text = CString::new(error.text().replace('\0', " ")).unwrap_or_default();
        self.error = Some(error);
        errno
    }
}

/// The two kinds of C stream that differ in what they hand out.
trait CStream: CStruct {
    type Array: CStruct;

    fn private_data(&mut self) -> &mut *mut c_void;

    fn array(array: OwnedDeviceArray) -> Result<Self::Array>;
}

impl CStream for ArrowDeviceArrayStream {
    type Array = ArrowDeviceArray;

    fn private_data(&mut self) -> &mut *mut c_void {
        &mut self.private_data
    }

    fn array(array: OwnedDeviceArray) -> Result<ArrowDeviceArray> {
        Ok(array.into_raw())
    }
}

impl CStream for ArrowArrayStream {
    type Array = ArrowArray;

    fn private_data(&mut self) -> &mut *mut c_void {
        &mut self.private_data
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

/// What the stream holds; `None` where it is NULL or released.
///
/// # Safety
///
/// `stream` is NULL or points to a stream that carries our functions, used by nobody else for `'a`.
unsafe fn exported<'a, S: CStream>(stream: *mut S) -> Option<&'a mut ExportedStream> {
    // SAFETY: the caller promises that it is NULL or valid and not used by others.
    let stream = unsafe { stream.as_mut() }?;
    if stream.is_released() {
        return None;
    }
    // SAFETY: it is not released, so `private_data` is what `Exported::boxed` gave, and only the
    // one caller of the stream refers to it.
    unsafe { stream.private_data().cast::<ExportedStream>().as_mut() }
}

unsafe extern "C" fn get_schema<S: CStream>(stream: *mut S, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the C stream interface makes calls one at a time, with the stream they belong to.
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
        // SAFETY: `out` is not NULL, and the C stream interface has the consumer pass writable
        // memory, whose contents are not looked at.
        unsafe { out.write(schema) };
        Ok(())
    })
}

unsafe extern "C" fn get_next<S: CStream>(stream: *mut S, out: *mut S::Array) -> c_int {
    // SAFETY: the C stream interface makes calls one at a time, with the stream they belong to.
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
        // SAFETY: `out` is not NULL, and the C stream interface has the consumer pass writable
        // memory, whose contents are not looked at.
        unsafe { out.write(array) };
        Ok(())
    })
}

unsafe extern "C" fn get_last_error<S: CStream>(stream: *mut S) -> *const c_char {
    // SAFETY: the C stream interface makes calls one at a time, with the stream they belong to.
    match unsafe { exported(stream) } {
        Some(exported) if exported.error.is_some() => exported.text.as_ptr(),
        _ => ptr::null(),
    }
}

unsafe extern "C" fn release<S: CStream>(stream: *mut S) {
    // SAFETY: the C stream interface makes calls one at a time, with the stream they belong to;
    // NULL gives None.
    let Some(stream) = (unsafe { stream.as_mut() }) else {
        return;
    };
    if stream.is_released() {
        return;
    }
    stream.disarm();
    let exported = std::mem::replace(stream.private_data(), ptr::null_mut());
    // SAFETY: `Exported::boxed` made it by `Box::into_raw`, and the stream, disarmed above, gives
    // it up exactly once.
    let exported = unsafe { Box::from_raw(exported.cast::<ExportedStream>()) };
    // A panic of the reader's drop must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(exported)));
}

/// The result of a producer's callback.
fn outcome(callback: &str, errno: c_int, text: *const c_char) -> Result<()> {
    if errno == 0 {
        return Ok(());
    }
    let text = if text.is_null() {
        std::io::Error::from_raw_os_error(errno).to_string()
    } else {
        // SAFETY: the C stream interface promises a NUL-terminated text that stays valid until the
        // next call on the stream, and none is made meanwhile.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    };
    Err(Error::new(
        Status::Provider,
        format!("{callback} of the stream failed: {text}"),
    ))
}

fn missing(callback: &str) -> Error {
    Error::invalid_argument(format!("the stream is released or has no {callback}"))
}

/// A stream of theirs, read by us.
struct Imported<T: CStruct>(crate::arrow::Owned<T>);

macro_rules! imported {
    ($stream:ident, $array:ident) => {
        impl Imported<$stream> {
            fn outcome(&mut self, callback: &str, errno: c_int) -> Result<()> {
                // SAFETY: it is only passed to its own function, which leaves it a valid stream.
                let stream = unsafe { self.0.raw_mut() };
                let mut text = ptr::null();
                if let Some(get_last_error) = stream.get_last_error
                    && errno != 0
                {
                    // SAFETY: the function belongs to this stream, which is not released, and
                    // `&mut self` makes this the only call.
                    text = unsafe { get_last_error(stream) };
                }
                outcome(callback, errno, text)
            }

            fn schema(&mut self) -> Result<OwnedSchema> {
                // SAFETY: as in `outcome`.
                let stream = unsafe { self.0.raw_mut() };
                let (Some(get_schema), false) = (stream.get_schema, stream.is_released()) else {
                    return Err(missing("get_schema"));
                };
                let mut schema = ArrowSchema::empty();
                // SAFETY: the function belongs to this stream, which is not released; `&mut self`
                // makes this the only call; `schema` is writable.
                let errno = unsafe { get_schema(stream, &raw mut schema) };
                self.outcome("get_schema", errno)?;
                if schema.is_released() {
                    return Err(Error::new(
                        Status::Provider,
                        "get_schema of the stream gave a released schema",
                    ));
                }
                // SAFETY: an owned stream promises that what its `get_schema` hands out follows the
                // interface and is the caller's alone.
                Ok(unsafe { OwnedSchema::from_raw(schema) })
            }

            fn next(&mut self) -> Result<Option<crate::arrow::Owned<$array>>> {
                // SAFETY: as in `outcome`.
                let stream = unsafe { self.0.raw_mut() };
                let (Some(get_next), false) = (stream.get_next, stream.is_released()) else {
                    return Err(missing("get_next"));
                };
                let mut array = $array::EMPTY;
                // SAFETY: the function belongs to this stream, which is not released; `&mut self`
                // makes this the only call; `array` is writable.
                let errno = unsafe { get_next(stream, &raw mut array) };
                self.outcome("get_next", errno)?;
                // SAFETY: an owned stream promises that what its `get_next` hands out follows the
                // interface and is the caller's alone; at the end it is released.
                let array = unsafe { crate::arrow::Owned::from_raw(array) };
                Ok((!array.is_released()).then_some(array))
            }
        }
    };
}

imported!(ArrowDeviceArrayStream, ArrowDeviceArray);
imported!(ArrowArrayStream, ArrowArray);

/// Reads a device stream of somebody else's.
pub struct DeviceStreamReader(Imported<ArrowDeviceArrayStream>);

impl DeviceStreamReader {
    /// Takes the stream over; it is released with the reader.
    pub fn new(stream: OwnedDeviceStream) -> Self {
        Self(Imported(stream))
    }
}

impl ArrayReader for DeviceStreamReader {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.0.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.0.next()
    }

    fn device_type(&self) -> i32 {
        self.0.0.raw().device_type
    }
}

/// Reads a host stream of somebody else's.
pub struct StreamReader(Imported<ArrowArrayStream>);

impl StreamReader {
    /// Takes the stream over; it is released with the reader.
    pub fn new(stream: OwnedStream) -> Self {
        Self(Imported(stream))
    }
}

impl ArrayReader for StreamReader {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.0.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let array = self.0.next()?;
        Ok(array.map(|array| {
            let mut device = ArrowDeviceArray::empty();
            device.array = array.into_raw();
            // SAFETY: the array was an owned one until now, in host memory, as `empty` says.
            unsafe { OwnedDeviceArray::from_raw(device) }
        }))
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}

#[cfg(test)]
mod tests;
