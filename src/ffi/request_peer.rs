//! Who the client of a request is, as data.

use std::ffi::c_char;

use crate::error::{Error, Status};
use crate::ffi::error_details::dipc_error;
use crate::ffi::request::dipc_request;
use crate::ffi::status::dipc_status;
use crate::ffi::text::TextOut;

/// The number of the client's process; 0 if it has no number in this process's namespace.
pub const DIPC_PEER_PID: i32 = 1;
/// The number of its user.
pub const DIPC_PEER_UID: i32 = 2;
/// The number of its group.
pub const DIPC_PEER_GID: i32 = 3;

/// A number of the client's process, as the system gave it when the client connected.
///
/// @param request  Request, or NULL.
/// @param which    DIPC_PEER_*.
/// @return The number; -1 for a client that came over a network, for an unknown which, for NULL and
///         in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_peer_id(request: *const dipc_request, which: i32) -> i64 {
    export!(request or -1, |request| match (request.get().origin().process, which) {
        (Some(process), DIPC_PEER_PID) => process.pid.into(),
        (Some(process), DIPC_PEER_UID) => process.uid.into(),
        (Some(process), DIPC_PEER_GID) => process.gid.into(),
        _ => -1,
    })
}

/// The transport by which the client came: "shm", "tls", "tcp" or "ucx".
///
/// @param request        Request.
/// @param buffer         Receives the text and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the text, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all
///         the same.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_peer_transport(
    request: *const dipc_request,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        out.set_text(request.get().origin().scheme)
    })
}

/// The client's address: "10.0.0.7:40112". The port does not show which user the client belongs to.
///
/// @param request        Request.
/// @param buffer         Receives the text and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the text, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the client came by shm, which has
///         no addresses. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is written all the same.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_peer_address(
    request: *const dipc_request,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        let text = "the client came by a transport without addresses";
        let address = request.get().origin().address;
        let address = address.ok_or_else(|| Error::new(Status::NotFound, text))?;
        out.set_text(&address.to_string())
    })
}
