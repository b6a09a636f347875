//! Tokens that end waiting calls.

use crate::cancel::Cancel;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed};
use crate::ffi::status::dipc_status;

/// A token that ends waiting calls from another thread. Any number of calls may share one token. A
/// triggered token stays triggered. Made by dipc_cancel_new().
pub struct dipc_cancel {
    state: HandleState,
    pub(super) inner: Cancel,
}

handle!(dipc_cancel, "cancel", Cancel);

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
    export!(error, out = boxed(Cancel::new()?))
}

/// Ends every call that has the token, now and later, with DIPC_ERR_CANCELLED. Any thread may
/// trigger a token, more than once. A signal handler must not.
///
/// @param cancel  Token. Concurrent calls are allowed.
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
    export!(cancel, error, |cancel| {
        cancel.inner.cancel();
        Ok(())
    })
}

/// Tells whether a token was triggered.
///
/// @param cancel  Token, or NULL; concurrent calls are allowed.
/// @return true if it was; false for NULL and in the child of a fork.
///
/// # Safety
///
/// `cancel` is NULL, or came from dipc_cancel_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_cancel_is_triggered(cancel: *const dipc_cancel) -> bool {
    export!(cancel or false, |cancel| cancel.inner.is_cancelled())
}

/// Frees a token. NULL does nothing. Streams that have the token go on; nothing can cancel them by
/// it any more.
///
/// @param cancel  Token, or NULL. No call that has the token may be running.
///
/// # Safety
///
/// `cancel` is NULL, or came from dipc_cancel_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_cancel_free(cancel: *mut dipc_cancel) {
    // SAFETY: the caller promises `cancel` is NULL, or live and unused.
    unsafe { guard_free(cancel) }
}
