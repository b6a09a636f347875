//! Servers that are ready, and servers that drain.

use std::ffi::c_char;

use crate::ffi::error_details::dipc_error;
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;
use crate::ffi::text::try_strs;

/// Has a server drain: from now on it refuses requests with DIPC_ERR_BUSY. Streams under way go on.
/// The server goes on listening, so that clients hear the refusal, and dipc_server_stop() ends what
/// is left. May be called again, to name other servers.
///
/// Clients of libdipc ask the named servers next, by the rules of docs/operation.md. Every client
/// that can connect learns the URIs.
///
/// @param server  Server.
/// @param uris    n_uris strings: URIs of servers that have the same tickets, best first; may be
///                NULL when n_uris is 0.
/// @param n_uris  0 to 16.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: more
///         than 16 URIs, or one of more than 1024 bytes. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `uris` points to `n_uris` pointers, each NULL or a NUL-terminated
/// string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_drain(
    server: *const dipc_server,
    uris: *const *const c_char,
    n_uris: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `uris` holds `n_uris` pointers, each NULL or a string.
        let uris = unsafe { try_strs(uris, n_uris) }?;
        server.inner.drain(&uris)
    })
}

/// Tells whether a server takes requests: it listens somewhere, and neither drains nor was stopped.
/// For the readiness checks of an orchestrator.
///
/// @param server  Server, or NULL.
/// @return true if it does; false for NULL.
///
/// # Safety
///
/// `server` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_is_ready(server: *const dipc_server) -> bool {
    export!(server or false, |server| server.inner.is_ready())
}
