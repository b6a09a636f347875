//! Arrays that are made in an arena on a GPU.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::{Arena, ArenaKind, dealloc};
use crate::device::cuda::Device;
use crate::device::cuda::room::{GpuAllocator, RoomMemory};
use crate::error::Result;

impl Arena {
    /// The arena as the place for arrays that are moved to its GPU
    /// ([`move_into`](crate::arrow::transfer::move_into)); `None` for one on the host.
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

/// A block that is given back when dropped, also after the last handle of its arena is gone.
#[derive(Debug)]
struct RoomBlock(NonNull<u8>);

// SAFETY: the pointer is only a number here, and an arena's blocks can be given back on any thread.
unsafe impl Send for RoomBlock {}
// SAFETY: as above.
unsafe impl Sync for RoomBlock {}

impl RoomMemory for RoomBlock {
    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }
}

impl Drop for RoomBlock {
    fn drop(&mut self) {
        // Fails only in a forked child, whose copy of the arena is left as it is.
        // SAFETY: whoever holds memory of a room drops it when no work uses it any more, and nobody
        // else knows the block.
        let _ = unsafe { dealloc(self.0) };
    }
}
