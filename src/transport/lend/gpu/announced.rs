//! Memory of a GPU that the peer has announced, until a body lies in it. Opening it takes a
//! context, which costs hundreds of megabytes and most of a second: a client that cancels, or gets
//! its table by another way, is spared that.

use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::import::ImportedMemory;
use crate::device::cuda::pool::{ImportedPool, POOL_ID_BYTES, SHARE_BYTES};
use crate::device::cuda::{Device, uuids};
use crate::device::region::MAX_REGION_BYTES;
use crate::error::{Error, Result};
use crate::proto::{IPC_HANDLE_BYTES, UUID_BYTES};
use crate::transport::closing::Foreign;
use crate::transport::lend::gpu::handle::{GpuHandle, HandleKind};
use crate::transport::lend::open_region::OpenRegion;

/// What leads to it, checked as far as that goes without the driver.
#[derive(Debug)]
pub(in crate::transport::lend) struct AnnouncedRegion {
    uuid: [u8; UUID_BYTES],
    /// 0 of a pool.
    len: usize,
    lead: Lead,
}

#[derive(Debug)]
enum Lead {
    Descriptor(Foreign),
    Legacy([u8; IPC_HANDLE_BYTES]),
    Pool([u8; POOL_ID_BYTES], Foreign),
    Pooled { pool: u16, share: [u8; SHARE_BYTES] },
}

impl AnnouncedRegion {
    /// What a REGION message says, to a client whose request names the GPUs `accepted`.
    pub fn new(
        handle: &GpuHandle,
        fd: Option<Foreign>,
        accepted: &[[u8; UUID_BYTES]],
    ) -> Result<Self> {
        let foreign = |what: &str| {
            let bytes = handle.uuid.iter();
            let uuid: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            Error::protocol(format!("memory of GPU {uuid}, which {what}"))
        };
        if !accepted.contains(&handle.uuid) {
            return Err(foreign("the request did not name"));
        }
        if !uuids()?.contains(&handle.uuid) {
            return Err(foreign("this process does not have any more"));
        }
        let lead = match (&handle.kind, fd) {
            (HandleKind::Pool(id), Some(fd)) => Lead::Pool(*id, fd),
            (HandleKind::Descriptor, Some(fd)) => Lead::Descriptor(fd),
            (HandleKind::Legacy(legacy), None) => Lead::Legacy(*legacy),
            (HandleKind::Pooled { pool, share }, None) => Lead::Pooled {
                pool: *pool,
                share: *share,
            },
            (HandleKind::Descriptor | HandleKind::Pool(_), None) => {
                return Err(Error::protocol(
                    "no descriptor came with the REGION message",
                ));
            }
            (HandleKind::Legacy(_) | HandleKind::Pooled { .. }, Some(_)) => {
                return Err(Error::protocol(
                    "a descriptor came with a handle to which none belongs",
                ));
            }
        };
        let len = match lead {
            Lead::Pool(..) => 0,
            _ => usize::try_from(handle.length)
                .ok()
                .filter(|len| *len > 0 && handle.length <= MAX_REGION_BYTES)
                .ok_or_else(|| {
                    Error::protocol(format!("memory of a GPU with {} bytes", handle.length))
                })?,
        };
        Ok(Self {
            uuid: handle.uuid,
            len,
            lead,
        })
    }

    /// The GPU.
    pub fn uuid(&self) -> &[u8; UUID_BYTES] {
        &self.uuid
    }

    /// It is a pool, in which nothing lies by itself.
    pub fn is_pool(&self) -> bool {
        matches!(self.lead, Lead::Pool(..))
    }

    /// The region that is the pool it was allocated from.
    pub fn pool(&self) -> Option<u16> {
        match self.lead {
            Lead::Pooled { pool, .. } => Some(pool),
            _ => None,
        }
    }

    /// Opens it. `peer` is the number of the peer's process, and `pool` the region that is its
    /// [`pool`](Self::pool), opened.
    pub fn open(self, peer: i32, pool: Option<&Arc<ImportedPool>>) -> Result<Opened> {
        let gone = || Error::protocol("memory of a GPU that this process does not have any more");
        let device = Device::by_uuid(&self.uuid)?.ok_or_else(gone)?;
        let mapping = match self.lead {
            Lead::Pool(id, fd) => {
                return ImportedPool::import(&device, (peer, id), fd.get()).map(Opened::Pool);
            }
            Lead::Descriptor(fd) => ImportedMemory::map(&device, fd.get(), self.len),
            Lead::Legacy(handle) => ImportedMemory::open(&device, &handle, self.len),
            Lead::Pooled {
                pool: number,
                share,
            } => {
                let pool = pool.filter(|pool| Arc::ptr_eq(pool.device(), &device));
                let pool = pool.ok_or_else(|| {
                    Error::protocol(format!(
                        "memory of pool {number}, which the peer has retired"
                    ))
                })?;
                ImportedMemory::of_pool(pool, &share, self.len)
            }
        };
        Ok(Opened::Region(Arc::new(GpuRegion {
            device,
            mapping: mapping?,
            len: self.len,
        })))
    }
}

/// What was announced, open.
pub(in crate::transport::lend) enum Opened {
    /// Regions that come later name it.
    Pool(Arc<ImportedPool>),
    /// Bodies can lie in it.
    Region(Arc<dyn OpenRegion>),
}

/// A GPU's memory of the peer's.
#[derive(Debug)]
struct GpuRegion {
    device: Arc<Device>,
    mapping: Arc<ImportedMemory>,
    /// The peer's figure; the allocation may have more.
    len: usize,
}

impl OpenRegion for GpuRegion {
    fn len(&self) -> usize {
        self.len
    }

    fn slice(&self, offset: u64, len: u64) -> Option<BufferRef> {
        let len = usize::try_from(len).ok()?;
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        let address = self.mapping.slice(offset, len)?;
        // It is the device's: nothing here may read through it.
        let data = std::ptr::without_provenance(usize::try_from(address).ok()?);
        (end <= self.len).then_some(BufferRef { data, len })
    }

    fn device(&self) -> Option<&Arc<Device>> {
        Some(&self.device)
    }
}
