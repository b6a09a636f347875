//! Clients.

use std::ffi::c_char;

use crate::arrow::abi::ArrowDeviceArrayStream;
use crate::arrow::stream::export_device_stream;
use crate::client::{Client, ClientOptions};
use crate::ffi::arguments::unknown_stat;
use crate::ffi::cancel::dipc_cancel;
use crate::ffi::client_options::{dipc_client_options, dipc_get_options};
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed, try_option, try_out};
use crate::ffi::status::dipc_status;

/// Fetches tables from servers, and keeps idle connections for later streams. Made by
/// dipc_client_new(). Several threads may call a client at once.
pub struct dipc_client {
    state: HandleState,
    pub(super) inner: Client,
}

handle!(dipc_client, "client", Client);

/// Streams asked for since the start.
pub const DIPC_CLIENT_STAT_STREAMS: i32 = 1;
/// Connections made since the start.
pub const DIPC_CLIENT_STAT_CONNECTIONS_MADE: i32 = 2;
/// Idle connections, kept for later streams.
pub const DIPC_CLIENT_STAT_CONNECTIONS_IDLE: i32 = 3;

/// Makes a client. Starts one thread, which ends after the client's last connection.
///
/// @param options  Copied; NULL: the defaults.
/// @param out      Receives the client, to be freed by dipc_client_free().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors
///         are left.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_client_options_new() and was not freed; `out` and `error`
/// are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_new(
    options: *const dipc_client_options,
    out: *mut *mut dipc_client,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `options` is NULL or live.
        let options = unsafe { try_option(options) }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let options = options.map_or_else(ClientOptions::default, |given| given.inner.clone());
        out.set(boxed(Client::new(options)?));
        Ok(())
    })
}

/// Asks a server for a ticket's table, and waits for its schema. Releasing the stream before its
/// end cancels it. Any thread may use and release the stream and its arrays, which outlive the
/// client. The thread that calls get_next also reads the connection.
///
/// The stream's callbacks report later failures as an errno and by get_last_error().
/// dipc_stream_status() reports them in full.
///
/// @param client            Client.
/// @param uris              n_uris strings: one URI for metadata and bodies, or one for metadata
///                          and one for bodies.
/// @param n_uris            1 or 2.
/// @param ticket            Name of the table: any bytes, at most 1016 KiB.
/// @param ticket_len_bytes  Length of ticket.
/// @param options           Copied; NULL: the defaults.
/// @param cancel            Token that ends this call and the stream's calls; may be NULL. It may
///                          be freed before the stream.
/// @param out               Receives the stream. An old value is overwritten, not released.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_URI: a malformed URI, or n_uris is
///         neither 1 nor 2. DIPC_ERR_INVALID_ARGUMENT: the ticket is too long, alone or with the
///         options' headers. DIPC_ERR_UNSUPPORTED: this machine lacks the transport or the device,
///         or the server does not know headers.
///         DIPC_ERR_UNREACHABLE: no server listens at the URI. DIPC_ERR_PERMISSION: another user
///         runs the server. DIPC_ERR_NOT_FOUND: the server has no such ticket. DIPC_ERR_BUSY.
///         DIPC_ERR_TIMEOUT. DIPC_ERR_CANCELLED. DIPC_ERR_PROVIDER, or the provider's own status.
///
/// # Safety
///
/// `client`, `options` and `cancel` are NULL or live; `uris` points to `n_uris` pointers, each NULL
/// or a NUL-terminated string; `ticket` is readable for `ticket_len_bytes`; `out` and `error` are
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_get(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    ticket: *const u8,
    ticket_len_bytes: usize,
    options: *const dipc_get_options,
    cancel: *const dipc_cancel,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, ticket: ticket_len_bytes, options; cancel);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let stream = client.inner.get(&uris, ticket, &options, cancel)?;
        out.set(export_device_stream(Box::new(stream)).into_raw());
        Ok(())
    })
}

/// Gets a table that lies in parts, on one server or several: asks what the ticket stands for, then
/// gets its endpoints, several at once. This needs no threads: the server of each part sends on its
/// own, up to the window of the options. The batches come in any order, unless the description says
/// that the order matters (dipc_description_set_ordered()). If an endpoint has several URIs, the
/// client uses the first one that it can reach. A ticket without endpoints is one part.
///
/// The client gets further parts as the stream is read, also after dipc_client_free(). get_next
/// waits while it connects for the next part.
///
/// Servers that the description names do not get the header `authorization`, unless
/// dipc_get_options_set_send_secrets() allows it, and are not asked over ucx, unless
/// dipc_get_options_set_trusted_network() does.
///
/// @param client            Client.
/// @param uris              As for dipc_client_get(): the server that describes the ticket.
/// @param n_uris            1 or 2.
/// @param ticket            Any bytes, at most 1016 KiB.
/// @param ticket_len_bytes  Length of ticket.
/// @param options           Apply to each part; so each part has a window of this size. Copied;
///                          NULL: the defaults.
/// @param cancel            Token that ends this call and the stream's calls; may be NULL. It may
///                          be freed before the stream.
/// @param out               Receives the stream. Use it by its callbacks: dipc_stream_stat() and
///                          similar functions need a stream of dipc_client_get(). An old value is
///                          overwritten, not released.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_describe() and dipc_client_get(); the text names the part.
///         DIPC_ERR_INVALID_DATA: the parts have different columns. DIPC_ERR_INVALID_ARGUMENT: the
///         options have a range of rows (dipc_get_options_set_range()).
///
/// # Safety
///
/// As dipc_client_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_get_parts(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    ticket: *const u8,
    ticket_len_bytes: usize,
    options: *const dipc_get_options,
    cancel: *const dipc_cancel,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, ticket: ticket_len_bytes, options; cancel);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let parts = client.inner.get_parts(&uris, ticket, &options, cancel)?;
        out.set(export_device_stream(Box::new(parts)).into_raw());
        Ok(())
    })
}

/// Asks a server which descriptors it has: its tickets that begin with a prefix. If no ticket does,
/// the server's handler answers.
///
/// The answer is a table with a row for each descriptor. Its columns are `descriptor` (binary),
/// `uris` (list of utf8; empty: this server), `rows` and `bytes` (int64, null if unknown).
///
/// @param client            Client.
/// @param uris              As for dipc_client_get().
/// @param n_uris            1 or 2.
/// @param prefix            Any bytes; may be NULL when prefix_len_bytes is 0: every descriptor.
/// @param prefix_len_bytes  Length of prefix.
/// @param options           Copied; NULL: the defaults.
/// @param cancel            Token that ends this call and the stream's calls; may be NULL. It may
///                          be freed before the stream.
/// @param out               Receives the stream. An old value is overwritten, not released.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_get(). DIPC_ERR_UNSUPPORTED: the server is older than lists.
///
/// # Safety
///
/// As dipc_client_get(); `prefix` is readable for `prefix_len_bytes`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_list(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    prefix: *const u8,
    prefix_len_bytes: usize,
    options: *const dipc_get_options,
    cancel: *const dipc_cancel,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, prefix: prefix_len_bytes, options; cancel);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let stream = client.inner.list(&uris, prefix, &options, cancel)?;
        out.set(export_device_stream(Box::new(stream)).into_raw());
        Ok(())
    })
}

/// Reads one figure of a client.
///
/// @param client  Client.
/// @param stat    DIPC_CLIENT_STAT_*.
/// @param out     Receives the figure.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
///         this figure; it may be older than the header.
///
/// # Safety
///
/// `client` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_stat(
    client: *const dipc_client,
    stat: i32,
    out: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, out => |client| {
        let stats = client.inner.stats();
        match stat {
            DIPC_CLIENT_STAT_STREAMS => stats.streams,
            DIPC_CLIENT_STAT_CONNECTIONS_MADE => stats.connections_made,
            DIPC_CLIENT_STAT_CONNECTIONS_IDLE => stats.connections_idle,
            _ => return Err(unknown_stat(stat, "DIPC_CLIENT_STAT_*")),
        }
    })
}

/// Frees a client. NULL does nothing. Its streams and arrays stay valid.
///
/// @param client  Client, or NULL; no call on it is running.
///
/// # Safety
///
/// `client` is NULL, or came from dipc_client_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_free(client: *mut dipc_client) {
    // SAFETY: the caller promises `client` is NULL, or live and unused.
    unsafe { guard_free(client) }
}
