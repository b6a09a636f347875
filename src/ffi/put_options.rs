//! Options of streams that a client sends.

use std::time::Duration;

use crate::client::PutOptions;
use crate::error::Error;
use crate::ffi::client_options::time_limit;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed, try_ref};
use crate::ffi::headers::dipc_headers;
use crate::ffi::server_options::{body_policy, compression_of};
use crate::ffi::status::dipc_status;
use crate::proto::MAX_REQUEST_HEADERS;

/// Options of a put, for dipc_client_put() and dipc_client_put_open().
pub struct dipc_put_options {
    state: HandleState,
    pub(super) inner: PutOptions,
}

handle!(dipc_put_options, "options", PutOptions);

/// Makes options with the default values. Each setter names its default.
///
/// @param out    Receives the options, to be freed by dipc_put_options_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_new(
    out: *mut *mut dipc_put_options,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, out = boxed(PutOptions::default()))
}

/// Sets how long the server may take from the connection to its first answer. Default: 10 s. A
/// silent server fails the put after this time. The limit does not apply while the server's host
/// decides whether to take the table: only the stall timeout and the deadline end that wait.
///
/// @param options  Options to change; exclusive during the call.
/// @param connect_timeout_ns  Nanoseconds.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_connect_timeout_ns(
    options: *mut dipc_put_options,
    connect_timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set connect_timeout = Duration::from_nanos(connect_timeout_ns))
}

/// Sets how long the server may neither take data nor send anything while the client waits for it.
/// After that the stream fails with DIPC_ERR_TIMEOUT. Default: DIPC_FOREVER.
///
/// @param options  Options to change; exclusive during the call.
/// @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_stall_timeout_ns(
    options: *mut dipc_put_options,
    stall_timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set stall_timeout = time_limit(stall_timeout_ns))
}

/// Sets how long the whole stream may take, from the request on. After that it fails with
/// DIPC_ERR_TIMEOUT. The server's host sees the time that is left. Default: DIPC_FOREVER.
///
/// @param options  Options to change; exclusive during the call.
/// @param deadline_ns  Nanoseconds, or DIPC_FOREVER.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_deadline_ns(
    options: *mut dipc_put_options,
    deadline_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set deadline = time_limit(deadline_ns))
}

/// Sets headers for the server's host, and replaces headers set before. Default: none.
///
/// @param options  Options to change; exclusive during the call.
/// @param headers  Copied. At most 64 KiB in all, 5 bytes for each pair included.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the headers are too
///         long.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `headers`
/// is NULL or live; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_headers(
    options: *mut dipc_put_options,
    headers: *const dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `headers` is NULL or live.
        let headers = unsafe { try_ref(headers) }?;
        headers.inner.ensure_fit(MAX_REQUEST_HEADERS)?;
        options.inner.headers = headers.inner.clone();
        Ok(())
    })
}

/// Sends the header `authorization` also where others may read the connection, like
/// dipc_get_options_set_send_secrets(). Default: false.
///
/// @param options  Options to change; exclusive during the call.
/// @param send_secrets  Whether to send it.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_send_secrets(
    options: *mut dipc_put_options,
    send_secrets: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set send_secrets = send_secrets)
}

/// Makes each message carry a checksum that the receiver checks, like
/// dipc_get_options_set_checksums(). In an exchange this option applies to both directions.
/// Default: false.
///
/// @param options    Options to change; exclusive during the call.
/// @param checksums  Whether to check.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_checksums(
    options: *mut dipc_put_options,
    checksums: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set checksums = checksums)
}

/// Sets how bodies travel, like dipc_server_options_set_body(). Default: DIPC_BODY_AUTO.
///
/// @param options  Options to change; exclusive during the call.
/// @param policy  DIPC_BODY_AUTO, DIPC_BODY_PACKED or DIPC_BODY_LENT.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_body(
    options: *mut dipc_put_options,
    policy: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set body = body_policy(policy)?)
}

/// Sets the compression of bodies. Compressed bodies travel as bytes. Default:
/// DIPC_COMPRESSION_NONE.
///
/// @param options  Options to change; exclusive during the call.
/// @param compression  DIPC_COMPRESSION_NONE, DIPC_COMPRESSION_LZ4 or DIPC_COMPRESSION_ZSTD.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: unknown.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_compression(
    options: *mut dipc_put_options,
    compression: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set compression = compression_of(compression)?)
}

/// Sets how many connections carry the stream, like dipc_get_options_set_connections(). Default: 1.
///
/// @param options  Options to change; exclusive during the call.
/// @param connections  1 to 16.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: not 1 to 16.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_set_connections(
    options: *mut dipc_put_options,
    connections: u16,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        if !(1..=16).contains(&connections) {
            return Err(Error::invalid_argument(format!(
                "connections is {connections}: from 1 to 16"
            )));
        }
        options.inner.connections = connections;
        Ok(())
    })
}

/// Frees options. NULL does nothing.
///
/// @param options  Options, or NULL; no call on them is running.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_put_options_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_options_free(options: *mut dipc_put_options) {
    // SAFETY: the caller promises `options` is NULL, or live and unused.
    unsafe { guard_free(options) }
}
