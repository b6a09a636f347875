//! Tokens that end waiting calls.

use crate::cancel::Cancel;
use crate::ffi::error::dipc_error;
use crate::ffi::guard::{ErrorOut, guard, guard_free, guard_ref, guard_value};
use crate::ffi::handle::{HandleState, try_out, try_ref};
use crate::ffi::status::dipc_status;

/// Ends calls that wait, from another thread. One token may be given to any number of calls, also
/// at the same time; once triggered it stays so. Made by dipc_cancel_new().
pub struct dipc_cancel {
    state: HandleState,
    pub(super) inner: Cancel,
}

handle!(dipc_cancel, "cancel");

/// Makes a token that is not triggered.
///
/// @param out    Receives the token, to be freed by dipc_cancel_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_cancel_new(
    out: *mut *mut dipc_cancel,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    guard(error, || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        out.set_handle(dipc_cancel {
            state: HandleState::new(),
            inner: Cancel::new()?,
        });
        Ok(())
    })
}

/// Ends every call that the token was given to, now and later, with DIPC_ERR_CANCELLED. May be
/// called from any thread, more than once; not from a signal handler.
///
/// @param cancel  Token; concurrent calls are allowed.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `cancel` is NULL, or came from dipc_cancel_new() and was not freed; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_cancel_trigger(
    cancel: *const dipc_cancel,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |cancel: &dipc_cancel| {
        cancel.inner.cancel();
        Ok(())
    };
    // SAFETY: the caller promises `cancel` is NULL or live.
    unsafe { guard_ref(cancel, error, body) }
}

/// Whether a token was triggered.
///
/// @param cancel  Token, or NULL; concurrent calls are allowed.
/// @return true once it was; false for NULL and in the child of a fork.
///
/// # Safety
///
/// `cancel` is NULL, or came from dipc_cancel_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_cancel_is_triggered(cancel: *const dipc_cancel) -> bool {
    guard_value(false, || {
        // SAFETY: the caller promises `cancel` is NULL or live.
        unsafe { try_ref(cancel) }.is_ok_and(|cancel| cancel.inner.is_cancelled())
    })
}

/// Frees a token. NULL does nothing. Calls that it was given to go on; they can then no longer be
/// ended by it.
///
/// @param cancel  Token, or NULL; no call with it is running.
///
/// # Safety
///
/// `cancel` is NULL, or came from dipc_cancel_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_cancel_free(cancel: *mut dipc_cancel) {
    // SAFETY: the caller promises `cancel` is NULL, or live and unused.
    unsafe { guard_free(cancel) }
}
