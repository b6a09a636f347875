//! Bodies on a GPU for clients that want them on the host: straight into a region of the connection.

use std::any::Any;
use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::{Access, Device, Registered, Stream};
use crate::error::Result;
use crate::proto::Span;
use crate::transport::lend::address;
use crate::transport::lend::hold::Hold;
use crate::transport::lend::pool::{ALIGNMENT, Block, Shared};
use crate::transport::lend::state::Registration;
use crate::transport::{Lease, OnGpu, Owner, Placement};

impl Shared {
    /// Copies a body to the host's memory and lends that. `None`: there is no room for it now.
    ///
    /// # Errors
    ///
    /// What the driver says of the copies.
    pub(in crate::transport::lend) fn stage(
        self: &Arc<Self>,
        buffers: &[BufferRef],
        gpu: OnGpu<'_>,
    ) -> Result<Option<Placement>> {
        let mut copies = 0u64;
        let mut places = Vec::with_capacity(buffers.len());
        for buffer in buffers {
            places.push(copies);
            let padded = u64::try_from(buffer.len)
                .ok()
                .and_then(|len| len.checked_next_multiple_of(ALIGNMENT))
                .and_then(|len| copies.checked_add(len));
            let Some(end) = padded else { return Ok(None) };
            copies = end;
        }
        let Some(block) = self.take_block(copies) else {
            return Ok(None);
        };
        let (id, offset) = (block.id, block.offset);
        // It outlives the copies below, which are done before this returns.
        let _registered = self.register(gpu.stream.device(), &block);
        let hold = Hold::new(Arc::clone(self), Some(block), 0);
        let enqueued = enqueue(buffers, &places, &hold, gpu.stream);
        // Whatever came of that: nothing writes to the block any more once it is given back.
        let settled = gpu.stream.settle();
        enqueued.and(settled)?;
        let mut staged = 0;
        let spans = buffers
            .iter()
            .zip(places)
            .map(|(buffer, at)| {
                let length = u64::try_from(buffer.len).unwrap_or(u64::MAX);
                staged += length;
                // Rule A1: an empty buffer is (0, 0).
                let address = if length == 0 {
                    0
                } else {
                    address(id, offset + at)
                };
                Span { address, length }
            })
            .collect();
        let Some(announce) = self.announce(&hold) else {
            return Ok(None);
        };
        Ok(Some(Placement::Lent(Lease {
            announce,
            staged,
            ..Lease::new(spans, Owner::One(Box::new(hold)))
        })))
    }

    /// Lets the device copy to the block's region at its full rate. Where the system does not pin so
    /// much, the driver copies by way of memory of its own.
    fn register(&self, device: &Arc<Device>, block: &Block) -> Option<Arc<Registered>> {
        match self.state.lock().pooled.get_mut(&block.id)?.registration() {
            Registration::Made(pinned) => return Some(Arc::clone(pinned)),
            Registration::Refused => return None,
            Registration::Untried => {}
        }
        // Without the lock: pinning takes as long as copying does.
        let region = &block.region;
        let (base, len) = (region.base(), region.len());
        let memory: Arc<dyn Any + Send + Sync> = Arc::clone(region) as _;
        // SAFETY: the region stays mapped while it is held. Whoever copies holds the `Registered` until the
        // copies are done.
        let made = unsafe { Registered::new(device, base, len, Access::ReadWrite, memory) };
        let registration = match made {
            Ok(registered) => Registration::Made(Arc::new(registered)),
            Err(error) => {
                tracing::debug!("a region is not pinned: {error}");
                Registration::Refused
            }
        };
        let pinned = match &registration {
            Registration::Made(pinned) => Some(Arc::clone(pinned)),
            _ => None,
        };
        if let Some(pooled) = self.state.lock().pooled.get_mut(&block.id) {
            *pooled.registration() = registration;
        }
        pinned
    }
}

fn enqueue(buffers: &[BufferRef], places: &[u64], hold: &Hold, stream: &Stream) -> Result<()> {
    for (buffer, at) in buffers.iter().zip(places) {
        let Some(target) = hold.block.as_ref().and_then(|block| block.target(*at)) else {
            continue;
        };
        // SAFETY: the buffer is readable once the stream has come here, behind what makes it so
        // (`OnGpu`), and the caller keeps its owner until the stream has settled. The block is
        // nobody else's, mapped while the hold has it, and has room for every buffer at the place
        // counted out for it. The peer is told of it only later.
        unsafe { stream.copy(target as u64, buffer.data as u64, buffer.len) }?;
    }
    Ok(())
}
