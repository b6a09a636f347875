//! Arrow's asynchronous device streams: a handler of ours, which the host's producer calls.
//!
//! The handler's callbacks bring everything to an [`AsyncConsumer`], on the producer's thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use parking_lot::ReentrantMutex;

use crate::arrow::abi::{
    ArrowAsyncDeviceStreamHandler, ArrowAsyncProducer, ArrowAsyncTask, ArrowDeviceArray,
    ArrowSchema,
};
use crate::arrow::format::metadata_bytes;
use crate::arrow::{CStruct as _, OwnedDeviceArray, OwnedSchema};
use crate::error::Status;
use crate::fork::Generation;

/// What a producer brings.
pub enum Produced {
    /// Comes first, unless the stream fails before.
    Schema {
        /// The schema of every array.
        schema: OwnedSchema,
        /// Where the arrays are.
        device_type: i32,
        /// The encoded metadata of the whole stream.
        metadata: Option<Vec<u8>>,
    },
    /// An array, and its encoded metadata.
    Task(AsyncTask, Option<Vec<u8>>),
    /// There are no more arrays.
    End,
    /// The producer has failed.
    Failure {
        /// An errno.
        code: c_int,
        /// The reason.
        text: String,
        /// Encoded metadata.
        metadata: Option<Vec<u8>>,
    },
    /// The producer calls the handler no more.
    Release,
}

/// Takes what a producer brings. It must not wait, and must not call the host, except by the drop
/// of a task.
pub trait AsyncConsumer: Send + Sync {
    /// Takes one thing.
    ///
    /// # Errors
    ///
    /// An errno for the producer: this consumer refuses the schema.
    fn take(&self, produced: Produced) -> Result<(), c_int>;
}

/// The producer that calls a handler. It can be called from the schema on, until its last word.
pub struct HostProducer {
    /// NULL before the schema and after the end, an error or the release. The lock is held during a
    /// call of the producer, so that the producer's last word on another thread waits. The lock is
    /// reentrant, because the last word may also come within such a call.
    raw: ReentrantMutex<Cell<*mut ArrowAsyncProducer>>,
}

// SAFETY: the interface allows calls of the producer on any thread, and the lock keeps the pointer.
unsafe impl Send for HostProducer {}
// SAFETY: the lock admits one thread to the pointer at a time, and the interface allows calls of
// the producer on any thread.
unsafe impl Sync for HostProducer {}

impl HostProducer {
    /// Asks for `n` more arrays; `n` is not 0.
    pub fn request(&self, n: u32) {
        let raw = self.raw.lock();
        // SAFETY: the pointer is not NULL, so the schema has come and the last word has not, and
        // the lock keeps it so. The interface keeps the producer valid until the release.
        if let Some(producer) = unsafe { raw.get().as_ref() }
            && let Some(request) = producer.request
        {
            // SAFETY: the producer is valid, since the lock keeps the pointer from becoming NULL;
            // the function belongs to it.
            unsafe { request(raw.get(), i64::from(n)) };
        }
    }

    /// Tells the producer that nothing more is wanted.
    pub fn cancel(&self) {
        let raw = self.raw.lock();
        // SAFETY: the pointer is not NULL, so the schema has come and the last word has not, and
        // the lock keeps it so. The interface keeps the producer valid until the release.
        if let Some(producer) = unsafe { raw.get().as_ref() }
            && let Some(cancel) = producer.cancel
        {
            // SAFETY: the producer is valid, since the lock keeps the pointer from becoming NULL;
            // the function belongs to it.
            unsafe { cancel(raw.get()) };
        }
    }

    /// Ends all calls of the producer, and waits for a call on another thread. The last word
    /// already ends them, because Arrow Go frees its producer between its last word and the
    /// release.
    fn leave(&self) {
        self.raw.lock().set(ptr::null_mut());
    }
}

/// An array that the producer still has. The drop extracts and releases the array, because Arrow Go
/// cannot discard a task.
pub struct AsyncTask {
    /// `None` once the array is extracted.
    raw: Option<ArrowAsyncTask>,
}

// SAFETY: the interface allows the extraction on any thread.
unsafe impl Send for AsyncTask {}

impl AsyncTask {
    /// Gives the array. The host's function may take its time.
    ///
    /// # Errors
    ///
    /// The errno of the producer.
    pub fn extract(mut self) -> Result<OwnedDeviceArray, c_int> {
        self.take()
    }

    fn take(&mut self) -> Result<OwnedDeviceArray, c_int> {
        let mut task = self.raw.take().ok_or(libc::EINVAL)?;
        let extract = task.extract_data.ok_or(libc::EINVAL)?;
        let mut out = ArrowDeviceArray::EMPTY;
        // SAFETY: the task came from its producer, and this is the only call for it.
        match unsafe { extract(&raw mut task, &raw mut out) } {
            0 => {}
            errno => return Err(errno),
        }
        // SAFETY: the interface has a successful call write an array of the stream's schema, which
        // nobody else owns.
        let array = unsafe { OwnedDeviceArray::from_raw(out) };
        match array.is_released() {
            true => Err(libc::EINVAL),
            false => Ok(array),
        }
    }
}

impl Drop for AsyncTask {
    fn drop(&mut self) {
        // An error of the producer changes nothing.
        drop(self.take());
    }
}

/// The content of a handler, to which its `private_data` points.
struct Handler {
    consumer: Arc<dyn AsyncConsumer>,
    producer: Arc<HostProducer>,
    generation: Generation,
}

/// A handler for the consumer that `consumer` makes for the handler's producer. Whoever gets the
/// handler must cause its release.
pub fn handler<C: AsyncConsumer + 'static>(
    consumer: impl FnOnce(Arc<HostProducer>) -> Arc<C>,
) -> ArrowAsyncDeviceStreamHandler {
    let producer = Arc::new(HostProducer {
        raw: ReentrantMutex::new(Cell::new(ptr::null_mut())),
    });
    let handler = Arc::new(Handler {
        consumer: consumer(Arc::clone(&producer)),
        producer,
        generation: Generation::now(),
    });
    ArrowAsyncDeviceStreamHandler {
        on_schema: Some(on_schema),
        on_next_task: Some(on_next_task),
        on_error: Some(on_error),
        release: Some(release),
        producer: ptr::null_mut(),
        // `release` takes it back.
        private_data: Arc::into_raw(handler).cast_mut().cast(),
    }
}

/// A reference to the content of a handler; `None` for NULL, for a released handler, and in a
/// forked child, where locks may be held for ever.
///
/// # Safety
///
/// `raw` is NULL or a handler of [`handler`], and nobody writes to it.
unsafe fn shared(raw: *const ArrowAsyncDeviceStreamHandler) -> Option<Arc<Handler>> {
    // SAFETY: the caller promises it.
    let data: *const Handler = unsafe { raw.as_ref() }?.private_data.cast();
    // SAFETY: the data is that of `handler`, or NULL after the release.
    if !unsafe { data.as_ref() }?.generation.is_same_process() {
        return None;
    }
    // SAFETY: it came from `Arc::into_raw`, and `release` has not taken it back.
    unsafe { Arc::increment_strong_count(data) };
    // SAFETY: the count that was just added is this one's.
    Some(unsafe { Arc::from_raw(data) })
}

/// Runs a callback. A panic must not cross into C.
fn run(callback: impl FnOnce() -> Result<(), c_int>) -> c_int {
    match catch_unwind(AssertUnwindSafe(callback)) {
        Ok(Ok(())) => 0,
        Ok(Err(errno)) => errno,
        Err(_) => Status::Panic.errno(),
    }
}

/// A copy of encoded metadata. The error is a text.
///
/// # Safety
///
/// As [`metadata_bytes`], during the call.
unsafe fn copied(metadata: *const c_char) -> Result<Option<Vec<u8>>, String> {
    // SAFETY: the caller promises it, and the bytes are copied at once.
    let bytes = unsafe { metadata_bytes(metadata) }?;
    Ok(bytes.map(<[u8]>::to_vec))
}

unsafe extern "C" fn on_schema(
    raw: *mut ArrowAsyncDeviceStreamHandler,
    schema: *mut ArrowSchema,
) -> c_int {
    // SAFETY: the producer passes its handler, and has written to it before.
    let Some(handler) = (unsafe { shared(raw) }) else {
        return libc::EINVAL;
    };
    run(|| {
        // SAFETY: `shared` saw that it is not NULL, and the producer promises that it is valid.
        let producer = unsafe { (*raw).producer };
        // SAFETY: the interface has the producer set its struct before it calls.
        let said = unsafe { producer.as_ref() }.ok_or(libc::EINVAL)?;
        if schema.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: the interface gives the metadata for the time of the callback at least.
        let metadata = unsafe { copied(said.additional_metadata) }.map_err(|_| libc::EINVAL)?;
        let device_type = said.device_type;
        handler.producer.raw.lock().set(producer);
        // SAFETY: it is not NULL, and the interface gives a schema that this may move away.
        let schema = unsafe { OwnedSchema::take(schema) };
        let taken = handler.consumer.take(Produced::Schema {
            schema,
            device_type,
            metadata,
        });
        if taken.is_err() {
            handler.producer.leave();
        }
        taken
    })
}

unsafe extern "C" fn on_next_task(
    raw: *mut ArrowAsyncDeviceStreamHandler,
    task: *mut ArrowAsyncTask,
    metadata: *const c_char,
) -> c_int {
    // SAFETY: as in `on_schema`.
    let Some(handler) = (unsafe { shared(raw) }) else {
        return libc::EINVAL;
    };
    run(|| {
        if task.is_null() {
            handler.producer.leave();
            return handler.consumer.take(Produced::End);
        }
        // SAFETY: it is not NULL. The interface lets the consumer go on with a copy, as long as it
        // extracts only one of them.
        let raw = unsafe { task.read() };
        let task = AsyncTask { raw: Some(raw) };
        // SAFETY: the interface gives the metadata for the time of the callback.
        let produced = match unsafe { copied(metadata) } {
            Ok(metadata) => Produced::Task(task, metadata),
            Err(text) => Produced::Failure {
                code: libc::EINVAL,
                text,
                metadata: None,
            },
        };
        handler.consumer.take(produced)
    })
}

unsafe extern "C" fn on_error(
    raw: *mut ArrowAsyncDeviceStreamHandler,
    code: c_int,
    message: *const c_char,
    metadata: *const c_char,
) {
    // SAFETY: as in `on_schema`.
    let Some(handler) = (unsafe { shared(raw) }) else {
        return;
    };
    run(|| {
        handler.producer.leave();
        let text = match message.is_null() {
            true => std::io::Error::from_raw_os_error(code).to_string(),
            // SAFETY: the interface gives a NUL-terminated text for the time of the callback.
            false => unsafe { CStr::from_ptr(message) }
                .to_string_lossy()
                .into_owned(),
        };
        // SAFETY: the interface gives the metadata for the time of the callback.
        let metadata = unsafe { copied(metadata) }.unwrap_or(None);
        handler.consumer.take(Produced::Failure {
            code,
            text,
            metadata,
        })
    });
}

unsafe extern "C" fn release(raw: *mut ArrowAsyncDeviceStreamHandler) {
    // SAFETY: as in `on_schema`.
    let Some(handler) = (unsafe { shared(raw) }) else {
        return;
    };
    // SAFETY: `shared` saw that it is not NULL, and the producer promises that it is valid.
    let data: *mut *mut c_void = unsafe { &raw mut (*raw).private_data };
    // SAFETY: `data` points into the handler, which the producer keeps valid during this call. The
    // release is the last call, so nobody else uses the handler any more.
    let data = unsafe { data.replace(ptr::null_mut()) };
    // SAFETY: `raw` is not NULL and valid, as for `data`; nobody else uses the handler any more.
    unsafe { (*raw).release = None };
    // SAFETY: it came from `Arc::into_raw`, and this is the only call that takes it back.
    let own = unsafe { Arc::from_raw(data.cast_const().cast::<Handler>()) };
    run(|| {
        handler.producer.leave();
        handler.consumer.take(Produced::Release)
    });
    // The consumer may discard tasks.
    run(|| {
        drop((own, handler));
        Ok(())
    });
}
