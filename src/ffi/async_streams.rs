//! Streams for Arrow's asynchronous handlers, and handlers for Arrow's asynchronous producers.

use std::ffi::c_char;
use std::ptr::NonNull;

use crate::arrow::abi::ArrowAsyncDeviceStreamHandler;
use crate::arrow::async_stream::AsyncHandler;
use crate::ffi::client::dipc_client;
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{null_argument, try_mut, try_out};
use crate::ffi::request::dipc_request;
use crate::ffi::status::dipc_status;

/// Asks a server for a ticket's table without waiting, and gives the table to a handler of Arrow's
/// C async stream interface.
///
/// One thread of the client calls the handlers of all its streams, one after the other. A callback
/// that waits delays the others. Callbacks may call every function of the library. One more
/// thread connects, and waits for the servers' answers.
///
/// - on_schema comes first, unless on_error does. The producer's additional_metadata are the
///   headers of the answer; its device_type is right from on_schema on.
/// - The library calls on_next_task at most once for each array that the consumer has asked for by
///   the producer's request, and with NULL at the end. Any thread may call request. The metadata of
///   the call is the batch's.
/// - A task, or one copy of it, is extracted once: it owns the batch, also when on_next_task fails.
///   extract_data gives the batch without a wait, on any thread, also after the release of the
///   handler. With NULL in place of the array it discards the batch.
/// - on_error gives an errno and a text. Its metadata has the number of the dipc_status under
///   `dipc_status`, and then the headers of the answer. A request for fewer than one array is an
///   error.
/// - cancel, on any thread, also before on_schema, ends the stream without on_error. So does a
///   callback that does not return 0.
/// - release comes last, once. Until then, and until every task is extracted, the consumer may call
///   its producer. The stream outlives the client.
///
/// @param client            Client.
/// @param uris              As for dipc_client_get().
/// @param n_uris            1 or 2.
/// @param ticket            As for dipc_client_get().
/// @param ticket_len_bytes  Length of ticket.
/// @param options           Copied; NULL: the defaults.
/// @param handler           With all its functions. On DIPC_OK the library sets its producer. It
///                          stays where it is until its release, the library's last use of it.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the stream was asked for; the handler gets every later failure. Otherwise the
///         handler was not used. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI.
///         DIPC_ERR_INVALID_ARGUMENT: the handler lacks a function, or the GPU does not exist.
///         DIPC_ERR_UNSUPPORTED: this machine lacks the device. DIPC_ERR_OUT_OF_RESOURCES: no
///         threads or descriptors are left.
///
/// # Safety
///
/// As dipc_client_get(); `handler` is NULL, or follows Arrow's C async stream interface, and any
/// thread may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_get_async(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    ticket: *const u8,
    ticket_len_bytes: usize,
    options: *const dipc_get_options,
    handler: *mut ArrowAsyncDeviceStreamHandler,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, ticket: ticket_len_bytes, options);
        let handler = NonNull::new(handler).ok_or_else(|| null_argument("handler"))?;
        // SAFETY: it is not NULL, and the caller promises that it follows Arrow's interface, so it
        // is initialised.
        AsyncHandler::ensure_complete(unsafe { handler.as_ref() })?;
        client.inner.get_async(&uris, ticket, &options, |flow| {
            // SAFETY: the handler is complete; the caller promises that it follows Arrow's
            // interface, stays where it is until its release, and may be called by any thread.
            unsafe { AsyncHandler::take(handler, flow) }
        })
    })
}

/// Pull form: answers a request with a producer of Arrow's C async stream interface, such as Arrow
/// C++'s ExportAsyncRecordBatchReader(). Gives the handler that the producer calls.
///
/// The producer's threads call the handler, one after the other, and do not wait in it: its calls
/// put their arguments into a queue. One thread of the server sends the batches of all such
/// requests. It calls the producers' request, cancel and extract_data; a call that waits delays the
/// other streams. If request or cancel is running on another thread, the last callback of the
/// stream waits until that call has returned. No other callback holds a lock that a producer may
/// need.
///
/// - on_schema sends the schema. The pairs of the producer's additional_metadata whose keys are
///   valid keys of headers become headers of the answer.
/// - The library asks by request for as many tasks as the client's window has room for, but for at
///   most 8 that are not sent yet. So a slow client slows the producer.
/// - The library extracts each task once, even if the batch is not needed, and never with NULL. Its
///   array is released on a thread of the library. The metadata of a task are the batch's.
/// - on_next_task with NULL completes the stream. With DIPC_VERB_EXCHANGE it also completes the
///   exchange, so the client's table must have been read to its end before.
/// - on_error fails the stream for the client, with DIPC_ERR_PROVIDER, or with the number that the
///   metadata have under `dipc_status`. dipc_client_get_async() sets this number, so this handler
///   can be given to dipc_client_get_async() to pass on a table of another server.
/// - When the client goes, or the server stops, the library calls the producer's cancel once, and
///   discards what the producer still brings. Before on_schema the library does not call the
///   producer; if the client has gone by then, on_schema returns ECANCELED.
/// - A producer that brings more than it was asked for, or releases the handler before the end,
///   fails the stream.
/// - release is the last call. It clears the handler's release and private_data. The producer stays
///   where it is until it has reported the end or an error, or has released the handler, even if
///   the server was freed or the stream is over earlier. A producer that does none of these delays
///   neither the client nor a stop of the server.
///
/// @param request  Request of dipc_server_next_request(), for which dipc_request_start() was not
///                 called, and not of DIPC_VERB_PUT. On DIPC_OK it is freed. No other call on it is
///                 running.
/// @param out      Receives the handler, complete except for its producer. The caller owns the
///                 place; the library does not keep its address.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the producer or the caller must release the handler. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: a provider's request, one of DIPC_VERB_PUT, or one that was
///         started. DIPC_ERR_STOPPED. DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are
///         left. After a failure the request is still the caller's.
///
/// # Safety
///
/// `request` is NULL or live, and used by nobody else; `out` and `error` are NULL or writable. The
/// producer follows Arrow's C async stream interface, and any thread may call it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_answer_async(
    request: *mut dipc_request,
    out: *mut ArrowAsyncDeviceStreamHandler,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `request` is NULL, or live and used by nobody else.
        let answer = unsafe { try_mut(request) }?.get().prepare_async_answer()?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the request is live, and a provider's request was refused above, so it came from
        // `Box::into_raw`. The caller promises that nobody uses it any more.
        let own = unsafe { Box::from_raw(request) };
        if let Some(request) = own.into_owned() {
            out.set(answer(request));
        }
        Ok(())
    })
}
