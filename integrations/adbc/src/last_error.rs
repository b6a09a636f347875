//! The error of the result set that a thread reads. It is kept from its origin up to the callback
//! of C that returns.

use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<Option<dipc::Error>> = const { RefCell::new(None) };
}

/// Remembers the error for the callback that reads the result set.
pub(crate) fn note(error: &dipc::Error) {
    LAST.set(Some(error.clone()));
}

/// The error that was remembered last, which is forgotten.
pub(crate) fn take() -> Option<dipc::Error> {
    LAST.take()
}
