//! Middleware of a server.

use std::ffi::{c_char, c_void};

use crate::arrow::OwnedDeviceStream;
use crate::arrow::abi::ArrowDeviceArrayStream;
use crate::error::Error;
use crate::ffi::error_details::dipc_error;
use crate::ffi::foreign::dipc_finalizer;
use crate::ffi::handle::try_out;
use crate::ffi::provider::{ForeignProvider, dipc_provider};
use crate::ffi::request::dipc_request;
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;
use crate::ffi::text::try_str;
use crate::proto::Verb;

/// Sets a provider that answers every get, put and exchange with the header `header`, instead of
/// the request's ticket. It may pass a request on by dipc_request_forward(), and change the tables
/// on their way. A middleware set before is replaced; its streams go on.
///
/// @param server     Server.
/// @param header     Key of the header, NUL-terminated: lower-case ASCII.
/// @param provider   Called once for each stream, as dipc_provider says. NULL: no middleware.
/// @param userdata   Given to provider and finalizer; may be NULL.
/// @param finalizer  Called once, when the middleware was replaced or the server freed, and the
///                   last call has returned; may be NULL. Not used if provider is NULL.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the library calls the finalizer. Otherwise it does not.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no header can have this key.
///         DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `header` is NULL or NUL-terminated; `provider` and `finalizer` may be
/// called with `userdata` on any thread until the finalizer has run; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_set_middleware(
    server: *const dipc_server,
    header: *const c_char,
    provider: dipc_provider,
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `header` is NULL or NUL-terminated.
        let header = unsafe { try_str(header, "header") }?;
        let Some(function) = provider else {
            return server.inner.clear_middleware();
        };
        ForeignProvider::hand_over(function, userdata, finalizer, 0, |provider| {
            server.inner.set_middleware(header, provider)
        })
    })
}

/// Passes a request of a middleware on to what answers it without the middleware: the published
/// table, the provider of the ticket, or the handler. They see the same ticket and headers, but no
/// selection: the library applies the client's selection to the table that the middleware gives. A
/// host of the pull form gets the request by dipc_server_next_request(); the call waits until the
/// host has begun its stream, or has taken the table of a put. The host's arrays are released like
/// those of its other streams.
///
/// @param request  Request that a middleware's provider has.
/// @param table    For DIPC_VERB_PUT and DIPC_VERB_EXCHANGE: the table to pass on instead of the
///                 client's table, which dipc_request_source() gives the middleware. The call takes
///                 table even if it fails, unless request is NULL, and leaves it released. For
///                 DIPC_VERB_GET: NULL.
/// @param out      For DIPC_VERB_GET and DIPC_VERB_EXCHANGE: receives the whole table, to be
///                 released. An old value is overwritten. For DIPC_VERB_PUT: NULL; the call returns
///                 when the handler has taken the table.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT: out is missing. DIPC_ERR_INVALID_ARGUMENT: the request
///         is not a middleware's, or table or out does not go with its verb. DIPC_ERR_UNSUPPORTED:
///         there is no handler that takes tables, or an exchange would go to a host of the pull
///         form. DIPC_ERR_CANCELLED: the client went while the call waited for such a host.
///         DIPC_ERR_NOT_FOUND. DIPC_ERR_STOPPED. Otherwise the status of the provider that was
///         called.
///
/// # Safety
///
/// `request` is NULL or live; `table` is NULL or follows Arrow's C device stream interface, and is
/// the caller's; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_forward(
    request: *const dipc_request,
    table: *mut ArrowDeviceArrayStream,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises a stream of its own that follows Arrow's interface, and gives
        // it away.
        let take = |table| unsafe { OwnedDeviceStream::take(table) };
        let table = (!table.is_null()).then(|| take(table));
        let request = request.get();
        if request.verb() == Verb::Put {
            if !out.is_null() {
                return Err(Error::invalid_argument(
                    "out is not NULL: a put gives no table",
                ));
            }
            return request.forward(table).map(drop);
        }
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        if let Some(stream) = request.forward(table)? {
            out.set(stream.into_raw());
        }
        Ok(())
    })
}
