//! Headers of requests and answers.

use std::ffi::c_char;

use crate::error::{Error, Status};
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed};
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_bytes, try_str};
use crate::proto::Headers;

/// Pairs of a key and a value, in order; a key may come more than once. Made by dipc_headers_new(),
/// dipc_request_headers() or dipc_stream_headers().
pub struct dipc_headers {
    state: HandleState,
    pub(super) inner: Headers,
}

handle!(dipc_headers, "headers", Headers);

/// Makes an empty list of headers.
///
/// @param out    Receives the headers, to be freed by dipc_headers_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_new(
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, out = boxed(Headers::new()))
}

/// Adds a pair at the end.
///
/// @param headers          Headers to change; exclusive during the call.
/// @param key              1 to 255 of the characters a to z, 0 to 9, '-', '_' and '.'. Keys that
///                         begin with "dipc-" are the library's own. Copied.
/// @param value            Any bytes; may be NULL when value_len_bytes is 0. Copied.
/// @param value_len_bytes  Length of value.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the key has other
///         characters, or begins with "dipc-".
///
/// # Safety
///
/// `headers` is NULL or live; `key` is NULL or a NUL-terminated string; `value` is readable for
/// `value_len_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_add(
    headers: *mut dipc_headers,
    key: *const c_char,
    value: *const u8,
    value_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(headers, error, |headers| {
        // SAFETY: the caller promises `key` is NULL or a string.
        let key = unsafe { try_str(key, "key") }?;
        // SAFETY: the caller promises `value` is readable.
        let value = unsafe { try_bytes(value, value_len_bytes, "value") }?;
        headers.inner.add(key, value)
    })
}

/// Counts the pairs.
///
/// @param headers  Headers, or NULL.
/// @return The number; 0 for NULL and in the child of a fork.
///
/// # Safety
///
/// `headers` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_count(headers: *const dipc_headers) -> usize {
    export!(headers or 0, |headers| headers.inner.len())
}

/// Gives the key of one pair.
///
/// @param headers        Headers.
/// @param index          Which pair, from 0.
/// @param buffer         Receives the key and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the key, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such pair.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `headers` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_key(
    headers: *const dipc_headers,
    index: usize,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(headers, error, |headers| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        out.set_text(pair(&headers.inner, index)?.0)
    })
}

/// Gives the value of one pair.
///
/// @param headers        Headers.
/// @param index          Which pair, from 0.
/// @param buffer         Receives the value, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the value.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such pair.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `headers` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_value(
    headers: *const dipc_headers,
    index: usize,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(headers, error, |headers| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(pair(&headers.inner, index)?.1)
    })
}

/// Gives the value of the first pair with a key.
///
/// @param headers        Headers.
/// @param key            The key.
/// @param buffer         Receives the value, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the value.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: no pair has the key.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `headers` is NULL or live; `key` is NULL or a NUL-terminated string; `buffer` is NULL or
/// writable for `size_bytes`; `out_len_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_get(
    headers: *const dipc_headers,
    key: *const c_char,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(headers, error, |headers| {
        // SAFETY: the caller promises `key` is NULL or a string.
        let key = unsafe { try_str(key, "key") }?;
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        let value = headers.inner.get(key).ok_or_else(|| {
            Error::new(Status::NotFound, format!("no header has the key {key:?}"))
        })?;
        out.set_bytes(value)
    })
}

/// Frees headers. NULL does nothing.
///
/// @param headers  Headers, or NULL; no call with them is running.
///
/// # Safety
///
/// `headers` is NULL, or live and used by nobody else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_headers_free(headers: *mut dipc_headers) {
    // SAFETY: the caller promises `headers` is NULL, or live and unused.
    unsafe { guard_free(headers) }
}

fn pair(headers: &Headers, index: usize) -> Result<(&str, &[u8]), Error> {
    headers.iter().nth(index).ok_or_else(|| {
        Error::new(
            Status::NotFound,
            format!("there is no header {index}, of {}", headers.len()),
        )
    })
}
