//! Errors that several parts of a server give, and what a busy server advises (rule Q8).

use std::time::Duration;

use crate::error::{Advice, Error, Status};

/// When a client should ask a busy server again: most streams are short.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Rule Q8: advises when to ask a busy server again, unless the error advises something else.
pub(super) fn with_retry(error: &Error) -> Error {
    let error = error.clone();
    if error.status() != Status::Busy || error.advice().is_some() {
        return error;
    }
    error.with_advice(Some(Advice {
        retry_after: Some(RETRY_AFTER),
        ..Advice::default()
    }))
}

/// The error of a server that was stopped.
pub(super) fn stopped() -> Error {
    Error::new(Status::Stopped, "the server was stopped")
}

/// The error of a second answer: a host answers a request only once.
pub(super) fn answered_before() -> Error {
    Error::invalid_argument("the request was answered before")
}
