//! Bodies on a GPU that are sent from there, over transports that do that.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::arrow::EncodedMessage;
use crate::device::BufferRef;
use crate::device::cuda::{GpuBody, Stream};
use crate::driver::produce::Counters;
use crate::driver::produce::body::Carrier;
use crate::error::{Error, Result, Status};

/// Shorter bodies are copied to the host and sent from there: to send one from a GPU, its buffers
/// are put together there first, which is waited for, and then the transport waits for a copy of
/// its own; by way of the host there is one wait, and next to nothing to copy.
const LEAST_BYTES: u64 = 16 << 10;

/// Puts the body of `message`, which lies on the GPU of the encoder's `stream`, together there, to
/// be sent from there over the `carrier`; the message's own buffers are not needed any more then.
/// `None` where it is to be sent otherwise, for want of room on the GPU too.
///
/// # Errors
///
/// What goes wrong on the GPU, or went wrong with the producer's work there.
pub(super) fn gather(
    counters: &Counters,
    carrier: &Carrier,
    message: &EncodedMessage,
    stream: &Arc<Stream>,
) -> Result<Option<GpuBody>> {
    if !carrier.sends_gpu || message.body_len < LEAST_BYTES {
        return Ok(None);
    }
    let too_long = || Error::out_of_memory("a body is longer than any memory");
    let len = usize::try_from(message.body_len).map_err(|_| too_long())?;
    let parts = parts(message).collect::<Option<Vec<_>>>();
    let parts = parts.ok_or_else(too_long)?;
    // SAFETY: the buffers lie on the stream's device, whose owner the message holds until this
    // returns. The stream is the encoder's, which has been given whatever they wait for, and
    // producers do not write to arrays that they have handed out.
    let body = match unsafe { GpuBody::gather(stream, len, parts) } {
        // There may be room on the host.
        Err(error) if error.status() == Status::OutOfMemory => return Ok(None),
        body => body?,
    };
    (counters.bytes_copied_on_device).fetch_add(message.body_len, Ordering::Relaxed);
    Ok(Some(body))
}

/// The buffers, each with its place in the packed body (rule D3).
fn parts(message: &EncodedMessage) -> impl Iterator<Item = Option<(usize, BufferRef)>> + '_ {
    let spans = message.buffers.iter().zip(message.spans());
    spans.map(|(buffer, span)| Some((usize::try_from(span.offset).ok()?, *buffer)))
}
