//! Custom metadata of a batch, which Arrow's structs have no place for.

use crate::arrow::abi::{ArrowDeviceArray, ArrowSchema};
use crate::arrow::columns::ensure_same_columns;
use crate::arrow::format::{parse_metadata, write_metadata};
use crate::arrow::{CStruct, OwnedDeviceArray, annotate, annotation, schema_from_c};
use crate::error::Error;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::null_argument;
use crate::ffi::loan::try_schema;
use crate::ffi::status::dipc_status;
use crate::ffi::text::{TextOut, try_bytes};

/// Sets the custom metadata of a batch, and replaces earlier metadata. They are sent with the
/// batch, whether it is published, given by a stream's get_next, pushed or put. The batches of
/// dipc_client_get() have their metadata already, so a host that sends such a batch on also sends
/// its metadata.
///
/// @param batch               Batch, exclusive during the call. Its private_data and release
///                            change; all else stays.
/// @param metadata            Keys and values, encoded as in ArrowSchema; copied. NULL: none.
/// @param metadata_len_bytes  Length of metadata, at most 64 MiB.
/// @param error               May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the batch is unchanged. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: the batch is released, or the metadata are not encoded as in
///         ArrowSchema, not UTF-8, or too long.
///
/// # Safety
///
/// `batch` is NULL or an array that follows Arrow's C device data interface, used by nobody else
/// during the call; `metadata` is readable for `metadata_len_bytes`; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_batch_set_metadata(
    batch: *mut ArrowDeviceArray,
    metadata: *const u8,
    metadata_len_bytes: usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `batch` is NULL, or initialised and used by nobody else.
        let batch = unsafe { batch.as_mut() }.ok_or_else(|| null_argument("batch"))?;
        // SAFETY: the caller promises `metadata` is readable.
        let metadata = unsafe { try_bytes(metadata, metadata_len_bytes, "metadata") }?;
        if batch.is_released() {
            return Err(Error::invalid_argument("batch is released"));
        }
        let metadata = match metadata {
            [] => Vec::new(),
            // Encoded again, without the bytes after the last pair.
            metadata => {
                let pairs = parse_metadata(metadata).map_err(Error::invalid_argument)?;
                let none = || Error::invalid_argument("the metadata are too long");
                write_metadata(&pairs).ok_or_else(none)?
            }
        };
        // SAFETY: the caller promises an array that follows Arrow's interface and has no other
        // user.
        let owned = unsafe { OwnedDeviceArray::take(batch) };
        *batch = annotate(owned, &metadata).into_raw();
        Ok(())
    })
}

/// Gives the custom metadata of a batch: those of dipc_batch_set_metadata(), or those that came
/// with a batch of the library.
///
/// @param batch          Batch, not released.
/// @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
///                       only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length; 0 if the batch has no metadata.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still
///         written.
///
/// # Safety
///
/// `batch` is NULL or an array that follows Arrow's C device data interface and that nobody writes
/// to; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and `error` are NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_batch_metadata(
    batch: *const ArrowDeviceArray,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `batch` is NULL or initialised.
        let batch = unsafe { batch.as_ref() }.ok_or_else(|| null_argument("batch"))?;
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        out.set_bytes(annotation(batch))
    })
}

/// Checks that a batch with one schema fits into a stream with another schema. A batch of the C
/// interface does not carry its schema. A host that knows the schemas of its batches calls this
/// before it hands over a batch, because the receiver reads the values by the names and types of
/// the stream's schema.
///
/// Names, order and types of the columns, and of the fields of structs and unions, are the same.
/// Metadata may differ, and so may the names of parts that a type has once: a list's values, a
/// map's entries, keys and values. The stream's schema may declare a column without nulls that the
/// batch's schema declares with nulls: this call does not look at values. The library refuses a
/// batch with nulls in such a column when it sends the batch.
///
/// @param stream_schema  Schema of the stream; not moved.
/// @param batch_schema   Schema of the batch; not moved.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: a schema is released.
///         DIPC_ERR_INVALID_DATA: the schemas differ, and the text names the first difference; or a
///         schema is not that of a table.
///
/// # Safety
///
/// `stream_schema` and `batch_schema` are NULL or schemas that follow Arrow's C data interface and
/// that nobody writes to; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_batch_check_schema(
    stream_schema: *const ArrowSchema,
    batch_schema: *const ArrowSchema,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream_schema` is NULL or a schema.
        let declared = unsafe { try_schema(stream_schema, "stream_schema") }?;
        // SAFETY: the caller promises `batch_schema` is NULL or a schema.
        let given = unsafe { try_schema(batch_schema, "batch_schema") }?;
        ensure_same_columns(&schema_from_c(&declared)?, &schema_from_c(&given)?)
    })
}
