//! Network options of servers, clients and streams.

use std::ffi::c_char;
use std::time::Duration;

use crate::error::Error;
use crate::ffi::client_options::{dipc_client_options, dipc_get_options};
use crate::ffi::error_details::dipc_error;
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;
use crate::ffi::text::try_str;

/// Allows tcp listeners that other machines can reach. Default: false, and listening on tcp beyond
/// the loopback interface fails with DIPC_ERR_PERMISSION. Tcp has neither encryption nor
/// authentication.
///
/// @param options       Options to change; exclusive during the call.
/// @param allow_remote  Whether to allow them.
/// @param error         May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_allow_remote(
    options: *mut dipc_server_options,
    allow_remote: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set link.access.allow_remote = allow_remote)
}

/// Declares that every process on this server's network is trusted, and so allows ucx listeners.
/// Default: false, and listening on ucx fails with DIPC_ERR_PERMISSION, on the loopback interface
/// too. On some of its paths UCX checks no access rights: any process that connects can read and
/// write the memory of this process.
///
/// @param options          Options to change; exclusive during the call.
/// @param trusted_network  Whether the network is trusted.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_trusted_network(
    options: *mut dipc_server_options,
    trusted_network: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set link.access.trusted_network = trusted_network)
}

/// Sets an option of one transport. A key or value that UCX refuses fails here if the library can
/// tell without loading UCX, otherwise at the first use of ucx. UCX reports some mistakes only in
/// its log.
///
/// `ucx.KEY`: any key of UCX's configuration without its prefix UCX_, such as `ucx.TLS`.
/// `ucx.library`: the path of libucp. `ucx.error_handling`: `peer` (default, notices a dead peer)
/// or `none` (faster on some transports). `tcp.keepalive`, `ucx.keepalive`: seconds until a silent
/// machine counts as dead (default 60).
///
/// @param options  Options to change; exclusive during the call.
/// @param name     Scheme, dot and name of the option; UTF-8.
/// @param value    Value of the option; UTF-8.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has the option,
///         or the value is wrong.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `name` and `value`
/// are NULL or C strings; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_transport(
    options: *mut dipc_server_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `name` is NULL or a C string.
        let name = unsafe { try_str(name, "name") }?;
        // SAFETY: the caller promises `value` is NULL or a C string.
        let value = unsafe { try_str(value, "value") }?;
        options.inner.link.settings.set(name, value)
    })
}

/// Sets an option of one transport. A key or value that UCX refuses fails here if the library can
/// tell without loading UCX, otherwise at the first use of ucx. UCX reports some mistakes only in
/// its log.
///
/// `ucx.KEY`: any key of UCX's configuration without its prefix UCX_, such as `ucx.TLS`.
/// `ucx.library`: the path of libucp. `ucx.error_handling`: `peer` (default, notices a dead peer)
/// or `none` (faster on some transports). `tcp.keepalive`, `ucx.keepalive`: seconds until a silent
/// machine counts as dead (default 60).
///
/// @param options  Options to change; exclusive during the call.
/// @param name     Scheme, dot and name of the option; UTF-8.
/// @param value    Value of the option; UTF-8.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has the option,
///         or the value is wrong.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `name` and `value`
/// are NULL or C strings; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_transport(
    options: *mut dipc_client_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `name` is NULL or a C string.
        let name = unsafe { try_str(name, "name") }?;
        // SAFETY: the caller promises `value` is NULL or a C string.
        let value = unsafe { try_str(value, "value") }?;
        options.inner.settings.set(name, value)
    })
}

/// Sets how long a thread of the server spins for the next request before it sleeps. A spinning
/// thread uses a whole core and answers sooner. Default: 0, which means at most 50 microseconds,
/// and only while spinning has lately found work. The I/O thread does not spin while the thread of
/// a stream has a connection.
///
/// @param options  Options to change; exclusive during the call.
/// @param spin_ns  Nanoseconds.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_spin_ns(
    options: *mut dipc_server_options,
    spin_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set spin = Duration::from_nanos(spin_ns))
}

/// Sets how long a thread that waits for the stream spins before it sleeps. A spinning thread uses
/// a whole core and continues sooner. Default: 0, which means at most 50 microseconds, and only
/// while spinning has lately found a message.
///
/// @param options  Options to change; exclusive during the call.
/// @param spin_ns  Nanoseconds.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_spin_ns(
    options: *mut dipc_get_options,
    spin_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set spin = Duration::from_nanos(spin_ns))
}

/// Sets how many connections carry one stream, if the transport can split bodies (tcp only).
/// Default: 1.
///
/// @param options      Options to change; exclusive during the call.
/// @param connections  1 to 64.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: not 1 to 64.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_connections(
    options: *mut dipc_get_options,
    connections: u32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        options.inner.connections = match u16::try_from(connections) {
            Ok(connections @ 1..=64) => connections,
            _ => {
                return Err(Error::invalid_argument(format!(
                    "{connections} connections for one stream: 1 to 64 are possible"
                )));
            }
        };
        Ok(())
    })
}
