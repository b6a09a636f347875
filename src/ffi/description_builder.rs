//! Descriptions that a server's host makes.

use std::ffi::c_char;

use crate::arrow::abi::{ArrowDeviceArrayStream, ArrowSchema};
use crate::arrow::description::{Description, Endpoint};
use crate::error::Error;
use crate::ffi::description::{
    DIPC_TOTAL_BATCHES, DIPC_TOTAL_BYTES, DIPC_TOTAL_ROWS, DIPC_UNKNOWN, dipc_description, give,
};
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{try_out, try_ref};
use crate::ffi::loan::try_schema;
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{try_bytes, try_strs};
use crate::proto::Headers;

/// Makes an empty description, for a handler that answers DIPC_VERB_DESCRIBE, or DIPC_VERB_LIST
/// with an endpoint for each descriptor.
///
/// @param out    Receives the description, to be freed by dipc_description_free().
/// @param error  May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_new(
    out: *mut *mut dipc_description,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        give(out, Description::default(), Headers::new());
        Ok(())
    })
}

/// Sets the answer to clients that ask what a ticket stands for. The server itself knows only
/// published tables, so this call is for tickets of providers and of the pull form. A new table for
/// the ticket removes the description.
///
/// @param server            Server.
/// @param ticket            A ticket that the server was given.
/// @param ticket_len_bytes  Length of ticket.
/// @param description       Copied. Without endpoints the ticket itself is the only endpoint.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the server has no such ticket.
///         DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` and `description` are NULL or live; `ticket` is readable for `ticket_len_bytes`;
/// `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_set_description(
    server: *const dipc_server,
    ticket: *const u8,
    ticket_len_bytes: usize,
    description: *const dipc_description,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        // SAFETY: the caller promises `description` is NULL or live.
        let description = unsafe { try_ref(description) }?;
        server
            .inner
            .set_description(ticket, description.inner.clone())
    })
}

/// Sets the schema.
///
/// @param description  Description to change; exclusive during the call.
/// @param schema       Copied, not moved.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_DATA: a schema that cannot be sent.
///
/// # Safety
///
/// `description` is NULL or live; `schema` is NULL or a schema that follows Arrow's C data
/// interface; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_set_schema(
    description: *mut dipc_description,
    schema: *const ArrowSchema,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, |description| {
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        description.inner.set_schema(&schema)
    })
}

/// Says whether the order of the endpoints is that of the table. Default: false.
///
/// @param description  Description to change; exclusive during the call.
/// @param is_ordered   Whether clients must keep the order.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `description` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_set_ordered(
    description: *mut dipc_description,
    is_ordered: bool,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, set is_ordered = is_ordered)
}

/// Sets a total of the whole table.
///
/// @param description  Description to change; exclusive during the call.
/// @param total        DIPC_TOTAL_*.
/// @param value        The total; DIPC_UNKNOWN: not known.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no such total.
///
/// # Safety
///
/// `description` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_set_total(
    description: *mut dipc_description,
    total: i32,
    value: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, |description| {
        let Description {
            rows,
            bytes,
            batches,
            ..
        } = &mut description.inner;
        let place = match total {
            DIPC_TOTAL_ROWS => rows,
            DIPC_TOTAL_BYTES => bytes,
            DIPC_TOTAL_BATCHES => batches,
            _ => {
                let text = format!("{total} is no total of a description (DIPC_TOTAL_*)");
                return Err(Error::invalid_argument(text));
            }
        };
        *place = known(value);
        Ok(())
    })
}

/// Adds an endpoint: a part of the table, or a descriptor of a list.
///
/// @param description           Description to change; exclusive during the call.
/// @param descriptor            The ticket to ask for. Copied.
/// @param descriptor_len_bytes  Length of descriptor.
/// @param uris                  n_uris strings: servers that have the part, best first. Copied.
/// @param n_uris                0: this server has it.
/// @param rows                  Rows of the part, or DIPC_UNKNOWN.
/// @param bytes                 Bytes of its bodies, or DIPC_UNKNOWN.
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a URI is not UTF-8.
///
/// # Safety
///
/// `description` is NULL or live; `descriptor` is readable for `descriptor_len_bytes`; `uris`
/// points to `n_uris` pointers, each NULL or a NUL-terminated string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_add_endpoint(
    description: *mut dipc_description,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    uris: *const *const c_char,
    n_uris: usize,
    rows: u64,
    bytes: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, |description| {
        // SAFETY: the caller promises `descriptor` is readable.
        let descriptor = unsafe { try_bytes(descriptor, descriptor_len_bytes, "descriptor") }?;
        // SAFETY: the caller promises `uris` holds `n_uris` pointers, each NULL or a string.
        let uris = unsafe { try_strs(uris, n_uris) }?;
        description.inner.endpoints.push(Endpoint {
            descriptor: descriptor.to_vec(),
            uris: uris.into_iter().map(str::to_owned).collect(),
            rows: known(rows),
            bytes: known(bytes),
        });
        Ok(())
    })
}

/// The description as a stream of one batch: what a handler answers with.
///
/// @param description  Description. It stays the caller's.
/// @param out          Receives the stream. An old value is overwritten, not released.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a total of an endpoint past
///         2^63 - 1, or more than 2 GiB of descriptors or URIs.
///
/// # Safety
///
/// `description` is NULL or live; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_description_to_stream(
    description: *const dipc_description,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(description, error, out => |description| description.inner.stream()?.into_raw())
}

fn known(value: u64) -> Option<u64> {
    (value != DIPC_UNKNOWN).then_some(value)
}
