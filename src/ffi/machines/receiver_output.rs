//! The outputs of a receiver: the schema, batches, messages to send, and deadlines.

use std::ffi::c_void;

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::client::NextBatch;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::Polled;
use crate::ffi::handle::{boxed, try_out};
use crate::ffi::headers::dipc_headers;
use crate::ffi::machines::message::MessageOut;
use crate::ffi::machines::receiver::dipc_receiver;
use crate::ffi::server::{DIPC_ROLE_DATA, DIPC_ROLE_METADATA};
use crate::ffi::status::dipc_status;
use crate::proto::{ReceiverState, Side, Timestamp};

/// The server has not answered the request.
pub const DIPC_RECEIVER_REQUESTED: i32 = 1;
/// The server has accepted the request; the schema has not arrived.
pub const DIPC_RECEIVER_AWAITING_SCHEMA: i32 = 2;
/// The schema has arrived.
pub const DIPC_RECEIVER_STREAMING: i32 = 3;
/// Everything has arrived. Batches may still wait for dipc_receiver_next().
pub const DIPC_RECEIVER_ENDED: i32 = 4;
/// The stream has failed; dipc_receiver_next() gives the reason.
pub const DIPC_RECEIVER_FAILED: i32 = 5;
/// This side has cancelled the stream.
pub const DIPC_RECEIVER_CANCELLED: i32 = 6;

/// Gives the schema of the stream.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param out       Receives a schema, to be released by the caller.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: the schema has not arrived. DIPC_ERR_NULL_ARGUMENT. Otherwise the
///         status that ended the stream before its schema.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `out` is NULL or writable; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_schema(
    receiver: *mut dipc_receiver,
    out: *mut ArrowSchema,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        match receiver.inner.schema()? {
            Some(schema) => out.set(schema.into_raw()),
            None => return Ok(Polled::Nothing),
        }
        Ok(Polled::Done)
    })
}

/// Gives the headers of the server's answer: those that came with the schema, then those that came
/// with a failure.
///
/// @param receiver  Receiver.
/// @param out       Receives a copy of the headers, to be freed by dipc_headers_free().
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and not written to by another thread; `out` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_headers(
    receiver: *const dipc_receiver,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, out => |receiver| boxed(receiver.inner.answer_headers().clone()))
}

/// Takes the next batch, which lets the server send another.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param out       Receives the batch, to be released by the caller; a released batch at the end
///                  of the stream.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no whole batch has arrived. DIPC_ERR_NULL_ARGUMENT. Otherwise the
///         status that ended the stream, also in later calls.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `out` is NULL or writable; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_next(
    receiver: *mut dipc_receiver,
    out: *mut ArrowDeviceArray,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        match receiver.inner.next_batch()? {
            NextBatch::Batch(array) => out.set(array.into_raw()),
            NextBatch::End => out.set(ArrowDeviceArray::empty()),
            NextBatch::NotYet => return Ok(Polled::Nothing),
        }
        Ok(Polled::Done)
    })
}

/// Cancels the stream. The receiver tells the server, and gives lent memory back.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_cancel(
    receiver: *mut dipc_receiver,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        receiver.inner.cancel();
        Ok(())
    })
}

/// Takes the next message to send. Send its parts as one message, in order.
///
/// @param receiver        Receiver; exclusive during the call.
/// @param now_ns          Monotonic time, nanoseconds; never less than in an earlier call.
/// @param out_class       Receives DIPC_MESSAGE_*.
/// @param out_role        Receives the message's connection: DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
/// @param out_tag         Receives the tag of a tagged message, otherwise 0.
/// @param out_parts       Receives an array of pointers to the parts. Array and parts are valid
///                        until the next call of this function or dipc_receiver_free().
/// @param out_lens_bytes  Receives an array of the parts' lengths, valid for the same time.
/// @param out_n_parts     Receives the number of parts.
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no message waits. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; the others are NULL or writable; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_poll_transmit(
    receiver: *mut dipc_receiver,
    now_ns: u64,
    out_class: *mut i32,
    out_role: *mut i32,
    out_tag: *mut u64,
    out_parts: *mut *const *const c_void,
    out_lens_bytes: *mut *const usize,
    out_n_parts: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `out_role` is NULL or writable.
        let out_role = unsafe { try_out(out_role, "out_role") }?;
        // SAFETY: the caller promises that each is NULL or writable.
        let out =
            unsafe { MessageOut::new(out_class, out_tag, out_parts, out_lens_bytes, out_n_parts) }?;
        receiver.current.clear();
        let Some(message) = receiver.inner.poll_transmit(Timestamp::from_nanos(now_ns)) else {
            return Ok(Polled::Nothing);
        };
        out_role.set(match message.side {
            Side::Metadata => DIPC_ROLE_METADATA,
            Side::Data => DIPC_ROLE_DATA,
        });
        out.set(message, &mut receiver.current);
        Ok(Polled::Done)
    })
}

/// Gives the next body to expect, for transports that post receives in advance. Its header has
/// arrived. The body will come packed or as an address list, with exactly these lengths.
///
/// @param receiver          Receiver; exclusive during the call.
/// @param out_sequence      Receives the body's number, the low 32 bits of its tag.
/// @param out_packed_bytes  Receives the length if the body comes packed.
/// @param out_list_bytes    Receives the length if an address list comes.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no body is expected. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; the others are NULL or writable; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_poll_expected(
    receiver: *mut dipc_receiver,
    out_sequence: *mut u32,
    out_packed_bytes: *mut u64,
    out_list_bytes: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `out_sequence` is NULL or writable.
        let out_sequence = unsafe { try_out(out_sequence, "out_sequence") }?;
        // SAFETY: the caller promises `out_packed_bytes` is NULL or writable.
        let out_packed = unsafe { try_out(out_packed_bytes, "out_packed_bytes") }?;
        // SAFETY: the caller promises `out_list_bytes` is NULL or writable.
        let out_list = unsafe { try_out(out_list_bytes, "out_list_bytes") }?;
        let Some(expected) = receiver.inner.poll_expected() else {
            return Ok(Polled::Nothing);
        };
        out_sequence.set(expected.seq);
        out_packed.set(expected.packed);
        out_list.set(expected.list);
        Ok(Polled::Done)
    })
}

/// Gives the latest time for the next dipc_receiver_handle_timeout() and polls. A past time means
/// now. The time can become earlier when other threads release batches.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param out_ns    Receives the time, on the clock of now_ns.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no call is due. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `out_ns` is NULL or writable; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_poll_timeout(
    receiver: *mut dipc_receiver,
    out_ns: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `out_ns` is NULL or writable.
        let out = unsafe { try_out(out_ns, "out_ns") }?;
        match receiver.inner.poll_timeout() {
            Some(time) => out.set(time.as_nanos()),
            None => return Ok(Polled::Nothing),
        }
        Ok(Polled::Done)
    })
}

/// Gives the state of a receiver.
///
/// @param receiver  Receiver, or NULL.
/// @return DIPC_RECEIVER_*; DIPC_RECEIVER_FAILED for NULL and in the child of a fork.
///
/// # Safety
///
/// `receiver` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_state(receiver: *const dipc_receiver) -> i32 {
    export!(receiver or DIPC_RECEIVER_FAILED, |receiver| match receiver.inner.state() {
        ReceiverState::Requested => DIPC_RECEIVER_REQUESTED,
        ReceiverState::AwaitingSchema => DIPC_RECEIVER_AWAITING_SCHEMA,
        ReceiverState::Streaming => DIPC_RECEIVER_STREAMING,
        ReceiverState::Ended => DIPC_RECEIVER_ENDED,
        ReceiverState::Failed => DIPC_RECEIVER_FAILED,
        ReceiverState::Cancelled => DIPC_RECEIVER_CANCELLED,
    })
}

/// Counts the lent addresses that batches hold or that wait to be sent back. The receiver needs its
/// connection until the count is 0.
///
/// @param receiver  Receiver, or NULL.
/// @return Number of addresses; 0 for NULL.
///
/// # Safety
///
/// `receiver` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_lent_count(receiver: *const dipc_receiver) -> usize {
    export!(receiver or 0, |receiver| receiver.inner.lent_outstanding())
}
