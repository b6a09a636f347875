//! One connection of a server whose transport is the host's.

use std::ffi::{c_char, c_void};

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::bare::BareSender;
use crate::error::Error;
use crate::ffi::error::dipc_error;
use crate::ffi::guard::{ErrorOut, Progress, guard, guard_free, guard_mut};
use crate::ffi::handle::{HandleState, try_out};
use crate::ffi::loan::{Loan, try_schema};
use crate::ffi::message::{MessageOut, PolledMessage};
use crate::ffi::status::dipc_status;
use crate::ffi::text::{try_bytes, try_str};
use crate::proto::{Role, SenderConfig, Uri};

/// The producing side of one connection, for hosts that move messages themselves: no transport, no
/// clock, no threads. Hand in what arrives; answer a request by dipc_sender_start() or
/// dipc_sender_refuse(); send batches while dipc_sender_may_send(); end. After each call, send what
/// dipc_sender_poll_transmit() gives until it gives DIPC_NOTHING. One thread at a time.
pub struct dipc_sender {
    state: HandleState,
    pub(super) inner: BareSender,
    current: PolledMessage,
}

handle!(dipc_sender, "sender");

/// Bodies are sent as lists of the addresses that they have in this process, for clients that can
/// read its memory. Only where nothing else than memory of the host's is served.
pub const DIPC_BODY_LIST: i32 = 2;

/// Makes the sender of a fresh connection.
///
/// @param uri             The URI that clients of the connection were given, for its tags and role;
///                        NULL: the defaults, every role.
/// @param body            DIPC_BODY_PACKED or DIPC_BODY_LIST.
/// @param first_sequence  0; another number in tests of the wrap-around at 2^32.
/// @param out             Receives the sender, to be freed by dipc_sender_free().
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: also with DIPC_BODY_LIST and
///         no free_data. DIPC_ERR_INVALID_ARGUMENT: no such way for bodies.
///
/// # Safety
///
/// `uri` is NULL or a NUL-terminated string; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_new(
    uri: *const c_char,
    body: i32,
    first_sequence: u32,
    out: *mut *mut dipc_sender,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    guard(error, || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let mut config = SenderConfig::default();
        if !uri.is_null() {
            // SAFETY: the caller promises `uri` is NULL or a string.
            let uri = Uri::parse(unsafe { try_str(uri, "uri") }?)?;
            config = SenderConfig::only(uri.role.unwrap_or(Role::Both), uri.tags);
        }
        config.first_seq = first_sequence;
        let lend = match body {
            super::DIPC_BODY_PACKED => false,
            DIPC_BODY_LIST => true,
            _ => {
                let text = format!("body is {body}: DIPC_BODY_PACKED or DIPC_BODY_LIST");
                return Err(Error::invalid_argument(text));
            }
        };
        out.set_handle(dipc_sender {
            state: HandleState::new(),
            inner: BareSender::new(config, lend)?,
            current: PolledMessage::default(),
        });
        Ok(())
    })
}

/// Takes a tagged message of the client's: a request, or frees. Batches that come back are released
/// in this call.
///
/// @param sender     Sender; exclusive during the call.
/// @param tag        The message's tag.
/// @param data       Message; read during the call only; may be NULL when len_bytes is 0.
/// @param len_bytes  Length of data.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_PROTOCOL: the client is at fault; send what is
///         to be sent, and cut the connection.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `data` is readable for `len_bytes`; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_handle_tagged(
    sender: *mut dipc_sender,
    tag: u64,
    data: *const u8,
    len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        sender.inner.handle_tagged(tag, data)
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Takes a control message of the client's.
///
/// @param sender     Sender; exclusive during the call.
/// @param data       Message; read during the call only; may be NULL when len_bytes is 0.
/// @param len_bytes  Length of data.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_sender_handle_tagged().
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `data` is readable for `len_bytes`; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_handle_control(
    sender: *mut dipc_sender,
    data: *const u8,
    len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        sender.inner.handle_control(data)
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Says that the connection is over. Everything that was lent is released in this call: the client
/// must not be able to read it any more.
///
/// @param sender  Sender; exclusive during the call.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_handle_disconnect(
    sender: *mut dipc_sender,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        sender.current.clear();
        sender.inner.handle_disconnect();
        Ok(())
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Accepts the request and gives the schema.
///
/// @param sender       Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
/// @param schema       Read, not moved.
/// @param device_type  Where the batches lie, as ARROW_DEVICE_CPU.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: nothing is asked for.
///         DIPC_ERR_INVALID_DATA: a bad schema. DIPC_ERR_UNSUPPORTED: a device that cannot be read
///         here. DIPC_ERR_CANCELLED.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `schema` is NULL or a schema that follows Arrow's C
/// data interface; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_start(
    sender: *mut dipc_sender,
    schema: *const ArrowSchema,
    device_type: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        sender.inner.start(&schema, device_type)
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Refuses the request. A client that does not speak libdipc's extension is cut off instead.
///
/// @param sender  Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
/// @param code    A DIPC_ERR_*, or any number of the host's, which the client sees as
///                DIPC_ERR_PROVIDER.
/// @param text    UTF-8; copied.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: nothing is asked for.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `text` is NULL or a NUL-terminated string; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_refuse(
    sender: *mut dipc_sender,
    code: i32,
    text: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        sender.inner.refuse(code, text)
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Sends a batch, and the dictionaries that it needs.
///
/// @param sender              Sender, with a stream running; exclusive during the call.
/// @param batch               Moved on success: its release becomes NULL. It is released when its
///                            body was sent or, where it was lent, given back.
/// @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
/// @param metadata_len_bytes  Length of metadata.
/// @param error               May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_BUSY: the window is full; hand in control messages and try again.
///         DIPC_ERR_INVALID_ARGUMENT: no stream is running. DIPC_ERR_INVALID_DATA,
///         DIPC_ERR_UNSUPPORTED: a batch that cannot be sent; another one can be.
///         DIPC_ERR_CANCELLED.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `batch` is NULL or an array that follows Arrow's C
/// device data interface, used by nobody else; `metadata` is readable for `metadata_len_bytes`;
/// `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_send_batch(
    sender: *mut dipc_sender,
    batch: *mut ArrowDeviceArray,
    metadata: *const u8,
    metadata_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises `metadata` is readable.
        let metadata = unsafe { try_bytes(metadata, metadata_len_bytes, "metadata") }?;
        let metadata = (!metadata.is_empty()).then_some(metadata);
        // SAFETY: the caller promises `batch` is NULL, or initialised and used by nobody else.
        let (loan, array) = unsafe { Loan::new(batch) }?;
        sender
            .inner
            .send_batch(array, metadata)
            .map_err(|refused| refused.0)?;
        loan.accept();
        Ok(())
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Ends the stream well, once everything before has gone.
///
/// @param sender  Sender, with a stream running; exclusive during the call.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no stream is running.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_end(
    sender: *mut dipc_sender,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| sender.inner.end();
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Ends the stream with an error that the client is told.
///
/// @param sender  Sender, with a stream asked for or running; exclusive during the call.
/// @param code    As in dipc_sender_refuse().
/// @param text    UTF-8; copied.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: there is no stream.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; `text` is NULL or a NUL-terminated string; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_fail(
    sender: *mut dipc_sender,
    code: i32,
    text: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        sender.inner.fail(code, text)
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// The next message to send: its parts, one after the other.
///
/// @param sender          Sender; exclusive during the call.
/// @param out_class       Receives DIPC_MESSAGE_*.
/// @param out_tag         Receives the tag of a tagged message; 0 for others.
/// @param out_parts       Receives an array of pointers to the parts. It and they are valid until
///                        the next call of this function, dipc_sender_handle_disconnect() or
///                        dipc_sender_free().
/// @param out_lens_bytes  Receives an array of their lengths, valid as long.
/// @param out_n_parts     Receives the number of parts; an empty body has none.
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no message waits. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `sender` is NULL, or live and exclusive; the others are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_poll_transmit(
    sender: *mut dipc_sender,
    out_class: *mut i32,
    out_tag: *mut u64,
    out_parts: *mut *const *const c_void,
    out_lens_bytes: *mut *const usize,
    out_n_parts: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    // SAFETY: the caller promises `error` is NULL or writable.
    let error = unsafe { ErrorOut::from_raw(error) };
    let body = |sender: &mut dipc_sender| {
        // SAFETY: the caller promises that each is NULL or writable.
        let out =
            unsafe { MessageOut::new(out_class, out_tag, out_parts, out_lens_bytes, out_n_parts) }?;
        sender.current.clear();
        let Some(message) = sender.inner.poll_transmit() else {
            return Ok(Progress::Nothing);
        };
        out.set(message, &mut sender.current);
        Ok(Progress::Done)
    };
    // SAFETY: the caller promises `sender` is NULL, or live and exclusive.
    unsafe { guard_mut(sender, error, body) }
}

/// Frees a sender. NULL does nothing. Batches that were lent are released.
///
/// @param sender  Sender, or NULL; no call on it is running.
///
/// # Safety
///
/// `sender` is NULL, or came from dipc_sender_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_free(sender: *mut dipc_sender) {
    // SAFETY: the caller promises `sender` is NULL, or live and unused.
    unsafe { guard_free(sender) }
}
