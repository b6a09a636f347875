//! Memory of a GPU that the peer has announced, until a body lies in it. Opening it takes a context,
//! which costs hundreds of megabytes and most of a second: a client that cancels, or gets its table by
//! another way, is spared that.

use std::sync::Arc;

use crate::device::cuda::import::Mapping;
use crate::device::cuda::pool::{ImportedPool, POOL_ID_BYTES, SHARE_BYTES};
use crate::device::cuda::{Device, uuids};
use crate::device::region::MAX_REGION_BYTES;
use crate::error::{Error, Result};
use crate::proto::{IPC_HANDLE_BYTES, UUID_BYTES};
use crate::transport::closing::Foreign;
use crate::transport::lend::handle::{GpuHandle, Way};
use crate::transport::lend::table::{GpuRegion, Mapped};

/// What leads to it, checked as far as that goes without the driver.
#[derive(Debug)]
pub(super) struct Announced {
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

impl Announced {
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
        let lead = match (&handle.way, fd) {
            (Way::Pool(id), Some(fd)) => Lead::Pool(*id, fd),
            (Way::Descriptor, Some(fd)) => Lead::Descriptor(fd),
            (Way::Legacy(legacy), None) => Lead::Legacy(*legacy),
            (Way::Pooled { pool, share }, None) => Lead::Pooled {
                pool: *pool,
                share: *share,
            },
            (Way::Descriptor | Way::Pool(_), None) => {
                return Err(Error::protocol(
                    "no descriptor came with the REGION message",
                ));
            }
            (Way::Legacy(_) | Way::Pooled { .. }, Some(_)) => {
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

    /// Bytes of it, as the peer said.
    pub fn len(&self) -> usize {
        self.len
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
    pub fn open(self, peer: i32, pool: Option<&Mapped>) -> Result<Mapped> {
        let gone = || Error::protocol("memory of a GPU that this process does not have any more");
        let device = Device::by_uuid(&self.uuid)?.ok_or_else(gone)?;
        let mapping = match (self.lead, pool) {
            (Lead::Pool(id, fd), _) => {
                return ImportedPool::import(&device, (peer, id), fd.get()).map(Mapped::Pool);
            }
            (Lead::Descriptor(fd), _) => Mapping::map(&device, fd.get(), self.len),
            (Lead::Legacy(handle), _) => Mapping::open(&device, &handle, self.len),
            (Lead::Pooled { share, .. }, Some(Mapped::Pool(pool)))
                if Arc::ptr_eq(pool.device(), &device) =>
            {
                Mapping::of_pool(pool, &share, self.len)
            }
            (Lead::Pooled { .. }, Some(Mapped::Unopened(error))) => Err(error.clone()),
            (Lead::Pooled { pool, .. }, _) => Err(Error::protocol(format!(
                "memory of pool {pool}, which the peer has retired"
            ))),
        };
        Ok(Mapped::Gpu(Arc::new(GpuRegion::new(
            device, mapping?, self.len,
        ))))
    }
}
