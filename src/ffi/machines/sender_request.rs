//! What the client of a sender asks for, and the headers of the answer.

use crate::error::{Error, Result, Status};
use crate::ffi::client_options::DIPC_FOREVER;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{boxed, try_ref};
use crate::ffi::headers::dipc_headers;
use crate::ffi::machines::sender::dipc_sender;
use crate::ffi::request_headers::number_of;
use crate::ffi::status::dipc_status;
use crate::ffi::text::TextOut;
use crate::proto::Request;

impl dipc_sender {
    fn request(&self) -> Result<&Request> {
        let request = self.inner.request();
        request.ok_or_else(|| Error::new(Status::NotFound, "no request has come"))
    }
}

/// Gives the ticket that the client asked for.
///
/// @param sender         Sender, in state DIPC_SENDER_REQUESTED or after.
/// @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the ticket.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: no request has come.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `sender` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_ticket(
    sender: *const dipc_sender,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(&sender.request()?.ticket)
    })
}

/// Gives the verb of the request.
///
/// @param sender  Sender, or NULL.
/// @return DIPC_VERB_GET: the client wants the table. DIPC_VERB_DESCRIBE, DIPC_VERB_LIST: it wants
///         the table of dipc_description_to_stream(); a host without descriptions calls
///         dipc_sender_refuse(). The sender itself refuses other verbs, and a get of some columns
///         or rows (dipc_get_options_set_columns()), by DIPC_ERR_UNSUPPORTED. 0 for NULL, without a
///         request and in the child of a fork.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_verb(sender: *const dipc_sender) -> i32 {
    export!(sender or 0, |sender| sender.request().map_or(0, |request| number_of(request.verb)))
}

/// Gives the time that the client allows for the whole stream, from the request on. The sender has
/// no clock, so the host ends a stream that takes longer, by dipc_sender_fail().
///
/// @param sender  Sender, or NULL.
/// @return Nanoseconds; DIPC_FOREVER if the client has set no deadline, for NULL, without a request
///         and in the child of a fork.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_deadline_ns(sender: *const dipc_sender) -> u64 {
    export!(sender or DIPC_FOREVER, |sender| {
        let deadline = sender.request().ok().and_then(|request| request.deadline);
        deadline.map_or(DIPC_FOREVER, |time| {
            u64::try_from(time.as_nanos()).unwrap_or(DIPC_FOREVER)
        })
    })
}

/// Gives the headers of the request.
///
/// @param sender  Sender, in state DIPC_SENDER_REQUESTED or after.
/// @param out     Receives a copy of the headers, to be freed by dipc_headers_free().
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: no request has come.
///
/// # Safety
///
/// `sender` is NULL, or live and not written to by another thread; `out` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_headers(
    sender: *const dipc_sender,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(sender, error, out => |sender| boxed(sender.request()?.headers.clone()))
}

/// Adds headers to the answer. The client gets them with the schema; headers that are added after
/// dipc_sender_start() go with a failure of the stream. A client that does not know headers gets
/// none.
///
/// @param sender   Sender, with a request or a running stream; exclusive during the call.
/// @param headers  Copied. One answer has at most 32 KiB, 5 bytes for each pair included.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: more than 32 KiB, or there
///         is no stream.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `headers` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_add_headers(
    sender: *mut dipc_sender,
    headers: *const dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `headers` is NULL or live.
        let headers = unsafe { try_ref(headers) }?;
        sender.inner.add_headers(&headers.inner)
    })
}
