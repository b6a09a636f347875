//! Streams for Arrow's asynchronous handlers.

use std::ffi::c_char;
use std::ptr::NonNull;

use crate::arrow::abi::ArrowAsyncDeviceStreamHandler;
use crate::arrow::async_stream::AsyncHandler;
use crate::ffi::client::{dipc_client, options_of};
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error::dipc_error;
use crate::ffi::guard::{ErrorOut, guard_ref};
use crate::ffi::handle::null_argument;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{try_bytes, try_strs};

/// Asks a server for a ticket's table without a wait, and gives it to a handler of Arrow's C async
/// stream interface.
///
/// One thread of the client calls the handlers of all its streams, one after the other. A callback
/// that waits delays the others. Callbacks may call every function of the library. A small pool of
/// threads connects and waits for the servers' answers.
///
/// - on_schema comes first, unless on_error does. The producer's additional_metadata are the
///   headers of the answer; its device_type is right from on_schema on.
/// - on_next_task comes at most as often as the consumer has asked by the producer's request, any
///   thread may call which, and with NULL at the end. Its metadata is the batch's.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |client: &dipc_client| {
        // SAFETY: the caller promises `uris` holds `n_uris` pointers, each NULL or a string.
        let uris = unsafe { try_strs(uris, n_uris) }?;
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        // SAFETY: the caller promises `options` is NULL or live.
        let options = unsafe { options_of(options) }?;
        let handler = NonNull::new(handler).ok_or_else(|| null_argument("handler"))?;
        // SAFETY: the caller promises that it is initialised.
        AsyncHandler::ensure_complete(unsafe { handler.as_ref() })?;
        client.inner.get_async(&uris, ticket, &options, |flow| {
            // SAFETY: the handler is complete, and the caller promises the rest.
            unsafe { AsyncHandler::take(handler, flow) }
        })
    };
    // SAFETY: the caller promises `client` is NULL or live.
    unsafe { guard_ref(client, error, body) }
}
