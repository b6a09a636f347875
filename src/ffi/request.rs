//! Requests, for providers and for hosts of the pull form.

use std::ffi::c_char;
use std::os::fd::AsRawFd;

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::ffi::caught::guard_value;
use crate::ffi::client_options::time_limit;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::HandleState;
use crate::ffi::loan::{Loan, try_schema};
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_bytes, try_str};
use crate::server::ServerRequest;

/// A client's request for a stream. Each call of a provider has one. In the pull form
/// dipc_server_next_request() gives the request, and dipc_request_start(), dipc_request_push() and
/// dipc_request_finish() fill its stream. Any thread may call any function on it.
pub struct dipc_request {
    state: HandleState,
    inner: RequestHandle,
}

handle!(dipc_request, "request");

/// The request, by its owner.
enum RequestHandle {
    /// The host owns it, in the pull form.
    Owned(Box<ServerRequest>),
    /// The server owns it, during a stream of a provider.
    Lent(*const ServerRequest),
}

// SAFETY: any thread may use a `Request`; a lent request is only read, while the server keeps it.
unsafe impl Send for dipc_request {}
// SAFETY: any thread may use a `Request`; a lent request is only read, while the server keeps it.
unsafe impl Sync for dipc_request {}

impl dipc_request {
    pub(super) fn owned(request: ServerRequest) -> Self {
        Self {
            state: HandleState::new(),
            inner: RequestHandle::Owned(Box::new(request)),
        }
    }

    /// The request of the pull form; `None` for a provider's.
    pub(super) fn into_owned(self) -> Option<ServerRequest> {
        match self.inner {
            RequestHandle::Owned(request) => Some(*request),
            RequestHandle::Lent(_) => None,
        }
    }

    /// A request that the server owns, and keeps until the provider's stream is released.
    pub(super) fn lent(request: &ServerRequest) -> Self {
        Self {
            state: HandleState::new(),
            inner: RequestHandle::Lent(request),
        }
    }

    pub(super) fn get(&self) -> &ServerRequest {
        match &self.inner {
            RequestHandle::Owned(request) => request,
            // SAFETY: `Provider::open` promises that the request lives until the stream is
            // released, and `with_request` drops this handle then.
            RequestHandle::Lent(request) => unsafe { &**request },
        }
    }
}

/// Gives the ticket that the client asked for.
///
/// @param request        Request.
/// @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the ticket.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
///         written.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_ticket(
    request: *const dipc_request,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(request.get().ticket())
    })
}

/// Describes the client, for logs: "pid 4711, uid 1000".
///
/// @param request        Request.
/// @param buffer         Receives the text and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the text, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
///         written.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_peer(
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
        out.set_text(request.get().peer())
    })
}

/// Tells whether the client has gone or has cancelled. Further batches are then not sent.
///
/// @param request  Request, or NULL.
/// @return true if it has; true for NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_is_cancelled(request: *const dipc_request) -> bool {
    export!(request or true, |request| request.get().is_cancelled())
}

/// Gives a descriptor that becomes readable (POLLIN) when dipc_request_is_cancelled() becomes true.
/// A provider that waits can poll() it together with its other descriptors.
///
/// Each call gives the same descriptor. Do not close, read or write it. It is valid until the
/// request is freed or, for a provider, until its stream is released. Use dup() to keep it longer.
///
/// @param request  Request.
/// @param out_fd   Receives the descriptor.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no file descriptor is left.
///
/// # Safety
///
/// `request` is NULL or live; `out_fd` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_cancel_fd(
    request: *const dipc_request,
    out_fd: *mut i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, out_fd => |request| request.get().cancel_fd()?.as_raw_fd())
}

/// Pull form: sends the schema. Call it before the first batch, with the schema of the whole table,
/// unless the host has called dipc_request_take_selection().
///
/// @param request      Request.
/// @param schema       Read, not moved.
/// @param device_type  Device of the batches, for example ARROW_DEVICE_CPU.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: called twice, a provider's
///         request, or the client has selected columns that the schema does not have; then the
///         client has got the error. DIPC_ERR_INVALID_DATA: the schema is invalid.
///         DIPC_ERR_UNSUPPORTED: this process cannot read the device. DIPC_ERR_CANCELLED,
///         DIPC_ERR_DISCONNECTED: the client is gone.
///
/// # Safety
///
/// `request` is NULL or live; `schema` is NULL or a schema that follows Arrow's C data interface;
/// `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_start(
    request: *const dipc_request,
    schema: *const ArrowSchema,
    device_type: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        request.get().start(&schema, device_type)
    })
}

/// Pull form: sends a batch, or the part of it that the client has selected. Waits for the batch's
/// sync_event, and for a slow client. If the client wants no rows of the batch, nothing is sent.
///
/// @param request             Request.
/// @param batch               Moved on success: its release becomes NULL. After the client has
///                            given it back, dipc_server_drain_releases() releases it.
/// @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
/// @param metadata_len_bytes  Length of metadata.
/// @param timeout_ns          Most nanoseconds to wait; DIPC_FOREVER: no limit; 0: no wait, and
///                            dipc_request_fd() tells when there is room.
/// @param error               May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_TIMEOUT: the client was too slow; call again. DIPC_ERR_INVALID_ARGUMENT: not
///         started, or a provider's request. DIPC_ERR_INVALID_DATA: the batch is invalid; the
///         stream has failed. DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
///
/// # Safety
///
/// `request` is NULL or live; `batch` is NULL or an array that follows Arrow's C device data
/// interface, used by nobody else during the call; `metadata` is readable for
/// `metadata_len_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_push(
    request: *const dipc_request,
    batch: *mut ArrowDeviceArray,
    metadata: *const u8,
    metadata_len_bytes: usize,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `metadata` is readable.
        let metadata = unsafe { try_bytes(metadata, metadata_len_bytes, "metadata") }?;
        let metadata = (!metadata.is_empty()).then_some(metadata);
        // SAFETY: the caller promises `batch` is NULL, or initialised and used by nobody else.
        let (loan, array) = unsafe { Loan::new(batch) }?;
        request
            .get()
            .push(array, metadata, time_limit(timeout_ns))
            .map_err(|(error, _stand_in)| error)?;
        loan.accept();
        Ok(())
    })
}

/// Pull form: completes the stream. Waits until the last batches have been sent.
///
/// @param request     Request.
/// @param timeout_ns  Most nanoseconds to wait; DIPC_FOREVER: no limit.
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: call again.
///         DIPC_ERR_INVALID_ARGUMENT: not started, failed, or a provider's request.
///         DIPC_ERR_CANCELLED, DIPC_ERR_DISCONNECTED: the client is gone.
///
/// # Safety
///
/// `request` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_finish(
    request: *const dipc_request,
    timeout_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| request
        .get()
        .finish(time_limit(timeout_ns)))
}

/// Fails the stream with a reason. The client's error text is "the server: " and the reason; its
/// dipc_error_source() has the reason alone.
///
/// Pull form: the stream ends now. A call on another thread that waits for the client returns
/// DIPC_ERR_CANCELLED.
///
/// Undecided request (dipc_request_is_undecided()): refuses it. Any other number than a DIPC_ERR_*
/// becomes DIPC_ERR_PERMISSION.
///
/// Provider: return non-zero afterwards, or an errno from the stream. The client gets the reason
/// given here, even if the provider then returns 0 and the stream ends well.
///
/// @param request  Request.
/// @param code     A DIPC_ERR_*, which the client also gets. Any other number becomes
///                 DIPC_ERR_PROVIDER for the client, and so do the statuses about the caller's own
///                 pointers, handles and process: NULL_ARGUMENT, FORKED, PANIC, POISONED,
///                 BUFFER_TOO_SMALL.
/// @param text     UTF-8; copied.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: text is not UTF-8.
///
/// # Safety
///
/// `request` is NULL or live; `text` is NULL or a NUL-terminated string; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_fail(
    request: *const dipc_request,
    code: i32,
    text: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        request.get().fail(code, text);
        Ok(())
    })
}

/// Frees a request of the pull form. If it is not finished its stream fails. NULL does nothing. A
/// provider's request stays with the library.
///
/// @param request  Request, or NULL; no call on it is running.
///
/// # Safety
///
/// `request` is NULL, or came from dipc_server_next_request() and was not freed, or was given to a
/// provider whose stream is not released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_free(request: *mut dipc_request) {
    guard_value((), || {
        // SAFETY: the caller promises `request` is NULL or live.
        let lent = unsafe { request.as_ref() }
            .is_some_and(|request| matches!(request.inner, RequestHandle::Lent(_)));
        if !lent {
            // SAFETY: it is NULL or the host's own, live and unused as the caller promises.
            unsafe { guard_free(request) };
        }
    });
}
