//! The tickets of a server.

use std::ffi::c_void;

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::arrow::{CStruct, OwnedDeviceArray, OwnedSchema};
use crate::error::{Error, Result, Status};
use crate::ffi::error_details::dipc_error;
use crate::ffi::foreign::dipc_finalizer;
use crate::ffi::handle::null_argument;
use crate::ffi::provider::{ForeignProvider, dipc_provider};
use crate::ffi::server::dipc_server;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_bytes, try_mut_slice};
use crate::server::ServerHandle;

/// Serves a ticket by calling a provider for each stream.
///
/// @param server            Server.
/// @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
/// @param ticket_len_bytes  Length of ticket.
/// @param provider          Called once for each stream, as dipc_provider says.
/// @param userdata          Passed to provider and finalizer; may be NULL.
/// @param finalizer         Called once, after the ticket was withdrawn or replaced, or the server
///                          freed, and the last call of the provider has returned; may be NULL.
/// @param flags             0, or DIPC_PROVIDER_DETERMINISTIC.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the library calls the finalizer. Otherwise it does not. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: unknown flags, or the ticket is too long.
///         DIPC_ERR_ALREADY_EXISTS: the server serves the ticket already. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `ticket` is readable for `ticket_len_bytes`; `provider` and
/// `finalizer` may be called with `userdata` on any thread until the finalizer has run; `error` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_serve(
    server: *const dipc_server,
    ticket: *const u8,
    ticket_len_bytes: usize,
    provider: dipc_provider,
    userdata: *mut c_void,
    finalizer: dipc_finalizer,
    flags: u32,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        let function = provider.ok_or_else(|| null_argument("provider"))?;
        ForeignProvider::hand_over(function, userdata, finalizer, flags, |provider| {
            server.inner.serve(ticket, provider)
        })
    })
}

/// Serves a ticket in the pull form: dipc_server_next_request() gives its requests, and no thread
/// of the library calls the host.
///
/// @param server            Server.
/// @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
/// @param ticket_len_bytes  Length of ticket.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the ticket is too long.
///         DIPC_ERR_ALREADY_EXISTS: the server serves the ticket already. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `ticket` is readable for `ticket_len_bytes`; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_serve_pull(
    server: *const dipc_server,
    ticket: *const u8,
    ticket_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        server.inner.serve_pull(ticket)
    })
}

/// Publishes a table: many clients at once can fetch it, any number of times. The arrays are
/// released after the ticket was withdrawn or replaced, or the server freed, and the last client
/// has given them back.
///
/// @param server            Server.
/// @param ticket            Name of the table: any bytes, at most 1016 KiB. Copied.
/// @param ticket_len_bytes  Length of ticket.
/// @param schema            Moved on success: its release becomes NULL.
/// @param batches           n_batches arrays, each moved on success. The call encodes them, and may
///                          wait for their sync_events.
/// @param n_batches         Number of batches; 0: a table without rows.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns schema and batches. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: the schema or a batch is released, or the ticket is too long.
///         DIPC_ERR_INVALID_DATA: the schema or a batch cannot be sent, for example because a
///         name, or a key or value of the metadata, is not UTF-8. DIPC_ERR_ALREADY_EXISTS: the
///         server serves the ticket already. DIPC_ERR_OUT_OF_MEMORY, DIPC_ERR_UNSUPPORTED: a batch
///         on a GPU that this process cannot read. DIPC_ERR_STOPPED.
///
/// # Safety
///
/// `server` is NULL or live; `ticket` is readable for `ticket_len_bytes`; `schema` is NULL or a
/// schema that follows Arrow's C data interface; `batches` points to `n_batches` arrays that follow
/// the C device data interface; nobody else uses them during the call; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_publish(
    server: *const dipc_server,
    ticket: *const u8,
    ticket_len_bytes: usize,
    schema: *mut ArrowSchema,
    batches: *mut ArrowDeviceArray,
    n_batches: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        // SAFETY: the caller promises `schema` is NULL or initialised and used by nobody else.
        let schema = unsafe { schema.as_mut() }.ok_or_else(|| null_argument("schema"))?;
        // SAFETY: the caller promises `batches` holds `n_batches` arrays, initialised and used by
        // nobody else.
        let batches = unsafe { try_mut_slice(batches, n_batches, "batches") }?;
        put_table(&server.inner, ticket, false, schema, batches)
    })
}

/// Like dipc_server_publish(), but replaces what the ticket stands for, if anything. The ticket is
/// served all the time, and running streams go on with the earlier table.
///
/// @param server            Server.
/// @param ticket            What clients ask for: any bytes, at most 1016 KiB. Copied.
/// @param ticket_len_bytes  Length of ticket.
/// @param schema            Moved on success: its release becomes NULL.
/// @param batches           An array of n_batches arrays, each moved on success.
/// @param n_batches         Number of batches; 0 is a table without rows.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_server_publish(), except DIPC_ERR_ALREADY_EXISTS.
///
/// # Safety
///
/// As dipc_server_publish().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_replace(
    server: *const dipc_server,
    ticket: *const u8,
    ticket_len_bytes: usize,
    schema: *mut ArrowSchema,
    batches: *mut ArrowDeviceArray,
    n_batches: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        // SAFETY: the caller promises `schema` is NULL or initialised and used by nobody else.
        let schema = unsafe { schema.as_mut() }.ok_or_else(|| null_argument("schema"))?;
        // SAFETY: the caller promises `batches` holds `n_batches` arrays, initialised and used by
        // nobody else.
        let batches = unsafe { try_mut_slice(batches, n_batches, "batches") }?;
        put_table(&server.inner, ticket, true, schema, batches)
    })
}

/// Moves the table to the server, or leaves it where it is.
fn put_table(
    server: &ServerHandle,
    ticket: &[u8],
    replaces: bool,
    schema: &mut ArrowSchema,
    batches: &mut [ArrowDeviceArray],
) -> Result<()> {
    if schema.is_released() {
        return Err(Error::invalid_argument("schema is released"));
    }
    if let Some(index) = batches.iter().position(CStruct::is_released) {
        return Err(Error::invalid_argument(format!(
            "batch {index} is released"
        )));
    }
    // SAFETY: the reference proves that it is initialised and used by nobody else; the callers of
    // both exports promise that it follows Arrow's interface.
    let owned_schema = unsafe { OwnedSchema::take(schema) };
    // SAFETY: the references prove that they are initialised and used by nobody else; the callers
    // of both exports promise that they follow Arrow's interface.
    let owned = batches
        .iter_mut()
        .map(|batch| unsafe { OwnedDeviceArray::take(batch) })
        .collect();
    let outcome = if replaces {
        server.replace(ticket, owned_schema, owned)
    } else {
        server.publish(ticket, owned_schema, owned)
    };
    outcome.map_err(|(error, (given_back, arrays))| {
        *schema = given_back.into_raw();
        for (place, array) in batches.iter_mut().zip(arrays) {
            *place = array.into_raw();
        }
        error
    })
}

/// Stops serving a ticket. Running streams go on. Clients can read lent memory for as long as they
/// keep it.
///
/// @param server            Server.
/// @param ticket            Ticket.
/// @param ticket_len_bytes  Length of ticket.
/// @param error             May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: the server does not serve the
///         ticket.
///
/// # Safety
///
/// `server` is NULL or live; `ticket` is readable for `ticket_len_bytes`; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_withdraw(
    server: *const dipc_server,
    ticket: *const u8,
    ticket_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `ticket` is readable.
        let ticket = unsafe { try_bytes(ticket, ticket_len_bytes, "ticket") }?;
        server.inner.withdraw(ticket)
    })
}

/// Counts the tickets that are served now.
///
/// @param server     Server.
/// @param out_count  Receives the number of tickets.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `server` is NULL or live; `out_count` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_ticket_count(
    server: *const dipc_server,
    out_count: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, out_count => |server| server.inner.tickets().len())
}

/// Gives one of the tickets that are served now, in byte order. To list the tickets, count index up
/// from 0 until DIPC_ERR_NOT_FOUND. A ticket that is added or withdrawn between the calls shifts
/// the others.
///
/// @param server         Server.
/// @param index          Number of the ticket, from 0.
/// @param buffer         Receives the ticket, without a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the ticket.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: index is too large.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `server` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_server_ticket(
    server: *const dipc_server,
    index: usize,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(server, error, |server| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        let tickets = server.inner.tickets();
        let ticket = tickets.get(index).ok_or_else(|| {
            let text = format!("there is no ticket {index}: {} are served", tickets.len());
            Error::new(Status::NotFound, text)
        })?;
        out.set_bytes(ticket)
    })
}
