//! Bodies in the host's memory, and bodies of a GPU for a peer that does not reach that GPU: lent
//! from arenas, or copied if they lie elsewhere.

use std::sync::Arc;

use crate::arena;
use crate::device::BufferRef;
use crate::device::copy::BodyCopy;
use crate::device::cuda::Device;
use crate::device::region::Region;
use crate::error::Result;
use crate::transport::lend::gpu::enqueue;
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::memory::{CopyRegion, LentMemory};
use crate::transport::lend::pinned::PinnedRegion;
use crate::transport::lend::place::{BodySources, LendingPlace};
use crate::transport::{Charge, Lease, OnGpu, ReadyNotice};

/// The host's memory. `Some`: the bodies lie on this GPU, and all of them are copied.
pub(super) struct HostPlace<'a>(pub Option<OnGpu<'a>>);

impl LendingPlace for HostPlace<'_> {
    fn device(&self) -> Option<&Arc<Device>> {
        None
    }

    fn find(&self, hold: &mut LeaseHold, buffers: &[BufferRef]) -> Result<Option<BodySources>> {
        let mut sources = BodySources::with_capacity(buffers.len());
        let mut finder = self.0.is_none().then(arena::Finder::lock);
        for buffer in buffers {
            let found = match (buffer.len, &mut finder) {
                (0, _) | (_, None) => None,
                (len, Some(finder)) => finder.find(buffer.data, len),
            };
            if sources.add(*buffer, found).is_none() {
                return Ok(None);
            }
        }
        let regions = finder.map(arena::Finder::regions).unwrap_or_default();
        if sources.copied_bytes > 0 && !hold.pool.lends_host_copies() {
            return Ok(None);
        }
        for region in regions {
            let Some(borrow) = hold.pool.borrow(&LentMemory::Host(region))? else {
                return Ok(None);
            };
            hold.borrowed.push(borrow);
        }
        Ok(Some(sources))
    }

    fn unit(&self) -> Result<u64> {
        Ok(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
    }

    fn create(&self, charge: Charge) -> Result<Option<(CopyRegion, Option<Charge>)>> {
        // Without memory or descriptors, the bytes can still be sent.
        let made = Region::create(charge.bytes(), "dipc-copies")
            .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"));
        Ok(made.ok().map(|region| {
            region.charge(Box::new(charge));
            (CopyRegion::Host(PinnedRegion::new(region)), None)
        }))
    }

    fn copy(
        &self,
        hold: &mut LeaseHold,
        buffers: &[BufferRef],
        sources: &BodySources,
    ) -> Result<Option<ReadyNotice>> {
        let Some(block) = &hold.block else {
            return Ok(None);
        };
        if let Some(OnGpu { stream, .. }) = self.0 {
            if let CopyRegion::Host(region) = &*block.region {
                region.pin(stream.device());
            }
            let enqueued = enqueue(block, buffers, sources, stream);
            // Done even after an error: no copy may write to the block once it is given back.
            let settled = stream.settle();
            return enqueued.and(settled).map(|()| None);
        }
        let bytes = sources.copies(buffers).map(|(buffer, _)| buffer.len as u64);
        let mut copy = BodyCopy::new(bytes.sum());
        for (buffer, at) in sources.copies(buffers) {
            // SAFETY: `buffer` is readable for its length: its holder keeps the owner alive, as
            // `BufferRef` says. The target is writable for it: the block has room for every buffer
            // at the offset that `BodySources` counted out, and its region is mapped while it is
            // held. They do not overlap: the block was free, so no buffer of a producer's lies
            // in it, and nobody else writes it until the lease is returned. The peer may read the
            // bytes at any time; it is told of them after `copy` is dropped, and another process's
            // reads are not accesses of this program.
            unsafe { copy.add(buffer.data, block.target(at), buffer.len) };
        }
        Ok(None)
    }

    fn count(&self, lease: &mut Lease, copied: u64) {
        match self.0 {
            None => lease.copied = copied,
            Some(_) => lease.staged = copied,
        }
    }
}
