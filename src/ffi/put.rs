//! Streams that a client sends.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd as _;

use crate::arrow::abi::ArrowDeviceArray;
use crate::client::Put;
use crate::ffi::client_options::time_limit;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::{Polled, guard_free};
use crate::ffi::handle::{HandleState, boxed, try_out};
use crate::ffi::headers::dipc_headers;
use crate::ffi::loan::Loan;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_bytes, try_str};

/// A table on its way to a server. Made by dipc_client_put(), dipc_client_put_open() or
/// dipc_client_exchange(). One thread
/// at a time uses it; a dipc_cancel ends a call on another thread.
///
/// The thread that calls also writes and reads the connection. Between two calls the library
/// answers the server. After a call that fails, other than by DIPC_ERR_TIMEOUT,
/// DIPC_ERR_INVALID_ARGUMENT or DIPC_ERR_INVALID_DATA of a batch, the put is over: every later call
/// returns the same status.
pub struct dipc_put {
    state: HandleState,
    pub(super) inner: Put,
    /// Bytes of the last result.
    result: Vec<u8>,
}

handle!(dipc_put, "put");

impl dipc_put {
    pub(super) fn new(inner: Put) -> Self {
        Self {
            state: HandleState::new(),
            inner,
            result: Vec::new(),
        }
    }
}

/// Sends a batch, by a put of dipc_client_put_open() or dipc_client_exchange(). Waits for the
/// batch's sync_event, and for a slow server.
///
/// @param put                 Put; exclusive during the call.
/// @param batch               Moved on success: its release becomes NULL. It is called when the
///                            server has given the batch back, on a thread of the library or in a
///                            call on the put.
/// @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
/// @param metadata_len_bytes  Length of metadata.
/// @param timeout_ns          Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
///                            dipc_put_fd() tells when there is room.
/// @param error               May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_TIMEOUT: the server was too slow. Call again, unless dipc_put_is_over() is
///         true: then the options' stall timeout or deadline has passed. DIPC_ERR_INVALID_ARGUMENT:
///         the put has a source, or is over. DIPC_ERR_INVALID_DATA: the batch is invalid.
///         DIPC_ERR_CANCELLED. DIPC_ERR_DISCONNECTED. The status with which the server's host has
///         failed the table.
///
/// # Safety
///
/// `put` is NULL, or live and exclusive; `batch` is NULL or an array that follows Arrow's C device
/// data interface, used by nobody else during the call; `metadata` is readable for
/// `metadata_len_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_push(
    put: *mut dipc_put,
    batch: *mut ArrowDeviceArray,
    metadata: *const u8,
    metadata_len_bytes: usize,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, |put| {
        // SAFETY: the caller promises `metadata` is readable.
        let metadata = unsafe { try_bytes(metadata, metadata_len_bytes, "metadata") }?;
        let metadata = (!metadata.is_empty()).then_some(metadata);
        // SAFETY: the caller promises `batch` is NULL, or initialised and used by nobody else.
        let (loan, array) = unsafe { Loan::new(batch) }?;
        (put.inner)
            .push(array, metadata, time_limit(timeout_ns))
            .map_err(|(error, _stand_in)| error)?;
        loan.accept();
        Ok(())
    })
}

/// Waits until the server's host reports by dipc_request_result() that a part of the table is safe.
/// While it waits, it sends the batches of the put's source, if there is one. Once the put is over,
/// gives the results that came before its end.
///
/// @param put          Put; exclusive during the call.
/// @param timeout_ns   Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
///                     dipc_put_fd() tells when to call again.
/// @param out_batches  Receives the number of batches, from the first on, that are safe.
///                     dipc_put_result() then gives the host's bytes.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: the server's host has taken the whole table; there are no more
///         results. DIPC_ERR_NULL_ARGUMENT. Otherwise as dipc_put_push().
///
/// # Safety
///
/// `put` is NULL, or live and exclusive; `out_batches` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_next_result(
    put: *mut dipc_put,
    timeout_ns: u64,
    out_batches: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, |put| {
        // SAFETY: the caller promises `out_batches` is NULL or writable.
        let out = unsafe { try_out(out_batches, "out_batches") }?;
        let Some(result) = put.inner.next_result(time_limit(timeout_ns))? else {
            return Ok(Polled::Nothing);
        };
        out.set(result.batches);
        put.result = result.bytes;
        Ok(Polled::Done)
    })
}

/// Gives the host's bytes of the result that dipc_put_next_result() gave last.
///
/// @param put            Put.
/// @param buffer         Receives the bytes, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length, at most 32 KiB.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
///         written.
///
/// # Safety
///
/// `put` is NULL, or live and not written to by another thread; `buffer` is NULL or writable for
/// `size_bytes`; `out_len_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_result(
    put: *const dipc_put,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, |put| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(&put.result)
    })
}

/// Ends the table, and waits until the server's host has taken all of it. Sends the rest of a
/// source first. dipc_put_next_result() still gives the results that nobody has asked for.
///
/// @param put          Put; exclusive during the call.
/// @param timeout_ns   Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
///                     dipc_put_fd() tells when to call again.
/// @param out_batches  Receives the number of batches that the host has taken; may be NULL.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: call again, unless dipc_put_is_over()
///         is true. DIPC_ERR_DISCONNECTED: the connection ended before the server's final answer.
///         It is not known then whether the host has taken the table; the text says so. Otherwise
///         as dipc_put_push().
///
/// # Safety
///
/// `put` is NULL, or live and exclusive; `out_batches` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_finish(
    put: *mut dipc_put,
    timeout_ns: u64,
    out_batches: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, |put| {
        let batches = put.inner.finish(time_limit(timeout_ns))?;
        if !out_batches.is_null() {
            // SAFETY: it is not NULL, so the caller promises that it is writable.
            unsafe { out_batches.write(batches) };
        }
        Ok(())
    })
}

/// Fails the table with a reason, which the server's host sees.
///
/// @param put    Put; exclusive during the call.
/// @param code   A DIPC_ERR_*; any other number becomes DIPC_ERR_PROVIDER.
/// @param text   UTF-8; copied.
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK, also if the put is over. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT:
///         text is not UTF-8.
///
/// # Safety
///
/// `put` is NULL, or live and exclusive; `text` is NULL or a NUL-terminated string; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_fail(
    put: *mut dipc_put,
    code: i32,
    text: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, |put| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        put.inner.fail(code, text);
        Ok(())
    })
}

/// Gives the headers of the server's answers so far.
///
/// @param put    Put; exclusive during the call.
/// @param out    Receives the headers, to be freed by dipc_headers_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `put` is NULL, or live and exclusive; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_headers(
    put: *mut dipc_put,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, out => |put| boxed(put.inner.headers()))
}

/// Gives a descriptor for an event loop. It is readable at first. After a call with timeout_ns 0
/// has returned DIPC_ERR_TIMEOUT, it becomes readable when it is useful to call again. Once the put
/// is over, it stays readable.
///
/// @param put    Put; exclusive during the call.
/// @param out    Receives the descriptor. It is the put's, which closes it; it is not to be read or
///               closed.
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no descriptor is left.
///
/// # Safety
///
/// `put` is NULL, or live and exclusive; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_fd(
    put: *mut dipc_put,
    out: *mut c_int,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, out => |put| put.inner.fd()?.as_raw_fd())
}

/// Frees a put. NULL does nothing. A table that is not finished fails. Batches that the server
/// still has are released when it gives them back, or when its process has ended.
///
/// @param put  Put, or NULL; no call on it is running.
///
/// # Safety
///
/// `put` is NULL, or came from dipc_client_put() or dipc_client_put_open() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_free(put: *mut dipc_put) {
    // SAFETY: the caller promises `put` is NULL, or live and unused.
    unsafe { guard_free(put) }
}
