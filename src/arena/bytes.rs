//! Arrow buffers in an arena, for Rust callers.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use arrow::buffer::Buffer;

use crate::arena::{Arena, dealloc};
use crate::device::DeviceKind;
use crate::error::{Error, Result};

impl Arena {
    /// Copies `bytes` into an aligned Arrow buffer in the arena, which can be lent without another
    /// copy. The last clone or slice of the buffer deallocates the block when dropped.
    ///
    /// # Errors
    ///
    /// As [`Arena::alloc`]; `Unsupported` for an arena on a GPU, since the processor may read an
    /// Arrow buffer.
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<Buffer> {
        if self.device() != DeviceKind::CPU {
            return Err(Error::unsupported(
                "a buffer of the arrow crate lies on the host, and this arena on a GPU",
            ));
        }
        let block = ArenaBlock::new(self, bytes.len())?;
        // SAFETY: the block has `bytes.len()` bytes of the host and was just allocated. Nobody else
        // knows the block, so it is writable and does not overlap `bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block.0.as_ptr(), bytes.len()) };
        let data = block.0;
        // SAFETY: the block has these bytes. They are initialised now, and nobody writes them until
        // `block` is dropped. The buffer drops `block` last.
        Ok(unsafe { Buffer::from_custom_allocation(data, bytes.len(), Arc::new(block)) })
    }
}

/// A block with one owner. It is deallocated when dropped, even after the last handle of the arena.
#[derive(Debug)]
pub(super) struct ArenaBlock(NonNull<u8>);

impl ArenaBlock {
    /// A block of `len` bytes of the arena, with undefined content.
    ///
    /// # Errors
    ///
    /// As [`Arena::alloc`].
    pub(super) fn new(arena: &Arena, len: usize) -> Result<Self> {
        arena.alloc(len).map(Self)
    }

    /// The first byte.
    pub(super) fn data(&self) -> NonNull<u8> {
        self.0
    }
}

// SAFETY: the value itself reads and writes no block, and any thread may deallocate blocks of an
// arena. Whoever takes the address is responsible for accesses through it.
unsafe impl Send for ArenaBlock {}
// SAFETY: shared access gives the address alone.
unsafe impl Sync for ArenaBlock {}

impl Drop for ArenaBlock {
    fn drop(&mut self) {
        // Fails only in a forked child, which leaves its copy of the arena alone.
        // SAFETY: owners drop this value after the last access to the block: a buffer of Arrow is
        // gone, and the work on a GPU's arrays is done. Nobody else knows the block.
        let _ = unsafe { dealloc(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use crate::arena::{Arena, ArenaOptions, find};
    use crate::device::DeviceKind;

    /// Promise of the arena: the lender finds a buffer in the arena, and the last slice frees its
    /// memory.
    #[test]
    fn buffers_live_in_the_arena_until_their_last_slice() {
        let arena = Arena::new(DeviceKind::CPU, ArenaOptions::default()).unwrap();
        let buffer = arena.buffer_from(&[1, 2, 3, 4]).unwrap();
        assert_eq!(buffer.as_slice(), [1, 2, 3, 4]);
        assert!(find(buffer.as_ptr(), 4).is_some());
        assert!((buffer.as_ptr() as usize).is_multiple_of(64));
        let slice = buffer.slice(2);
        drop(buffer);
        assert_eq!((slice.as_slice(), arena.used_bytes()), (&[3, 4][..], 64));
        drop(slice);
        assert_eq!(arena.used_bytes(), 0);
        assert!(arena.buffer_from(&[]).unwrap().is_empty());
    }
}
