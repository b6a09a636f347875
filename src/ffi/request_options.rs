//! Options that a request carries to the server's host.

use crate::ffi::client_options::dipc_get_options;
use crate::ffi::client_options::time_limit;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::try_ref;
use crate::ffi::headers::dipc_headers;
use crate::ffi::status::dipc_status;
use crate::proto::MAX_REQUEST_HEADERS;

/// Sets how long the whole stream may take, from the request on. After that it fails with
/// DIPC_ERR_TIMEOUT. The server's host sees the time that is left (dipc_request_time_left_ns()).
/// Until the deadline the client asks a busy server again. Default: DIPC_FOREVER; then it asks a
/// busy server only once.
///
/// @param options      Options to change; exclusive during the call.
/// @param deadline_ns  Nanoseconds, or DIPC_FOREVER. 0: the deadline has passed when the stream
///                     begins.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_deadline_ns(
    options: *mut dipc_get_options,
    deadline_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set deadline = time_limit(deadline_ns))
}

/// Sends the header `authorization` also where others may read the connection: over tcp beyond the
/// loopback interface, and over ucx. Default false: a request with that header fails there with
/// DIPC_ERR_PERMISSION, and nothing is sent.
///
/// @param options       Options to change; exclusive during the call.
/// @param send_secrets  Whether to send it.
/// @param error         May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_send_secrets(
    options: *mut dipc_get_options,
    send_secrets: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set send_secrets = send_secrets)
}

/// Makes each message carry a checksum (CRC-32C) that the receiver checks, over the transports
/// where a network could change a message unseen: tcp and ucx. The option has no effect over shm,
/// where nothing leaves the machine, and over tls, which has its own checks. A stream whose bytes
/// were changed fails: with DIPC_ERR_PROTOCOL if this side sees the change, and with
/// DIPC_ERR_DISCONNECTED if the server sees it; the reason is then in the server's log. With
/// checksums, bodies travel as bytes from and to host memory, also over ucx. Default: false. A
/// server without libdipc's extension is refused with DIPC_ERR_UNSUPPORTED.
///
/// @param options    Options to change; exclusive during the call.
/// @param checksums  Whether to check.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_checksums(
    options: *mut dipc_get_options,
    checksums: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set checksums = checksums)
}

/// Lets dipc_client_get_parts() connect to ucx addresses of other servers that a description names.
/// Peers of ucx can read and write this process's memory. Default false.
///
/// @param options          Options to change; exclusive during the call.
/// @param trusted_network  Whether every process that such a description can name is trusted.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_trusted_network(
    options: *mut dipc_get_options,
    trusted_network: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set trusted_network = trusted_network)
}

/// Sets headers for the server's host, and replaces headers set before. Default: none. A server
/// that does not know headers refuses the request with DIPC_ERR_UNSUPPORTED.
///
/// @param options  Options to change; exclusive during the call.
/// @param headers  Copied. At most 64 KiB in all, 5 bytes for each pair included.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: more than 64 KiB.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `headers` is NULL or
/// live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_headers(
    options: *mut dipc_get_options,
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
