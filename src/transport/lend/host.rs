//! Bodies in the host's memory: lent from arenas, and copied from elsewhere.

use std::sync::Arc;

use crate::arena;
use crate::device::BufferRef;
use crate::device::copy::BodyCopy;
use crate::device::cuda::Device;
use crate::device::lendable::Lendable;
use crate::device::region::Region;
use crate::error::Result;
use crate::transport::lend::export::{Borrower, ExportedRegion};
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::memory::{AfterReturn, CopyRegion, LentMemory, MemoryKey};
use crate::transport::lend::pinned::PinnedRegion;
use crate::transport::lend::place::{BodySources, LendingPlace, NewRegion};
use crate::transport::{Charge, Lease, ReadyNotice};

impl LentMemory for Region {
    fn key(&self) -> MemoryKey {
        MemoryKey::Region(self.identity())
    }

    fn export(&self, peer: &Borrower, _pool: Option<u16>) -> Result<Option<ExportedRegion>> {
        // Where that fails the bytes can still be sent.
        let exported = peer.export.export(self);
        Ok(exported
            .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"))
            .ok())
    }

    fn after_return(&self) -> AfterReturn {
        AfterReturn::WhenGone
    }

    fn abandon(&self, peer: &Borrower) {
        // Rule F4. A lease that comes back meanwhile costs a region that is not used again.
        if !peer.export.is_revocable() {
            self.taint();
        }
    }
}

impl LentMemory for PinnedRegion<Region> {
    fn key(&self) -> MemoryKey {
        self.region().key()
    }

    fn export(&self, peer: &Borrower, pool: Option<u16>) -> Result<Option<ExportedRegion>> {
        self.region().export(peer, pool)
    }

    fn after_return(&self) -> AfterReturn {
        self.region().after_return()
    }
}

impl CopyRegion for PinnedRegion<Region> {
    fn blocks(&self) -> &Lendable {
        self.region()
    }

    fn base(&self) -> *mut u8 {
        self.region().base().as_ptr()
    }

    fn len(&self) -> usize {
        self.region().len()
    }

    fn device(&self) -> Option<&Arc<Device>> {
        None
    }

    fn pin(&self, device: &Arc<Device>) {
        PinnedRegion::pin(self, device);
    }
}

/// Length of a page: regions of the host's memory are whole pages.
pub(super) fn page_bytes() -> u64 {
    u64::try_from(rustix::param::page_size()).unwrap_or(4096)
}

/// Makes a region for copies in the host's memory.
pub(super) fn create(charge: Charge) -> Option<NewRegion> {
    // Out of memory or descriptors: the bytes can still be sent.
    let region = Region::create(charge.bytes(), "dipc-copies")
        .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"))
        .ok()?;
    region.charge(Box::new(charge));
    Some((Arc::new(PinnedRegion::new(region)), None))
}

/// The host's memory.
pub(super) struct HostPlace;

impl LendingPlace for HostPlace {
    fn device(&self) -> Option<&Arc<Device>> {
        None
    }

    fn find(&self, hold: &mut LeaseHold, buffers: &[BufferRef]) -> Result<Option<BodySources>> {
        let mut sources = BodySources::with_capacity(buffers.len());
        let mut finder = arena::Finder::lock();
        for buffer in buffers {
            let found = match buffer.len {
                0 => None,
                len => finder.find(buffer.data, len),
            };
            if sources.add(*buffer, found).is_none() {
                return Ok(None);
            }
        }
        let regions = finder.regions();
        if sources.copied_bytes > 0 && !hold.core.lends_host_copies() {
            return Ok(None);
        }
        for region in regions {
            let region: Arc<dyn LentMemory> = region;
            let Some(borrow) = hold.core.borrow(&region)? else {
                return Ok(None);
            };
            hold.borrowed.push(borrow);
        }
        Ok(Some(sources))
    }

    fn unit(&self) -> Result<u64> {
        Ok(page_bytes())
    }

    fn create(&self, charge: Charge) -> Result<Option<NewRegion>> {
        Ok(create(charge))
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
        let bytes = sources.copies(buffers).map(|(buffer, _)| buffer.len as u64);
        let mut copy = BodyCopy::new(bytes.sum());
        for (buffer, at) in sources.copies(buffers) {
            // SAFETY: `buffer` is readable for its length: its holder keeps the owner alive, as
            // `BufferRef` says. The target is writable for it: the block has room for every buffer
            // at the offset that `Sources` counted out, and its region is mapped while the block
            // is held. They do not overlap: the block was free, so no buffer of a producer's lies
            // in it, and nobody else writes it until the lease is returned. The peer may read the
            // bytes at any time; it is told of them after `copy` is dropped, and another process's
            // reads are not accesses of this program.
            unsafe { copy.add(buffer.data, block.target(at), buffer.len) };
        }
        Ok(None)
    }

    fn count(&self, lease: &mut Lease, copied: u64) {
        lease.copied = copied;
    }
}
