//! Arrow's device streams, in and out as record batches in host memory.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::Arc;

use arrow::array::{Array as _, RecordBatch, RecordBatchOptions, StructArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type};

use crate::error::{Failure, Result, Said, call, caught, tried};
use crate::sys::*;

impl ArrowDeviceArrayStream {
    pub fn released() -> Self {
        Self {
            device_type: ARROW_DEVICE_CPU,
            get_schema: None,
            get_next: None,
            get_last_error: None,
            release: None,
            private_data: std::ptr::null_mut(),
        }
    }
}

/// A stream of this library's own, which is released once.
pub struct Stream(ArrowDeviceArrayStream);

// SAFETY: Arrow's interface lets any thread use a stream, one at a time.
unsafe impl Send for Stream {}

impl Stream {
    /// # Safety
    ///
    /// The stream follows Arrow's interface, and the caller gives it away.
    pub unsafe fn new(stream: ArrowDeviceArrayStream) -> Self {
        Self(stream)
    }

    /// For a call that may move the stream out.
    pub fn as_mut_ptr(&mut self) -> *mut ArrowDeviceArrayStream {
        &raw mut self.0
    }

    /// For a caller in C.
    pub fn into_raw(mut self) -> ArrowDeviceArrayStream {
        std::mem::replace(&mut self.0, ArrowDeviceArrayStream::released())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: the stream is not released, and this is its one owner.
            unsafe { release(&raw mut self.0) };
        }
    }
}

/// The record batches of a stream that libdipc gives.
pub struct Table {
    stream: Stream,
    schema: SchemaRef,
    has_ended: bool,
}

impl Table {
    /// The stream's table. Waits for the schema.
    ///
    /// # Errors
    ///
    /// `Unsupported`: the table is not in host memory. What the stream's source says.
    pub fn new(mut stream: Stream) -> Result<Self> {
        ensure_host(stream.0.device_type)?;
        let mut schema = FFI_ArrowSchema::empty();
        let pointer = stream.as_mut_ptr();
        let code = match stream.0.get_schema {
            // SAFETY: the function is the stream's own, and the place is a released schema.
            Some(get) => unsafe { get(pointer, &raw mut schema) },
            None => return Err(invalid("the stream is released")),
        };
        if code != 0 {
            return Err(stream.failure());
        }
        let schema = Schema::try_from(&schema).map_err(|error| invalid(error.to_string()))?;
        Ok(Self {
            stream,
            schema: Arc::new(schema),
            has_ended: false,
        })
    }

    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    /// The next batch; `None` at the end, and after an error.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.read(Stream::next)
    }

    /// [`next_batch`](Self::next_batch) of a stream of dipc_client_start(). `wait` waits for its
    /// descriptor, and may give up.
    ///
    /// # Errors
    ///
    /// As [`next_batch`](Self::next_batch); that of `wait`.
    pub fn next_batch_with(
        &mut self,
        wait: impl FnMut(c_int) -> Result<()>,
    ) -> Result<Option<RecordBatch>> {
        self.read(|stream| stream.next_with(wait))
    }

    fn read(
        &mut self,
        next: impl FnOnce(&mut Stream) -> Result<Option<ArrowDeviceArray>>,
    ) -> Result<Option<RecordBatch>> {
        if self.has_ended {
            return Ok(None);
        }
        let batch = next(&mut self.stream).and_then(|array| {
            let batch = array.map(|array| batch_of(array, &self.schema));
            batch.transpose()
        });
        self.has_ended = !matches!(batch, Ok(Some(_)));
        batch
    }
}

impl Iterator for Table {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch().transpose()?;
        Some(batch.map_err(|failure| ArrowError::ExternalError(Box::new(failure.said()))))
    }
}

impl Stream {
    fn next(&mut self) -> Result<Option<ArrowDeviceArray>> {
        let mut array = ArrowDeviceArray::host(FFI_ArrowArray::empty());
        let pointer = self.as_mut_ptr();
        let code = match self.0.get_next {
            // SAFETY: the function is the stream's own, and the place is a released array.
            Some(get) => unsafe { get(pointer, &raw mut array) },
            None => return Err(invalid("the stream is released")),
        };
        match code {
            0 if array.array.is_released() => Ok(None),
            0 => Ok(Some(array)),
            _ => Err(self.failure()),
        }
    }

    fn next_with(
        &mut self,
        mut wait: impl FnMut(c_int) -> Result<()>,
    ) -> Result<Option<ArrowDeviceArray>> {
        let mut array = ArrowDeviceArray::host(FFI_ArrowArray::empty());
        let (stream, mut fd) = (self.as_mut_ptr(), -1);
        // SAFETY: the stream is live and this is its one user; the place is writable.
        while !tried(|error| unsafe { dipc_stream_try_next(stream, &raw mut array, error) })? {
            // SAFETY: the stream is live and this is its one user; the place is writable.
            call(|error| unsafe { dipc_stream_fd(stream, &raw mut fd, error) })?;
            wait(fd)?;
        }
        Ok((!array.array.is_released()).then_some(array))
    }

    /// Why a call of the stream failed: libdipc's own streams know the status.
    fn failure(&mut self) -> Failure {
        let stream = self.as_mut_ptr();
        // SAFETY: the stream is live, and none of its functions runs.
        match call(|error| unsafe { dipc_stream_status(stream, error) }) {
            Err(failure) if failure.code() != DIPC_ERR_INVALID_ARGUMENT => failure,
            _ => Failure::new(DIPC_ERR_PROVIDER, self.last_error()),
        }
    }

    fn last_error(&mut self) -> String {
        let stream = self.as_mut_ptr();
        let text = match self.0.get_last_error {
            // SAFETY: the function is the stream's own.
            Some(get) => unsafe { get(stream) },
            None => std::ptr::null(),
        };
        if text.is_null() {
            return "the stream failed, and gave no text".into();
        }
        // SAFETY: Arrow's interface promises a string that lives until the stream's next call.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

impl ArrowDeviceArray {
    /// An array in host memory.
    fn host(array: FFI_ArrowArray) -> Self {
        Self {
            array,
            device_id: -1,
            device_type: ARROW_DEVICE_CPU,
            sync_event: std::ptr::null_mut(),
            reserved: [0; 3],
        }
    }
}

fn ensure_host(device_type: i32) -> Result<()> {
    match device_type {
        ARROW_DEVICE_CPU => Ok(()),
        _ => Err(Failure::new(
            DIPC_ERR_UNSUPPORTED,
            format!(
                "functions read tables in host memory, and this one lies on a device of type \
                 {device_type}"
            ),
        )),
    }
}

fn invalid(text: impl Into<String>) -> Failure {
    Failure::new(DIPC_ERR_INVALID_DATA, text)
}

fn batch_of(array: ArrowDeviceArray, schema: &SchemaRef) -> Result<RecordBatch> {
    ensure_host(array.device_type)?;
    let invalid = |error: ArrowError| invalid(error.to_string());
    let columns = DataType::Struct(schema.fields().clone());
    // SAFETY: libdipc gives arrays of the stream's schema, which it has checked, or a host of this
    // process has made.
    let data = unsafe { from_ffi_and_data_type(array.array, columns) }.map_err(invalid)?;
    if data.null_count() > 0 {
        return Err(self::invalid("rows of the table itself are null"));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(data.len()));
    let columns = StructArray::from(data).into_parts().1;
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options).map_err(invalid)
}

/// Who hears of a failure of an exported stream, beside its reader.
pub type Listener = Box<dyn FnMut(&Said) + Send>;

/// What an exported stream gives.
struct Exported {
    schema: SchemaRef,
    batches: Box<dyn Iterator<Item = Result<RecordBatch, Said>> + Send>,
    listener: Listener,
    /// Of the last failure.
    text: CString,
}

/// The batches as a stream of host memory.
pub fn export(
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, Said>> + Send + 'static,
    listener: Listener,
) -> Stream {
    let exported = Box::new(Exported {
        schema,
        batches: Box::new(batches),
        listener,
        text: CString::default(),
    });
    Stream(ArrowDeviceArrayStream {
        device_type: ARROW_DEVICE_CPU,
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
        private_data: Box::into_raw(exported).cast(),
    })
}

impl Exported {
    /// Runs a callback of the stream's reader. A failure becomes an errno and a text.
    fn run(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> i32 {
        let Err(failure) = caught(|| body(self)) else {
            return 0;
        };
        let said = failure.said();
        self.text = said.c_text();
        // A listener that panics has been told as much as it can take.
        let _ = caught(|| {
            (self.listener)(&said);
            Ok(())
        });
        // SAFETY: the call takes any number.
        match unsafe { dipc_status_errno(said.code) } {
            // Never a success.
            0 => EIO,
            errno => errno,
        }
    }
}

const EIO: i32 = 5;

/// # Safety
///
/// `stream` is one of [`export`], not released, and used by nobody else for `'a`.
unsafe fn exported<'a>(stream: *mut ArrowDeviceArrayStream) -> &'a mut Exported {
    // SAFETY: the caller promises a live stream.
    let data = unsafe { (*stream).private_data };
    // SAFETY: `export` put a boxed `Exported` there, which lives until the release; the caller
    // promises exclusive use.
    unsafe { &mut *data.cast::<Exported>() }
}

unsafe extern "C" fn get_schema(
    stream: *mut ArrowDeviceArrayStream,
    out: *mut FFI_ArrowSchema,
) -> i32 {
    // SAFETY: Arrow's interface passes the stream that has this function, one call at a time.
    let exported = unsafe { exported(stream) };
    exported.run(|exported| {
        let schema = FFI_ArrowSchema::try_from(exported.schema.as_ref());
        let schema = schema.map_err(|error| invalid(error.to_string()))?;
        // SAFETY: Arrow's interface passes a place for a schema.
        unsafe { out.write(schema) };
        Ok(())
    })
}

unsafe extern "C" fn get_next(
    stream: *mut ArrowDeviceArrayStream,
    out: *mut ArrowDeviceArray,
) -> i32 {
    // SAFETY: Arrow's interface passes the stream that has this function, one call at a time.
    let exported = unsafe { exported(stream) };
    exported.run(|exported| {
        let array = match exported.batches.next() {
            Some(batch) => {
                let batch = batch.map_err(Failure::Here)?;
                FFI_ArrowArray::new(&StructArray::from(batch).to_data())
            }
            None => FFI_ArrowArray::empty(),
        };
        // SAFETY: Arrow's interface passes a place for an array.
        unsafe { out.write(ArrowDeviceArray::host(array)) };
        Ok(())
    })
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowDeviceArrayStream) -> *const c_char {
    // SAFETY: Arrow's interface passes the stream that has this function, one call at a time.
    unsafe { exported(stream) }.text.as_ptr()
}

unsafe extern "C" fn release(stream: *mut ArrowDeviceArrayStream) {
    // SAFETY: Arrow's interface passes the stream that has this function, live.
    let stream = unsafe { &mut *stream };
    stream.release = None;
    let data = stream.private_data.cast::<Exported>();
    let _ = caught(|| {
        // SAFETY: `export` made it by `Box::into_raw`, and `release` is called once.
        drop(unsafe { Box::from_raw(data) });
        Ok(())
    });
}
