//! What an error of the C API holds.

use std::ffi::CString;

use crate::error::Error;
use crate::ffi::status::dipc_status;

/// The details of a failure: a status for programs and a text for people. Any thread may read an
/// error, also after a fork and after its handle was freed.
pub struct dipc_error {
    pub(super) code: dipc_status,
    pub(super) text: CString,
    pub(super) os_errno: i32,
    pub(super) retry_after_ns: u64,
    pub(super) source: Option<Box<dipc_error>>,
}

impl dipc_error {
    #[cfg(test)]
    pub(super) fn text(&self) -> &str {
        self.text.to_str().unwrap()
    }
}

impl From<Error> for dipc_error {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for dipc_error {
    fn from(error: &Error) -> Self {
        Self {
            code: error.status().code(),
            text: c_text(error.text()),
            os_errno: error.os_error().unwrap_or(0),
            retry_after_ns: (error.advice())
                .and_then(|advice| advice.retry_after)
                .map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            source: error.cause().map(|cause| Box::new(Self::from(cause))),
        }
    }
}

/// A text for C. It ends at the first NUL, which a peer or provider may have put into it.
pub(super) fn c_text(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(text.get(..end).unwrap_or_default()).unwrap_or_default()
}
