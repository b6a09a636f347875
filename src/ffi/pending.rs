//! Requests for event loops: a descriptor in place of a call that waits.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd as _;

use crate::arrow::abi::ArrowDeviceArrayStream;
use crate::arrow::stream::export_device_stream;
use crate::client::{Answer, Pending};
use crate::ffi::cancel::dipc_cancel;
use crate::ffi::client::dipc_client;
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::description::{dipc_description, give};
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::{Polled, guard_free};
use crate::ffi::handle::{HandleState, boxed, try_out};
use crate::ffi::put::dipc_put;
use crate::ffi::request_headers::verb_of;
use crate::ffi::status::dipc_status;

/// A request that threads of the client make, begun by dipc_client_start(),
/// dipc_client_start_put() or dipc_client_start_exchange(). Outlives the client.
pub struct dipc_pending {
    state: HandleState,
    inner: Pending,
}

handle!(dipc_pending, "pending", Pending);

/// dipc_client_get(), dipc_client_list() or dipc_client_describe() without waiting, for event
/// loops. If streams share an open connection to the server, this call sends the request on it.
/// Otherwise, and for a description, a thread of the client connects. This one thread waits for the
/// answers of all servers, and a silent server delays no other request.
///
/// @param client                Client.
/// @param verb                  DIPC_VERB_GET, DIPC_VERB_LIST or DIPC_VERB_DESCRIBE.
/// @param uris                  As for dipc_client_get().
/// @param n_uris                1 or 2.
/// @param descriptor            Ticket, prefix or descriptor, as for the call that waits.
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Copied; NULL: the defaults.
/// @param cancel                Token that ends the request, and the calls of what it gives; may be
///                              NULL. It may be freed before the request.
/// @param out                   Receives the request, to be freed by dipc_pending_free().
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the request gets every later failure. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: the verb is another one, or the GPU
///         does not exist. DIPC_ERR_UNSUPPORTED: this machine lacks the device.
///         DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are left.
///
/// # Safety
///
/// As dipc_client_get(); `descriptor` is readable for `descriptor_len_bytes`; `out` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_start(
    client: *const dipc_client,
    verb: i32,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *const dipc_get_options,
    cancel: *const dipc_cancel,
    out: *mut *mut dipc_pending,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options; cancel);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let verb = verb_of(verb)?;
        let pending = client
            .inner
            .start(verb, &uris, descriptor, &options, cancel)?;
        out.set(boxed(pending));
        Ok(())
    })
}

/// Gives a descriptor for poll(), epoll and event loops. It becomes readable when the answer has
/// come, and stays readable. If the request is made again, because the server is busy or drains,
/// the descriptor may also be readable for a moment before.
///
/// @param pending  Request.
/// @param out      Receives the descriptor. It is the request's, which closes it; it is not to be
///                 read or closed.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no descriptors are left.
///
/// # Safety
///
/// `pending` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_pending_fd(
    pending: *const dipc_pending,
    out: *mut c_int,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(pending, error, out => |pending| pending.inner.fd()?.as_raw_fd())
}

/// Gives the stream of DIPC_VERB_GET or DIPC_VERB_LIST, if it is there. Then the request is done.
///
/// @param pending  Request.
/// @param out      Receives the stream, once. An old value is overwritten, not released.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream was given before, or the
///         verb is another one. Otherwise as dipc_client_get(), at every call.
///
/// # Safety
///
/// `pending` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_pending_try_stream(
    pending: *const dipc_pending,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(pending, error, |pending| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let is_stream = |answer: &Answer| matches!(answer, Answer::Stream(_));
        if let Some(Answer::Stream(stream)) = pending.inner.try_answer(is_stream)? {
            out.set(export_device_stream(stream).into_raw());
            return Ok(Polled::Done);
        }
        Ok(Polled::Nothing)
    })
}

/// Gives the answer to DIPC_VERB_DESCRIBE, if it is there. Then the request is done.
///
/// @param pending  Request.
/// @param out      Receives the description, once, to be freed by dipc_description_free().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the description was given before, or
///         the verb is another one. Otherwise as dipc_client_describe(), at every call.
///
/// # Safety
///
/// `pending` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_pending_try_description(
    pending: *const dipc_pending,
    out: *mut *mut dipc_description,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(pending, error, |pending| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let is_description = |answer: &Answer| matches!(answer, Answer::Description(..));
        let answer = pending.inner.try_answer(is_description)?;
        if let Some(Answer::Description(description, headers)) = answer {
            give(out, description, headers);
            return Ok(Polled::Done);
        }
        Ok(Polled::Nothing)
    })
}

/// Gives the put of dipc_client_start_put(), if the server has accepted. Then the request is done.
///
/// @param pending  Request.
/// @param out      Receives the put, once, to be freed by dipc_put_free().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the put was given before, or the
///         request is another one. Otherwise as dipc_client_put_open(), at every call.
///
/// # Safety
///
/// `pending` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_pending_try_put(
    pending: *const dipc_pending,
    out: *mut *mut dipc_put,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(pending, error, |pending| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let is_put = |answer: &Answer| matches!(answer, Answer::Put(_, None));
        if let Some(Answer::Put(put, _)) = pending.inner.try_answer(is_put)? {
            out.set(boxed(dipc_put::new(*put)));
            return Ok(Polled::Done);
        }
        Ok(Polled::Nothing)
    })
}

/// Gives the two tables of dipc_client_start_exchange(), if the server has accepted. Then the
/// request is done.
///
/// @param pending  Request.
/// @param out      Receives the put, which sends this side's table, once; to be freed by
///                 dipc_put_free().
/// @param answers  Receives the stream of the server's table, once. An old value is overwritten,
///                 not released.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: the server has not answered yet; dipc_pending_fd() tells when.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the tables were given before, or the
///         request is another one. Otherwise as dipc_client_exchange(), at every call.
///
/// # Safety
///
/// `pending` is NULL or live; `out`, `answers` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_pending_try_exchange(
    pending: *const dipc_pending,
    out: *mut *mut dipc_put,
    answers: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(pending, error, |pending| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises `answers` is NULL or writable.
        let answers = unsafe { try_out(answers, "answers") }?;
        let is_exchange = |answer: &Answer| matches!(answer, Answer::Put(_, Some(_)));
        if let Some(Answer::Put(put, Some(stream))) = pending.inner.try_answer(is_exchange)? {
            out.set(boxed(dipc_put::new(*put)));
            answers.set(export_device_stream(stream).into_raw());
            return Ok(Polled::Done);
        }
        Ok(Polled::Nothing)
    })
}

/// Frees a request. NULL does nothing. A request that was not answered ends. Streams and other
/// results that the request gave stay valid.
///
/// @param pending  Request, or NULL; no call on it is running.
///
/// # Safety
///
/// `pending` is NULL, or came from dipc_client_start*() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_pending_free(pending: *mut dipc_pending) {
    // SAFETY: the caller promises `pending` is NULL, or live and unused.
    unsafe { guard_free(pending) }
}
