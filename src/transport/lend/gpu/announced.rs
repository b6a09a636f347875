//! Memory of a GPU that the peer has announced, until a body lies in it. Opening it takes a
//! context, which costs hundreds of megabytes and most of a second. A client that cancels, or gets
//! its table in another way, need not pay this.

use std::sync::Arc;

use crate::device::BufferRef;
use crate::device::cuda::import::ImportedMemory;
use crate::device::cuda::{Device, uuids};
use crate::device::region::MAX_REGION_BYTES;
use crate::error::{Error, Result};
use crate::proto::UUID_BYTES;
use crate::transport::closing::Foreign;
use crate::transport::lend::gpu::handle::{GpuHandle, HandleKind};
use crate::transport::lend::mappings::OpenRegion;

/// A region, checked as far as is possible without the driver.
#[derive(Debug)]
pub(in crate::transport::lend) struct AnnouncedRegion {
    pub handle: GpuHandle,
    len: usize,
    fd: Option<Foreign>,
}

impl AnnouncedRegion {
    /// The region of a REGION message, for a client whose request names the GPUs `accepted`.
    pub fn new(
        handle: GpuHandle,
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
        match (&handle.kind, &fd) {
            (HandleKind::Descriptor, Some(_)) | (HandleKind::Legacy(_), None) => {}
            (HandleKind::Descriptor, None) => {
                return Err(Error::protocol(
                    "no descriptor came with the REGION message",
                ));
            }
            (HandleKind::Legacy(_), Some(_)) => {
                return Err(Error::protocol(
                    "a descriptor came with a handle to which none belongs",
                ));
            }
        }
        let len = usize::try_from(handle.length).ok();
        let len = len.filter(|len| *len > 0 && handle.length <= MAX_REGION_BYTES);
        let len = len.ok_or_else(|| {
            Error::protocol(format!("memory of a GPU with {} bytes", handle.length))
        })?;
        Ok(Self { handle, len, fd })
    }

    /// Opens the region.
    pub fn open(self) -> Result<Arc<dyn OpenRegion>> {
        let gone = || Error::protocol("memory of a GPU that this process does not have any more");
        let device = Device::by_uuid(&self.handle.uuid)?.ok_or_else(gone)?;
        let mapping = match (&self.handle.kind, &self.fd) {
            (HandleKind::Legacy(handle), _) => ImportedMemory::open(&device, handle, self.len),
            (HandleKind::Descriptor, Some(fd)) => ImportedMemory::map(&device, fd.get(), self.len),
            (HandleKind::Descriptor, None) => Err(gone()),
        };
        Ok(Arc::new(GpuRegion {
            device,
            mapping: mapping?,
            len: self.len,
        }))
    }
}

/// A GPU's memory of the peer's.
#[derive(Debug)]
struct GpuRegion {
    device: Arc<Device>,
    mapping: Arc<ImportedMemory>,
    /// The length that the peer has said; the allocation may be longer.
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
        // It is an address of the device: nothing here may read through it.
        let data = std::ptr::without_provenance(usize::try_from(address).ok()?);
        (end <= self.len).then_some(BufferRef { data, len })
    }

    fn device(&self) -> Option<&Arc<Device>> {
        Some(&self.device)
    }
}
