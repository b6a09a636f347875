//! Arguments that several exports take.

use std::time::Duration;

use crate::error::Error;
use crate::ffi::client_options::DIPC_FOREVER;

/// A timeout argument.
pub(super) fn timeout(timeout_ns: u64) -> Option<Duration> {
    (timeout_ns != DIPC_FOREVER).then(|| Duration::from_nanos(timeout_ns))
}

/// The error for an unknown figure.
pub(super) fn unknown_stat(stat: i32, names: &str) -> Error {
    Error::invalid_argument(format!("stat is {stat}: no {names} of this library"))
}
