//! Memory of a GPU that another process can be given to read: what a memfd region is on the host.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::device::cuda::context::Device;
use crate::device::cuda::memory::{DeviceMemory, Purpose};
use crate::device::lendable::Lendable;
use crate::device::memfd::FileCharge;
use crate::error::{Error, Result};

/// A region of a GPU's memory: one allocation that can be exported, with the blocks that are in
/// use.
///
/// A block is given back when no work uses it any more, which whoever enqueued the work sees to:
/// the next one to take it may write at once.
#[derive(Debug)]
pub struct CudaRegion {
    memory: DeviceMemory,
    blocks: Lendable,
    charge: Mutex<Option<FileCharge>>,
}

impl CudaRegion {
    /// Makes a region of at least `len` bytes: whole [units](DeviceMemory::lend_unit).
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when `len` is 0, `OutOfMemory` when the GPU has not the memory,
    /// `Unsupported` where its memory cannot be lent; as [`Device::enter`].
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

    /// The allocation, to be exported, and its device.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Has the region count: `charge` is dropped with it.
    pub(crate) fn charge(&self, charge: FileCharge) {
        *self.charge.lock() = Some(charge);
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        self.memory.device()
    }

    /// First byte, for the device.
    pub fn base(&self) -> u64 {
        self.memory.address()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Where `len` bytes at `address` lie in the region, if they lie in it whole.
    pub fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        let offset = address.checked_sub(self.base())?;
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        (end <= self.len()).then_some(offset)
    }
}

/// Its blocks: who uses which bytes.
impl Deref for CudaRegion {
    type Target = Lendable;

    fn deref(&self) -> &Lendable {
        &self.blocks
    }
}
