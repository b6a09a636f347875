//! What a receiver gives: the schema, batches, messages for the transport, and times.

use std::ffi::c_void;

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::bare::NextBatch;
use crate::ffi::error::dipc_error;
use crate::ffi::guard::{ErrorOut, Progress, guard_mut, guard_value};
use crate::ffi::handle::{try_out, try_ref};
use crate::ffi::message::MessageOut;
use crate::ffi::receiver::dipc_receiver;
use crate::ffi::server::{DIPC_ROLE_DATA, DIPC_ROLE_METADATA};
use crate::ffi::status::dipc_status;
use crate::proto::{ReceiverState, Side, Timestamp};

/// Asked, and not answered.
pub const DIPC_RECEIVER_REQUESTED: i32 = 1;
/// Accepted; the schema has not come.
pub const DIPC_RECEIVER_AWAITING_SCHEMA: i32 = 2;
/// The schema has come.
pub const DIPC_RECEIVER_STREAMING: i32 = 3;
/// Everything has arrived; batches may wait to be taken.
pub const DIPC_RECEIVER_ENDED: i32 = 4;
/// It failed: dipc_receiver_next() says why.
pub const DIPC_RECEIVER_FAILED: i32 = 5;
/// This side cancelled it.
pub const DIPC_RECEIVER_CANCELLED: i32 = 6;

/// The schema of the stream.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param out       Receives a schema of its own, to be released.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: it has not come. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended the
///         stream before it came.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |receiver: &mut dipc_receiver| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        match receiver.inner.schema()? {
            Some(schema) => out.set(schema.into_raw()),
            None => return Ok(Progress::Nothing),
        }
        Ok(Progress::Done)
    };
    // SAFETY: the caller promises `receiver` is NULL, or live and exclusive.
    unsafe { guard_mut(receiver, error, body) }
}

/// The next batch. Taking it is what gives the server room for another.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param out       Receives the batch, to be released; a released one at the end of the stream.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: more has to arrive. DIPC_ERR_NULL_ARGUMENT. Otherwise what ended
///         the stream; later calls say the same.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |receiver: &mut dipc_receiver| {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        match receiver.inner.next_batch()? {
            NextBatch::Batch(array) => out.set(array.into_raw()),
            NextBatch::End => out.set(ArrowDeviceArray::empty()),
            NextBatch::NotYet => return Ok(Progress::Nothing),
        }
        Ok(Progress::Done)
    };
    // SAFETY: the caller promises `receiver` is NULL, or live and exclusive.
    unsafe { guard_mut(receiver, error, body) }
}

/// Ends the stream early. The server is told; what is lent goes back.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |receiver: &mut dipc_receiver| {
        receiver.inner.cancel();
        Ok(())
    };
    // SAFETY: the caller promises `receiver` is NULL, or live and exclusive.
    unsafe { guard_mut(receiver, error, body) }
}

/// The next message to send: its parts, one after the other.
///
/// @param receiver        Receiver; exclusive during the call.
/// @param now_ns          Monotonic time, nanoseconds; never less than in an earlier call.
/// @param out_class       Receives DIPC_MESSAGE_*.
/// @param out_role        Receives the connection: DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
/// @param out_tag         Receives the tag of a tagged message; 0 for others.
/// @param out_parts       Receives an array of pointers to the parts. It and they are valid until
///                        the next call of this function or dipc_receiver_free().
/// @param out_lens_bytes  Receives an array of their lengths, valid as long.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |receiver: &mut dipc_receiver| {
        // SAFETY: the caller promises `out_role` is NULL or writable.
        let out_role = unsafe { try_out(out_role, "out_role") }?;
        // SAFETY: the caller promises that each is NULL or writable.
        let out =
            unsafe { MessageOut::new(out_class, out_tag, out_parts, out_lens_bytes, out_n_parts) }?;
        receiver.current.clear();
        let Some(message) = receiver.inner.poll_transmit(Timestamp::from_nanos(now_ns)) else {
            return Ok(Progress::Nothing);
        };
        out_role.set(match message.side {
            Side::Metadata => DIPC_ROLE_METADATA,
            Side::Data => DIPC_ROLE_DATA,
        });
        out.set(message, &mut receiver.current);
        Ok(Progress::Done)
    };
    // SAFETY: the caller promises `receiver` is NULL, or live and exclusive.
    unsafe { guard_mut(receiver, error, body) }
}

/// The next body whose header has come and which has not come itself, for transports where receives
/// are posted ahead: it comes packed, or as an address list, with exactly these lengths.
///
/// @param receiver          Receiver; exclusive during the call.
/// @param out_sequence      Receives its number, the low 32 bits of its tag.
/// @param out_packed_bytes  Receives the length of a packed body.
/// @param out_list_bytes    Receives the length of an address list.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: there is none. DIPC_ERR_NULL_ARGUMENT.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |receiver: &mut dipc_receiver| {
        // SAFETY: the caller promises `out_sequence` is NULL or writable.
        let out_sequence = unsafe { try_out(out_sequence, "out_sequence") }?;
        // SAFETY: the same of `out_packed_bytes`.
        let out_packed = unsafe { try_out(out_packed_bytes, "out_packed_bytes") }?;
        // SAFETY: the same of `out_list_bytes`.
        let out_list = unsafe { try_out(out_list_bytes, "out_list_bytes") }?;
        let Some((sequence, packed, list)) = receiver.inner.poll_expected() else {
            return Ok(Progress::Nothing);
        };
        out_sequence.set(sequence);
        out_packed.set(packed);
        out_list.set(list);
        Ok(Progress::Done)
    };
    // SAFETY: the caller promises `receiver` is NULL, or live and exclusive.
    unsafe { guard_mut(receiver, error, body) }
}

/// When to call dipc_receiver_handle_timeout() and to poll again, at the latest. A time that has
/// passed means now. Batches that other threads release can make it earlier.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param out_ns    Receives the time, on the clock of now_ns.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: there is no such time. DIPC_ERR_NULL_ARGUMENT.
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
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |receiver: &mut dipc_receiver| {
        // SAFETY: the caller promises `out_ns` is NULL or writable.
        let out = unsafe { try_out(out_ns, "out_ns") }?;
        match receiver.inner.poll_timeout() {
            Some(time) => out.set(time.as_nanos()),
            None => return Ok(Progress::Nothing),
        }
        Ok(Progress::Done)
    };
    // SAFETY: the caller promises `receiver` is NULL, or live and exclusive.
    unsafe { guard_mut(receiver, error, body) }
}

/// Where a receiver stands.
///
/// @param receiver  Receiver, or NULL.
/// @return DIPC_RECEIVER_*; DIPC_RECEIVER_FAILED for NULL and in the child of a fork.
///
/// # Safety
///
/// `receiver` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_state(receiver: *const dipc_receiver) -> i32 {
    guard_value(DIPC_RECEIVER_FAILED, || {
        // SAFETY: the caller promises `receiver` is NULL, or live and not written to.
        unsafe { try_ref(receiver) }.map_or(DIPC_RECEIVER_FAILED, |receiver| {
            match receiver.inner.state() {
                ReceiverState::Requested => DIPC_RECEIVER_REQUESTED,
                ReceiverState::AwaitingSchema => DIPC_RECEIVER_AWAITING_SCHEMA,
                ReceiverState::Streaming => DIPC_RECEIVER_STREAMING,
                ReceiverState::Ended => DIPC_RECEIVER_ENDED,
                ReceiverState::Failed => DIPC_RECEIVER_FAILED,
                ReceiverState::Cancelled => DIPC_RECEIVER_CANCELLED,
            }
        })
    })
}

/// How many addresses batches hold, or wait to be sent back. While there are some the connection is
/// needed.
///
/// @param receiver  Receiver, or NULL.
/// @return Their number; 0 for NULL.
///
/// # Safety
///
/// `receiver` is NULL, or live and not written to by another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_lent_count(receiver: *const dipc_receiver) -> usize {
    guard_value(0, || {
        // SAFETY: the caller promises `receiver` is NULL, or live and not written to.
        unsafe { try_ref(receiver) }.map_or(0, |receiver| receiver.inner.lent_outstanding())
    })
}
