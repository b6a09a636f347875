//! Calls of libdipc, by safe names.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;

use arrow::ffi::FFI_ArrowSchema;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::error::{Failure, Result, Said, call, tried};
use crate::stream::Stream;
use crate::sys::*;

/// A handle of libdipc's that this library has made, and frees.
pub struct Owned<T> {
    pointer: *mut T,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// The handle that `make` writes to its first argument.
    ///
    /// # Safety
    ///
    /// `make` calls a function that makes a handle, and `free` is the one that frees it.
    pub unsafe fn new(
        make: impl FnOnce(*mut *mut T, *mut *mut dipc_error) -> dipc_status,
        free: unsafe extern "C" fn(*mut T),
    ) -> Result<Self> {
        let mut pointer = std::ptr::null_mut();
        call(|error| make(&raw mut pointer, error))?;
        Ok(Self { pointer, free })
    }

    pub fn as_ptr(&self) -> *mut T {
        self.pointer
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new`'s caller promised the function that frees it, and this is its one owner.
        unsafe { (self.free)(self.pointer) };
    }
}

/// What a function writes to a buffer: its arguments are the buffer, its size, the place for the
/// length, and that for the error. Text comes without its NUL.
fn read(
    write: impl Fn(*mut u8, usize, *mut usize, *mut *mut dipc_error) -> dipc_status,
) -> Result<Vec<u8>> {
    let mut length = 0;
    call(|error| write(std::ptr::null_mut(), 0, &raw mut length, error))?;
    let mut buffer = vec![0; length + 1];
    call(|error| write(buffer.as_mut_ptr(), buffer.len(), &raw mut length, error))?;
    buffer.truncate(length);
    Ok(buffer)
}

fn unless_missing<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Err(failure) if failure.code() == DIPC_ERR_NOT_FOUND => Ok(None),
        result => result.map(Some),
    }
}

pub type Headers = Owned<dipc_headers>;

impl Headers {
    /// A copy of a caller's headers; without any for NULL.
    ///
    /// # Safety
    ///
    /// `headers` is NULL or live.
    pub unsafe fn copy_of(headers: *const dipc_headers) -> Result<Self> {
        // SAFETY: dipc_headers_new() makes the handle that dipc_headers_free() frees.
        let copy =
            unsafe { Self::new(|out, error| dipc_headers_new(out, error), dipc_headers_free) }?;
        // SAFETY: the caller promises that `headers` is NULL or live.
        let count = unsafe { dipc_headers_count(headers) };
        for index in 0..count {
            // SAFETY: the caller promises that `headers` is NULL or live; `read` gives a buffer of
            // `size` bytes and a place for the length.
            let key = read(|buffer, size, length, error| unsafe {
                dipc_headers_key(headers, index, buffer.cast(), size, length, error)
            })?;
            // SAFETY: the caller promises that `headers` is NULL or live; `read` gives a buffer of
            // `size` bytes and a place for the length.
            let value = read(|buffer, size, length, error| unsafe {
                dipc_headers_value(headers, index, buffer, size, length, error)
            })?;
            let key = CString::new(key).unwrap_or_default();
            // SAFETY: the copy is live, and this function's own.
            unsafe { add(copy.as_ptr(), &key, &value) }?;
        }
        Ok(copy)
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let key = self::key(key);
        // SAFETY: the headers are live, the key is NUL-terminated, and `read` has a buffer of the
        // size.
        unless_missing(read(|buffer, size, length, error| unsafe {
            dipc_headers_get(self.as_ptr(), key.as_ptr(), buffer, size, length, error)
        }))
    }
}

/// A key of a header, for C.
pub fn key(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

/// Adds a pair to headers.
///
/// # Safety
///
/// `headers` is NULL, or live and used by nobody else.
pub unsafe fn add(headers: *mut dipc_headers, key: &CStr, value: &[u8]) -> Result<()> {
    // SAFETY: the caller promises that `headers` is NULL, or live and used by nobody else; key and
    // value live during the call.
    call(|error| unsafe {
        dipc_headers_add(headers, key.as_ptr(), value.as_ptr(), value.len(), error)
    })
}

/// A client's request.
#[derive(Clone, Copy)]
pub struct Request(*const dipc_request);

// SAFETY: libdipc lets any thread call the const functions of a request, several at once.
unsafe impl Send for Request {}
// SAFETY: libdipc lets any thread call the const functions of a request, several at once.
unsafe impl Sync for Request {}

impl Request {
    /// # Safety
    ///
    /// The request is live for as long as this value and its copies are used.
    pub unsafe fn new(request: *const dipc_request) -> Self {
        Self(request)
    }

    pub fn verb(self) -> i32 {
        // SAFETY: `new`'s caller promised a live request.
        unsafe { dipc_request_verb(self.0) }
    }

    /// Whether the client has gone or has cancelled.
    pub fn is_cancelled(self) -> bool {
        // SAFETY: `new`'s caller promised a live request.
        unsafe { dipc_request_is_cancelled(self.0) }
    }

    /// How long the client still waits; DIPC_FOREVER: without an end.
    pub fn time_left_ns(self) -> u64 {
        // SAFETY: `new`'s caller promised a live request.
        unsafe { dipc_request_time_left_ns(self.0) }
    }

    /// Waits until a descriptor is readable.
    ///
    /// # Errors
    ///
    /// `Cancelled`: the client has gone or has cancelled.
    ///
    /// # Safety
    ///
    /// The descriptor is open during the call.
    pub unsafe fn wait(self, fd: i32) -> Result<()> {
        let mut gone = -1;
        // SAFETY: `new`'s caller promised a live request; the place is writable.
        call(|error| unsafe { dipc_request_cancel_fd(self.0, &raw mut gone, error) })?;
        // SAFETY: the caller promises that `fd` is open during the call.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        // SAFETY: the descriptor is the request's, which is live.
        let gone = unsafe { BorrowedFd::borrow_raw(gone) };
        let mut both = [fd, gone].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut both, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                let text = format!("cannot wait for another server: {errno}");
                return Err(Failure::new(DIPC_ERR_IO, text));
            }
        }
        match self.is_cancelled() {
            true => Err(Failure::new(
                DIPC_ERR_CANCELLED,
                "the client has gone or has cancelled",
            )),
            false => Ok(()),
        }
    }

    pub fn headers(self) -> Result<Headers> {
        // SAFETY: `new`'s caller promised a live request; dipc_request_headers() makes the handle
        // that dipc_headers_free() frees.
        unsafe {
            Headers::new(
                |out, error| dipc_request_headers(self.0, out, error),
                dipc_headers_free,
            )
        }
    }

    /// The name that the server's authorizer has given the client.
    pub fn principal(self) -> Result<Option<String>> {
        // SAFETY: `new`'s caller promised a live request, and `read` has a buffer of the size.
        let name = unless_missing(read(|buffer, size, length, error| unsafe {
            dipc_request_principal(self.0, buffer.cast(), size, length, error)
        }))?;
        Ok(name.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }

    /// Accepts the client's table.
    pub fn source(self) -> Result<Stream> {
        let mut out = ArrowDeviceArrayStream::released();
        // SAFETY: `new`'s caller promised a live request; the place is writable.
        call(|error| unsafe { dipc_request_source(self.0, &raw mut out, error) })?;
        // SAFETY: libdipc gave a stream away.
        Ok(unsafe { Stream::new(out) })
    }

    /// Has the server answer a get as without the middleware.
    pub fn forward_get(self) -> Result<Stream> {
        let mut out = ArrowDeviceArrayStream::released();
        let none = std::ptr::null_mut();
        // SAFETY: `new`'s caller promised a live request; the place is writable.
        call(|error| unsafe { dipc_request_forward(self.0, none, &raw mut out, error) })?;
        // SAFETY: libdipc gave a stream away.
        Ok(unsafe { Stream::new(out) })
    }

    /// Has the server's host take a table in the place of the client's.
    pub fn forward_put(self, mut table: Stream) -> Result<()> {
        let none = std::ptr::null_mut();
        let table = table.as_mut_ptr();
        // SAFETY: `new`'s caller promised a live request; the call takes the table, and leaves it
        // released.
        call(|error| unsafe { dipc_request_forward(self.0, table, none, error) })
    }

    /// Says to the client why its request fails.
    pub fn fail(self, said: &Said) {
        let text = said.c_text();
        // SAFETY: `new`'s caller promised a live request. The text is UTF-8, so that nothing fails.
        unsafe { dipc_request_fail(self.0, said.code, text.as_ptr(), std::ptr::null_mut()) };
    }
}

/// Options of a get: those of a caller, or new ones.
///
/// # Errors
///
/// The headers are too long.
///
/// # Safety
///
/// `options` is NULL, or live and used by nobody else.
pub unsafe fn get_options(
    options: *mut dipc_get_options,
    headers: &Headers,
) -> Result<Given<dipc_get_options>> {
    let given = match options.is_null() {
        false => Given::Caller(options),
        // SAFETY: dipc_get_options_new() makes the handle that dipc_get_options_free() frees.
        true => Given::New(unsafe {
            Owned::new(
                |out, error| dipc_get_options_new(out, error),
                dipc_get_options_free,
            )
        }?),
    };
    // SAFETY: the options are live and used by nobody else: the caller promises it of its own, and
    // others are new here.
    call(|error| unsafe { dipc_get_options_set_headers(given.as_ptr(), headers.as_ptr(), error) })?;
    Ok(given)
}

/// As [`get_options`], of a put.
///
/// # Errors
///
/// As [`get_options`].
///
/// # Safety
///
/// As [`get_options`].
pub unsafe fn put_options(
    options: *mut dipc_put_options,
    headers: &Headers,
) -> Result<Given<dipc_put_options>> {
    let given = match options.is_null() {
        false => Given::Caller(options),
        // SAFETY: dipc_put_options_new() makes the handle that dipc_put_options_free() frees.
        true => Given::New(unsafe {
            Owned::new(
                |out, error| dipc_put_options_new(out, error),
                dipc_put_options_free,
            )
        }?),
    };
    // SAFETY: the options are live and used by nobody else: the caller promises it of its own, and
    // others are new here.
    call(|error| unsafe { dipc_put_options_set_headers(given.as_ptr(), headers.as_ptr(), error) })?;
    Ok(given)
}

/// A handle of a caller's, or one of this library's.
pub enum Given<T> {
    Caller(*mut T),
    New(Owned<T>),
}

impl<T> Given<T> {
    pub fn as_ptr(&self) -> *mut T {
        match self {
            Self::Caller(pointer) => *pointer,
            Self::New(owned) => owned.as_ptr(),
        }
    }
}

/// Where a client finds a server, as a caller in C says it.
#[derive(Clone, Copy)]
pub struct Server {
    pub client: *const dipc_client,
    pub uris: *const *const std::ffi::c_char,
    pub n_uris: usize,
    pub cancel: *const dipc_cancel,
}

impl Server {
    /// Gets a table.
    ///
    /// # Safety
    ///
    /// The pointers are what dipc_client_get() takes.
    pub unsafe fn get(
        self,
        ticket: &[u8],
        options: *const dipc_get_options,
        out: *mut ArrowDeviceArrayStream,
    ) -> Result<()> {
        let (ticket, length) = (ticket.as_ptr(), ticket.len());
        let Self {
            client,
            uris,
            n_uris,
            cancel,
        } = self;
        // SAFETY: the caller promises handles that are NULL or live, `n_uris` strings, and an `out`
        // that is NULL or writable; the ticket's bytes are borrowed for the call.
        call(|error| unsafe {
            dipc_client_get(
                client, uris, n_uris, ticket, length, options, cancel, out, error,
            )
        })
    }

    /// Gets a table for a request, and leaves when the request's client does.
    ///
    /// # Safety
    ///
    /// The pointers are what dipc_client_start() takes.
    pub unsafe fn get_for(
        self,
        request: Request,
        ticket: &[u8],
        options: *const dipc_get_options,
    ) -> Result<Stream> {
        let (ticket, length, verb) = (ticket.as_ptr(), ticket.len(), DIPC_VERB_GET);
        let Self {
            client,
            uris,
            n_uris,
            cancel,
        } = self;
        // SAFETY: the caller promises handles that are NULL or live, and `n_uris` strings; the
        // ticket is borrowed. dipc_pending_free() frees what dipc_client_start() makes.
        let pending = unsafe {
            Owned::new(
                |out, error| {
                    dipc_client_start(
                        client, verb, uris, n_uris, ticket, length, options, cancel, out, error,
                    )
                },
                dipc_pending_free,
            )
        }?;
        let pending = pending.as_ptr();
        let mut out = ArrowDeviceArrayStream::released();
        let mut fd = -1;
        // SAFETY: the pending request is live until this function returns, and so is the place for
        // `fd`.
        call(|error| unsafe { dipc_pending_fd(pending, &raw mut fd, error) })?;
        // SAFETY: the pending request is live until this function returns, and so is the place for
        // `out`.
        while !tried(|error| unsafe { dipc_pending_try_stream(pending, &raw mut out, error) })? {
            // SAFETY: the descriptor is the pending request's, which is live.
            unsafe { request.wait(fd) }?;
        }
        // SAFETY: libdipc gave a stream away.
        Ok(unsafe { Stream::new(out) })
    }

    /// Begins a put.
    ///
    /// # Safety
    ///
    /// The pointers are what dipc_client_put() takes.
    pub unsafe fn put(
        self,
        descriptor: &[u8],
        options: *const dipc_put_options,
        source: *mut ArrowDeviceArrayStream,
        out: *mut *mut dipc_put,
    ) -> Result<()> {
        let (descriptor, length) = (descriptor.as_ptr(), descriptor.len());
        let Self {
            client,
            uris,
            n_uris,
            cancel,
        } = self;
        // SAFETY: the caller promises handles that are NULL or live, `n_uris` strings, and its own
        // stream as the source and a writable `out`, or NULL; the descriptor is borrowed.
        call(|error| unsafe {
            dipc_client_put(
                client, uris, n_uris, descriptor, length, options, cancel, source, out, error,
            )
        })
    }

    /// Begins an exchange: the options are of the table from here and of that from there.
    ///
    /// # Safety
    ///
    /// The pointers are what dipc_client_exchange() takes.
    pub unsafe fn exchange(
        self,
        (options, answer_options): (*const dipc_put_options, *const dipc_get_options),
        (schema, device_type): (*const FFI_ArrowSchema, i32),
        out: *mut *mut dipc_put,
        answers: *mut ArrowDeviceArrayStream,
    ) -> Result<()> {
        let Self {
            client,
            uris,
            n_uris,
            cancel,
        } = self;
        let none = std::ptr::null();
        // SAFETY: the caller promises handles that are NULL or live, `n_uris` strings, and a schema
        // of Arrow's and writable outputs, or NULL; a descriptor of no bytes may be NULL.
        call(|error| unsafe {
            dipc_client_exchange(
                client,
                uris,
                n_uris,
                none,
                0,
                options,
                answer_options,
                cancel,
                schema,
                device_type,
                out,
                answers,
                error,
            )
        })
    }

    /// Puts a table of this library's, and waits until the server has taken it.
    ///
    /// # Safety
    ///
    /// The pointers are what dipc_client_put() takes.
    pub unsafe fn put_all(self, mut table: Stream, options: *const dipc_put_options) -> Result<()> {
        let source = table.as_mut_ptr();
        // SAFETY: the caller promises handles that are NULL or live, and `n_uris` strings; the
        // source is this function's own. dipc_put_free() frees what dipc_client_put() makes.
        let put = unsafe {
            Owned::new(
                |out, error| match self.put(b"", options, source, out) {
                    Ok(()) => DIPC_OK,
                    Err(failure) => failure.report(error),
                },
                dipc_put_free,
            )
        }?;
        let none = std::ptr::null_mut();
        // SAFETY: the put is live, and this function's own.
        call(|error| unsafe { dipc_put_finish(put.as_ptr(), DIPC_FOREVER, none, error) })
    }
}

/// A failure that a server's answer may be.
pub fn is<T>(result: &Result<T>, code: dipc_status) -> bool {
    matches!(result, Err(failure) if Failure::code(failure) == code)
}
