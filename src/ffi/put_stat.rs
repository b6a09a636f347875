//! Figures of a stream that a client sends, and whether it is over.

use crate::ffi::arguments::unknown_stat;
use crate::ffi::error_details::dipc_error;
use crate::ffi::put::dipc_put;
use crate::ffi::status::dipc_status;

/// Record batches sent.
pub const DIPC_PUT_STAT_BATCHES: i32 = 1;
/// Bytes of bodies that the server was lent where they lay.
pub const DIPC_PUT_STAT_BYTES_LENT: i32 = 2;
/// Bytes of bodies that were copied here, to be lent from the copy or sent.
pub const DIPC_PUT_STAT_BYTES_COPIED: i32 = 3;
/// Bytes of bodies sent through the connection.
pub const DIPC_PUT_STAT_BYTES_SENT: i32 = 4;
/// Buffers that this client has lent to the server over this connection and has not got back. Their
/// arrays are released when the server gives them back, or when its process has ended.
pub const DIPC_PUT_STAT_LENT_OUTSTANDING: i32 = 5;

/// Tells whether the put is over: finished, failed, cancelled or too late. If it is,
/// DIPC_ERR_TIMEOUT means that the put has failed, and another call does not help.
///
/// @param put  Put, or NULL.
/// @return true if it is; true for NULL and in the child of a fork.
///
/// # Safety
///
/// `put` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_is_over(put: *const dipc_put) -> bool {
    export!(put or true, |put| put.inner.is_over())
}

/// Reads one figure of a put.
///
/// @param put    Put.
/// @param stat   DIPC_PUT_STAT_*.
/// @param out    Receives the figure.
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
///         this figure; it may be older than the header.
///
/// # Safety
///
/// `put` is NULL, or live and not written to by another thread; `out` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_put_stat(
    put: *const dipc_put,
    stat: i32,
    out: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(put, error, out => |put| {
        let stats = put.inner.stats();
        match stat {
            DIPC_PUT_STAT_BATCHES => stats.batches,
            DIPC_PUT_STAT_BYTES_LENT => stats.bytes_lent,
            DIPC_PUT_STAT_BYTES_COPIED => stats.bytes_copied,
            DIPC_PUT_STAT_BYTES_SENT => stats.bytes_sent,
            DIPC_PUT_STAT_LENT_OUTSTANDING => stats.lent_outstanding,
            _ => return Err(unknown_stat(stat, "DIPC_PUT_STAT_*")),
        }
    })
}
