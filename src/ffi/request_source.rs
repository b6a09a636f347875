//! The stream that the client of a request sends.

use crate::arrow::abi::{ArrowDeviceArrayStream, ArrowSchema};
use crate::arrow::stream::export_device_stream;
use crate::ffi::error_details::dipc_error;
use crate::ffi::request::dipc_request;
use crate::ffi::status::dipc_status;
use crate::ffi::text::try_bytes;
use crate::server::SentTable;

/// Gives the schema of the table that the client sends, so that the host can decide whether to
/// accept the table. Waits for the schema, which the client sends right after the request.
///
/// @param request  Request with DIPC_VERB_PUT or DIPC_VERB_EXCHANGE.
/// @param out      Receives the schema, to be released. An old value is overwritten.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the client sends no table,
///         or dipc_request_source() has taken it. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the
///         client is gone. DIPC_ERR_PROTOCOL.
///
/// # Safety
///
/// `request` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_source_schema(
    request: *const dipc_request,
    out: *mut ArrowSchema,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, out => |request| request.get().source_schema()?.into_raw())
}

/// Accepts the table that the client sends, and gives it as a stream: from now on the client sends
/// batches, as fast as the host reads. The arrays outlive the request and the client.
///
/// The host reads the stream to its end, then answers. For DIPC_VERB_PUT a provider returns 0 and
/// leaves its `out` alone; for DIPC_VERB_EXCHANGE it ends the stream that it gave; a host of the
/// pull form calls dipc_request_finish(). Anything else, such as an error or an answer before the
/// end of the stream, fails the table for the client. If the client goes or fails the table, the
/// stream ends with an error, never as if it were complete.
///
/// dipc_stream_status(), dipc_stream_stat(), dipc_stream_metadata(), dipc_stream_fd() and
/// dipc_stream_try_next() work with the stream.
///
/// @param request  Request with DIPC_VERB_PUT or DIPC_VERB_EXCHANGE.
/// @param out      Receives the stream, to be released. An old value is overwritten, not released.
///                 After the answer its calls fail.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_request_source_schema(). DIPC_ERR_INVALID_ARGUMENT: also for a second call.
///
/// # Safety
///
/// `request` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_source(
    request: *const dipc_request,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, out => |request| {
        let stream = match request.get().table()? {
            SentTable::Client(stream) => export_device_stream(stream),
            SentTable::Forwarded(stream) => stream.into_inner(),
        };
        stream.into_raw()
    })
}

/// Tells the client that a part of its table is safe: whatever happens to the rest, the host has
/// these batches. dipc_put_next_result() gives the client the message.
///
/// @param request          Request whose table dipc_request_source() has taken.
/// @param batches          Number of batches, from the first on, that are safe.
/// @param bytes            Bytes for the client's host; may be NULL when bytes_len_bytes is 0.
/// @param bytes_len_bytes  Length of bytes, at most 32 KiB.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no table is taken, or bytes
///         is too long. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
///
/// # Safety
///
/// `request` is NULL or live; `bytes` is readable for `bytes_len_bytes`; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_result(
    request: *const dipc_request,
    batches: u64,
    bytes: *const u8,
    bytes_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `bytes` is readable.
        let bytes = unsafe { try_bytes(bytes, bytes_len_bytes, "bytes") }?;
        request.get().say_result(batches, bytes)
    })
}
