//! Tables that a client sends, for event loops: a descriptor in place of a call that waits.

use std::ffi::c_char;

use crate::arrow::abi::ArrowSchema;
use crate::ffi::cancel::dipc_cancel;
use crate::ffi::client::dipc_client;
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{boxed, try_out};
use crate::ffi::loan::try_schema;
use crate::ffi::pending::dipc_pending;
use crate::ffi::put_options::dipc_put_options;
use crate::ffi::status::dipc_status;

/// dipc_client_put_open() without waiting, for event loops. Threads of the client connect and wait
/// for the server, as for dipc_client_start(). dipc_pending_try_put() gives the put.
///
/// @param client                Client.
/// @param uris                  One string: the server's URI.
/// @param n_uris                1.
/// @param descriptor            As for dipc_client_put().
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Copied; NULL: the defaults.
/// @param cancel                As for dipc_client_start().
/// @param schema                Read, not moved.
/// @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
/// @param out                   Receives the request, to be freed by dipc_pending_free().
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the request gets every later failure. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: schema is released.
///         DIPC_ERR_INVALID_DATA: schema is invalid. DIPC_ERR_UNSUPPORTED: the IPC format cannot
///         express schema, or the URI is that of a server that takes no tables.
///         DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are left.
///
/// # Safety
///
/// As dipc_client_put_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_start_put(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *const dipc_put_options,
    cancel: *const dipc_cancel,
    schema: *const ArrowSchema,
    device_type: i32,
    out: *mut *mut dipc_pending,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options; cancel);
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let options = (&options, None);
        let pending =
            client
                .inner
                .start_put(&uris, descriptor, (&schema, device_type), options, cancel)?;
        out.set(boxed(pending));
        Ok(())
    })
}

/// dipc_client_exchange() without waiting, for event loops. Threads of the client connect and wait
/// for the server, as for dipc_client_start(). dipc_pending_try_exchange() gives the two tables.
///
/// @param client                Client.
/// @param uris                  One string: the server's URI.
/// @param n_uris                1.
/// @param descriptor            As for dipc_client_put().
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Of the table that is sent. Copied; NULL: the defaults.
/// @param answer_options        Of the server's table, as for dipc_client_exchange(). Copied; NULL:
///                              the defaults.
/// @param cancel                As for dipc_client_start().
/// @param schema                Of the table that is sent. Read, not moved.
/// @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
/// @param out                   Receives the request, to be freed by dipc_pending_free().
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the request gets every later failure. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_URI. DIPC_ERR_INVALID_ARGUMENT: schema is released.
///         DIPC_ERR_INVALID_DATA: schema is invalid. DIPC_ERR_UNSUPPORTED: the IPC format cannot
///         express schema, or the URI is that of a server that takes no tables.
///         DIPC_ERR_OUT_OF_RESOURCES: no threads or descriptors are left.
///
/// # Safety
///
/// As dipc_client_put_open(); `answer_options`
/// is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_start_exchange(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *const dipc_put_options,
    answer_options: *const dipc_get_options,
    cancel: *const dipc_cancel,
    schema: *const ArrowSchema,
    device_type: i32,
    out: *mut *mut dipc_pending,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options, answer_options; cancel);
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let options = (&options, Some(&answer_options));
        let pending =
            client
                .inner
                .start_put(&uris, descriptor, (&schema, device_type), options, cancel)?;
        out.set(boxed(pending));
        Ok(())
    })
}
