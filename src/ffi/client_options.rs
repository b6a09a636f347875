//! Options of a client, and of one stream.

use std::time::Duration;

use crate::arrow::decode::Level;
use crate::client::{ClientOptions, GetOptions};
use crate::device::{DeviceKind, Target};
use crate::error::Error;
use crate::ffi::error::dipc_error;
use crate::ffi::guard::{ErrorOut, guard, guard_free, guard_mut};
use crate::ffi::handle::{HandleState, try_out};
use crate::ffi::status::dipc_status;
use crate::proto::Credit;

/// A time that never comes, for timeouts.
pub const DIPC_FOREVER: u64 = u64::MAX;

/// The structure alone is checked for a server of the same user, the values as well for others.
pub const DIPC_VALIDATION_AUTO: i32 = 0;
/// Lengths, counts and ranges are checked: no cost per row, safe against wild pointers.
pub const DIPC_VALIDATION_STRUCTURE: i32 = 1;
/// Values are checked as well, those that lead to others and text:
/// - all types: the null count is that of the bitmap;
/// - utf8, binary, list, map: offsets do not fall and lie in the data or the child; text is UTF-8,
///   each value by itself; no key of a map is null;
/// - string and binary views: they lie in their data buffers, prefixes are those of the data, short
///   ones are padded with zeros, text is UTF-8;
/// - list views: each offset and size lies in the child;
/// - unions: type ids are known; offsets of dense ones lie in the child and do not fall within it;
/// - run-end encoded: run ends rise and reach the length;
/// - dictionary-encoded: each index is that of a value;
/// - booleans, integers, floats, decimals, dates, times, timestamps, durations, intervals,
///   fixed-size binary: nothing. Decimals may have more digits than their precision, times may lie
///   outside of a day, and date64 need not be a whole day, which Arrow's full validation refuses
///   and writers in use send.
///
/// Values under a null, of the array or of one above it, and those that no row of a list view or
/// union names, are not looked at. Where a consumer could follow them all the same they become
/// harmless: empty, zero, or null.
pub const DIPC_VALIDATION_FULL: i32 = 2;

/// What a client is told when it is made. Given to dipc_client_new().
pub struct dipc_client_options {
    state: HandleState,
    pub(super) inner: ClientOptions,
}

handle!(dipc_client_options, "options");

/// Makes options with the defaults, which each setter names.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    guard(error, || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        out.set_handle(dipc_client_options {
            state: HandleState::new(),
            inner: ClientOptions::default(),
        });
        Ok(())
    })
}

/// Takes streams from servers of every user of this machine, not only of the user that runs the
/// client. Default false.
///
/// @param options   Options to change; exclusive during the call.
/// @param any_user  Whether to trust them.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_client_options| {
        options.inner.any_user = any_user;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how long a connection on which no stream is is kept for the next one; then it ends at both
/// sides. Arrays that lie in memory of the server keep theirs. Default 60 s.
///
/// @param options          Options to change; exclusive during the call.
/// @param idle_timeout_ns  Nanoseconds, or DIPC_FOREVER; 0: a connection is for one stream.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_client_options| {
        options.inner.idle_timeout = Duration::from_nanos(idle_timeout_ns);
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how many connections on which no stream is are kept for each server, by its URI; past that
/// the one that was used longest ago ends. Default 8.
///
/// @param options   Options to change; exclusive during the call.
/// @param max_idle  Connections; 0: a connection is for one stream.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_client_options| {
        options.inner.max_idle = max_idle;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Frees options. NULL does nothing; clients made with them keep their copy.
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

/// What one stream is told when it is asked for. Given to dipc_client_get().
pub struct dipc_get_options {
    state: HandleState,
    pub(super) inner: GetOptions,
}

handle!(dipc_get_options, "options");

/// Makes options with the defaults, which each setter names.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    guard(error, || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        out.set_handle(dipc_get_options {
            state: HandleState::new(),
            inner: GetOptions::default(),
        });
        Ok(())
    })
}

/// Sets how long connecting may take, up to the server's first answer: its schema, its refusal, or,
/// where its provider takes longer for those, its word that it has read the request. Default 10 s.
/// A server without libdipc's extension has no such word: 60 s, or the stall timeout, for its
/// schema.
///
/// @param options             Options to change; exclusive during the call.
/// @param connect_timeout_ns  Nanoseconds, or DIPC_FOREVER.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.connect_timeout = Duration::from_nanos(connect_timeout_ns);
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how long the server may say nothing while something is waited for; then the stream fails
/// with DIPC_ERR_TIMEOUT. Default DIPC_FOREVER: a provider may take its time, and a server that
/// dies is noticed all the same.
///
/// @param options           Options to change; exclusive during the call.
/// @param stall_timeout_ns  Nanoseconds, or DIPC_FOREVER.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.stall_timeout = match stall_timeout_ns {
            DIPC_FOREVER => None,
            nanoseconds => Some(Duration::from_nanos(nanoseconds)),
        };
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how far the server may run ahead of what the consumer has taken. Default 16 batches, 256
/// MiB.
///
/// @param options  Options to change; exclusive during the call.
/// @param batches  Record batches; at least 1.
/// @param bytes    Bytes of bodies; one batch is always admitted, whatever its size.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        if batches == 0 || bytes == 0 {
            return Err(Error::invalid_argument(
                "a window of 0 would let nothing through",
            ));
        }
        options.inner.window = Credit { batches, bytes };
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets the most bytes of copies that the server may lend at once, while the consumer keeps what it
/// took; past it bodies travel as bytes. Default 1 GiB.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.lent_limit = lent_limit_bytes;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets the most bytes of this process's memory that one message of the server may take beside its
/// body, or as many as its body has, where those are more: for compressed buffers unpacked, for
/// copies of what the server could still write to, for the structs of the schema and of arrays,
/// and, over the whole stream, for dictionaries with their deltas. A message that needs more ends
/// the stream with DIPC_ERR_OUT_OF_MEMORY. Default 512 MiB; 16 GiB for a server of the same user.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.message_limit = Some(message_limit_bytes);
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets where arrays shall be. Default ARROW_DEVICE_CPU. Where the server has them there already,
/// and this process can map its memory, nothing is copied; otherwise they are copied, once on each
/// way between the host and a device.
///
/// @param options      Options to change; exclusive during the call.
/// @param device_type  ARROW_DEVICE_CPU, ARROW_DEVICE_CUDA, or 0: where the server has them if this
///                     process reaches that without a copy, otherwise on the host.
/// @param device_id    Number of the CUDA device, as the driver of this process counts; of no
///                     meaning for the others.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK; where there is no such device, or no driver, dipc_client_get() fails.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: another device type.
///         DIPC_ERR_INVALID_ARGUMENT: a negative number, or too large a one.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.device = Target::of(DeviceKind(device_type), device_id)?;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets how much of what arrives is checked before it is handed out. Default DIPC_VALIDATION_AUTO.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.level = match validation {
            DIPC_VALIDATION_AUTO => None,
            DIPC_VALIDATION_STRUCTURE => Some(Level::Structure),
            DIPC_VALIDATION_FULL => Some(Level::Full),
            _ => {
                let text = format!("validation is {validation}: no DIPC_VALIDATION_*");
                return Err(Error::invalid_argument(text));
            }
        };
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Sets the number of the stream's first message, for tests of the wrap-around at 2^32. The other
/// side must be told the same. Default 0, which the protocol asks for.
///
/// @param options         Options to change; exclusive during the call.
/// @param first_sequence  Sequence number.
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_first_sequence(
    options: *mut dipc_get_options,
    first_sequence: u32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |options: &mut dipc_get_options| {
        options.inner.first_seq = first_sequence;
        Ok(())
    };
    // SAFETY: the caller promises `options` is NULL, or live and exclusive.
    unsafe { guard_mut(options, error, body) }
}

/// Frees options. NULL does nothing; streams made with them keep their copy.
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
