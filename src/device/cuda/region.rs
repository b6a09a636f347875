//! A region of GPU memory that another process can read, like a memfd region on the host.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::cuda::context::Device;
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::lendable::Lendable;
use crate::device::memfd::FileCharge;
use crate::device::offset_within;
use crate::error::{Error, Result};

/// A region of GPU memory: one exportable allocation and its blocks.
///
/// No work may use a block when it is freed, because its next owner may write at once. The owner of
/// enqueued work takes care of that.
#[derive(Debug)]
pub struct CudaRegion {
    memory: DeviceMemory,
    blocks: Lendable,
    charge: Mutex<Option<FileCharge>>,
}

impl CudaRegion {
    /// Makes a region of at least `len` bytes, rounded up to [units](DeviceMemory::lend_unit).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if `len` is 0; `OutOfMemory` if the GPU has too little memory;
    /// `Unsupported` if its memory cannot be lent; as [`Device::enter`].
    pub fn create(device: &Arc<Device>, len: u64) -> Result<Self> {
        if len == 0 {
            return Err(Error::invalid_argument("a region cannot have 0 bytes"));
        }
        let wanted = usize::try_from(len)
            .map_err(|_| Error::out_of_memory(format!("no GPU has {len} bytes")))?;
        let memory = DeviceMemory::new(device, wanted, Purpose::Lend)?;
        let blocks = Lendable::new(u64::try_from(memory.len()).unwrap_or(len));
        Ok(Self {
            memory,
            blocks,
            charge: Mutex::default(),
        })
    }

    /// The exportable allocation.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Attaches `charge`, which is dropped with the region.
    pub(crate) fn charge(&self, charge: FileCharge) {
        *self.charge.lock() = Some(charge);
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        self.memory.device()
    }

    /// The device address of the first byte.
    pub fn base(&self) -> u64 {
        self.memory.address()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// The offset of `len` bytes at `address`, if all of them lie in the region.
    pub fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        offset_within((self.base(), self.len()), address, len)
    }
}

/// The allocator of the region's blocks.
impl Deref for CudaRegion {
    type Target = Lendable;

    fn deref(&self) -> &Lendable {
        &self.blocks
    }
}
