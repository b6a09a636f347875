//! Bodies on a GPU that travel as bytes: copied to the host first.

use crate::arrow::EncodedMessage;
use crate::device::cuda::{PinnedMemory, Stream};
use crate::device::{BufferRef, HostBuffer};
use crate::driver::serve::Gathered;
use crate::error::{Error, Result};

/// Memory of ours on the host that a device copies to.
enum Staging {
    Pinned(PinnedMemory),
    /// Where the system does not pin so much: the driver copies by way of memory of its own.
    Pageable(HostBuffer),
}

impl Staging {
    fn new(stream: &Stream, len: usize) -> Result<Self> {
        match PinnedMemory::new(stream.device(), len) {
            Ok(pinned) => Ok(Self::Pinned(pinned)),
            Err(error) => {
                tracing::debug!("a body is staged in memory that is not pinned: {error}");
                HostBuffer::to_fill(len).map(Self::Pageable)
            }
        }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: the memory is new to this body: `stage`, which alone makes one, asks before
            // it gives the stream anything to do with it.
            Self::Pinned(pinned) => unsafe { pinned.as_mut_slice() },
            Self::Pageable(buffer) => buffer.as_mut_slice(),
        }
    }
}

/// Copies a body on a GPU to the host, laid out as a packed body is (rule D3).
///
/// # Errors
///
/// `OutOfMemory`; what the driver says of the copies.
pub(super) fn stage(message: &EncodedMessage, stream: &Stream) -> Result<Gathered> {
    let too_long =
        || Error::out_of_memory(format!("no {} bytes to stage a body", message.body_len));
    let len = usize::try_from(message.body_len).map_err(|_| too_long())?;
    let mut staging = Staging::new(stream, len)?;
    let target = staging.as_mut_slice().get_mut(..len).ok_or_else(too_long)?;
    // The memory may hold an earlier body: what is between the buffers must be zeros.
    let mut end = 0;
    let mut copies = Vec::with_capacity(message.buffers.len());
    for (buffer, span) in message.buffers.iter().zip(message.spans()) {
        if buffer.len == 0 {
            continue;
        }
        let at = usize::try_from(span.offset).map_err(|_| too_long())?;
        let gap = target.get_mut(end..at).ok_or_else(too_long)?;
        gap.fill(0);
        end = at
            .checked_add(buffer.len)
            .filter(|end| *end <= len)
            .ok_or_else(too_long)?;
        copies.push((at, *buffer));
    }
    if let Some(gap) = target.get_mut(end..) {
        gap.fill(0);
    }
    let parts = vec![BufferRef::of(target)];
    let base = target.as_mut_ptr();
    let enqueued = copies.into_iter().try_for_each(|(at, buffer)| {
        let place = base.wrapping_add(at) as u64;
        // SAFETY: the buffer is readable once the stream has come here, behind the event that says
        // so (`EncodedOwner::gpu`), and the message keeps its owner until the stream has settled,
        // below. Its place lies in the memory whole, seen above, which is nobody else's and lives
        // until then.
        unsafe { stream.copy(place, buffer.data as u64, buffer.len) }
    });
    // Whatever came of that: nothing writes to the memory any more when it is let go.
    let settled = stream.settle();
    enqueued.and(settled)?;
    Ok(Gathered::Host {
        parts,
        owner: Box::new(staging),
    })
}
