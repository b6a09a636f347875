//! Details of a failure.

use std::ffi::c_char;

use crate::error::{Error, Result, Status};
use crate::ffi::caught::guard_value;
use crate::ffi::error_details::dipc_error;
use crate::ffi::status::{DIPC_OK, dipc_status};
use crate::ffi::text::try_str;

/// Gives the status of an error.
///
/// @param error  Error, or NULL.
/// @return The number that the failed call returned; DIPC_OK for NULL.
///
/// # Safety
///
/// `error` is NULL, or came from the library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_code(error: *const dipc_error) -> dipc_status {
    guard_value(DIPC_OK, || {
        // SAFETY: the caller promises that it is NULL or live; errors are never written to.
        unsafe { error.as_ref() }.map_or(DIPC_OK, |error| error.code)
    })
}

/// Gives the text of an error: the cause, and the remedy if one is known. UTF-8, one line, no
/// newline at the end.
///
/// @param error  Error, or NULL.
/// @return A string of the error, valid until dipc_error_free(); "" for NULL.
///
/// # Safety
///
/// `error` is NULL, or came from the library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_text(error: *const dipc_error) -> *const c_char {
    guard_value(c"".as_ptr(), || {
        // SAFETY: the caller promises that it is NULL or live; errors are never written to.
        unsafe { error.as_ref() }
            .map_or(c"", |error| error.text.as_c_str())
            .as_ptr()
    })
}

/// Gives the errno of the system call that failed.
///
/// @param error  Error, or NULL.
/// @return 0 if no system call failed, and for NULL.
///
/// # Safety
///
/// `error` is NULL, or came from the library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_os_errno(error: *const dipc_error) -> i32 {
    guard_value(0, || {
        // SAFETY: the caller promises that it is NULL or live; errors are never written to.
        unsafe { error.as_ref() }.map_or(0, |error| error.os_errno)
    })
}

/// Gives the time after which the server that refused a request should be asked again. A caller
/// that asks again should wait at least this long, and longer with each try. A request with a
/// deadline asks again in this way by itself, until its deadline.
///
/// @param error  Error, or NULL.
/// @return Nanoseconds; 0 if the server has not said, and for NULL.
///
/// # Safety
///
/// `error` is NULL, or came from the library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_retry_after_ns(error: *const dipc_error) -> u64 {
    guard_value(0, || {
        // SAFETY: the caller promises that it is NULL or live; errors are never written to.
        unsafe { error.as_ref() }.map_or(0, |error| error.retry_after_ns)
    })
}

/// Gives the cause of an error that adds context to another error. The text of an error contains
/// the text of its cause.
///
/// @param error  Error, or NULL.
/// @return The cause, valid until dipc_error_free() of this error, not to be freed; NULL if there
///         is none.
///
/// # Safety
///
/// `error` is NULL, or came from the library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_source(error: *const dipc_error) -> *const dipc_error {
    guard_value(std::ptr::null(), || {
        // SAFETY: the caller promises that it is NULL or live; errors are never written to.
        unsafe { error.as_ref() }
            .and_then(|error| error.source.as_deref())
            .map_or(std::ptr::null(), std::ptr::from_ref)
    })
}

/// Makes an error, for a library that is built on this one and whose functions report failures in
/// the same way.
///
/// @param code   A DIPC_ERR_*; any other number becomes DIPC_ERR_PROVIDER.
/// @param text   One line of UTF-8: the cause, and the remedy if one is known. Copied.
/// @param error  May be NULL; receives the error, to be freed by dipc_error_free().
/// @return The status of the error. DIPC_ERR_NULL_ARGUMENT, DIPC_ERR_INVALID_ARGUMENT: the text is
///         NULL or not UTF-8, and the error says so.
///
/// # Safety
///
/// `text` is NULL or NUL-terminated; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_new(
    code: i32,
    text: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || -> Result<()> {
        // SAFETY: the caller promises `text` is NULL or NUL-terminated.
        let text = unsafe { try_str(text, "text") }?;
        let status = Status::from_code(code).unwrap_or(Status::Provider);
        Err(Error::new(status, text))
    })
}

/// Frees an error. NULL does nothing.
///
/// @param error  Error from a call's last argument, or NULL; not from dipc_error_source().
///
/// # Safety
///
/// `error` is NULL, or came from an `error` argument and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_error_free(error: *mut dipc_error) {
    guard_value((), || {
        if !error.is_null() {
            // SAFETY: errors are made by Box::into_raw; the caller promises that this one is its
            // own and not freed yet.
            drop(unsafe { Box::from_raw(error) });
        }
    });
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::ffi::error_details::c_text;
    use crate::ffi::status::DIPC_ERR_ADDRESS_IN_USE;

    /// A string that the library gave.
    ///
    /// # Safety
    ///
    /// `text` is a live NUL-terminated string.
    unsafe fn text_of(text: *const c_char) -> String {
        // SAFETY: the caller promises it.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// Promise: code, text, errno and source come out; a context makes an outer error.
    #[test]
    fn errors_keep_their_source() {
        let inner = Error::os("bind", rustix::io::Errno::ADDRINUSE);
        let error = dipc_error::from(inner.clone().context("cannot listen at shm:@a"));
        let error = &raw const error;
        // SAFETY: `error` is live for the whole test, and so is what it owns.
        let code = unsafe { dipc_error_code(error) };
        assert_eq!(code, DIPC_ERR_ADDRESS_IN_USE);
        // SAFETY: as above.
        assert_eq!(unsafe { dipc_error_os_errno(error) }, libc::EADDRINUSE);
        // SAFETY: as above.
        let text = unsafe { dipc_error_text(error) };
        // SAFETY: as above.
        let text = unsafe { text_of(text) };
        assert!(
            text.starts_with("cannot listen at shm:@a: bind: "),
            "{text}"
        );
        // SAFETY: as above.
        let source = unsafe { dipc_error_source(error) };
        // SAFETY: as above.
        let text = unsafe { dipc_error_text(source) };
        // SAFETY: as above.
        assert_eq!(unsafe { text_of(text) }, inner.text());
        // SAFETY: as above.
        assert!(unsafe { dipc_error_source(source) }.is_null());
    }

    /// Promise: NULL is the error of a success.
    #[test]
    fn null_is_no_error() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { dipc_error_code(std::ptr::null()) }, DIPC_OK);
        // SAFETY: NULL is allowed.
        let text = unsafe { dipc_error_text(std::ptr::null()) };
        // SAFETY: it is a static string.
        assert_eq!(unsafe { text_of(text) }, "");
        // SAFETY: NULL is allowed.
        unsafe { dipc_error_free(std::ptr::null_mut()) };
    }

    /// A peer's text reaches C up to its first NUL.
    #[test]
    fn texts_end_at_their_first_nul() {
        assert_eq!(c_text("a\0b").as_c_str(), c"a");
    }
}
