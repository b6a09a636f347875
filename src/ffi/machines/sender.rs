//! Senders: connections of servers whose host carries the messages.

use std::ffi::{c_char, c_void};

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::bare::BareSender;
use crate::error::Error;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::{Polled, guard_free};
use crate::ffi::handle::{HandleState, boxed, try_out};
use crate::ffi::loan::{Loan, try_schema};
use crate::ffi::machines::message::{MessageOut, PolledMessage};
use crate::ffi::server_options::DIPC_BODY_PACKED;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{try_bytes, try_str};
use crate::proto::{Role, SenderConfig, Uri};

/// The producing side of one connection, for hosts that carry the messages themselves. It has no
/// transport, no clock and no threads. One thread at a time may use it.
///
/// Hand in each arriving message. When a request has come, read dipc_sender_verb(), and answer by
/// dipc_sender_start() or dipc_sender_refuse(). Send batches while dipc_sender_may_send() is true,
/// then call dipc_sender_end(). After each call send the messages of dipc_sender_poll_transmit()
/// until it returns DIPC_NOTHING.
pub struct dipc_sender {
    state: HandleState,
    pub(super) inner: BareSender,
    current: PolledMessage,
}

handle!(dipc_sender, "sender");

/// Bodies are sent as lists of their addresses in this process, for clients that can read its
/// memory. Only for arrays in host memory, and only for dipc_sender_new().
pub const DIPC_BODY_LIST: i32 = 3;

/// Makes the sender of a new connection.
///
/// @param uri    The URI that the clients have, read for its tags and role; NULL: the
///               default tags, every role.
/// @param body   DIPC_BODY_PACKED or DIPC_BODY_LIST.
/// @param out    Receives the sender, to be freed by dipc_sender_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: a malformed URI, or
///         DIPC_BODY_LIST with a URI without free_data. DIPC_ERR_INVALID_ARGUMENT: body is neither
///         of the two.
///
/// # Safety
///
/// `uri` is NULL or a NUL-terminated string; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_sender_new(
    uri: *const c_char,
    body: i32,
    out: *mut *mut dipc_sender,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let mut config = SenderConfig::default();
        if !uri.is_null() {
            // SAFETY: the caller promises `uri` is NULL or a string.
            let uri = Uri::parse(unsafe { try_str(uri, "uri") }?)?;
            config = SenderConfig::only(uri.role.unwrap_or(Role::Both), uri.tags);
        }
        let lend = match body {
            DIPC_BODY_PACKED => false,
            DIPC_BODY_LIST => true,
            _ => {
                let text = format!("body is {body}: DIPC_BODY_PACKED or DIPC_BODY_LIST");
                return Err(Error::invalid_argument(text));
            }
        };
        out.set(boxed(dipc_sender {
            state: HandleState::new(),
            inner: BareSender::new(config, lend)?,
            current: PolledMessage::default(),
        }));
        Ok(())
    })
}

/// Hands in a tagged message of the client: a request, or a free_data list. This call releases the
/// batches that the client gives back.
///
/// @param sender     Sender; exclusive during the call.
/// @param tag        The message's tag.
/// @param data       Message; read during the call only; may be NULL when len_bytes is 0.
/// @param len_bytes  Length of data.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_PROTOCOL: the client broke the protocol; send
///         the messages that wait, and cut the connection.
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
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        sender.inner.handle_tagged(tag, data)
    })
}

/// Hands in a control message of the client.
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
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        sender.inner.handle_control(data)
    })
}

/// Reports that the connection has ended. This call releases everything that was lent: the client
/// must no longer be able to read it.
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
    export!(sender, error, |sender| {
        sender.current.clear();
        sender.inner.handle_disconnect();
        Ok(())
    })
}

/// Accepts the request, and sends the schema.
///
/// @param sender       Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
/// @param schema       Read, not moved.
/// @param device_type  Where the batches lie, for example ARROW_DEVICE_CPU.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no request waits.
///         DIPC_ERR_INVALID_DATA: the schema is invalid. DIPC_ERR_UNSUPPORTED: this process cannot
///         read the device. DIPC_ERR_CANCELLED.
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
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        sender.inner.start(&schema, device_type)
    })
}

/// Refuses the request. A client without libdipc's extension is disconnected instead.
///
/// @param sender  Sender, in state DIPC_SENDER_REQUESTED; exclusive during the call.
/// @param code    A DIPC_ERR_*. Any other number becomes DIPC_ERR_PROVIDER for the client.
/// @param text    UTF-8; copied.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no request waits.
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
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        sender.inner.refuse(code, text)
    })
}

/// Sends a batch, and the dictionaries that it needs.
///
/// @param sender              Sender, with a stream running; exclusive during the call.
/// @param batch               Moved on success: its release becomes NULL. It is released after its
///                            body was sent or, if it was lent, given back.
/// @param metadata            Custom metadata of the batch, encoded as in ArrowSchema; NULL: none.
/// @param metadata_len_bytes  Length of metadata.
/// @param error               May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns the batch. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_BUSY: the window is full; hand in control messages and try again.
///         DIPC_ERR_INVALID_ARGUMENT: no stream is running. DIPC_ERR_INVALID_DATA,
///         DIPC_ERR_UNSUPPORTED: this batch cannot be sent; the stream goes on. DIPC_ERR_CANCELLED.
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
    export!(sender, error, |sender| {
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
    })
}

/// Completes the stream, after all messages that still wait to be sent.
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
    export!(sender, error, |sender| sender.inner.end())
}

/// Ends the stream with an error, which is sent to the client.
///
/// @param sender  Sender, with a request or a running stream; exclusive during the call.
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
    export!(sender, error, |sender| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        sender.inner.fail(code, text)
    })
}

/// Takes the next message to send. Send its parts as one message, in order.
///
/// @param sender          Sender; exclusive during the call.
/// @param out_class       Receives DIPC_MESSAGE_*.
/// @param out_tag         Receives the tag of a tagged message, otherwise 0.
/// @param out_parts       Receives an array of pointers to the parts. Array and parts are valid
///                        until the next call of this function, dipc_sender_handle_disconnect() or
///                        dipc_sender_free().
/// @param out_lens_bytes  Receives an array of the parts' lengths, valid for the same time.
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
    export!(sender, error, |sender| {
        // SAFETY: the caller promises that each is NULL or writable.
        let out =
            unsafe { MessageOut::new(out_class, out_tag, out_parts, out_lens_bytes, out_n_parts) }?;
        sender.current.clear();
        let Some(message) = sender.inner.poll_transmit() else {
            return Ok(Polled::Nothing);
        };
        out.set(message, &mut sender.current);
        Ok(Polled::Done)
    })
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
