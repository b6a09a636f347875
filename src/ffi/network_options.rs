//! Options of servers, clients and streams that have to do with networks.

use std::ffi::c_char;
use std::time::Duration;

use crate::error::Error;
use crate::ffi::client_options::{dipc_client_options, dipc_get_options};
use crate::ffi::error::dipc_error;
use crate::ffi::guard::{ErrorOut, guard_mut};
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;
use crate::ffi::text::try_str;

/// Lets a server listen on tcp where other machines can connect. Default false: a tcp listener has
/// neither encryption nor authentication, and beyond the loopback interface it is refused with
/// DIPC_ERR_PERMISSION.
///
/// @param options  Options to change; exclusive during the call.
/// @param allow_remote  Whether to allow it.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_server_options| {
        options.inner.link.allow_remote = allow_remote;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Says that every process that can reach this server's network is trusted. Default false, and then
/// every ucx listener, on the loopback interface too, is refused with DIPC_ERR_PERMISSION: UCX
/// checks no access rights on some of its paths, so whoever connects can read and write the memory
/// of this process.
///
/// @param options  Options to change; exclusive during the call.
/// @param trusted_network  Whether it is so.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_server_options| {
        options.inner.link.trusted_network = trusted_network;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets what only one transport knows. `ucx.KEY` for each key of UCX's configuration, without its
/// UCX_ (as `ucx.TLS` with `tcp`); `ucx.library`, the path of libucp to load; `ucx.error_handling`,
/// `peer` (the default: a dead peer is noticed) or `none` (faster on some transports);
/// `tcp.keepalive` and `ucx.keepalive`, the seconds after which a machine that does not answer is
/// taken for dead (60). A key or a value that UCX does not take is an error here where that can be
/// known without loading UCX, else where ucx is first used.
///
/// @param options  Options to change; exclusive during the call.
/// @param name     The scheme, a dot, and the name; UTF-8.
/// @param value    The value; UTF-8.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has it, or it
///         does not take the value.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `name` and
/// `value` are NULL or C strings; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_transport(
    options: *mut dipc_server_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_server_options| {
        // SAFETY: the caller promises `name` is NULL or a C string.
        let name = unsafe { try_str(name, "name") }?;
        // SAFETY: the caller promises `value` is NULL or a C string.
        let value = unsafe { try_str(value, "value") }?;
        options.inner.link.settings.set(name, value)
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets what only one transport knows. `ucx.KEY` for each key of UCX's configuration, without its
/// UCX_ (as `ucx.TLS` with `tcp`); `ucx.library`, the path of libucp to load; `ucx.error_handling`,
/// `peer` (the default: a dead peer is noticed) or `none` (faster on some transports);
/// `tcp.keepalive` and `ucx.keepalive`, the seconds after which a machine that does not answer is
/// taken for dead (60). A key or a value that UCX does not take is an error here where that can be
/// known without loading UCX, else where ucx is first used.
///
/// @param options  Options to change; exclusive during the call.
/// @param name     The scheme, a dot, and the name; UTF-8.
/// @param value    The value; UTF-8.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no transport has it, or it
///         does not take the value.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `name` and
/// `value` are NULL or C strings; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_transport(
    options: *mut dipc_client_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_client_options| {
        // SAFETY: the caller promises `name` is NULL or a C string.
        let name = unsafe { try_str(name, "name") }?;
        // SAFETY: the caller promises `value` is NULL or a C string.
        let value = unsafe { try_str(value, "value") }?;
        options.inner.settings.set(name, value)
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how long the server's I/O thread looks for work before it sleeps. Default 0: 50
/// microseconds at most, where that has lately found something. While it spins it uses a whole
/// core, and answers sooner; it sleeps while as many providers' threads are awake as there are
/// cores for them and one client.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_server_options| {
        options.inner.spin = Duration::from_nanos(spin_ns);
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how long a thread that waits for the stream looks for it before it sleeps. Default 0: 50
/// microseconds at most, where that has lately found something. While it spins it uses a whole
/// core, and notices sooner.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.spin = Duration::from_nanos(spin_ns);
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how many connections carry one stream where the transport can spread bodies over several
/// (tcp). Default 1.
///
/// @param options  Options to change; exclusive during the call.
/// @param connections  1 to 64.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.connections = match u16::try_from(connections) {
            Ok(connections @ 1..=64) => connections,
            _ => {
                return Err(Error::invalid_argument(format!(
                    "{connections} connections for one stream: 1 to 64 are possible"
                )));
            }
        };
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}
