//! Where memory of a GPU is taken from that is to hold arrays.

use std::fmt::Debug;
use std::sync::Arc;

use crate::device::cuda::context::Device;
use crate::device::cuda::memory::DeviceMemory;
use crate::error::Result;

/// Memory of a GPU. As [`DeviceMemory`], it is dropped when no work uses it any more.
pub trait RoomMemory: Debug + Send + Sync {
    /// Its first byte, for the device.
    fn address(&self) -> u64;
}

impl RoomMemory for DeviceMemory {
    fn address(&self) -> u64 {
        Self::address(self)
    }
}

/// Gives out memory of one GPU: an arena, say, whose memory is lent without a copy.
pub trait GpuAllocator: Debug + Send + Sync {
    /// The GPU.
    fn device(&self) -> &Arc<Device>;

    /// At least `len` bytes, aligned to 64.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, and whatever else keeps it from giving them.
    fn take(&self, len: usize) -> Result<Arc<dyn RoomMemory>>;
}
