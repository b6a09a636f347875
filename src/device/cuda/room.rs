//! Allocators of GPU memory for arrays.

use std::fmt::Debug;
use std::sync::Arc;

use crate::device::cuda::context::Device;
use crate::device::cuda::memory::DeviceMemory;
use crate::error::Result;

/// Memory of a GPU. As for [`DeviceMemory`], no work may use it when it is dropped.
pub trait RoomMemory: Debug + Send + Sync {
    /// The device address of the first byte.
    fn address(&self) -> u64;
}

impl RoomMemory for DeviceMemory {
    fn address(&self) -> u64 {
        Self::address(self)
    }
}

/// Allocates memory of one GPU, for example from an arena, which can be lent without a copy.
pub trait GpuAllocator: Debug + Send + Sync {
    /// The GPU.
    fn device(&self) -> &Arc<Device>;

    /// Allocates at least `len` bytes, aligned to 64.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, or another error of the allocator.
    fn take(&self, len: usize) -> Result<Arc<dyn RoomMemory>>;
}
