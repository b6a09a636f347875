//! The transports of this machine.

use std::ffi::c_char;

use crate::ffi::error_details::dipc_error;
use crate::ffi::status::dipc_status;
use crate::ffi::text::try_str;

/// Checks that a transport works on this machine.
///
/// @param scheme  Scheme of its URIs, without the colon: "shm".
/// @param error   May be NULL; on failure receives details for dipc_error_free(): what is missing,
///                and how to install it.
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_UNSUPPORTED: the transport does not work here,
///         or this build lacks it.
///
/// # Safety
///
/// `scheme` is NULL or a NUL-terminated string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_transport_available(
    scheme: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `scheme` is NULL or a string.
        let scheme = unsafe { try_str(scheme, "scheme") }?;
        crate::transport::by_scheme(scheme)?.available()
    })
}
