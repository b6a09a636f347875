//! Memory that a peer can be lent, on the host or on a GPU.

use std::any::Any;
use std::sync::{Arc, Weak};

use crate::device::cuda::export::{Allocation, AllocationId};
use crate::device::cuda::{CudaRegion, Device};
use crate::device::lendable::Lendable;
use crate::device::region::Region;
use crate::error::Result;
use crate::transport::lend::export::{Borrower, ExportedRegion};
use crate::transport::lend::gpu::handle;
use crate::transport::lend::pinned::PinnedRegion;

/// Memory of this process that the peer of a connection can read.
#[derive(Debug, Clone)]
pub(super) enum LentMemory {
    /// A region of the host.
    Host(Arc<Region>),
    /// A region of a GPU.
    Gpu(Arc<CudaRegion>),
    /// A producer's allocation on a GPU.
    Allocation(Arc<Allocation>),
}

/// The key of memory: no other memory of this process has it while the memory lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MemoryKey {
    /// A region, by its identity.
    Region(u64),
    Allocation(AllocationId),
}

impl LentMemory {
    pub fn key(&self) -> MemoryKey {
        match self {
            Self::Host(region) => MemoryKey::Region(region.identity()),
            Self::Gpu(region) => MemoryKey::Region(region.identity()),
            Self::Allocation(allocation) => MemoryKey::Allocation(allocation.id()),
        }
    }

    /// Makes the memory reachable; `None` if this peer cannot reach it. The caller holds no lock.
    pub fn export(&self, peer: &Borrower) -> Result<Option<ExportedRegion>> {
        match self {
            // If the export fails, the bytes can still be sent.
            Self::Host(region) => Ok((peer.export.export(region))
                .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"))
                .ok()),
            Self::Gpu(region) => handle::of_region(region).map(Some),
            // No message would report when this process is done with the memory.
            Self::Allocation(_) if peer.is_this_process() => Ok(None),
            Self::Allocation(allocation) => handle::of_allocation(allocation),
        }
    }

    /// A weak reference, which shows when the owners have given the memory up.
    pub fn downgrade(&self) -> Weak<dyn Any + Send + Sync> {
        match self {
            Self::Host(region) => Arc::downgrade(region) as _,
            Self::Gpu(region) => Arc::downgrade(region) as _,
            Self::Allocation(allocation) => Arc::downgrade(allocation) as _,
        }
    }

    /// The connection ended while the peer had a lease of this memory (rule F4).
    pub fn abandon(&self, peer: &Borrower) {
        match self {
            // If a lease comes back at this moment, a region is lost that could have been used
            // again.
            Self::Host(region) if peer.export.is_mapped() => region.taint(),
            // If another process has the memory, it is kept until that process has ended.
            Self::Gpu(region) if peer.is_this_process() => region.taint(),
            _ => {}
        }
    }
}

/// A region of the connection, for copies.
#[derive(Debug)]
pub(super) enum CopyRegion {
    Host(PinnedRegion<Region>),
    Gpu(Arc<CudaRegion>),
}

impl CopyRegion {
    /// The region as memory that is lent.
    pub fn memory(&self) -> LentMemory {
        match self {
            Self::Host(region) => LentMemory::Host(Arc::clone(&region.region)),
            Self::Gpu(region) => LentMemory::Gpu(Arc::clone(region)),
        }
    }

    /// The blocks in use.
    pub fn blocks(&self) -> &Lendable {
        match self {
            Self::Host(region) => &region.region,
            Self::Gpu(region) => region,
        }
    }

    /// Bytes of the region.
    pub fn len(&self) -> usize {
        match self {
            Self::Host(region) => region.region.len(),
            Self::Gpu(region) => region.len(),
        }
    }

    /// The GPU of the region; `None` for the host's memory.
    pub fn device(&self) -> Option<&Arc<Device>> {
        match self {
            Self::Host(_) => None,
            Self::Gpu(region) => Some(region.device()),
        }
    }

    /// The first byte. On a GPU this is an address of the device, which the processor cannot reach.
    fn base(&self) -> *mut u8 {
        match self {
            Self::Host(region) => region.region.base().as_ptr(),
            // Addresses have 64 bits wherever there is CUDA.
            Self::Gpu(region) => {
                std::ptr::without_provenance_mut(usize::try_from(region.base()).unwrap_or(0))
            }
        }
    }
}

/// Memory of a producer that the peer may read. All leases of it that are out share this value.
#[derive(Debug)]
pub(super) struct Borrow {
    /// The region's number on the connection.
    pub id: u16,
    pub memory: LentMemory,
}

impl Borrow {
    pub fn new(id: u16, memory: &LentMemory) -> Arc<Self> {
        let memory = memory.clone();
        Arc::new(Self { id, memory })
    }
}

/// A block of a region for the copies of one body.
#[derive(Debug)]
pub(super) struct LentBlock {
    /// The region's number on the connection.
    pub id: u16,
    pub region: Arc<CopyRegion>,
    pub offset: u64,
    pub len: u64,
}

impl LentBlock {
    /// The byte at offset `at` in the block.
    pub fn target(&self, at: u64) -> *mut u8 {
        // An offset in mapped memory always fits.
        let offset = usize::try_from(self.offset + at).unwrap_or(usize::MAX);
        self.region.base().wrapping_add(offset)
    }
}
