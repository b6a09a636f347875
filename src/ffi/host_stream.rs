//! Facts about the library's host streams that Arrow's struct cannot express.

use crate::arrow::abi::ArrowArrayStream;
use crate::arrow::stream;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{boxed, null_argument, try_out};
use crate::ffi::headers::dipc_headers;
use crate::ffi::status::dipc_status;
use crate::ffi::stream::{encode_metadata, fetched, figure};
use crate::ffi::text::TextOut;

/// Reports in full why a host stream failed, as dipc_stream_status() does for a device stream.
///
/// @param stream  Stream of dipc_stream_to_host(), not released; no callback of it is running.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the stream has not failed. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT:
///         the stream is released, or not of the library. Otherwise the stream's status.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C stream interface, and none of its callbacks runs during
/// the call; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_host_stream_status(
    stream: *const ArrowArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        unsafe { stream::last_error(stream) }?.map_or(Ok(()), Err)
    })
}

/// Gives the custom metadata of the last batch of get_next, as dipc_stream_metadata() does.
///
/// @param stream         Stream of dipc_stream_to_host() that was made of a stream of
///                       dipc_client_get(), not released; no callback of it is running.
/// @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
///                       only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length; 0 if the batch has no metadata.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         was not made of a stream of dipc_client_get(). DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
///         is still written.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C stream interface, and none of its callbacks runs during
/// the call; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_host_stream_metadata(
    stream: *const ArrowArrayStream,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        let stream = unsafe { fetched(stream) }?;
        out.set_bytes(&encode_metadata(stream.custom_metadata())?)
    })
}

/// Reads one figure of a host stream, up to now, as dipc_stream_stat() does.
///
/// @param stream  Stream of dipc_stream_to_host() that was made of a stream of dipc_client_get(),
///                not released; no callback of it is running.
/// @param stat    DIPC_STREAM_STAT_*.
/// @param out     Receives the figure.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         was not made of a stream of dipc_client_get(), or the library has no such figure.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C stream interface, and none of its callbacks runs during
/// the call; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_host_stream_stat(
    stream: *const ArrowArrayStream,
    stat: i32,
    out: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        out.set(figure(unsafe { fetched(stream) }?, stat)?);
        Ok(())
    })
}

/// Gives the headers of the server's answer, as dipc_stream_headers() does.
///
/// @param stream  Stream of dipc_stream_to_host() that was made of a stream of dipc_client_get(),
///                not released; no callback of it is running.
/// @param out     Receives a copy of the headers, to be freed by dipc_headers_free().
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         was not made of a stream of dipc_client_get().
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C stream interface, and none of its callbacks runs during
/// the call; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_host_stream_headers(
    stream: *const ArrowArrayStream,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        out.set(boxed(unsafe { fetched(stream) }?.headers()));
        Ok(())
    })
}
