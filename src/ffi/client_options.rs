//! Options of clients and of streams.

use std::time::Duration;

use crate::arrow::decode::Level;
use crate::client::{ClientOptions, GetOptions};
use crate::device::{DeviceKind, Target};
use crate::error::{Error, Result};
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed};
use crate::ffi::status::dipc_status;
use crate::proto::Credit;

/// A timeout that never ends.
pub const DIPC_FOREVER: u64 = u64::MAX;

/// A time limit of so many nanoseconds; `None` for DIPC_FOREVER.
pub(super) fn time_limit(nanos: u64) -> Option<Duration> {
    (nanos != DIPC_FOREVER).then(|| Duration::from_nanos(nanos))
}

/// A value for parameters that take an Arrow device type. The arrays come to the server's device if
/// this process reaches its memory without a copy, otherwise to the host.
pub const DIPC_DEVICE_AS_SENT: i32 = 0;

/// DIPC_VALIDATION_STRUCTURE for a server of the same user, DIPC_VALIDATION_FULL for other servers.
pub const DIPC_VALIDATION_AUTO: i32 = 0;
/// Checks lengths, counts and ranges of buffers, but no values. The cost does not depend on the
/// number of rows.
pub const DIPC_VALIDATION_STRUCTURE: i32 = 1;
/// Checks the structure, and those values that are text or refer to other values:
/// - all types: the null count matches the bitmap;
/// - utf8, binary, list, map: offsets never decrease and stay within the data or the child; each
///   text value is UTF-8; no key of a map is null;
/// - string and binary views: views lie within their data buffers, prefixes match the data, short
///   values are padded with zeros, text is UTF-8;
/// - list views: each offset and size stays within the child;
/// - unions: type ids are known; offsets of dense unions stay within each child and never decrease;
/// - run-end encoded: run ends increase and reach the length;
/// - dictionary-encoded: each index names a value of the dictionary;
/// - booleans, integers, floats, decimals, dates, times, timestamps, durations, intervals,
///   fixed-size binary: no check. A decimal may have more digits than its precision, a time may lie
///   outside a day, and a date64 may be a part of a day: Arrow's full validation refuses these, but
///   some writers send them.
///
/// Values below a null, and values that no row of a list view or union refers to, are not checked.
/// If a consumer could still follow such a value, the library makes it harmless: empty, zero or
/// null.
pub const DIPC_VALIDATION_FULL: i32 = 2;

/// Options of a client, for dipc_client_new().
pub struct dipc_client_options {
    state: HandleState,
    pub(super) inner: ClientOptions,
}

handle!(dipc_client_options, "options", ClientOptions);

/// Makes options with the default values. Each setter names its default.
///
/// @param out    Receives the options, to be freed by dipc_client_options_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_new(
    out: *mut *mut dipc_client_options,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, out = boxed(ClientOptions::default()))
}

/// Accepts servers of every user of this machine, not only of the client's user. Default: false.
///
/// @param options   Options to change; exclusive during the call.
/// @param any_user  Whether to accept them.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_any_user(
    options: *mut dipc_client_options,
    any_user: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set any_user = any_user)
}

/// Sets how long an idle connection is kept for later streams. Then both sides close it. A
/// connection stays open while arrays lie in memory of its server. Default: 60 s.
///
/// @param options          Options to change; exclusive during the call.
/// @param idle_timeout_ns  Nanoseconds, or DIPC_FOREVER; 0: each connection serves one stream.
/// @param error            May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_idle_timeout_ns(
    options: *mut dipc_client_options,
    idle_timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set idle_timeout = Duration::from_nanos(idle_timeout_ns))
}

/// Sets the most connections of the client to one server, if the server takes many streams on one
/// connection. One connection is reserved for streams that share it. A stream that a thread waits
/// for has its own connection, until the number is reached; further streams share. Streams that are
/// polled or asynchronous, and parts of a table, share from the start. The next shared connection
/// is opened once the first carries as many streams as the server takes. Default: 16. Other servers
/// have no such limit.
///
/// @param options      Options to change; exclusive during the call.
/// @param connections  Connections; 1: all streams share; 0: no streams share, and there is no
///                     limit.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_connections(
    options: *mut dipc_client_options,
    connections: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set connections = (connections > 0).then_some(connections))
}

/// Sets how many idle connections are kept for each server URI. Beyond that number the least
/// recently used connection closes. Default: 8.
///
/// @param options   Options to change; exclusive during the call.
/// @param max_idle  Connections; 0: each connection serves one stream.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_set_max_idle(
    options: *mut dipc_client_options,
    max_idle: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_idle = max_idle)
}

/// Frees options. NULL does nothing. Clients keep a copy of their options.
///
/// @param options  Options, or NULL.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_options_free(options: *mut dipc_client_options) {
    // SAFETY: the caller promises `options` is NULL, or live and unused.
    unsafe { guard_free(options) }
}

/// Options of one stream, for dipc_client_get().
pub struct dipc_get_options {
    state: HandleState,
    pub(super) inner: GetOptions,
}

handle!(dipc_get_options, "options", GetOptions);

/// Makes options with the default values. Each setter names its default.
///
/// @param out    Receives the options, to be freed by dipc_get_options_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_new(
    out: *mut *mut dipc_get_options,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, out = boxed(GetOptions::default()))
}

/// Sets the time limit from connecting to the server's first answer. The answer is the schema, a
/// refusal, or a note that the request has arrived, which the server sends if its provider needs
/// longer. Default: 10 s. A server without libdipc's extension sends no note: it has 60 s, or the
/// stall timeout, for its schema.
///
/// @param options             Options to change; exclusive during the call.
/// @param connect_timeout_ns  Nanoseconds, or DIPC_FOREVER. 0: no wait at all. The stream
///                            then fails with DIPC_ERR_TIMEOUT unless the answer is there at the
///                            first look.
/// @param error               May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_connect_timeout_ns(
    options: *mut dipc_get_options,
    connect_timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set connect_timeout = Duration::from_nanos(connect_timeout_ns))
}

/// Sets how long the server may be silent while the client waits for it. Then the stream fails with
/// DIPC_ERR_TIMEOUT. Default: DIPC_FOREVER. A provider may be slow, and the client notices a dead
/// server without this limit.
///
/// @param options           Options to change; exclusive during the call.
/// @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER. 0: no wait at all. The stream then
///                          fails if the next message is not there at the first look.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_stall_timeout_ns(
    options: *mut dipc_get_options,
    stall_timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set stall_timeout = time_limit(stall_timeout_ns))
}

/// Sets how many batches and bytes the server may send before the consumer takes them. Default: 16
/// batches, 256 MiB.
///
/// @param options  Options to change; exclusive during the call.
/// @param batches  Record batches; at least 1.
/// @param bytes    Bytes of bodies. One batch of any size is always allowed, up to 32 times
///                 the limit of dipc_get_options_set_message_limit_bytes().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0 batches or bytes.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_window(
    options: *mut dipc_get_options,
    batches: u64,
    bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set window = window_of(batches, bytes)?)
}

/// Sets how many bytes of copies the server may lend at once. The consumer's arrays count until it
/// releases them. Beyond the limit bodies travel as bytes. Default: 1 GiB.
///
/// @param options           Options to change; exclusive during the call.
/// @param lent_limit_bytes  Bytes.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_lent_limit_bytes(
    options: *mut dipc_get_options,
    lent_limit_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set lent_limit = lent_limit_bytes)
}

/// Sets how much memory of this process one message of the server may take in addition to its body.
/// A message that needs more ends the stream with DIPC_ERR_OUT_OF_MEMORY. Default: 512 MiB, or 16
/// GiB for a server of the same user.
///
/// The limit counts decompressed buffers, copies of memory that the server could still change, and
/// the structs of schema and arrays. All dictionaries of a stream, with their deltas, share the
/// limit; so does the memory for all dictionary messages between two batches. A message may always
/// take as many bytes as its body has. A body, and the bodies of all dictionaries together, may
/// have 32 times as many bytes as the limit.
///
/// @param options              Options to change; exclusive during the call.
/// @param message_limit_bytes  Bytes; UINT64_MAX for no limit.
/// @param error                May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_message_limit_bytes(
    options: *mut dipc_get_options,
    message_limit_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set message_limit = Some(message_limit_bytes))
}

/// Sets the device that the arrays come to. Default: ARROW_DEVICE_CPU. Nothing is copied if the
/// server's arrays lie on that device and this process can map them. Otherwise each step between
/// host and device copies them once.
///
/// @param options      Options to change; exclusive during the call.
/// @param device_type  ARROW_DEVICE_CPU, ARROW_DEVICE_CUDA or DIPC_DEVICE_AS_SENT.
/// @param device_id    Number of the CUDA device, as this process's driver counts; ignored for
///                     other types.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: if the device or its driver is missing, dipc_client_get() fails.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type.
///         DIPC_ERR_INVALID_ARGUMENT: device_id is negative or too large.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_device(
    options: *mut dipc_get_options,
    device_type: i32,
    device_id: i64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set device = Target::of(DeviceKind(device_type), device_id)?)
}

/// Sets how thoroughly arrays are checked before the consumer gets them. Default:
/// DIPC_VALIDATION_AUTO.
///
/// @param options     Options to change; exclusive during the call.
/// @param validation  DIPC_VALIDATION_AUTO, DIPC_VALIDATION_STRUCTURE or DIPC_VALIDATION_FULL.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such level.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_validation(
    options: *mut dipc_get_options,
    validation: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set level = level_of(validation)?)
}

/// Frees options. NULL does nothing. Streams keep a copy of their options.
///
/// @param options  Options, or NULL.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_free(options: *mut dipc_get_options) {
    // SAFETY: the caller promises `options` is NULL, or live and unused.
    unsafe { guard_free(options) }
}

/// The level with this number; `None` for DIPC_VALIDATION_AUTO, which depends on the peer.
pub(super) fn level_of(number: i32) -> Result<Option<Level>> {
    match number {
        DIPC_VALIDATION_AUTO => Ok(None),
        DIPC_VALIDATION_STRUCTURE => Ok(Some(Level::Structure)),
        DIPC_VALIDATION_FULL => Ok(Some(Level::Full)),
        _ => {
            let text = format!("validation is {number}: no DIPC_VALIDATION_*");
            Err(Error::invalid_argument(text))
        }
    }
}

/// The window of so many batches and bytes. Neither may be 0.
pub(super) fn window_of(batches: u64, bytes: u64) -> Result<Credit> {
    if batches == 0 || bytes == 0 {
        let text = "a window of 0 would let nothing through";
        return Err(Error::invalid_argument(text));
    }
    Ok(Credit { batches, bytes })
}
