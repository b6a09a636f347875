//! Memory of GPUs that can be lent: regions of arenas and of pools, and allocations of producers.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::device::cuda::export::{Allocation, ExportHandle};
use crate::device::cuda::pool::ExportedPool;
use crate::device::cuda::{CudaRegion, Device};
use crate::device::lendable::Lendable;
use crate::error::Result;
use crate::transport::lend::export::{Borrower, ExportedRegion};
use crate::transport::lend::gpu::handle::{GpuHandle, HandleKind};
use crate::transport::lend::memory::{AfterReturn, CopyRegion, LentMemory, MemoryKey};

/// A region of a GPU as the peer is told of it. Nothing takes the peer's access away.
fn exported(
    device: &Device,
    len: usize,
    kind: HandleKind,
    fd: Option<Arc<OwnedFd>>,
) -> ExportedRegion {
    let handle = GpuHandle {
        length: u64::try_from(len).unwrap_or(u64::MAX),
        uuid: *device.uuid(),
        kind,
    };
    ExportedRegion {
        handle: handle.encode(),
        fd,
        access: None,
    }
}

impl LentMemory for CudaRegion {
    fn key(&self) -> MemoryKey {
        MemoryKey::Region(self.identity())
    }

    fn export(&self, _peer: &Borrower, _pool: Option<u16>) -> Result<Option<ExportedRegion>> {
        let fd = Some(Arc::new(self.memory().export()?));
        let kind = HandleKind::Descriptor;
        Ok(Some(exported(self.device(), self.len(), kind, fd)))
    }

    fn after_return(&self) -> AfterReturn {
        AfterReturn::WhenIdle
    }

    fn abandon(&self, peer: &Borrower) {
        // Rule F4. Nobody sees the end of this process; of another one, what is out lives until it
        // has ended.
        if peer.is_this_process() {
            self.taint();
        }
    }
}

impl CopyRegion for CudaRegion {
    fn blocks(&self) -> &Lendable {
        self
    }

    fn base(&self) -> *mut u8 {
        // Addresses have 64 bits wherever there is CUDA.
        std::ptr::without_provenance_mut(usize::try_from(CudaRegion::base(self)).unwrap_or(0))
    }

    fn len(&self) -> usize {
        CudaRegion::len(self)
    }

    fn device(&self) -> Option<&Arc<Device>> {
        Some(CudaRegion::device(self))
    }
}

impl LentMemory for Allocation {
    fn key(&self) -> MemoryKey {
        MemoryKey::Allocation(self.id())
    }

    fn export(&self, peer: &Borrower, pool: Option<u16>) -> Result<Option<ExportedRegion>> {
        // Nothing would say when this process is done with it.
        if peer.is_this_process() {
            return Ok(None);
        }
        let (kind, fd) = match (self.export()?, pool) {
            (Some(ExportHandle::Fd(fd)), _) => (HandleKind::Descriptor, Some(Arc::new(fd))),
            (Some(ExportHandle::Legacy(handle)), _) => (HandleKind::Legacy(handle), None),
            (Some(ExportHandle::Pooled(share)), Some(pool)) => {
                let share = *share.bytes();
                (HandleKind::Pooled { pool, share }, None)
            }
            (Some(ExportHandle::Pooled(_)) | None, _) => return Ok(None),
        };
        Ok(Some(exported(self.device(), self.size(), kind, fd)))
    }

    fn pool(&self) -> Option<Arc<dyn LentMemory>> {
        let share = self.share()?;
        Some(Arc::new(ProducersPool {
            device: Arc::clone(self.device()),
            pool: Arc::clone(share.pool()),
        }))
    }

    fn after_return(&self) -> AfterReturn {
        match self.must_outlive_importers() {
            true => AfterReturn::AtOnce,
            false => AfterReturn::Soon,
        }
    }
}

/// A pool of a producer's. It has a number of its own, and the allocations of it are its leases: it
/// is retired with the last one, and then the producer may destroy it.
#[derive(Debug)]
struct ProducersPool {
    device: Arc<Device>,
    pool: Arc<ExportedPool>,
}

impl LentMemory for ProducersPool {
    fn key(&self) -> MemoryKey {
        MemoryKey::Pool(*self.pool.id())
    }

    fn export(&self, _peer: &Borrower, _pool: Option<u16>) -> Result<Option<ExportedRegion>> {
        let kind = HandleKind::Pool(*self.pool.id());
        let fd = Some(Arc::clone(self.pool.fd()));
        Ok(Some(exported(&self.device, 0, kind, fd)))
    }

    fn after_return(&self) -> AfterReturn {
        AfterReturn::AtOnce
    }
}
