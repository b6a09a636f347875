//! Servers.

use std::ffi::c_char;
use std::time::Duration;

use crate::error::{Error, Status};
use crate::ffi::arguments::unknown_stat;
use crate::ffi::cancel::dipc_cancel;
use crate::ffi::client_options::time_limit;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::{Polled, guard_free};
use crate::ffi::handle::{HandleState, boxed, try_option, try_out};
use crate::ffi::request::dipc_request;
use crate::ffi::server_options::dipc_server_options;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_str};
use crate::proto::Role;
use crate::server::{ServerHandle, ServerOptions};

/// Serves tables to clients. Made by dipc_server_new(). Several threads may call a server at once.
pub struct dipc_server {
    state: HandleState,
    pub(super) inner: ServerHandle,
}

handle!(dipc_server, "server", ServerHandle);

/// Size of a buffer that is large enough for every URI of the library.
pub const DIPC_URI_BYTES: usize = 1024;

/// Metadata and bodies over one connection.
pub const DIPC_ROLE_BOTH: i32 = 0;
/// Metadata alone.
pub const DIPC_ROLE_METADATA: i32 = 1;
/// Bodies alone.
pub const DIPC_ROLE_DATA: i32 = 2;

/// Connections open now.
pub const DIPC_SERVER_STAT_CONNECTIONS: i32 = 1;
/// Streams served now.
pub const DIPC_SERVER_STAT_STREAMS_ACTIVE: i32 = 2;
/// Streams begun since the start.
pub const DIPC_SERVER_STAT_STREAMS_SERVED: i32 = 3;
/// Record batches sent since the start.
pub const DIPC_SERVER_STAT_BATCHES: i32 = 4;
/// Body bytes lent without a copy, since the start.
pub const DIPC_SERVER_STAT_BYTES_LENT: i32 = 5;
/// Body bytes copied on the host since the start: into regions, to be lent from them. Includes sent
/// bodies of at most 1 KiB.
pub const DIPC_SERVER_STAT_BYTES_COPIED: i32 = 6;
/// Body bytes sent through connections, since the start.
pub const DIPC_SERVER_STAT_BYTES_SENT: i32 = 7;
/// Buffers lent and not yet given back.
pub const DIPC_SERVER_STAT_LENT_OUTSTANDING: i32 = 8;
/// Bytes of regions for copies that this process or a client maps.
pub const DIPC_SERVER_STAT_REGION_BYTES: i32 = 9;
/// Body bytes copied within a GPU's memory and lent from the copy, since the start.
pub const DIPC_SERVER_STAT_BYTES_COPIED_ON_DEVICE: i32 = 10;
/// Body bytes copied from a GPU's memory to the host, then lent or sent, since the start.
pub const DIPC_SERVER_STAT_BYTES_STAGED: i32 = 11;
/// Rows of the batches sent since the start.
pub const DIPC_SERVER_STAT_ROWS: i32 = 12;
/// Record batches that clients have sent since the start.
pub const DIPC_SERVER_STAT_BATCHES_RECEIVED: i32 = 13;
/// Rows of the batches that clients have sent since the start.
pub const DIPC_SERVER_STAT_ROWS_RECEIVED: i32 = 14;
/// Body bytes that clients have sent since the start, lent ones included.
pub const DIPC_SERVER_STAT_BYTES_RECEIVED: i32 = 15;
/// Connections accepted since the start.
pub const DIPC_SERVER_STAT_CONNECTIONS_OPENED: i32 = 16;
/// Connections that were not accepted, since the start.
pub const DIPC_SERVER_STAT_CONNECTIONS_REFUSED: i32 = 17;
/// Requests that have ended well, since the start.
pub const DIPC_SERVER_STAT_REQUESTS_FINISHED: i32 = 18;
/// Requests that were begun and have ended otherwise, since the start.
pub const DIPC_SERVER_STAT_REQUESTS_FAILED: i32 = 19;
/// Requests that were refused, since the start.
pub const DIPC_SERVER_STAT_REQUESTS_REFUSED: i32 = 20;
/// Rows of the batches that tables and providers gave to be sent since the start, including the
/// rows that a filter or a range left out.
pub const DIPC_SERVER_STAT_ROWS_READ: i32 = 21;

/// Makes a server without tickets. Starts two threads: the first serves connections, the second
/// releases the arrays that clients have given back.
///
/// @param options  Copied; NULL: the defaults.
/// @param out      Receives the server, to be freed by dipc_server_free().
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors
///         are left.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `out` and `error`
/// are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_new(
    options: *const dipc_server_options,
    out: *mut *mut dipc_server,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `options` is NULL or live.
        let options = unsafe { try_option(options) }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let options = options.map_or_else(ServerOptions::default, |given| given.inner.clone());
        out.set(boxed(ServerHandle::new(options)?));
        Ok(())
    })
}

/// Listens at an address, and gives the URI for clients. A server may listen at several addresses.
///
/// @param server         Server.
/// @param uri            "shm:/path" or "shm:@name": for processes of this host, by a socket in the
///                       file system or an abstract one. "tls://host:port", "tcp://host:port",
///                       "ucx://host:port": for other hosts too; port 0 takes a free one. May
///                       set tags of its own (want_data=N).
/// @param buffer         Receives the URI for clients and a NUL; NULL if it is not wanted.
/// @param size_bytes     Size of buffer: at least DIPC_URI_BYTES, or 0 with a NULL buffer.
/// @param out_len_bytes  Receives the length of the URI, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is
///         DIPC_URI_BYTES and the server does not listen. DIPC_ERR_INVALID_URI.
///         DIPC_ERR_UNSUPPORTED: this machine lacks the transport. DIPC_ERR_ADDRESS_IN_USE: a live
///         server listens there. DIPC_ERR_PERMISSION. DIPC_ERR_STOPPED. On tls also
///         DIPC_ERR_INVALID_ARGUMENT, DIPC_ERR_NOT_FOUND, DIPC_ERR_IO: its files cannot be used.
///
/// # Safety
///
/// `server` is NULL or live; `uri` is NULL or a NUL-terminated string; `buffer` is NULL or writable
/// for `size_bytes`; `out_len_bytes` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_listen(
    server: *const dipc_server,
    uri: *const c_char,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `uri` is NULL or a string.
        let uri = unsafe { try_str(uri, "uri") }?;
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        // The size is checked first, so that a failed call does not leave the server listening.
        let out = out.at_least(DIPC_URI_BYTES)?;
        out.set_text(&server.inner.listen(uri)?)
    })
}

/// Gives the URI of the server's first address, for one role. A client that needs two URIs, for
/// metadata and for bodies, gets one for each role.
///
/// @param server         Server.
/// @param role           DIPC_ROLE_BOTH, DIPC_ROLE_METADATA or DIPC_ROLE_DATA.
/// @param buffer         Receives the URI and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer; DIPC_URI_BYTES is always enough.
/// @param out_len_bytes  Receives the length of the URI, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the role is unknown.
///         DIPC_ERR_NOT_FOUND: the server does not listen. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes
///         is still written.
///
/// # Safety
///
/// `server` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_location(
    server: *const dipc_server,
    role: i32,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        let role = match role {
            DIPC_ROLE_BOTH => Role::Both,
            DIPC_ROLE_METADATA => Role::Metadata,
            DIPC_ROLE_DATA => Role::Data,
            _ => {
                return Err(Error::invalid_argument(format!(
                    "role is {role}: no DIPC_ROLE_*"
                )));
            }
        };
        let uri = server.inner.location(role).ok_or_else(|| {
            Error::new(
                Status::NotFound,
                "the server listens nowhere; call dipc_server_listen()",
            )
        })?;
        out.set_text(&uri)
    })
}

/// Pull form: waits for the next request for a ticket of dipc_server_serve_pull(), or for a ticket
/// that dipc_server_set_handler_pull() serves; with dipc_server_options_set_authorizer_pull() also
/// for a request that waits for the host's decision.
///
/// @param server      Server.
/// @param timeout_ns  Most nanoseconds to wait; 0: do not wait; DIPC_FOREVER: no limit.
/// @param cancel      Token that ends the wait; may be NULL.
/// @param out         Receives the request, to be freed by dipc_request_free().
/// @param error       May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_NOTHING: no request came in time. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_CANCELLED: the token was triggered. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` and `cancel` are NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_next_request(
    server: *const dipc_server,
    timeout_ns: u64,
    cancel: *const dipc_cancel,
    out: *mut *mut dipc_request,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `cancel` is NULL or live.
        let cancel = unsafe { try_option(cancel) }?.map(|cancel| &cancel.inner);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        match server.inner.next_request(time_limit(timeout_ns), cancel)? {
            Some(request) => out.set(boxed(dipc_request::owned(request))),
            None => return Ok(Polled::Nothing),
        }
        Ok(Polled::Done)
    })
}

/// Pull form: releases, on the calling thread, the arrays that clients have given back. Call it
/// regularly; dipc_server_free() releases the rest.
///
/// @param server     Server.
/// @param out_count  Receives the number of releases.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `server` is NULL or live; `out_count` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_drain_releases(
    server: *const dipc_server,
    out_count: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, out_count => |server| server.inner.drain_releases())
}

/// Reads one figure of a server.
///
/// @param server  Server.
/// @param stat    DIPC_SERVER_STAT_*.
/// @param out     Receives the figure.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the library does not have
///         this figure; it may be older than the header.
///
/// # Safety
///
/// `server` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_stat(
    server: *const dipc_server,
    stat: i32,
    out: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, out => |server| {
        let stats = server.inner.stats();
        match stat {
            DIPC_SERVER_STAT_CONNECTIONS => stats.connections,
            DIPC_SERVER_STAT_STREAMS_ACTIVE => stats.streams_active,
            DIPC_SERVER_STAT_STREAMS_SERVED => stats.streams_served,
            DIPC_SERVER_STAT_BATCHES => stats.batches,
            DIPC_SERVER_STAT_BYTES_LENT => stats.bytes_lent,
            DIPC_SERVER_STAT_BYTES_COPIED => stats.bytes_copied,
            DIPC_SERVER_STAT_BYTES_SENT => stats.bytes_sent,
            DIPC_SERVER_STAT_LENT_OUTSTANDING => stats.lent_outstanding,
            DIPC_SERVER_STAT_REGION_BYTES => stats.region_bytes,
            DIPC_SERVER_STAT_BYTES_COPIED_ON_DEVICE => stats.bytes_copied_on_device,
            DIPC_SERVER_STAT_BYTES_STAGED => stats.bytes_staged,
            DIPC_SERVER_STAT_ROWS => stats.streams.rows,
            DIPC_SERVER_STAT_BATCHES_RECEIVED => stats.streams.batches_received,
            DIPC_SERVER_STAT_ROWS_RECEIVED => stats.streams.rows_received,
            DIPC_SERVER_STAT_BYTES_RECEIVED => stats.streams.bytes_received,
            DIPC_SERVER_STAT_CONNECTIONS_OPENED => stats.connections_opened,
            DIPC_SERVER_STAT_CONNECTIONS_REFUSED => stats.connections_refused,
            DIPC_SERVER_STAT_REQUESTS_FINISHED => stats.streams.finished,
            DIPC_SERVER_STAT_REQUESTS_FAILED => stats.streams.failed.iter().sum(),
            DIPC_SERVER_STAT_REQUESTS_REFUSED => stats.refused.iter().sum(),
            DIPC_SERVER_STAT_ROWS_READ => stats.streams.rows_read,
            _ => return Err(unknown_stat(stat, "DIPC_SERVER_STAT_*")),
        }
    })
}

/// Stops a server. From now on it refuses connections and streams. Running streams have until the
/// deadline; then their connections are cut. Arrays that clients hold stay valid. May be called
/// again.
///
/// Before the cut, within the deadline, the call waits until the sent data has arrived. Over ucx
/// the server sees this only when the client closes its connection. Clients of libdipc do so when
/// they hear of the stop. Other clients have a quarter of a second.
///
/// @param server       Server.
/// @param deadline_ns  Nanoseconds from now; 0: cut at once; DIPC_FOREVER: wait for every stream.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_TIMEOUT: after the cut a provider still did
///         not return. It is not called again; its finalizer runs after it returns.
///
/// # Safety
///
/// `server` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_stop(
    server: *const dipc_server,
    deadline_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| server
        .inner
        .stop(Duration::from_nanos(deadline_ns)))
}

/// Stops a server at once if it is running, and frees it. NULL does nothing. The call does not wait
/// for providers: the finalizer of a running provider runs after the provider returns.
///
/// Lent arrays on a GPU are released, on a thread of the library, when the client's process has
/// ended. Over ucx, arrays that are being sent are never released if UCX does not close the
/// connection within a second; the log reports this.
///
/// @param server  Server, or NULL; no call on it is running.
///
/// # Safety
///
/// `server` is NULL, or came from dipc_server_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_free(server: *mut dipc_server) {
    // SAFETY: the caller promises `server` is NULL, or live and unused.
    unsafe { guard_free(server) }
}
