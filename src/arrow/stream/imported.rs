//! Streams of other producers as readers.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use super::{ArrayReader, kept_error};
use crate::arrow::abi::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
use crate::arrow::{CStruct, OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, OwnedStream};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};

/// The result of a callback of a producer.
fn outcome(callback: &str, errno: c_int, text: *const c_char) -> Result<()> {
    if errno == 0 {
        return Ok(());
    }
    let text = if text.is_null() {
        std::io::Error::from_raw_os_error(errno).to_string()
    } else {
        // SAFETY: the C stream interface promises a NUL-terminated text that is valid until the
        // next call on the stream. No call happens before the copy.
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

/// A stream of another producer.
struct Imported<T: CStruct>(crate::arrow::Owned<T>);

macro_rules! imported {
    ($stream:ident, $array:ident) => {
        impl Imported<$stream> {
            fn outcome(&mut self, callback: &str, errno: c_int) -> Result<()> {
                // SAFETY: only the stream's own function gets the stream, and leaves it valid.
                let stream = unsafe { self.0.raw_mut() };
                if errno != 0
                    // SAFETY: `&mut self` excludes other uses.
                    && let Some(error) = unsafe { kept_error(stream) }
                {
                    return Err(error);
                }
                let mut text = ptr::null();
                if let Some(get_last_error) = stream.get_last_error
                    && errno != 0
                {
                    // SAFETY: the function belongs to this stream, which is not released. `&mut
                    // self` excludes other calls.
                    text = unsafe { get_last_error(stream) };
                }
                outcome(callback, errno, text)
            }

            fn schema(&mut self) -> Result<OwnedSchema> {
                // SAFETY: only the stream's own function gets the stream, and leaves it valid.
                let stream = unsafe { self.0.raw_mut() };
                let (Some(get_schema), false) = (stream.get_schema, stream.is_released()) else {
                    return Err(missing("get_schema"));
                };
                let mut schema = ArrowSchema::empty();
                // SAFETY: the function belongs to this stream, which is not released. `&mut self`
                // excludes other calls, and `schema` is writable.
                let errno = unsafe { get_schema(stream, &raw mut schema) };
                self.outcome("get_schema", errno)?;
                if schema.is_released() {
                    return Err(Error::new(
                        Status::Provider,
                        "get_schema of the stream gave a released schema",
                    ));
                }
                // SAFETY: an owned stream promises that the schema of `get_schema` follows the
                // interface and has no other owner.
                Ok(unsafe { OwnedSchema::from_raw(schema) })
            }

            fn next(&mut self) -> Result<Option<crate::arrow::Owned<$array>>> {
                // SAFETY: only the stream's own function gets the stream, and leaves it valid.
                let stream = unsafe { self.0.raw_mut() };
                let (Some(get_next), false) = (stream.get_next, stream.is_released()) else {
                    return Err(missing("get_next"));
                };
                let mut array = $array::EMPTY;
                // SAFETY: the function belongs to this stream, which is not released. `&mut self`
                // excludes other calls, and `array` is writable.
                let errno = unsafe { get_next(stream, &raw mut array) };
                self.outcome("get_next", errno)?;
                // SAFETY: an owned stream promises that the array of `get_next` follows the
                // interface and has no other owner. At the end the array is released.
                let array = unsafe { crate::arrow::Owned::from_raw(array) };
                Ok((!array.is_released()).then_some(array))
            }
        }
    };
}

imported!(ArrowDeviceArrayStream, ArrowDeviceArray);
imported!(ArrowArrayStream, ArrowArray);

/// Reads a device stream of another producer.
pub struct DeviceStreamReader(Imported<ArrowDeviceArrayStream>);

impl DeviceStreamReader {
    /// Takes the stream, which the drop of the reader releases.
    pub fn new(stream: OwnedDeviceStream) -> Self {
        Self(Imported(stream))
    }

    /// Gives the stream back.
    pub fn into_inner(self) -> OwnedDeviceStream {
        self.0.0
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

/// Reads a host stream of another producer.
pub struct StreamReader(Imported<ArrowArrayStream>);

impl StreamReader {
    /// Takes the stream, which the drop of the reader releases.
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
        // SAFETY: the array was owned, and streams of this kind have host arrays alone.
        Ok(array.map(|array| unsafe { OwnedDeviceArray::on_host(array.into_raw()) }))
    }

    fn device_type(&self) -> i32 {
        DeviceKind::CPU.0
    }
}
