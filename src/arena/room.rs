//! Arrays on a GPU whose memory comes from an arena.

use std::sync::Arc;

use crate::arena::bytes::ArenaBlock;
use crate::arena::{Arena, ArenaKind};
use crate::device::cuda::Device;
use crate::device::cuda::room::{GpuAllocator, RoomMemory};
use crate::error::Result;

impl Arena {
    /// The arena as an allocator for [`move_into`](crate::arrow::transfer::move_into); `None` for
    /// an arena on the host.
    #[doc(hidden)]
    pub fn room(&self) -> Option<Arc<dyn GpuAllocator>> {
        match &self.handle {
            ArenaKind::Host(_) => None,
            ArenaKind::Gpu(handle) => Some(Arc::new(ArenaRoom {
                device: Arc::clone(&handle.shared.place),
                arena: self.clone(),
            })),
        }
    }
}

#[derive(Debug)]
struct ArenaRoom {
    device: Arc<Device>,
    arena: Arena,
}

impl GpuAllocator for ArenaRoom {
    fn device(&self) -> &Arc<Device> {
        &self.device
    }

    fn take(&self, len: usize) -> Result<Arc<dyn RoomMemory>> {
        Ok(Arc::new(ArenaBlock::new(&self.arena, len)?))
    }
}

impl RoomMemory for ArenaBlock {
    fn address(&self) -> u64 {
        self.data().as_ptr() as u64
    }
}
