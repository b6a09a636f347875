//! What a request says in addition to its ticket, and the headers of its answer.

use crate::error::{Error, Result};
use crate::ffi::client_options::DIPC_FOREVER;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{boxed, try_ref};
use crate::ffi::headers::dipc_headers;
use crate::ffi::request::dipc_request;
use crate::ffi::status::dipc_status;
use crate::proto::Verb;

/// The client gets a table.
pub const DIPC_VERB_GET: i32 = 1;
/// The client sends a table: dipc_request_source() accepts it.
pub const DIPC_VERB_PUT: i32 = 2;
/// Both sides send: dipc_request_source() accepts the client's table, and the answer is a table as
/// for DIPC_VERB_GET.
pub const DIPC_VERB_EXCHANGE: i32 = 3;
/// The client asks what a ticket stands for: answer by dipc_description_to_stream().
pub const DIPC_VERB_DESCRIBE: i32 = 4;
/// The client asks which tickets begin with the request's ticket: answer by
/// dipc_description_to_stream() with an endpoint for each.
pub const DIPC_VERB_LIST: i32 = 5;

/// The number of a verb.
pub(super) fn number_of(verb: Verb) -> i32 {
    match verb {
        Verb::Get => DIPC_VERB_GET,
        Verb::Put => DIPC_VERB_PUT,
        Verb::Exchange => DIPC_VERB_EXCHANGE,
        Verb::Describe => DIPC_VERB_DESCRIBE,
        Verb::List => DIPC_VERB_LIST,
        Verb::Unknown(number) => number.into(),
    }
}

/// The verb with this number. Only verbs whose answer is a table are valid.
pub(super) fn verb_of(number: i32) -> Result<Verb> {
    match number {
        DIPC_VERB_GET => Ok(Verb::Get),
        DIPC_VERB_DESCRIBE => Ok(Verb::Describe),
        DIPC_VERB_LIST => Ok(Verb::List),
        _ => Err(Error::invalid_argument(format!(
            "verb is {number}: DIPC_VERB_GET, DIPC_VERB_DESCRIBE or DIPC_VERB_LIST"
        ))),
    }
}

/// The verb of a request.
///
/// @param request  Request, or NULL.
/// @return DIPC_VERB_*; 0 for NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_verb(request: *const dipc_request) -> i32 {
    export!(request or 0, |request| number_of(request.get().verb()))
}

/// How long the client still waits for the end of the stream.
///
/// @param request  Request, or NULL.
/// @return Nanoseconds; DIPC_FOREVER if the client has set no deadline; 0 once it has passed, for
///         NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_time_left_ns(request: *const dipc_request) -> u64 {
    export!(request or 0, |request| match request.get().time_left() {
        None => DIPC_FOREVER,
        Some(left) => u64::try_from(left.as_nanos()).unwrap_or(DIPC_FOREVER - 1),
    })
}

/// The headers of a request.
///
/// @param request  Request.
/// @param out      Receives a copy of the headers, to be freed by dipc_headers_free().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `request` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_headers(
    request: *const dipc_request,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, out => |request| boxed(request.get().headers().clone()))
}

/// Adds headers to the answer of a request. The client gets them with the schema. Headers that are
/// added later reach the client only if the stream fails. A client gets no headers at all if it
/// does not know headers, or if its request fails before the schema, because then it has no stream.
///
/// @param request  Request.
/// @param headers  Copied. One answer has at most 32 KiB, 5 bytes for each pair included.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: more than 32 KiB, or the
///         stream is over.
///
/// # Safety
///
/// `request` and `headers` are NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_add_headers(
    request: *const dipc_request,
    headers: *const dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `headers` is NULL or live.
        let headers = unsafe { try_ref(headers) }?;
        request.get().add_headers(&headers.inner)
    })
}
