//! Arrow's asynchronous device streams: a consumer's handler, and the producer that it calls.

use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::arrow::abi::{
    ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask, ArrowDeviceArray,
};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};

/// What a consumer may say to its producer, at any time and on any thread.
pub trait Flow: Send + Sync {
    /// The consumer takes `n` more arrays.
    fn request(&self, n: i64);

    /// The consumer wants no more.
    fn cancel(&self);
}

/// The handler of a consumer. Its drop calls the handler's `release`.
///
/// The functions call the consumer. An errno of the consumer means that it wants no more calls.
pub struct AsyncHandler {
    handler: NonNull<ArrowAsyncDeviceStreamHandler>,
    /// From `Box::into_raw`: the consumer has the address, too. Its `private_data` is a boxed
    /// `Arc<dyn Flow>`.
    producer: NonNull<ArrowAsyncProducer>,
    /// The producer's `additional_metadata`.
    metadata: Option<Vec<u8>>,
}

/// The errno of a callback that failed.
pub type Refused = Result<(), c_int>;

// SAFETY: `take`'s caller promises that any thread may call the handler. The producer's flow is
// `Send`.
unsafe impl Send for AsyncHandler {}

impl AsyncHandler {
    /// Whether a handler can be called at all.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: one of the functions is missing.
    pub fn ensure_complete(handler: &ArrowAsyncDeviceStreamHandler) -> Result<()> {
        let parts = [
            (handler.on_schema.is_some(), "on_schema"),
            (handler.on_next_task.is_some(), "on_next_task"),
            (handler.on_error.is_some(), "on_error"),
            (handler.release.is_some(), "release"),
        ];
        match parts.iter().find(|(is_there, _)| !is_there) {
            None => Ok(()),
            Some((_, name)) => Err(Error::invalid_argument(format!(
                "the handler is released, or has no {name}"
            ))),
        }
    }

    /// Owns a complete handler, and gives it a producer.
    ///
    /// # Safety
    ///
    /// `handler` is valid, follows Arrow's C async stream interface, and stays where it is until
    /// its `release` was called. Any thread may call its functions, one at a time. Nobody else
    /// writes to it.
    pub unsafe fn take(
        handler: NonNull<ArrowAsyncDeviceStreamHandler>,
        flow: Arc<dyn Flow>,
    ) -> Self {
        let producer = NonNull::from(Box::leak(Box::new(ArrowAsyncProducer {
            device_type: DeviceKind::CPU.0,
            request: Some(request),
            cancel: Some(cancel),
            additional_metadata: ptr::null(),
            private_data: Box::into_raw(Box::new(flow)).cast(),
        })));
        // SAFETY: the caller promises that the handler is valid and that nobody else writes to it.
        unsafe { (*handler.as_ptr()).producer = producer.as_ptr() };
        Self {
            handler,
            producer,
            metadata: None,
        }
    }

    /// The handler's functions, as they are now.
    fn raw(&self) -> &ArrowAsyncDeviceStreamHandler {
        // SAFETY: the handler is valid until its release. The consumer writes to it in callbacks
        // only, and no reference outlives the beginning of one.
        unsafe { self.handler.as_ref() }
    }

    /// Gives the schema. `metadata` is that of the whole stream.
    ///
    /// # Errors
    ///
    /// The consumer's errno.
    pub fn on_schema(
        &mut self,
        mut schema: OwnedSchema,
        device_type: i32,
        metadata: Option<Vec<u8>>,
    ) -> Refused {
        let producer = self.producer.as_ptr();
        self.metadata = metadata;
        // SAFETY: the box lives as long as `self`. The consumer reads this member in its callbacks
        // only, and none runs; its `request` and `cancel` do not use it.
        unsafe { (*producer).additional_metadata = c_metadata(self.metadata.as_ref()) };
        // SAFETY: as above.
        unsafe { (*producer).device_type = device_type };
        // SAFETY: the consumer moves the schema away or releases it, which both leave a released
        // struct; or it leaves the schema as it is.
        let schema = unsafe { schema.raw_mut() };
        let (call, handler) = (self.raw().on_schema, self.handler.as_ptr());
        // SAFETY: `take`'s caller promises that the handler's functions may be called, one at a
        // time.
        refused(call.map(|call| unsafe { call(handler, schema) }))
    }

    /// Gives an array.
    ///
    /// # Errors
    ///
    /// The consumer's errno.
    pub fn on_array(&mut self, array: OwnedDeviceArray, metadata: Option<&Vec<u8>>) -> Refused {
        let mut task = ArrowAsyncTask {
            extract_data: Some(extract_data),
            // The consumer takes it back by `extract_data`.
            private_data: Box::into_raw(Box::new(array)).cast(),
        };
        self.on_next_task(&raw mut task, c_metadata(metadata))
    }

    /// Tells of the end.
    pub fn on_end(&mut self) {
        // Nothing comes after it either way.
        let _ = self.on_next_task(ptr::null_mut(), ptr::null());
    }

    fn on_next_task(&mut self, task: *mut ArrowAsyncTask, metadata: *const c_char) -> Refused {
        let (call, handler) = (self.raw().on_next_task, self.handler.as_ptr());
        // SAFETY: as in `on_schema`. Task and metadata live as long as the call.
        refused(call.map(|call| unsafe { call(handler, task, metadata) }))
    }

    /// Tells of a failure, which ends the stream.
    pub fn on_error(&mut self, error: &Error, metadata: Option<&Vec<u8>>) {
        // A C string ends at the first NUL, so NUL characters become spaces.
        let text = CString::new(error.text().replace('\0', " ")).unwrap_or_default();
        let (code, metadata) = (error.status().errno(), c_metadata(metadata));
        if let Some(call) = self.raw().on_error {
            // SAFETY: as in `on_schema`. Text and metadata live as long as the call.
            unsafe { call(self.handler.as_ptr(), code, text.as_ptr(), metadata) };
        }
    }
}

impl Drop for AsyncHandler {
    fn drop(&mut self) {
        if let Some(release) = self.raw().release {
            // SAFETY: as in `on_schema`; nobody calls the handler afterwards.
            unsafe { release(self.handler.as_ptr()) };
        }
        // SAFETY: `take` made the box. The consumer does not use its producer after the release.
        let producer = unsafe { Box::from_raw(self.producer.as_ptr()) };
        // SAFETY: `take` made this box, too.
        drop(unsafe { Box::from_raw(producer.private_data.cast::<Arc<dyn Flow>>()) });
    }
}

/// A consumer that lacks the function is complete no more.
fn refused(errno: Option<c_int>) -> Refused {
    match errno {
        Some(0) => Ok(()),
        Some(errno) => Err(errno),
        None => Err(Status::InvalidArgument.errno()),
    }
}

fn c_metadata(metadata: Option<&Vec<u8>>) -> *const c_char {
    metadata.map_or(ptr::null(), |bytes| bytes.as_ptr().cast())
}

/// The flow behind a producer; `None` for NULL.
///
/// # Safety
///
/// `producer` is NULL, or one of [`AsyncHandler::take`] whose handler is not released.
unsafe fn flow_of(producer: *mut ArrowAsyncProducer) -> Option<Arc<dyn Flow>> {
    if producer.is_null() {
        return None;
    }
    // SAFETY: it is not NULL, so the caller promises a live producer. Nobody writes to this member.
    let flow = unsafe { (*producer).private_data.cast::<Arc<dyn Flow>>() };
    // SAFETY: `take` made the box, which lives as long as the producer.
    unsafe { flow.as_ref() }.map(Arc::clone)
}

// Behind the flow's call the handler may be released on another thread, and the producer with it:
// these functions own the flow.

unsafe extern "C" fn request(producer: *mut ArrowAsyncProducer, n: i64) {
    // SAFETY: the interface has the consumer pass its own producer, before the release.
    let flow = unsafe { flow_of(producer) };
    // A panic must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| flow.map(|flow| flow.request(n))));
}

unsafe extern "C" fn cancel(producer: *mut ArrowAsyncProducer) {
    // SAFETY: as in `request`.
    let flow = unsafe { flow_of(producer) };
    let _ = catch_unwind(AssertUnwindSafe(|| flow.map(|flow| flow.cancel())));
}

/// Gives the array of a task; NULL discards it.
unsafe extern "C" fn extract_data(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    // SAFETY: the interface has the consumer pass a task, or its copy, that nobody else uses.
    let Some(task) = (unsafe { task.as_mut() }) else {
        return libc::EINVAL;
    };
    let array = std::mem::replace(&mut task.private_data, ptr::null_mut());
    let Some(array) = NonNull::new(array.cast::<OwnedDeviceArray>()) else {
        return libc::EINVAL;
    };
    // SAFETY: `on_array` made it by `Box::into_raw`, and a task is extracted once.
    let array = unsafe { Box::from_raw(array.as_ptr()) };
    if out.is_null() {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(array)));
    } else {
        // SAFETY: it is not NULL, and the interface requires writable memory. `write` does not read
        // the old content.
        unsafe { out.write(array.into_raw()) };
    }
    0
}
