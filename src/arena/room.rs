//! Arrays on a GPU whose memory comes from an arena.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::{Arena, ArenaKind, dealloc};
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
        Ok(Arc::new(RoomBlock(self.arena.alloc(len)?)))
    }
}

/// Deallocates its block when dropped, even after the last handle of the arena.
#[derive(Debug)]
struct RoomBlock(NonNull<u8>);

// SAFETY: the pointer is only a number, and any thread may deallocate blocks of an arena.
unsafe impl Send for RoomBlock {}
// SAFETY: shared access reads the pointer alone, as a number.
unsafe impl Sync for RoomBlock {}

impl RoomMemory for RoomBlock {
    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

impl Drop for RoomBlock {
    fn drop(&mut self) {
        // Fails only in a forked child, which leaves its copy of the arena alone.
        // SAFETY: the owner of a room's memory drops it after the last work on it, and nobody else
        // knows the block.
        let _ = unsafe { dealloc(self.0) };
    }
}
