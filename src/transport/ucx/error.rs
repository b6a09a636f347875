//! UCX's statuses as errors of libdipc.

use std::fmt::Display;

use ucx1_sys::{
    Api, UCS_ERR_BUSY, UCS_ERR_CANCELED, UCS_ERR_CONNECTION_RESET, UCS_ERR_EXCEEDS_LIMIT,
    UCS_ERR_FIRST_LINK_FAILURE, UCS_ERR_INVALID_ADDR, UCS_ERR_INVALID_PARAM, UCS_ERR_IO_ERROR,
    UCS_ERR_LAST_ENDPOINT_FAILURE, UCS_ERR_NO_DEVICE, UCS_ERR_NO_MEMORY, UCS_ERR_NO_RESOURCE,
    UCS_ERR_NOT_CONNECTED, UCS_ERR_REJECTED, UCS_ERR_SHMEM_SEGMENT, UCS_ERR_TIMED_OUT,
    UCS_ERR_UNREACHABLE, UCS_ERR_UNSUPPORTED, UCS_OK, ucs_status_t,
};

use crate::error::{Error, Result, Status};

/// The failure of a call to UCX: `doing` says what was attempted, as in "cannot listen".
pub(super) fn error(api: &Api, doing: impl Display, status: ucs_status_t) -> Error {
    let text = format!("{doing}: UCX says \"{}\"", api.status_text(status));
    Error::new(kind(status), text)
}

/// Fails as [`error`], if the call failed.
pub(super) fn ensure(api: &Api, doing: impl Display, status: ucs_status_t) -> Result<()> {
    match status {
        UCS_OK => Ok(()),
        _ => Err(error(api, doing, status)),
    }
}

/// The meaning of a status for the caller of the operation.
fn kind(status: ucs_status_t) -> Status {
    match status {
        UCS_ERR_UNREACHABLE | UCS_ERR_NO_DEVICE | UCS_ERR_INVALID_ADDR => Status::Unreachable,
        UCS_ERR_CONNECTION_RESET | UCS_ERR_REJECTED | UCS_ERR_NOT_CONNECTED | UCS_ERR_CANCELED => {
            Status::Disconnected
        }
        // Failures of links and endpoints: a keep-alive that was not answered is one.
        UCS_ERR_LAST_ENDPOINT_FAILURE..=UCS_ERR_FIRST_LINK_FAILURE => Status::Disconnected,
        UCS_ERR_NO_MEMORY | UCS_ERR_SHMEM_SEGMENT => Status::OutOfMemory,
        UCS_ERR_NO_RESOURCE | UCS_ERR_EXCEEDS_LIMIT => Status::OutOfResources,
        UCS_ERR_BUSY => Status::AddressInUse,
        UCS_ERR_TIMED_OUT => Status::Timeout,
        UCS_ERR_UNSUPPORTED => Status::Unsupported,
        UCS_ERR_INVALID_PARAM => Status::InvalidArgument,
        _ => Status::Io,
    }
}

/// Why an established connection is over.
pub(super) fn lost(api: &Api, peer: &str, status: ucs_status_t) -> Error {
    Error::disconnected(format!(
        "the connection to {peer} is over: UCX says \"{}\"",
        api.status_text(status)
    ))
}

/// Why no connection was made to the server at `address`.
pub(super) fn not_connected(api: &Api, address: &str, status: ucs_status_t) -> Error {
    let said = api.status_text(status);
    match status {
        UCS_ERR_TIMED_OUT => Error::timeout(format!(
            "the server at ucx://{address} did not answer: UCX says \"{said}\""
        )),
        UCS_ERR_REJECTED
        | UCS_ERR_NOT_CONNECTED
        | UCS_ERR_UNREACHABLE
        | UCS_ERR_CONNECTION_RESET
        | UCS_ERR_IO_ERROR
        | UCS_ERR_LAST_ENDPOINT_FAILURE..=UCS_ERR_FIRST_LINK_FAILURE => Error::new(
            Status::Unreachable,
            format!(
                "cannot connect to ucx://{address}: UCX says \"{said}\"; is a server started \
                 there, with a UCX that can talk to this one ({}), and the port open?",
                version_text(api)
            ),
        ),
        _ => error(
            api,
            format_args!("cannot connect to ucx://{address}"),
            status,
        ),
    }
}

/// The library's version in the form of URIs.
pub(super) fn version_text(api: &Api) -> String {
    let (major, minor, release) = api.version();
    format!("{major}.{minor}.{release}")
}
