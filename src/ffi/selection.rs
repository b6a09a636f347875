//! The columns and rows that a get asks for, and what a server's host sees of them.

use std::ffi::c_char;

use crate::error::{Error, Result, Status};
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::request::dipc_request;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_slice, try_str};

/// As a number of rows: all up to the end of the table.
pub const DIPC_ALL_ROWS: u64 = u64::MAX;

/// Asks for only some columns of a table. The stream's schema has them in the order of the names.
/// Buffers of other columns are not sent; nothing is copied for that. Default: all columns.
///
/// The get itself fails with DIPC_ERR_INVALID_ARGUMENT if the table does not have a column, or has
/// several of the name, and with DIPC_ERR_UNSUPPORTED if the server knows no selections: one
/// without libdipc's extension, or of an earlier release.
///
/// @param options  Options to change; exclusive during the call.
/// @param names    Names of fields of the schema itself, each NUL-terminated UTF-8; copied. May be
///                 NULL when n_names is 0.
/// @param n_names  Their number, at most 4096. 0: rows without columns.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a name comes twice or is not
///         UTF-8, or there are too many, or more than 64 KiB.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `names` points to
/// `n_names` pointers, each NULL or a NUL-terminated string; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_columns(
    options: *mut dipc_get_options,
    names: *const *const c_char,
    n_names: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `names` holds `n_names` pointers.
        let names = unsafe { try_slice(names, n_names, "names") }?;
        // SAFETY: the caller promises that each is NULL or a string.
        let name = |name: &*const c_char| unsafe { try_str(*name, "a name of a column") };
        let names = names.iter().map(name).collect::<Result<Vec<_>>>()?;
        options.inner.selection.set_columns(names)
    })
}

/// Asks for only a range of rows of a table. Batches outside the range are not sent, and the server
/// ends the stream after the last row. Default: all rows. If the table ends earlier, the stream has
/// fewer rows.
///
/// dipc_client_get_parts() refuses a range, because it counts the rows of one part.
///
/// @param options    Options to change; exclusive during the call.
/// @param first_row  The first row, counting from 0.
/// @param rows       The number of rows; DIPC_ALL_ROWS: all up to the end.
/// @param error      May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `error` is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_range(
    options: *mut dipc_get_options,
    first_row: u64,
    rows: u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        options.inner.selection.set_rows(first_row, Some(rows));
        Ok(())
    })
}

/// Asks for only the rows that pass a filter, which the server evaluates: other rows are not sent.
/// A range counts the rows that pass, and the filter may read columns that are not asked for.
/// Default: all rows.
///
/// The get itself fails with DIPC_ERR_INVALID_ARGUMENT if the table does not have a column, or a
/// row has no result (a division by zero); with DIPC_ERR_UNSUPPORTED if filters do not support a
/// function or a type (the text has its name), if the table is in a GPU's memory, and if the server
/// knows no filters.
///
/// @param options  Options to change; exclusive during the call.
/// @param message  A substrait.ExtendedExpression with one expression, which gives booleans, as
///                 bytes of protobuf; copied. Null counts as false. pyarrow makes it by
///                 Expression.to_substrait().
/// @param len      Bytes of the message, at most 64 KiB.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: no bytes, or too many.
///
/// # Safety
///
/// `options` is NULL, or came from dipc_get_options_new() and was not freed; `message` points to
/// `len` bytes; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_get_options_set_filter(
    options: *mut dipc_get_options,
    message: *const u8,
    len: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(options, error, |options| {
        // SAFETY: the caller promises `message` is readable for `len` bytes.
        let message = unsafe { try_slice(message, len, "message") }?;
        options.inner.selection.set_filter(message)
    })
}

/// Says whether the client of a request wants only some columns (dipc_get_options_set_columns()).
/// The host gives all columns, and the library sends those that are wanted, unless the host calls
/// dipc_request_take_selection().
///
/// @param request  Request, or NULL.
/// @return true if the client has named columns: dipc_request_column_count() of them. false for
///         NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_selects_columns(request: *const dipc_request) -> bool {
    export!(request or false, |request| request.get().selection().columns().is_some())
}

/// Counts the columns that the client of a request has named.
///
/// @param request  Request, or NULL.
/// @return The number. 0 also if dipc_request_selects_columns() is false: then the client wants all
///         columns.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_column_count(request: *const dipc_request) -> usize {
    export!(request or 0, |request| named(request).len())
}

/// Gives the name of one column that the client of a request wants.
///
/// @param request        Request.
/// @param index          Which column, from 0, in the order of the result.
/// @param buffer         Receives the name and a NUL; NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length of the name, without the NUL.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_NOT_FOUND: there is no such column.
///         DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_column(
    request: *const dipc_request,
    index: usize,
    buffer: *mut c_char,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer.cast(), size_bytes, out_len_bytes) }?;
        let names = named(request);
        let name = names.get(index).ok_or_else(|| {
            let text = format!("column {index} of {} that are wanted", names.len());
            Error::new(Status::NotFound, text)
        })?;
        out.set_text(name)
    })
}

/// Gives the first row that the client of a request wants (dipc_get_options_set_range()).
///
/// @param request  Request, or NULL.
/// @return The row, counting from 0; 0 for NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_first_row(request: *const dipc_request) -> u64 {
    export!(request or 0, |request| request.get().selection().first_row())
}

/// Gives the number of rows that the client of a request wants (dipc_get_options_set_range()).
///
/// @param request  Request, or NULL.
/// @return Rows; DIPC_ALL_ROWS: all up to the end, also for NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_rows(request: *const dipc_request) -> u64 {
    export!(request or DIPC_ALL_ROWS, |request| {
        request.get().selection().rows().unwrap_or(DIPC_ALL_ROWS)
    })
}

/// Gives the filter of a request's client (dipc_get_options_set_filter()): the client wants only
/// the rows that pass it.
///
/// @param request        Request.
/// @param buffer         Receives the bytes of a substrait.ExtendedExpression. The library has not
///                       checked them. NULL asks for the length only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length; 0: all rows pass.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
///         written.
///
/// # Safety
///
/// `request` is NULL or live; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_filter(
    request: *const dipc_request,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| {
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(request.get().selection().filter().unwrap_or_default())
    })
}

/// Declares that the host selects itself: the stream that it gives for the request has only the
/// wanted columns, in their order, and only the wanted rows. This is for hosts that can then read
/// less, for example from a file. If a host does not call this, it gives the whole table, and the
/// library selects from it without a copy.
///
/// @param request  Request, before its stream begins: before dipc_request_start(), or before a
///                 provider's stream gives its schema.
/// @param error    May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK, also if the client selects nothing. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: the stream has begun.
///
/// # Safety
///
/// `request` is NULL or live; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_take_selection(
    request: *const dipc_request,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(request, error, |request| request.get().select_by_host())
}

/// Says whether all rows that the client of a request has asked for were pushed, in the pull form.
/// Batches that are pushed later are released, and the host may call dipc_request_finish().
///
/// @param request  Request, or NULL.
/// @return true if so. false for a client that has not limited the rows, for a provider's request,
///         while another thread pushes, for NULL and in the child of a fork.
///
/// # Safety
///
/// `request` is NULL or live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_request_is_complete(request: *const dipc_request) -> bool {
    export!(request or false, |request| request.get().is_complete())
}

fn named(request: &dipc_request) -> &[String] {
    request.get().selection().columns().unwrap_or_default()
}
