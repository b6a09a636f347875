//! Arrow's asynchronous device streams: a consumer's handler, and the producer that it calls.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::arrow::abi::{
    ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask, ArrowDeviceArray,
};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::DeviceKind;
use crate::error::{Error, Result, Status};
use crate::fork::PerProcess;

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
    producer: Arc<Producer>,
    /// The producer's `additional_metadata`.
    metadata: Option<Vec<u8>>,
}

/// Producers whose handlers were released last, the youngest at the end. Arrow Go's consumer may
/// call `cancel` shortly after the release.
static RELEASED: PerProcess<Mutex<VecDeque<Arc<Producer>>>> = PerProcess::new(Mutex::default);
/// Most producers in `RELEASED`.
const MOST_RELEASED: usize = 256;

/// A producer, as the consumer sees it, and the flow that gets the consumer's calls.
///
/// Each task keeps it alive: Arrow C++'s consumer calls `request` before it extracts a task, even
/// after it has released its handler.
struct Producer {
    /// Its `private_data` is the address of this struct.
    raw: UnsafeCell<ArrowAsyncProducer>,
    flow: Arc<dyn Flow>,
}

/// The content of a task, to which its `private_data` points.
struct Task {
    array: OwnedDeviceArray,
    producer: Arc<Producer>,
}

// SAFETY: the pointers of `raw` lead to static functions, to the struct itself and to metadata that
// nobody writes to.
unsafe impl Send for Producer {}
// SAFETY: this side writes to `raw` before any other thread knows it, and before `on_schema`; then
// it writes to members that the consumer reads from `on_schema` on.
unsafe impl Sync for Producer {}

/// The errno of a callback that failed.
pub type Refused = Result<(), c_int>;

// SAFETY: `take`'s caller promises that any thread may call the handler.
unsafe impl Send for AsyncHandler {}

impl AsyncHandler {
    /// Fails if a handler lacks a function.
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
        let producer = Arc::new(Producer {
            raw: UnsafeCell::new(ArrowAsyncProducer {
                device_type: DeviceKind::CPU.0,
                request: Some(request),
                cancel: Some(cancel),
                additional_metadata: ptr::null(),
                private_data: ptr::null_mut(),
            }),
            flow,
        });
        let raw = producer.raw.get();
        // SAFETY: nobody else knows the producer yet.
        unsafe { (*raw).private_data = Arc::as_ptr(&producer).cast_mut().cast() };
        // SAFETY: the caller promises that the handler is valid and that nobody else writes to it.
        unsafe { (*handler.as_ptr()).producer = raw };
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
        let raw = self.producer.raw.get();
        self.metadata = metadata;
        // SAFETY: the producer lives as long as `self`. The consumer reads this member from this
        // callback on; its `request` and `cancel` do not use it.
        unsafe { (*raw).additional_metadata = c_metadata(self.metadata.as_ref()) };
        // SAFETY: the producer lives as long as `self`, and the consumer reads this member only
        // from this callback on.
        unsafe { (*raw).device_type = device_type };
        // SAFETY: the consumer may move the schema away or release it. Both leave a released
        // struct. If it does neither, the schema stays as it is.
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
        let producer = Arc::clone(&self.producer);
        let task = Box::new(Task { array, producer });
        let mut task = ArrowAsyncTask {
            extract_data: Some(extract_data),
            // The consumer takes it back by `extract_data`.
            private_data: Box::into_raw(task).cast(),
        };
        self.on_next_task(&raw mut task, c_metadata(metadata))
    }

    /// Tells of the end.
    pub fn on_end(&mut self) {
        // The errno does not matter, because nothing comes after the end.
        let _ = self.on_next_task(ptr::null_mut(), ptr::null());
    }

    fn on_next_task(&mut self, task: *mut ArrowAsyncTask, metadata: *const c_char) -> Refused {
        let (call, handler) = (self.raw().on_next_task, self.handler.as_ptr());
        // SAFETY: `take`'s caller promises that the handler's functions may be called, one at a
        // time. Task and metadata live as long as the call.
        refused(call.map(|call| unsafe { call(handler, task, metadata) }))
    }

    /// Tells of a failure, which ends the stream.
    pub fn on_error(&mut self, error: &Error, metadata: Option<&Vec<u8>>) {
        // A C string ends at the first NUL, so NUL characters become spaces.
        let text = CString::new(error.text().replace('\0', " ")).unwrap_or_default();
        let (code, metadata) = (error.status().errno(), c_metadata(metadata));
        if let Some(call) = self.raw().on_error {
            // SAFETY: `take`'s caller promises that the handler's functions may be called, one at a
            // time. Text and metadata live as long as the call.
            unsafe { call(self.handler.as_ptr(), code, text.as_ptr(), metadata) };
        }
    }
}

impl Drop for AsyncHandler {
    fn drop(&mut self) {
        if let Some(release) = self.raw().release {
            // SAFETY: `take`'s caller promises that the handler's functions may be called, one at a
            // time. Nobody calls the handler after this release.
            unsafe { release(self.handler.as_ptr()) };
        }
        let mut released = RELEASED.get().lock();
        released.push_back(Arc::clone(&self.producer));
        let oldest = (released.len() > MOST_RELEASED).then(|| released.pop_front());
        drop(released);
        drop(oldest);
    }
}

/// The result of a callback. `None`: the handler does not have the function any more.
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

/// The flow of a producer; `None` for NULL.
///
/// # Safety
///
/// `producer` is NULL, or a live producer that [`AsyncHandler::take`] made.
unsafe fn flow_of(producer: *mut ArrowAsyncProducer) -> Option<Arc<dyn Flow>> {
    if producer.is_null() {
        return None;
    }
    // SAFETY: it is not NULL, so the caller promises a live producer. Nobody writes to this member.
    let own = unsafe { (*producer).private_data.cast::<Producer>() };
    // SAFETY: `private_data` is the `Producer`, which lives.
    unsafe { own.as_ref() }.map(|own| Arc::clone(&own.flow))
}

// During the call of the flow, another thread may release the handler, and with it the producer.
// Therefore these functions own the flow.

unsafe extern "C" fn request(producer: *mut ArrowAsyncProducer, n: i64) {
    // SAFETY: the consumer passes its own producer, before the release or before it has extracted
    // its last task.
    let flow = unsafe { flow_of(producer) };
    // A panic must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| flow.map(|flow| flow.request(n))));
}

unsafe extern "C" fn cancel(producer: *mut ArrowAsyncProducer) {
    // SAFETY: the consumer passes its own producer, before the release or before it has extracted
    // its last task.
    let flow = unsafe { flow_of(producer) };
    let _ = catch_unwind(AssertUnwindSafe(|| flow.map(|flow| flow.cancel())));
}

/// Gives the array of a task; NULL discards it.
unsafe extern "C" fn extract_data(task: *mut ArrowAsyncTask, out: *mut ArrowDeviceArray) -> c_int {
    // SAFETY: the interface has the consumer pass a task, or its copy, that nobody else uses.
    let Some(task) = (unsafe { task.as_mut() }) else {
        return libc::EINVAL;
    };
    let task = std::mem::replace(&mut task.private_data, ptr::null_mut());
    if task.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `on_array` made it by `Box::into_raw`, and a task is extracted once.
    let Task { array, producer } = *unsafe { Box::from_raw(task.cast::<Task>()) };
    if !out.is_null() {
        // SAFETY: it is not NULL, and the interface requires writable memory. `write` does not read
        // the old content.
        unsafe { out.write(array.into_raw()) };
        drop(producer);
        return 0;
    }
    // A panic must not cross into C.
    let _ = catch_unwind(AssertUnwindSafe(|| drop((array, producer))));
    0
}
