//! Errors of libdipc as those of ADBC.

use std::panic::{AssertUnwindSafe, catch_unwind};

use adbc_core::error::{Error, Result, Status};
use arrow::error::ArrowError;

/// An error that says what is wrong with the arguments of a call.
pub(crate) fn invalid(text: impl Into<String>) -> Error {
    Error::with_message_and_status(text, Status::InvalidArguments)
}

/// An error that says what this driver, or libdipc, does not support.
pub(crate) fn not_implemented(text: impl Into<String>) -> Error {
    Error::with_message_and_status(text, Status::NotImplemented)
}

/// An error that says what has to be done before the call.
pub(crate) fn invalid_state(text: impl Into<String>) -> Error {
    Error::with_message_and_status(text, Status::InvalidState)
}

/// An error that says that something has no value, or does not exist.
pub(crate) fn not_found(text: impl Into<String>) -> Error {
    Error::with_message_and_status(text, Status::NotFound)
}

/// Results of libdipc's calls as those of ADBC's.
pub(crate) trait OrAdbc<T> {
    /// The value, or the error with its text, its status, and what the server advises.
    fn or_adbc(self) -> Result<T>;
}

impl<T> OrAdbc<T> for dipc::Result<T> {
    fn or_adbc(self) -> Result<T> {
        self.map_err(|error| from_dipc(&error))
    }
}

/// The result of a call of libdipc. A panic in it is an error of this call alone: `adbc_ffi` would
/// refuse all further calls of the process.
pub(crate) fn guarded<T>(call: impl FnOnce() -> dipc::Result<T>) -> dipc::Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("a panic without a text");
        let text = format!("a bug of libdipc: the call panicked: {text}");
        Err(dipc::Error::new(dipc::Status::Panic, text))
    })
}

/// The error with its text, its status, and what the server advises.
pub(crate) fn from_dipc(error: &dipc::Error) -> Error {
    let mut details = vec![(
        "dipc.status".to_owned(),
        error.status().symbol().as_bytes().to_vec(),
    )];
    if let Some(errno) = error.os_error() {
        details.push(("dipc.errno".to_owned(), errno.to_string().into_bytes()));
    }
    if let Some(advice) = error.advice() {
        let uris = advice.elsewhere.iter().map(|uri| uri.as_bytes().to_vec());
        details.extend(uris.map(|uri| ("dipc.elsewhere".to_owned(), uri)));
        if let Some(wait) = advice.retry_after {
            let seconds = wait.as_secs_f64().to_string();
            details.push(("dipc.retry_after".to_owned(), seconds.into_bytes()));
        }
    }
    Error {
        message: error.text().to_owned(),
        status: status_of(error.status()),
        vendor_code: error.status().code(),
        sqlstate: [0; 5],
        details: Some(details),
    }
}

fn status_of(status: dipc::Status) -> Status {
    use dipc::Status as Of;
    match status {
        Of::NullArgument | Of::InvalidArgument | Of::InvalidUri => Status::InvalidArguments,
        Of::Unsupported => Status::NotImplemented,
        Of::NotFound => Status::NotFound,
        Of::AlreadyExists => Status::AlreadyExists,
        Of::Permission => Status::Unauthorized,
        Of::Cancelled => Status::Cancelled,
        Of::Timeout => Status::Timeout,
        Of::InvalidData => Status::InvalidData,
        Of::Forked => Status::InvalidState,
        Of::Unreachable
        | Of::Protocol
        | Of::Disconnected
        | Of::Busy
        | Of::Stopped
        | Of::AddressInUse
        | Of::Io => Status::IO,
        Of::OutOfMemory
        | Of::OutOfResources
        | Of::Provider
        | Of::Panic
        | Of::Poisoned
        | Of::BufferTooSmall => Status::Internal,
        _ => Status::Unknown,
    }
}

/// The error of a result set that this process itself has read.
pub(crate) fn from_arrow(error: ArrowError) -> Error {
    match &error {
        ArrowError::ExternalError(inner) => match inner.downcast_ref() {
            Some(own) => from_dipc(own),
            None => Error::from(error),
        },
        _ => Error::from(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_of_its_call() {
        let error = guarded(|| -> dipc::Result<()> { panic!("no {}", "way") });
        let error = error.or_adbc().unwrap_err();
        assert_eq!(error.status, Status::Internal);
        assert!(error.message.ends_with("no way"), "{error}");
        assert_eq!(guarded(|| Ok(1)).unwrap(), 1);
    }

    /// Each status has a status of ADBC, and its name goes with the error.
    #[test]
    fn statuses_keep_their_meaning() {
        for status in dipc::Status::ALL {
            let error = from_dipc(&dipc::Error::new(*status, "why"));
            assert_ne!(error.status, Status::Unknown, "{status:?}");
            assert_eq!(error.message, "why");
            assert_eq!(error.vendor_code, status.code());
            let details = error.details.unwrap();
            assert_eq!(
                details[0],
                ("dipc.status".into(), status.symbol().as_bytes().to_vec())
            );
        }
    }

    /// Promise of "Errors": what the server advises is among the details, as is the `errno`.
    #[test]
    fn details_have_what_the_server_advises() {
        let mut advice = dipc::Advice::default();
        advice.elsewhere = vec!["shm:@a".to_owned(), "tcp://b:1".to_owned()];
        advice.retry_after = Some(std::time::Duration::from_millis(1500));
        let error = dipc::Error::new(dipc::Status::Busy, "full").with_advice(Some(advice));
        let details = from_dipc(&error).details.unwrap();
        let details: Vec<_> = (details.iter())
            .map(|(key, value)| (key.as_str(), str::from_utf8(value).unwrap()))
            .collect();
        assert_eq!(
            details,
            [
                ("dipc.status", "DIPC_ERR_BUSY"),
                ("dipc.elsewhere", "shm:@a"),
                ("dipc.elsewhere", "tcp://b:1"),
                ("dipc.retry_after", "1.5"),
            ]
        );
    }
}
