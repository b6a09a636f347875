//! Receivers: streams of clients whose host carries the messages.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::bare::{BareReceiver, OpenMemory};
use crate::device::BufferRef;
use crate::error::Error;
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::foreign::{ForeignData, dipc_finalizer};
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed, null_argument, try_out};
use crate::ffi::machines::message::{PolledMessage, parse_side};
use crate::ffi::request_headers::verb_of;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{try_bytes, try_str};
use crate::proto::Timestamp;

/// The consuming side of one stream, for hosts that carry the messages themselves. It has no
/// transport, no clock and no threads. One thread at a time may use it; any thread may release
/// batches.
///
/// After dipc_receiver_start(), hand in each arriving message, and take batches by
/// dipc_receiver_next(). After each call send the messages of dipc_receiver_poll_transmit() until
/// it returns DIPC_NOTHING, then read the next deadline by dipc_receiver_poll_timeout().
pub struct dipc_receiver {
    state: HandleState,
    pub(super) inner: BareReceiver,
    pub(super) current: PolledMessage,
}

handle!(dipc_receiver, "receiver");

/// Makes a receiver for one stream.
///
/// @param uris              n_uris strings, read for their tags: the URI of the one connection, or
///                          the URIs of the metadata connection and the body connection.
/// @param n_uris            1 or 2.
/// @param verb              DIPC_VERB_GET, DIPC_VERB_DESCRIBE or DIPC_VERB_LIST. The answers to the
///                          last two are tables too: see dipc_description_to_stream().
/// @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
/// @param ticket_len_bytes  Length of ticket.
/// @param stream_id         16 bytes, different for each stream of the server, best random; NULL
///                          with one connection.
/// @param options           Copied; NULL: the defaults. Options for connecting have no effect.
/// @param out               Receives the receiver, to be freed by dipc_receiver_free().
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI. DIPC_ERR_UNSUPPORTED,
///         DIPC_ERR_INVALID_ARGUMENT: this machine lacks the options' device, the server at the URI
///         knows no verbs, verb is none of the three, or the ticket is too long.
///
/// # Safety
///
/// `uris` points to `n_uris` pointers, each NULL or a NUL-terminated string; `ticket` is readable
/// for `ticket_len_bytes`; `stream_id` is NULL or readable for 16 bytes; `options` is NULL or live;
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_new(
    uris: *const *const c_char,
    n_uris: usize,
    verb: i32,
    ticket: *const u8,
    ticket_len_bytes: usize,
    stream_id: *const u8,
    options: *const dipc_get_options,
    out: *mut *mut dipc_receiver,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        asked!(uris: n_uris, ticket: ticket_len_bytes, options);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let id = if stream_id.is_null() {
            0
        } else {
            // SAFETY: it is not NULL, so the caller promises 16 readable bytes; a byte array needs
            // no alignment.
            u128::from_le_bytes(unsafe { stream_id.cast::<[u8; 16]>().read() })
        };
        let inner = BareReceiver::for_uris(&uris, verb_of(verb)?, ticket, id, &options)?;
        out.set(boxed(dipc_receiver {
            state: HandleState::new(),
            inner,
            current: PolledMessage::default(),
        }));
        Ok(())
    })
}

/// Starts the stream: dipc_receiver_poll_transmit() then gives the request.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param now_ns    Monotonic time in nanoseconds; never less than in an earlier call.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_start(
    receiver: *mut dipc_receiver,
    now_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        receiver.inner.start(Timestamp::from_nanos(now_ns));
        Ok(())
    })
}

/// Hands in an untagged message of the metadata stream.
///
/// @param receiver   Receiver; exclusive during the call.
/// @param now_ns     Monotonic time in nanoseconds; never less than in an earlier call.
/// @param data       Message, read during the call only; may be NULL if len_bytes is 0.
/// @param len_bytes  Length of data.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise the status that ended the stream:
///         DIPC_ERR_PROTOCOL if the server broke the protocol, or the server's own status.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `data` is readable for `len_bytes`; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_handle_metadata(
    receiver: *mut dipc_receiver,
    now_ns: u64,
    data: *const u8,
    len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        receiver
            .inner
            .handle_metadata(Timestamp::from_nanos(now_ns), data)
    })
}

/// Hands in a tagged message: a body, which is copied, or an address list.
///
/// @param receiver   Receiver; exclusive during the call.
/// @param now_ns     Monotonic time in nanoseconds; never less than in an earlier call.
/// @param tag        The message's tag.
/// @param data       Message, read during the call only; may be NULL if len_bytes is 0.
/// @param len_bytes  Length of data.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise the status that ended the stream:
///         DIPC_ERR_PROTOCOL if the server broke the protocol, or the server's own status.
///         DIPC_ERR_OUT_OF_MEMORY.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `data` is readable for `len_bytes`; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_handle_tagged(
    receiver: *mut dipc_receiver,
    now_ns: u64,
    tag: u64,
    data: *const u8,
    len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        receiver
            .inner
            .handle_tagged(Timestamp::from_nanos(now_ns), tag, data)
    })
}

/// Hands in a control message.
///
/// @param receiver   Receiver; exclusive during the call.
/// @param now_ns     Monotonic time in nanoseconds; never less than in an earlier call.
/// @param role       Connection of the message: DIPC_ROLE_DATA for the second of two connections,
///                   otherwise DIPC_ROLE_METADATA.
/// @param data       Message, read during the call only; may be NULL if len_bytes is 0.
/// @param len_bytes  Length of data.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. Otherwise the status that ended the stream:
///         DIPC_ERR_PROTOCOL if the server broke the protocol, or the server's own status.
///         DIPC_ERR_INVALID_ARGUMENT: the role is unknown.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `data` is readable for `len_bytes`; `error` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_handle_control(
    receiver: *mut dipc_receiver,
    now_ns: u64,
    role: i32,
    data: *const u8,
    len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `data` is readable.
        let data = unsafe { try_bytes(data, len_bytes, "data") }?;
        let side = parse_side(role)?;
        receiver
            .inner
            .handle_control(Timestamp::from_nanos(now_ns), side, data)
    })
}

/// Reports that a connection has ended. Batches that have arrived can still be taken. After them
/// the stream fails, unless everything has arrived.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param role      Connection, as in dipc_receiver_handle_control().
/// @param text      Reason; UTF-8, copied.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the role is unknown.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `text` is NULL or a NUL-terminated string; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_handle_disconnect(
    receiver: *mut dipc_receiver,
    role: i32,
    text: *const c_char,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        // SAFETY: the caller promises `text` is NULL or a string.
        let text = unsafe { try_str(text, "text") }?;
        receiver
            .inner
            .handle_disconnect(parse_side(role)?, &Error::disconnected(text));
        Ok(())
    })
}

/// Reports that the time of dipc_receiver_poll_timeout() has come.
///
/// @param receiver  Receiver; exclusive during the call.
/// @param now_ns    Monotonic time in nanoseconds; never less than in an earlier call.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_handle_timeout(
    receiver: *mut dipc_receiver,
    now_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        receiver.inner.handle_timeout(Timestamp::from_nanos(now_ns));
        Ok(())
    })
}

/// Maps a range of the server's addresses to memory of this process, for lent bodies. An address
/// list may name addresses in such ranges only; any other address is a protocol error.
///
/// @param receiver   Receiver; exclusive during the call.
/// @param address    First address of the range in the server.
/// @param data       The same memory in this process.
/// @param len_bytes  Length of the memory.
/// @param userdata   Given to the finalizer; may be NULL.
/// @param finalizer  Called once, on any thread, when neither the receiver nor a batch needs the
///                   memory any more; may be NULL.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the library calls the finalizer. Otherwise it does not. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: a length or address of 0, or an overlap with an earlier
///         range.
///
/// # Safety
///
/// `receiver` is NULL, or live and exclusive; `data` is readable for `len_bytes` until the
/// finalizer is called, which may happen on any thread; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_add_memory(
    receiver: *mut dipc_receiver,
    address: u64,
    data: *const u8,
    len_bytes: usize,
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(receiver, error, |receiver| {
        if data.is_null() {
            return Err(null_argument("data"));
        }
        let owner = Arc::new(ForeignData::new(userdata, finalizer));
        let memory = BufferRef {
            data,
            len: len_bytes,
        };
        let named = OpenMemory {
            memory,
            owner: Arc::clone(&owner) as _,
        };
        // SAFETY: the caller promises memory that is readable until the finalizer is called, which
        // dropping the owner does.
        unsafe { receiver.inner.add_memory(address, named) }.inspect_err(|_| owner.relinquish())
    })
}

/// Frees a receiver. NULL does nothing. Its batches stay valid, but their addresses can no longer
/// be given back one by one: cut the connection after the last batch is released.
///
/// @param receiver  Receiver, or NULL; no call on it is running.
///
/// # Safety
///
/// `receiver` is NULL, or came from dipc_receiver_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_receiver_free(receiver: *mut dipc_receiver) {
    // SAFETY: the caller promises `receiver` is NULL, or live and unused.
    unsafe { guard_free(receiver) }
}
