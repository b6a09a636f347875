//! Facts about streams beyond Arrow's structs, and conversions between device and host streams.

use crate::arrow::abi::{ArrowArrayStream, ArrowDeviceArrayStream};
use crate::arrow::format::write_metadata;
use crate::arrow::stream::{self, ArrayReader, CStream};
use crate::arrow::{CStruct, OwnedDeviceStream, OwnedStream, transfer};
use crate::client::Stream;
use crate::device::{DeviceKind, Target};
use crate::error::{Error, Result};
use crate::ffi::arguments::unknown_stat;
use crate::ffi::error_details::dipc_error;
use crate::ffi::handle::{boxed, null_argument, try_out};
use crate::ffi::headers::dipc_headers;
use crate::ffi::status::dipc_status;
use crate::ffi::text::TextOut;

/// Rows given to the consumer.
pub const DIPC_STREAM_STAT_ROWS: i32 = 1;
/// Record batches given to the consumer.
pub const DIPC_STREAM_STAT_BATCHES: i32 = 2;
/// Body bytes that the server lent and this process mapped.
pub const DIPC_STREAM_STAT_BYTES_LENT: i32 = 3;
/// Body bytes copied in this process, to join dictionaries or to check values.
pub const DIPC_STREAM_STAT_BYTES_COPIED: i32 = 4;
/// Body bytes received through the connection.
pub const DIPC_STREAM_STAT_BYTES_RECEIVED: i32 = 5;
/// Body bytes copied in this process within a device or between devices.
pub const DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE: i32 = 6;
/// Body bytes copied in this process between the host and a device.
pub const DIPC_STREAM_STAT_BYTES_STAGED: i32 = 7;
/// Record batches that get_next can give without waiting for the server. If there are none, the
/// call first reads the connection.
pub const DIPC_STREAM_STAT_BATCHES_HERE: i32 = 8;

/// Reports in full why a stream of the library failed. The stream's callbacks have only an errno
/// and a text.
///
/// @param stream  Stream of dipc_client_get() or dipc_stream_from_host(), not released. None of its
///                callbacks may be running.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK: the stream has not failed. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT:
///         the stream is released, or not of the library. Otherwise the stream's status.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C device stream interface, and none of its callbacks runs
/// during the call; `error` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_status(
    stream: *const ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        unsafe { stream::last_error(stream) }?.map_or(Ok(()), Err)
    })
}

/// Gives the custom metadata of the last batch of get_next.
///
/// @param stream         Stream of dipc_client_get(), not released. None of its callbacks may be
///                       running.
/// @param buffer         Receives the metadata, encoded as in ArrowSchema; NULL asks for the length
///                       only.
/// @param size_bytes     Size of buffer.
/// @param out_len_bytes  Receives the length; 0 if the batch has no metadata.
/// @param error          May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         not of dipc_client_get(). DIPC_ERR_BUFFER_TOO_SMALL: out_len_bytes is still written.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C device stream interface, and none of its callbacks runs
/// during the call; `buffer` is NULL or writable for `size_bytes`; `out_len_bytes` and `error` are
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_metadata(
    stream: *const ArrowDeviceArrayStream,
    buffer: *mut u8,
    size_bytes: usize,
    out_len_bytes: *mut usize,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises `buffer` is NULL or writable for `size_bytes`, and
        // `out_len_bytes` is NULL or writable.
        let out = unsafe { TextOut::new(buffer, size_bytes, out_len_bytes) }?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        let stream = unsafe { fetched(stream) }?;
        out.set_bytes(&encode_metadata(stream.custom_metadata())?)
    })
}

/// Gives the headers of the server's answer: those that came with the schema, then those that came
/// with a failure.
///
/// @param stream  Stream of dipc_client_get(), not released; no callback of it is running.
/// @param out     Receives a copy of the headers, to be freed by dipc_headers_free().
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         is not of dipc_client_get().
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C device stream interface, and none of its callbacks runs
/// during the call; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_headers(
    stream: *const ArrowDeviceArrayStream,
    out: *mut *mut dipc_headers,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        let stream = unsafe { fetched(stream) }?;
        out.set(boxed(stream.headers()));
        Ok(())
    })
}

/// Reads one figure of a stream, up to now.
///
/// @param stream  Stream of dipc_client_get(), not released. None of its callbacks may be running.
/// @param stat    DIPC_STREAM_STAT_*.
/// @param out     Receives the figure.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. DIPC_ERR_NULL_ARGUMENT. DIPC_ERR_INVALID_ARGUMENT: the stream is released, or
///         not of dipc_client_get(), or the library does not have this figure.
///
/// # Safety
///
/// `stream` is NULL or follows Arrow's C device stream interface, and none of its callbacks runs
/// during the call; `out` and `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_stat(
    stream: *const ArrowDeviceArrayStream,
    stat: i32,
    out: *mut u64,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `stream` is NULL or initialised.
        let stream = unsafe { stream.as_ref() }.ok_or_else(|| null_argument("stream"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        // SAFETY: the caller promises a stream that follows Arrow's interface, whose callbacks are
        // not running.
        let stream = unsafe { fetched(stream) }?;
        out.set(figure(stream, stat)?);
        Ok(())
    })
}

/// One figure of a stream.
pub(super) fn figure(stream: &mut Stream, stat: i32) -> Result<u64> {
    let stats = stream.stats();
    Ok(match stat {
        DIPC_STREAM_STAT_ROWS => stats.rows,
        DIPC_STREAM_STAT_BATCHES => stats.batches,
        DIPC_STREAM_STAT_BYTES_LENT => stats.bytes_lent,
        DIPC_STREAM_STAT_BYTES_COPIED => stats.bytes_copied,
        DIPC_STREAM_STAT_BYTES_RECEIVED => stats.bytes_received,
        DIPC_STREAM_STAT_BYTES_COPIED_ON_DEVICE => stats.bytes_copied_on_device,
        DIPC_STREAM_STAT_BYTES_STAGED => stats.bytes_staged,
        DIPC_STREAM_STAT_BATCHES_HERE => stream.batches_here() as u64,
        _ => return Err(unknown_stat(stat, "DIPC_STREAM_STAT_*")),
    })
}

/// Turns a device stream into a host stream, for consumers of Arrow's C Stream Interface. get_next
/// passes arrays in host memory on, and copies arrays of CUDA (device types 2, 3 and 13) to the
/// host.
///
/// @param source  Moved on success: its release becomes NULL.
/// @param out     Receives the stream. An old value is overwritten, not released. Must not be
///                source.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: source is released. DIPC_ERR_UNSUPPORTED: the library does
///         not know the arrays' device, or this machine has no driver for it.
///
/// # Safety
///
/// `source` is NULL or follows Arrow's C device stream interface, used by nobody else; `out` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_to_host(
    source: *mut ArrowDeviceArrayStream,
    out: *mut ArrowArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `source` is NULL, or initialised and used by nobody else.
        let source = unsafe { source.as_mut() }.ok_or_else(|| null_argument("source"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        if source.is_released() {
            return Err(Error::invalid_argument("source is released"));
        }
        // Everything that can fail comes before the move.
        transfer::ensure_movable(source.device_type, Target::Host)?;
        // SAFETY: the reference proves that it is initialised and used by nobody else; the caller
        // promises that it follows Arrow's interface.
        let owned = unsafe { OwnedDeviceStream::take(source) };
        out.set(transfer::to_host(owned)?.into_raw());
        Ok(())
    })
}

/// Turns a device stream into a stream whose arrays lie on another device or on the host. get_next
/// copies each array that does not lie there already. The sync_event of an array on a GPU completes
/// after its copy.
///
/// @param source       Moved on success: its release becomes NULL.
/// @param device_type  Target: 1, the host (ARROW_DEVICE_CPU), or 2, a GPU (ARROW_DEVICE_CUDA).
/// @param device_id    Number of the GPU; ignored for the host.
/// @param out          Receives the stream. An old value is overwritten, not released. Must not be
///                     source.
/// @param error        May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: source is released, or the GPU does not exist.
///         DIPC_ERR_UNSUPPORTED: the library cannot copy between these devices, or the driver is
///         missing.
///
/// # Safety
///
/// `source` is NULL or follows Arrow's C device stream interface, used by nobody else; `out` and
/// `error` are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_to_device(
    source: *mut ArrowDeviceArrayStream,
    device_type: i32,
    device_id: i64,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `source` is NULL, or initialised and used by nobody else.
        let source = unsafe { source.as_mut() }.ok_or_else(|| null_argument("source"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        if source.is_released() {
            return Err(Error::invalid_argument("source is released"));
        }
        let target = match Target::of(DeviceKind(device_type), device_id)? {
            // A stream has no server, so "as sent" means nothing here.
            Target::AsSent => {
                return Err(Error::unsupported(
                    "a stream is moved to the host (device type 1) or to a CUDA device (2)",
                ));
            }
            target => target,
        };
        // Everything that can fail comes before the move.
        transfer::ensure_movable(source.device_type, target)?;
        // SAFETY: the reference proves that it is initialised and used by nobody else; the caller
        // promises that it follows Arrow's interface.
        let owned = unsafe { OwnedDeviceStream::take(source) };
        out.set(transfer::to_target(owned, target)?.into_raw());
        Ok(())
    })
}

/// Turns a host stream into a device stream of host memory, the form that providers give.
///
/// @param source  Moved on success: its release becomes NULL.
/// @param out     Receives the stream. An old value is overwritten, not released. Must not be
///                source.
/// @param error   May be NULL; on failure receives details for dipc_error_free().
/// @return DIPC_OK. Otherwise the caller still owns source. DIPC_ERR_NULL_ARGUMENT.
///         DIPC_ERR_INVALID_ARGUMENT: source is released.
///
/// # Safety
///
/// `source` is NULL or follows Arrow's C stream interface, used by nobody else; `out` and `error`
/// are NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dipc_stream_from_host(
    source: *mut ArrowArrayStream,
    out: *mut ArrowDeviceArrayStream,
    error: *mut *mut dipc_error,
) -> dipc_status {
    export!(error, || {
        // SAFETY: the caller promises `source` is NULL, or initialised and used by nobody else.
        let source = unsafe { source.as_mut() }.ok_or_else(|| null_argument("source"))?;
        // SAFETY: the caller promises `out` is NULL or writable.
        let out = unsafe { try_out(out, "out") }?;
        if source.is_released() {
            return Err(Error::invalid_argument("source is released"));
        }
        // SAFETY: the reference proves that it is initialised and used by nobody else; the caller
        // promises that it follows Arrow's interface.
        let owned = unsafe { OwnedStream::take(source) };
        out.set(stream::to_device(owned).into_raw());
        Ok(())
    })
}

/// The client's stream behind a C stream of the library.
///
/// # Safety
///
/// `stream` follows its C stream interface, and none of its callbacks runs while the result is in
/// use.
pub(super) unsafe fn fetched<'a, S: CStream>(stream: *const S) -> Result<&'a mut Stream> {
    // SAFETY: the caller promises a stream that follows its interface, and that none of its
    // callbacks runs while the result is in use.
    let reader: &mut dyn ArrayReader = unsafe { stream::reader(stream) }?;
    reader
        .as_any()
        .and_then(|reader| reader.downcast_mut())
        .ok_or_else(|| Error::invalid_argument("the stream is not one of dipc_client_get()"))
}

/// Encodes metadata as in `ArrowSchema.metadata`; no bytes if there is no metadata.
pub(super) fn encode_metadata(pairs: &[(String, String)]) -> Result<Vec<u8>> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let text = "metadata larger than Arrow's C interface can say";
    write_metadata(pairs).ok_or_else(|| Error::unsupported(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise of `dipc_stream_metadata`: the encoding is that of `ArrowSchema.metadata`.
    #[test]
    fn metadata_is_encoded_as_in_schemas() {
        let pairs = [
            ("key".to_owned(), "v".to_owned()),
            ("empty".to_owned(), String::new()),
        ];
        let mut expected = Vec::new();
        expected.extend(2i32.to_ne_bytes());
        for text in ["key", "v", "empty", ""] {
            expected.extend(i32::try_from(text.len()).unwrap().to_ne_bytes());
            expected.extend(text.bytes());
        }
        assert_eq!(encode_metadata(&pairs).unwrap(), expected);
        assert!(encode_metadata(&[]).unwrap().is_empty());
    }
}
