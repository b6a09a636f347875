//! Options of servers for tables that clients send.

use crate::ffi::client_options::time_limit;
use crate::ffi::client_options::{level_of, window_of};
use crate::ffi::error_details::dipc_error;
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;

/// Sets how many batches and bytes a client may send before the host takes them, in a put and in an
/// exchange. Default: 16 batches, 256 MiB. The bytes are at most those of
/// dipc_server_options_set_max_region_bytes() divided by the streams of
/// dipc_server_options_set_max_streams(), but 1 MiB is always allowed.
///
/// @param options  Options to change; exclusive during the call.
/// @param batches  Record batches; at least 1.
/// @param bytes    Bytes of bodies. One batch of any size is always allowed, up to 32 times
///                 the limit of dipc_server_options_set_put_message_limit_bytes().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0 batches or bytes.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_put_window(
    options: *mut dipc_server_options,
    batches: u64,
    bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set take.window = window_of(batches, bytes)?)
}

/// Sets how thoroughly a client's arrays are checked before the host gets them. Default:
/// DIPC_VALIDATION_AUTO.
///
/// @param options     Options to change; exclusive during the call.
/// @param validation  DIPC_VALIDATION_AUTO, DIPC_VALIDATION_STRUCTURE or DIPC_VALIDATION_FULL.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such level.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_put_validation(
    options: *mut dipc_server_options,
    validation: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set take.level = level_of(validation)?)
}

/// Sets how long a client may be silent while the host waits for its batches. After that the host's
/// stream fails with DIPC_ERR_TIMEOUT. Default: DIPC_FOREVER. A client may be slow, and the server
/// notices a dead client without this limit.
///
/// @param options           Options to change; exclusive during the call.
/// @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_put_stall_timeout_ns(
    options: *mut dipc_server_options,
    stall_timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set take.stall_timeout = time_limit(stall_timeout_ns))
}

/// Sets how much memory of this process one message of a client may take in addition to its body. A
/// message that needs more ends the table with DIPC_ERR_OUT_OF_MEMORY. Default: 512 MiB, or 16 GiB
/// for a client of the same user. dipc_get_options_set_message_limit_bytes() says which memory
/// counts.
///
/// @param options              Options to change; exclusive during the call.
/// @param message_limit_bytes  Bytes.
/// @param error                May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_put_message_limit_bytes(
    options: *mut dipc_server_options,
    message_limit_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set take.message_limit = Some(message_limit_bytes))
}
