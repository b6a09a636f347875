//! Failures, and the boundary where they and panics end.

use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Once;

use dipc_sandbox::Error as Failed;
use dipc_sandbox::service::Refusal;

use crate::sys::*;

pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A status and a text.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Said {
    pub code: dipc_status,
    pub text: String,
}

impl Said {
    pub fn new(code: dipc_status, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    /// The text for C, which ends at its first NUL.
    pub fn c_text(&self) -> CString {
        let text = self.text.split('\0').next().unwrap_or_default();
        CString::new(text).unwrap_or_default()
    }
}

/// Why a call fails.
#[derive(Debug)]
pub enum Failure {
    /// In this library.
    Here(Said),
    /// In libdipc.
    There(Given),
}

/// An error that libdipc has made.
#[derive(Debug)]
pub struct Given(NonNull<dipc_error>);

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: libdipc gave the error to its caller, and this is its one owner.
        unsafe { dipc_error_free(self.0.as_ptr()) };
    }
}

impl Failure {
    pub fn new(code: dipc_status, text: impl Into<String>) -> Self {
        Self::Here(Said::new(code, text))
    }

    pub fn code(&self) -> dipc_status {
        match self {
            Self::Here(said) => said.code,
            // SAFETY: the error is live until it is dropped.
            Self::There(error) => unsafe { dipc_error_code(error.0.as_ptr()) },
        }
    }

    /// Status and text, wherever it comes from.
    pub fn said(self) -> Said {
        match self {
            Self::Here(said) => said,
            Self::There(ref error) => {
                // SAFETY: the error is live until it is dropped.
                let text = unsafe { dipc_error_text(error.0.as_ptr()) };
                // SAFETY: a text of libdipc is NUL-terminated, and lives as long as its error.
                let text = unsafe { CStr::from_ptr(text) };
                Said::new(self.code(), text.to_string_lossy())
            }
        }
    }

    /// Gives the failure to a caller in C.
    ///
    /// # Safety
    ///
    /// `error` is NULL or writable.
    pub unsafe fn report(self, error: *mut *mut dipc_error) -> dipc_status {
        let code = self.code();
        match self {
            // SAFETY: the text is NUL-terminated, and the caller promises that `error` is NULL or
            // writable.
            Self::Here(said) => unsafe { dipc_error_new(said.code, said.c_text().as_ptr(), error) },
            Self::There(given) if !error.is_null() => {
                let pointer = given.0.as_ptr();
                std::mem::forget(given);
                // SAFETY: it is not NULL, and so writable, as the caller promises.
                unsafe { error.write(pointer) };
                code
            }
            Self::There(_) => code,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Missing(_) => DIPC_ERR_NOT_FOUND,
            Refusal::Forbidden(_) => DIPC_ERR_PERMISSION,
            Refusal::Failed(failed) => return failed.into(),
            _ => DIPC_ERR_INVALID_ARGUMENT,
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<Failed> for Failure {
    fn from(failed: Failed) -> Self {
        Self::Here(failed.into())
    }
}

impl From<Failed> for Said {
    fn from(failed: Failed) -> Self {
        let code = match failed {
            Failed::Module(_) | Failed::Batch(_) => DIPC_ERR_INVALID_DATA,
            Failed::Limit { .. } => DIPC_ERR_OUT_OF_RESOURCES,
            Failed::Input(_) | Failed::Host(_) => DIPC_ERR_UNSUPPORTED,
            Failed::NoPeers => DIPC_ERR_PERMISSION,
            Failed::Cancelled => DIPC_ERR_CANCELLED,
            Failed::Folder { .. } => DIPC_ERR_IO,
            _ => DIPC_ERR_PROVIDER,
        };
        Self::new(code, failed.to_string())
    }
}

/// A call of libdipc, which gets a place for its error. A positive status is a success.
///
/// # Errors
///
/// What libdipc reports.
pub fn call(function: impl FnOnce(*mut *mut dipc_error) -> dipc_status) -> Result<()> {
    tried(function).map(drop)
}

/// [`call`], of a function that may find nothing yet: false for DIPC_NOTHING.
///
/// # Errors
///
/// As [`call`].
pub fn tried(function: impl FnOnce(*mut *mut dipc_error) -> dipc_status) -> Result<bool> {
    let mut error = std::ptr::null_mut();
    let status = function(&raw mut error);
    match NonNull::new(error) {
        Some(error) => Err(Failure::There(Given(error))),
        None if status < 0 => Err(Failure::new(status, "libdipc gave no text")),
        None => Ok(status != DIPC_NOTHING),
    }
}

/// Runs the body of an export. A panic becomes a status.
///
/// # Safety
///
/// `error` is NULL or writable.
pub unsafe fn guard(error: *mut *mut dipc_error, body: impl FnOnce() -> Result<()>) -> dipc_status {
    match caught(body) {
        Ok(()) => DIPC_OK,
        // SAFETY: the caller promises that `error` is NULL or writable.
        Err(failure) => unsafe { failure.report(error) },
    }
}

/// Frees a handle. NULL does nothing.
///
/// # Safety
///
/// `handle` is NULL, or came from `Box::into_raw` and is not used any more.
pub unsafe fn guard_free<T>(handle: *mut T) {
    let _ = caught(|| {
        if !handle.is_null() {
            // SAFETY: it is not NULL; the caller promises that it came from `Box::into_raw` and is
            // not used any more.
            drop(unsafe { Box::from_raw(handle) });
        }
        Ok(())
    });
}

/// Runs a body whose panics must not leave this library.
pub fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    static HOOK: Once = Once::new();
    // A library prints nothing. The hook is that of the copy of Rust's library in this file, by
    // which no other code of the process panics.
    HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    // Unwind safety: what a body changes is a handle that stays whole, or goes with the call.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = (panic.downcast_ref::<String>().map(String::as_str))
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("a panic without a text");
        let text = format!("a bug in libdipc_functions, please report it: {text}");
        Err(Failure::new(DIPC_ERR_PANIC, text))
    })
}
