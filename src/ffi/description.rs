//! Descriptions: what a descriptor stands for.

use std::ffi::c_char;

use crate::arrow::abi::ArrowSchema;
use crate::arrow::description::{Description, Endpoint};
use crate::error::{Error, Result, Status};
use crate::ffi::cancel::dipc_cancel;
use crate::ffi::client::dipc_client;
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::guard::guard_free;
use crate::ffi::handle::{HandleState, Out, boxed, try_out};
use crate::ffi::headers::dipc_headers;
use crate::ffi::status::dipc_status;
use crate::ffi::text::TextOut;
use crate::proto::Headers;

/// Rows.
pub const DIPC_TOTAL_ROWS: i32 = 1;
/// Bytes of bodies.
pub const DIPC_TOTAL_BYTES: i32 = 2;
/// Record batches; an endpoint does not have this total.
pub const DIPC_TOTAL_BATCHES: i32 = 3;

/// A total that is not known.
pub const DIPC_UNKNOWN: u64 = u64::MAX;

/// What a descriptor stands for: a schema and totals, each of which may be unknown, and the
/// endpoints that have the table's parts. Made by dipc_client_describe(), or by
/// dipc_description_new() for a handler that answers.
pub struct dipc_description {
    state: HandleState,
    pub(super) inner: Description,
    headers: Headers,
}

handle!(dipc_description, "description");

/// Gives a description to the caller.
pub(super) fn give(out: Out<'_, *mut dipc_description>, inner: Description, headers: Headers) {
    out.set(boxed(dipc_description {
        state: HandleState::new(),
        inner,
        headers,
    }));
}

/// Asks a server what a descriptor stands for, and waits for the answer. For a published table the
/// answer has the schema and totals. For a provider's ticket it has only the descriptor, unless
/// dipc_server_set_description() was called. For descriptors that are no ticket the server's
/// handler answers.
///
/// @param client                Client.
/// @param uris                  As for dipc_client_get().
/// @param n_uris                1 or 2.
/// @param descriptor            Any bytes, at most 1016 KiB.
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Copied; NULL: the defaults.
/// @param cancel                Token that ends this call; may be NULL.
/// @param out                   Receives the description, to be freed by dipc_description_free().
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_get(). DIPC_ERR_UNSUPPORTED: the server is older than descriptions.
///         DIPC_ERR_INVALID_DATA: the server's handler answered with a table of another kind.
///
/// # Safety
///
/// As dipc_client_get(); `descriptor` is readable for `descriptor_len_bytes`; `out` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_describe(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *const dipc_get_options,
    cancel: *const dipc_cancel,
    out: *mut *mut dipc_description,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options; cancel);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let answer = (client.inner).describe(&uris, descriptor, &options, cancel)?;
        give(out, answer.0, answer.1);
        Ok(())
    })
}

/// Gives the schema of the table.
///
/// @param description  Description.
/// @param out          Receives the schema, to be released by the caller.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the schema is not known.
///         DIPC_ERR_INVALID_DATA, DIPC_ERR_UNSUPPORTED, DIPC_ERR_PROTOCOL: the server sent no valid
///         schema.
///
/// # Safety
///
/// `description` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_schema(
    description: *const dipc_description,
    out: *mut ArrowSchema,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, out => |description| {
        let schema = description.inner.schema()?;
        let text = "the schema is not known before the table is asked for";
        let schema = schema.ok_or_else(|| Error::new(Status::NotFound, text))?;
        schema.into_raw()
    })
}

/// Gives a total of the whole table.
///
/// @param description  Description, or NULL.
/// @param total        DIPC_TOTAL_*.
/// @return The total; DIPC_UNKNOWN where it is not known, for an unknown total, for NULL and in
///         the child of a fork.
///
/// # Safety
///
/// `description` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_total(
    description: *const dipc_description,
    total: i32,
) -> u64 {
    export!(description or DIPC_UNKNOWN, |description| {
        let value = match total {
            DIPC_TOTAL_ROWS => description.inner.rows,
            DIPC_TOTAL_BYTES => description.inner.bytes,
            DIPC_TOTAL_BATCHES => description.inner.batches,
            _ => None,
        };
        value.unwrap_or(DIPC_UNKNOWN)
    })
}

/// Tells whether the order of the endpoints is that of the table. Otherwise they may be read in any
/// order.
///
/// @param description  Description, or NULL.
/// @return Whether it is; false for NULL and in the child of a fork.
///
/// # Safety
///
/// `description` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_is_ordered(description: *const dipc_description) -> bool {
    export!(description or false, |description| description.inner.is_ordered)
}

/// Gives the headers of the server's answer.
///
/// @param description  Description.
/// @param out          Receives a copy of the headers, to be freed by dipc_headers_free().
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `description` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_headers(
    description: *const dipc_description,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, out => |description| boxed(description.headers.clone()))
}

/// Counts the endpoints.
///
/// @param description  Description, or NULL.
/// @return The number; 0 for NULL and in the child of a fork.
///
/// # Safety
///
/// `description` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_endpoint_count(
    description: *const dipc_description,
) -> usize {
    export!(description or 0, |description| description.inner.endpoints.len())
}

/// Gives the ticket of one endpoint.
///
/// @param description    Description.
/// @param index          Which endpoint, from 0.
/// @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the ticket.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such endpoint.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `description` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes`
/// and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_endpoint_descriptor(
    description: *const dipc_description,
    index: usize,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, |description| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(&endpoint(&description.inner, index)?.descriptor)
    })
}

/// Gives a total of one endpoint.
///
/// @param description  Description, or NULL.
/// @param index        Which endpoint, from 0.
/// @param total        DIPC_TOTAL_ROWS or DIPC_TOTAL_BYTES.
/// @return The total; DIPC_UNKNOWN where it is not known, for an unknown endpoint or total, for
///         NULL and in the child of a fork.
///
/// # Safety
///
/// `description` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_endpoint_total(
    description: *const dipc_description,
    index: usize,
    total: i32,
) -> u64 {
    export!(description or DIPC_UNKNOWN, |description| {
        let endpoint = endpoint(&description.inner, index).ok();
        let value = endpoint.and_then(|endpoint| match total {
            DIPC_TOTAL_ROWS => endpoint.rows,
            DIPC_TOTAL_BYTES => endpoint.bytes,
            _ => None,
        });
        value.unwrap_or(DIPC_UNKNOWN)
    })
}

/// Counts the URIs of an endpoint.
///
/// @param description  Description, or NULL.
/// @param index        Which endpoint, from 0.
/// @return The number. An endpoint without URIs is at the server that was asked. 0 for an unknown
///         endpoint, for NULL and in the child of a fork.
///
/// # Safety
///
/// `description` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_endpoint_uri_count(
    description: *const dipc_description,
    index: usize,
) -> usize {
    export!(description or 0, |description| {
        endpoint(&description.inner, index).map_or(0, |endpoint| endpoint.uris.len())
    })
}

/// Gives a URI of one endpoint.
///
/// @param description    Description.
/// @param index          Which endpoint, from 0.
/// @param uri            Which of its URIs, from 0; the best is the first.
/// @param buffer         Receives the URI and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the URI, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such endpoint or URI.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `description` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes`
/// and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_endpoint_uri(
    description: *const dipc_description,
    index: usize,
    uri: usize,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, |description| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        let uris = &endpoint(&description.inner, index)?.uris;
        let text = uris.get(uri).ok_or_else(|| {
            let text = format!("endpoint {index} has no URI {uri}: it has {}", uris.len());
            Error::new(Status::NotFound, text)
        })?;
        out.set_text(text)
    })
}

/// Frees a description. NULL does nothing.
///
/// @param description  Description, or NULL; no call with it is running.
///
/// # Safety
///
/// `description` is NULL, or came from the library and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_free(description: *mut dipc_description) {
    // SAFETY: the caller promises `description` is NULL, or live and unused.
    unsafe { guard_free(description) }
}

fn endpoint(description: &Description, index: usize) -> Result<&Endpoint> {
    let endpoints = &description.endpoints;
    endpoints.get(index).ok_or_else(|| {
        let text = format!(
            "the description has no endpoint {index}: it has {}",
            endpoints.len()
        );
        Error::new(Status::NotFound, text)
    })
}
