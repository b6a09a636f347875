//! Bodies on a GPU that travel as bytes: they are put together there, or on the host.

use std::sync::Arc;

use crate::arrow::EncodedMessage;
use crate::device::BufferRef;
use crate::device::cuda::{GpuBody, PinnedMemory, Stream};
use crate::error::{Error, Result, Status};
use crate::transport::Payload;

/// Puts a body together on the GPU of the encoder's `stream`, from where it is then sent. After
/// that the message's own buffers are no longer needed. `None`: the transport sends only from the
/// host, or the GPU has no room.
pub(super) fn gather(
    sends_gpu: bool,
    message: &EncodedMessage,
    stream: &Arc<Stream>,
) -> Result<Option<GpuBody>> {
    if !sends_gpu {
        return Ok(None);
    }
    let (len, parts) = layout(message).ok_or_else(|| too_long(message))?;
    // SAFETY: the buffers lie on the stream's device, whose owner the message holds until this
    // returns. The stream is the encoder's, which has been given whatever they wait for, and
    // producers do not write to arrays that they have handed out.
    match unsafe { GpuBody::gather(stream, len, parts) } {
        Err(error) if error.status() == Status::OutOfMemory => Ok(None),
        body => body.map(Some),
    }
}

/// Copies a body to pinned memory of the host, laid out as a packed body (rule D3).
pub(super) fn stage(message: &EncodedMessage, stream: &Stream) -> Result<Payload> {
    let too_long = || too_long(message);
    let (len, parts) = layout(message).ok_or_else(too_long)?;
    let mut memory = PinnedMemory::new(stream.device(), len)?;
    // SAFETY: the memory is new to this body, and the stream has nothing to do with it yet.
    let memory_slice = unsafe { memory.as_mut_slice() };
    let target = memory_slice.get_mut(..len).ok_or_else(too_long)?;
    // The memory may still hold an earlier body, so the gaps between the buffers are filled with
    // zeros.
    let mut end = 0;
    for (at, buffer) in &parts {
        target.get_mut(end..*at).ok_or_else(too_long)?.fill(0);
        let behind = at.checked_add(buffer.len).filter(|end| *end <= len);
        end = behind.ok_or_else(too_long)?;
    }
    target.get_mut(end..).ok_or_else(too_long)?.fill(0);
    let runs = vec![BufferRef::of(target)];
    let base = target.as_mut_ptr();
    let enqueued = parts.into_iter().try_for_each(|(at, buffer)| {
        let place = base.wrapping_add(at) as u64;
        // SAFETY: the buffer is readable once the stream has come here, because the stream waits
        // for the event before (`EncodedOwner::gpu`). The message keeps its owner until the stream
        // has settled, below. The buffer's place lies whole in the memory, as checked above. Nobody
        // else has that memory, and it lives until the stream has settled.
        unsafe { stream.copy(place, buffer.data as u64, buffer.len) }
    });
    // Done after a failure too: nothing may write to the memory any more when it is let go.
    let settled = stream.settle();
    enqueued.and(settled)?;
    Ok(Payload::Gather {
        parts: runs,
        owner: Box::new(memory),
    })
}

/// The length of the packed body, and the buffers with their places in it.
fn layout(message: &EncodedMessage) -> Option<(usize, Vec<(usize, BufferRef)>)> {
    let spans = message.buffers.iter().zip(message.spans());
    let parts = spans
        .filter(|(buffer, _)| buffer.len > 0)
        .map(|(buffer, span)| Some((usize::try_from(span.offset).ok()?, *buffer)));
    let len = usize::try_from(message.body_len).ok()?;
    Some((len, parts.collect::<Option<_>>()?))
}

fn too_long(message: &EncodedMessage) -> Error {
    Error::out_of_memory(format!("no {} bytes for a body", message.body_len))
}
