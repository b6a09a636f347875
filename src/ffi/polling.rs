//! Streams in an event loop: a descriptor to sleep on, and calls that do not wait.

use std::ffi::c_int;
use std::os::fd::AsRawFd as _;

use crate::arrow::CStruct as _;
use crate::arrow::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream};
use crate::arrow::stream::{self, ArrayReader as _, CStream};
use crate::client::{NextBatch, Stream};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::Polled;
use crate::ffi::handle::{null_argument, try_out};
use crate::ffi::request::dipc_request;
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;
use crate::ffi::stream::fetched;

/// Gives a descriptor for poll(), epoll and event loops. It is readable when dipc_stream_try_next()
/// may find something: a batch, the end, a failure, a deadline that has passed, a triggered token.
/// It is readable at first, and stays readable after the end.
///
/// Call dipc_stream_try_next() until it returns DIPC_NOTHING, and only then sleep on the
/// descriptor. Many streams can stand in one epoll instance; none has a thread.
///
/// @param stream  Stream of dipc_client_get() or dipc_client_list(), not released. One thread at a
///                time uses it; none of its callbacks may be running.
/// @param out     Receives the descriptor. It is the stream's, whose release closes it; it is not
///                to be read or closed.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         not of dipc_client_get(). DIPC_ERR_UNSUPPORTED: the stream copies the arrays of another
///         stream. DIPC_ERR_OUT_OF_RESOURCES: no descriptors are left.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C device stream interface, and none of its callbacks runs
/// during the call; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_fd(
    stream: *const ArrowDeviceArrayStream,
    out: *mut c_int,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or follows its interface, with no callback
        // running, and `out` is NULL or writable.
        unsafe { descriptor(stream, out) }
    })
}

/// get_next without a wait: gives the next batch if it is there.
///
/// @param stream  Stream of dipc_client_get() or dipc_client_list(), not released. One thread at a
///                time uses it; none of its callbacks may be running.
/// @param out     Receives the batch; at the end an array whose release is NULL.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: nothing has come yet; dipc_stream_fd() tells when to call again.
///         DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or not of
///         dipc_client_get(). DIPC_ERR_UNSUPPORTED: the stream copies the arrays of another stream.
///         Otherwise the stream's status, as from dipc_stream_status().
///
/// # Safety
///
/// As dipc_stream_fd().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_try_next(
    stream: *const ArrowDeviceArrayStream,
    out: *mut ArrowDeviceArray,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or follows its interface, with no callback
        // running, and `out` is NULL or writable.
        unsafe { try_next(stream, out) }
    })
}

/// dipc_stream_fd() for a host stream.
///
/// @param stream  Stream of dipc_stream_to_host() that was made of a stream of dipc_client_get()
///                with arrays on the host, not released. One thread at a time uses it; none of its
///                callbacks may be running.
/// @param out     As for dipc_stream_fd().
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_stream_fd().
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C stream interface, and none of its callbacks runs during
/// the call; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_host_stream_fd(
    stream: *const ArrowArrayStream,
    out: *mut c_int,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or follows its interface, with no callback
        // running, and `out` is NULL or writable.
        unsafe { descriptor(stream, out) }
    })
}

/// dipc_stream_try_next() for a host stream.
///
/// @param stream  As for dipc_host_stream_fd().
/// @param out     Receives the batch; at the end an array whose release is NULL.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_stream_try_next().
///
/// # Safety
///
/// As dipc_host_stream_fd().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_host_stream_try_next(
    stream: *const ArrowArrayStream,
    out: *mut ArrowArray,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or follows its interface, with no callback
        // running, and `out` is NULL or writable.
        unsafe { try_next(stream, out) }
    })
}

/// Gives a descriptor for the event loop of a host that serves in the pull form. It is readable
/// while a request waits, and once the server was stopped: call dipc_server_next_request() with
/// timeout_ns 0 then.
///
/// @param server  Server.
/// @param out     Receives the descriptor. It is the server's, which closes it; it is not to be
///                read or closed.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `server` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_request_fd(
    server: *const dipc_server,
    out: *mut c_int,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, out => |server| server.inner.request_fd().as_raw_fd())
}

/// Gives a descriptor for the event loop of a host that pushes batches: the pull form without a
/// thread for each stream. Call dipc_request_push() and dipc_request_finish() with timeout_ns 0. If
/// a call returns DIPC_ERR_TIMEOUT, the descriptor becomes readable when it is useful to call
/// again: the client has taken batches, has gone, or has cancelled. It is readable at first, and
/// stays readable after the end.
///
/// @param request  Request of dipc_server_next_request().
/// @param out      Receives the descriptor. It is the request's, which closes it; it is not to be
///                 read or closed.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a provider's request.
///         DIPC_ERR_OUT_OF_RESOURCES: no descriptors are left.
///
/// # Safety
///
/// `request` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_fd(
    request: *const dipc_request,
    out: *mut c_int,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, out => |request| request.get().fd()?)
}

/// # Safety
///
/// `stream` is NULL or follows its C stream interface, and nobody uses it during the call; `out` is
/// NULL or writable.
unsafe fn descriptor<S: CStream>(stream: *const S, out: *mut c_int) -> Result<()> {
    // SAFETY: the caller promises `stream` is NULL or initialised.
    let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
    // SAFETY: the caller promises `out` is NULL or writable.
    let out = unsafe { try_out(out, "out") }?;
    // SAFETY: the caller promises a stream that follows its interface and that nobody uses.
    let fetched = unsafe { pollable(stream) }?;
    out.set(fetched.fd()?.as_raw_fd());
    Ok(())
}

/// # Safety
///
/// As [`descriptor`].
unsafe fn try_next<S: CStream>(stream: *const S, out: *mut S::Array) -> Result<Polled> {
    // SAFETY: the caller promises `stream` is NULL or initialised.
    let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
    // SAFETY: the caller promises `out` is NULL or writable.
    let out = unsafe { try_out(out, "out") }?;
    // SAFETY: the caller promises a stream that follows its interface and that nobody uses.
    let fetched = unsafe { pollable(stream) }?;
    let next = fetched.try_next().and_then(|next| {
        Ok(match next {
            NextBatch::Batch(array) => Some(S::array(array)?),
            NextBatch::End => Some(S::Array::EMPTY),
            NextBatch::NotYet => None,
        })
    });
    let end = match &next {
        Err(error) => Some(Err(error.clone())),
        Ok(Some(array)) if array.is_released() => Some(Ok(())),
        Ok(_) => None,
    };
    if let Some(end) = end {
        // SAFETY: the caller promises a stream that follows its interface and that nobody uses; the
        // reader is in use no more.
        unsafe { stream::note_end(stream, end) }?;
    }
    let Some(array) = next? else {
        return Ok(Polled::Nothing);
    };
    out.set(array);
    Ok(Polled::Done)
}

/// A client's stream whose arrays come as they are.
///
/// # Safety
///
/// As [`fetched`].
unsafe fn pollable<'a, S: CStream>(stream: &S) -> Result<&'a mut Stream> {
    // SAFETY: the caller promises a stream that follows its interface, and that none of its
    // callbacks runs while the result is in use.
    let reader = unsafe { stream::reader(stream) }?;
    let (place, device_type) = (std::ptr::from_ref(reader), reader.device_type());
    // SAFETY: the caller promises a stream that follows its interface, and that none of its
    // callbacks runs while the result is in use; the first reader is in use no more.
    let fetched = unsafe { fetched(stream) }?;
    // A reader that copies between GPUs has the device type of its source.
    let is_itself = std::ptr::addr_eq(place, std::ptr::from_ref(fetched));
    let is_on_host = [device_type, fetched.device_type()] == [DeviceKind::CPU.0; 2];
    if !is_itself && !is_on_host {
        return Err(Error::unsupported(
            "the stream copies the arrays of another one: poll that one instead",
        ));
    }
    Ok(fetched)
}
