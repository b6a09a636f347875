//! Options of servers.

use std::time::Duration;

use crate::arrow::Compression;
use crate::error::Error;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, boxed};
use crate::ffi::status::dipc_status;
use crate::server::ServerOptions;
use crate::transport::BodyPolicy;

/// Bodies are lent if that is possible and faster, otherwise sent as bytes.
pub const DIPC_BODY_AUTO: i32 = 0;
/// Bodies are always sent as bytes.
pub const DIPC_BODY_PACKED: i32 = 1;
/// Bodies are lent whenever that is possible, also small bodies, and also to clients without
/// libdipc's extension.
pub const DIPC_BODY_LENT: i32 = 2;

/// Bodies are not compressed.
pub const DIPC_COMPRESSION_NONE: i32 = 0;
/// Bodies are compressed as LZ4 frames.
pub const DIPC_COMPRESSION_LZ4: i32 = 1;
/// Bodies are compressed by ZSTD.
pub const DIPC_COMPRESSION_ZSTD: i32 = 2;

/// Options of a server, for dipc_server_new().
pub struct dipc_server_options {
    state: HandleState,
    pub(super) inner: ServerOptions,
}

handle!(dipc_server_options, "options", ServerOptions);

/// Makes options with the default values. Each setter names its default.
///
/// @param out    Receives the options, to be freed by dipc_server_options_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_new(
    out: *mut *mut dipc_server_options,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, out = boxed(ServerOptions::default()))
}

/// Sets how many streams are served at once. Further requests are refused with DIPC_ERR_BUSY. A
/// client whose request has a deadline asks again until the deadline, and so waits for a place.
/// Each stream of a provider uses one thread. A stream whose client has gone does not count, even
/// if its provider has not returned; dipc_server_options_set_max_providers() limits such streams.
/// An eighth of the streams, 64 at most, is only for processes of the server's own user, by shm.
/// Default: 64.
///
/// @param options      Options to change; exclusive during the call.
/// @param max_streams  Streams; at least 1.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_streams(
    options: *mut dipc_server_options,
    max_streams: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        if max_streams == 0 {
            return Err(Error::invalid_argument(
                "max_streams is 0: nothing could be served",
            ));
        }
        options.inner.max_streams = max_streams;
        Ok(())
    })
}

/// Sets how many streams providers, or the host in the pull form, may work on at once. Streams
/// whose clients have gone count too. Further requests for such tickets are refused with
/// DIPC_ERR_BUSY. Default: max_streams and 64 more.
///
/// The limit keeps clients from piling up threads in a provider that does not return. A provider
/// that waits should also wait for dipc_request_cancel_fd(). After a cancel the client uses other
/// connections until the provider returns. The client closes the stream's connection if the server
/// is silent for the stall timeout, or for 60 s.
///
/// @param options        Options to change; exclusive during the call.
/// @param max_providers  Streams; at least 1.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_providers(
    options: *mut dipc_server_options,
    max_providers: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        if max_providers == 0 {
            return Err(Error::invalid_argument(
                "max_providers is 0: no provider could be called",
            ));
        }
        options.inner.max_providers = Some(max_providers);
        Ok(())
    })
}

/// Sets how much memory the regions for lent copies may take. Beyond the limit bodies travel as
/// bytes. A region counts until no process maps it. All processes of one other user together may
/// have half of the limit. Memory of a dipc_arena does not count. Default: 16 GiB.
///
/// The limit divided by max_streams, but at least 1 MiB and at most 64 MiB, also limits the bodies
/// that wait for one stream's client to read. Then the server makes no more bodies for that stream.
///
/// @param options           Options to change; exclusive during the call.
/// @param max_region_bytes  Bytes, over all connections of the server.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_max_region_bytes(
    options: *mut dipc_server_options,
    max_region_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set max_bytes = max_region_bytes)
}

/// Sets the size of one region for lent copies. A larger body gets a region of its own. Default: 64
/// MiB.
///
/// @param options       Options to change; exclusive during the call.
/// @param region_bytes  Bytes, rounded up to whole pages.
/// @param error         May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: 0.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_region_bytes(
    options: *mut dipc_server_options,
    region_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        if region_bytes == 0 {
            return Err(Error::invalid_argument("region_bytes is 0"));
        }
        options.inner.link.lending.region_bytes = region_bytes;
        Ok(())
    })
}

/// Sets how long an unused region is kept for later copies. Default: 10 s.
///
/// @param options         Options to change; exclusive during the call.
/// @param region_idle_ns  Nanoseconds, limited to the range from a millisecond to a year.
/// @param error           May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_region_idle_ns(
    options: *mut dipc_server_options,
    region_idle_ns: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set link.lending.region_idle = Duration::from_nanos(region_idle_ns))
}

/// Sets the size up to which bodies travel as bytes and are not lent. Default: 4096.
///
/// @param options       Options to change; exclusive during the call.
/// @param inline_bytes  Bytes.
/// @param error         May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_inline_bytes(
    options: *mut dipc_server_options,
    inline_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set link.lending.inline_bytes = inline_bytes)
}

/// Sets how many bytes of copies may be lent to one connection at once. Beyond the limit bodies
/// travel as bytes. The client's own limit applies if it is smaller. Default: 1 GiB.
///
/// @param options           Options to change; exclusive during the call.
/// @param lent_limit_bytes  Bytes.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_lent_limit_bytes(
    options: *mut dipc_server_options,
    lent_limit_bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set link.lending.lent_limit = lent_limit_bytes)
}

/// Admits clients of every user of this machine, not only of the server's user. Default: false.
///
/// @param options   Options to change; exclusive during the call.
/// @param any_user  Whether to admit them.
/// @param error     May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_any_user(
    options: *mut dipc_server_options,
    any_user: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set link.access.any_user = any_user)
}

/// Sets how bodies travel. Default: DIPC_BODY_AUTO.
///
/// @param options  Options to change; exclusive during the call.
/// @param body     DIPC_BODY_AUTO, DIPC_BODY_PACKED or DIPC_BODY_LENT.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: body is none of these.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_body(
    options: *mut dipc_server_options,
    body: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set body = body_policy(body)?)
}

/// Sets the compression of bodies. Compressed bodies travel as bytes. dipc_server_publish()
/// compresses a table once, and the server keeps the compressed bodies in addition to the arrays.
/// Default: DIPC_COMPRESSION_NONE.
///
/// @param options      Options to change; exclusive during the call.
/// @param compression  DIPC_COMPRESSION_NONE, DIPC_COMPRESSION_LZ4 or DIPC_COMPRESSION_ZSTD.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the codec is unknown.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_set_compression(
    options: *mut dipc_server_options,
    compression: i32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, set compression = compression_of(compression)?)
}

/// Frees options. NULL does nothing. Servers keep a copy of their options.
///
/// @param options  Options, or NULL.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_server_options_new() and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_options_free(options: *mut dipc_server_options) {
    // SAFETY: the caller promises `options` is NULL, or live and unused.
    unsafe { guard_free(options) }
}

/// The policy with this number.
pub(super) fn body_policy(number: i32) -> Result<BodyPolicy, Error> {
    match number {
        DIPC_BODY_AUTO => Ok(BodyPolicy::Auto),
        DIPC_BODY_PACKED => Ok(BodyPolicy::Packed),
        DIPC_BODY_LENT => Ok(BodyPolicy::Lent),
        _ => Err(Error::invalid_argument(format!(
            "body is {number}: no DIPC_BODY_*"
        ))),
    }
}

/// The codec with this number.
pub(super) fn compression_of(number: i32) -> Result<Option<Compression>, Error> {
    match number {
        DIPC_COMPRESSION_NONE => Ok(None),
        DIPC_COMPRESSION_LZ4 => Ok(Some(Compression::Lz4Frame)),
        DIPC_COMPRESSION_ZSTD => Ok(Some(Compression::Zstd)),
        _ => {
            let text = format!("compression is {number}: no DIPC_COMPRESSION_*");
            Err(Error::invalid_argument(text))
        }
    }
}
