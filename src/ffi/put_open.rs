//! The calls that begin to send a table.

use std::ffi::c_char;

use crate::arrow::abi::{ArrowDeviceArrayStream, ArrowSchema};
use crate::arrow::stream::export_device_stream;
use crate::arrow::{CStruct as _, OwnedDeviceStream};
use crate::error::Error;
use crate::ffi::cancel::dipc_cancel;
use crate::ffi::client::dipc_client;
use crate::ffi::client_options::dipc_get_options;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{boxed, null_argument, try_out};
use crate::ffi::loan::try_schema;
use crate::ffi::put::dipc_put;
use crate::ffi::put_options::dipc_put_options;
use crate::ffi::status::dipc_status;

/// Asks a server to take a table, and waits for its answer. Nothing of a batch is encoded or sent
/// before the server has accepted. Then dipc_put_next_result() and dipc_put_finish() pull the
/// batches of source and send them.
///
/// A server takes tables by its handler (dipc_server_set_handler()).
///
/// @param client                Client.
/// @param uris                  One string: the server's URI.
/// @param n_uris                1.
/// @param descriptor            Name of the table for the server's host: any bytes, at most
///                              1016 KiB.
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Copied; NULL: the defaults.
/// @param cancel                Token that ends this call and the put's calls; may be NULL. It may
///                              be freed before the put.
/// @param source                Moved on success: its release becomes NULL. It is released when the
///                              last batch has been pulled, or with the put.
/// @param out                   Receives the put, to be freed by dipc_put_free().
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns source. As dipc_client_get(), and the status
///         with which the server's host refuses the table. DIPC_ERR_UNSUPPORTED: the server takes
///         no tables. DIPC_ERR_INVALID_DATA: the schema of source is invalid.
///
/// # Safety
///
/// As dipc_client_get(); `source` is NULL or a stream that follows Arrow's C device stream
/// interface, used by nobody else during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_put(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *const dipc_put_options,
    cancel: *const dipc_cancel,
    source: *mut ArrowDeviceArrayStream,
    out: *mut *mut dipc_put,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options; cancel);
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises `source` is NULL, or initialised and used by nobody else.
        let source = unsafe { source.as_mut() }.ok_or_else(|| null_argument("source"))?;
        if source.is_released() {
            return Err(Error::invalid_argument("source is released"));
        }
        // SAFETY: the reference proves that it is initialised and used by nobody else; the caller
        // promises that it follows Arrow's interface.
        let owned = unsafe { OwnedDeviceStream::take(source) };
        match client
            .inner
            .put_stream(&uris, descriptor, owned, &options, cancel)
        {
            Ok(put) => {
                out.set(boxed(dipc_put::new(put)));
                Ok(())
            }
            Err((error, owned)) => {
                *source = owned.into_raw();
                Err(error)
            }
        }
    })
}

/// Push form of dipc_client_put(): asks a server to take a table of this schema, and waits for its
/// answer. Then dipc_put_push() sends batch after batch, and dipc_put_finish() ends the table.
///
/// @param client                Client.
/// @param uris                  One string: the server's URI.
/// @param n_uris                1.
/// @param descriptor            As for dipc_client_put().
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Copied; NULL: the defaults.
/// @param cancel                As for dipc_client_put().
/// @param schema                Read, not moved.
/// @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
/// @param out                   Receives the put, to be freed by dipc_put_free().
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_put(). DIPC_ERR_UNSUPPORTED: this process cannot read the device.
///
/// # Safety
///
/// As dipc_client_get(); `schema` is NULL or a schema that follows Arrow's C data interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_put_open(
    client: *const dipc_client,
    uris: *const *const c_char,
    n_uris: usize,
    descriptor: *const u8,
    descriptor_len_bytes: usize,
    options: *const dipc_put_options,
    cancel: *const dipc_cancel,
    schema: *const ArrowSchema,
    device_type: i32,
    out: *mut *mut dipc_put,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options; cancel);
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        let described = (&*schema, device_type);
        let put = client
            .inner
            .put(&uris, descriptor, described, &options, cancel)?;
        out.set(boxed(dipc_put::new(put)));
        Ok(())
    })
}

/// Exchanges tables with a server over one connection: sends a table batch by batch, and receives
/// the server's table at the same time. Waits until the server accepts. Then dipc_put_push() and
/// dipc_put_finish() send, and the stream answers receives; two threads may do so at once. Either
/// table may end first. dipc_put_finish() waits until the server's host has ended its own table and
/// has read all of the client's table. Read answers to its end before this call or, on another
/// thread, during it.
///
/// An error at either side ends both tables at both sides. So does the release of answers before
/// its end, and dipc_put_free() before dipc_put_finish().
///
/// @param client                Client.
/// @param uris                  One string: the server's URI.
/// @param n_uris                1.
/// @param descriptor            As for dipc_client_put().
/// @param descriptor_len_bytes  Length of descriptor.
/// @param options               Of the table that is sent. Copied; NULL: the defaults.
/// @param answer_options        Of the server's table. Only window, validation, lent limit, stall
///                              timeout and spinning have an effect. Copied; NULL: the defaults.
/// @param cancel                As for dipc_client_put().
/// @param schema                Of the table that is sent. Read, not moved.
/// @param device_type           Device of the batches, for example ARROW_DEVICE_CPU.
/// @param out                   Receives the put, to be freed by dipc_put_free().
/// @param answers               Receives the stream of the server's table, on the host. Its
///                              get_schema waits for the server's schema. An old value is
///                              overwritten, not released.
/// @param error                 May be NULL; on failure receives details for dipc_error_free().
/// @return As dipc_client_put_open(). DIPC_ERR_UNSUPPORTED: the server exchanges no tables.
///
/// # Safety
///
/// As dipc_client_put_open(); `answer_options` is NULL or live; `answers` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_client_exchange(
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
    out: *mut *mut dipc_put,
    answers: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(client, error, |client| {
        asked!(uris: n_uris, descriptor: descriptor_len_bytes, options, answer_options; cancel);
        // SAFETY: the caller promises `schema` is NULL or a schema.
        let schema = unsafe { try_schema(schema, "schema") }?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises `answers` is NULL or writable.
        let answers = unsafe { try_out(answers, "answers") }?;
        let described = (&*schema, device_type);
        let both = (&options, &answer_options);
        let (put, stream) = client
            .inner
            .exchange(&uris, descriptor, described, both, cancel)?;
        out.set(boxed(dipc_put::new(put)));
        answers.set(export_device_stream(Box::new(stream)).into_raw());
        Ok(())
    })
}
