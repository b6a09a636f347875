//! Bounds on what a server's clients may hold.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::ffi::client_options::DIPC_FOREVER;
use crate::ffi::error_details::dipc_error;
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;

/// Sets how many connections the server keeps. Further clients get DIPC_ERR_BUSY. An eighth of the
/// connections, at most 64, is reserved for processes of the server's own user over shm. Default:
/// connections may take half of the files that the process may open (RLIMIT_NOFILE). A connection
/// over shm takes two files, and a connection over tcp takes one for each of its sockets.
///
/// @param options          Options to change; exclusive during the call.
/// @param max_connections  Connections; at least 1.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_connections(
    options: *mut dipc_server_options,
    max_connections: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_connections = Some(some(max_connections, "max_connections")?))
}

/// Sets how many connections one other machine may have, or one other user of this machine. Further
/// ones get DIPC_ERR_BUSY. Default: half of max_connections.
///
/// @param options          Options to change; exclusive during the call.
/// @param max_connections  Connections; at least 1.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_connections_per_peer(
    options: *mut dipc_server_options,
    max_connections: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_connections_per_peer =
        Some(some(max_connections, "max_connections_per_peer")?))
}

/// Sets how many streams one other machine may have at once, or one other user of this machine.
/// Further ones get DIPC_ERR_BUSY. Default: half of max_streams.
///
/// @param options      Options to change; exclusive during the call.
/// @param max_streams  Streams; at least 1.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_streams_per_peer(
    options: *mut dipc_server_options,
    max_streams: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_streams_per_peer =
        Some(some(max_streams, "max_streams_per_peer")?))
}

/// Sets how many streams one connection may carry at once, if the client can have many streams on
/// one connection. A client with more streams opens another connection. Default: max_streams. With
/// 1, each stream has its own connection.
///
/// @param options      Options to change; exclusive during the call.
/// @param max_streams  Streams; at least 1.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_streams_per_connection(
    options: *mut dipc_server_options,
    max_streams: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        let given = some(max_streams, "max_streams_per_connection")?;
        options.inner.max_streams_per_connection = Some(u32::try_from(given).unwrap_or(u32::MAX));
        Ok(())
    })
}

/// Sets how long a stream may wait for its client while other clients find no place for their
/// streams. A stream waits for its client to take batches, or to send the next batch of a put.
/// After this time the stream fails with DIPC_ERR_TIMEOUT, and its connection ends. While there are
/// places for all, a client may take as long as it likes. Default: 30 s.
///
/// @param options     Options to change; exclusive during the call.
/// @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_credit_timeout_ns(
    options: *mut dipc_server_options,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set credit_timeout = time(timeout_ns, "credit timeout")?)
}

/// Sets how much memory all requests of more than 64 KiB together may take before they have arrived
/// completely. A client whose request does not fit is disconnected. Another user may take half of
/// it at most. Default: 64 MiB.
///
/// @param options    Options to change; exclusive during the call.
/// @param max_bytes  Bytes; 0: no request may have more than 64 KiB.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_request_bytes(
    options: *mut dipc_server_options,
    max_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_request_bytes = max_bytes)
}

/// Sets how long a client may take for the handshake of TLS, and until all sockets of one
/// connection have come. After that the sockets are closed. Default: 10 s.
///
/// @param options     Options to change; exclusive during the call.
/// @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_handshake_timeout_ns(
    options: *mut dipc_server_options,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        let time = time(timeout_ns, "handshake timeout")?;
        options.inner.link.receiving.handshake_timeout = time.unwrap_or(Duration::MAX);
        Ok(())
    })
}

/// Sets how long a client may take from its connection to the end of its first request. After that
/// the connection is closed. Default: 30 s.
///
/// @param options     Options to change; exclusive during the call.
/// @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_request_timeout_ns(
    options: *mut dipc_server_options,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set request_timeout = time(timeout_ns, "request timeout")?)
}

/// Sets how long the server keeps a connection over which the client asks for nothing; it may take
/// twice this time. The server does not close a connection while either side lends memory over it,
/// nor one over which a table was sent to the server. A client of libdipc connects again when it
/// needs to. Default: 10 min.
///
/// @param options     Options to change; exclusive during the call.
/// @param timeout_ns  Nanoseconds; DIPC_FOREVER: no limit.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_idle_timeout_ns(
    options: *mut dipc_server_options,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set idle_timeout = time(timeout_ns, "idle timeout")?)
}

fn some(number: usize, what: &str) -> Result<usize> {
    match number {
        0 => Err(Error::invalid_argument(format!(
            "{what} is 0: nobody would be served"
        ))),
        number => Ok(number),
    }
}

fn time(timeout_ns: u64, what: &str) -> Result<Option<Duration>> {
    match timeout_ns {
        0 => Err(Error::invalid_argument(format!(
            "the {what} is 0: every connection would be closed at once"
        ))),
        DIPC_FOREVER => Ok(None),
        ns => Ok(Some(Duration::from_nanos(ns))),
    }
}
