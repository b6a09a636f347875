//! Arrow buffers in an arena, for Rust callers.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use arrow::buffer::Buffer;

use crate::arena::{Arena, dealloc};
use crate::device::DeviceKind;
use crate::error::{Error, Result};

impl Arena {
    /// Copies `bytes` into the arena, as an Arrow buffer that is aligned to 64 and can be lent
    /// without another copy. Its block is given back when the last clone or slice of it is dropped.
    ///
    /// # Errors
    ///
    /// As [`Arena::alloc`]; `Unsupported` where the arena is not on the host, since whoever has an
    /// Arrow buffer may read it.
    pub fn buffer_from(&self, bytes: &[u8]) -> Result<Buffer> {
        if self.device() != DeviceKind::CPU {
            return Err(Error::unsupported(
                "a buffer of the arrow crate lies on the host, and this arena on a GPU",
            ));
        }
        let block = ArenaBlock(self.alloc(bytes.len())?);
        // SAFETY: the block has the `bytes.len()` bytes of the host just allocated, which nobody
        // else knows of yet, so it is writable and does not overlap `bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), block.0.as_ptr(), bytes.len()) };
        let data = block.0;
        // SAFETY: the block is valid for these bytes, which are initialised now and not written
        // again, until `block` is dropped, which the buffer does last.
        Ok(unsafe { Buffer::from_custom_allocation(data, bytes.len(), Arc::new(block)) })
    }
}

/// A block that is given back when dropped, also after the last handle of its arena is gone.
#[derive(Debug)]
struct ArenaBlock(NonNull<u8>);

// SAFETY: the block is only read while it is shared, and an arena's blocks can be given back on any
// thread.
unsafe impl Send for ArenaBlock {}
// SAFETY: as above.
unsafe impl Sync for ArenaBlock {}

impl Drop for ArenaBlock {
    fn drop(&mut self) {
        // Fails only in a forked child, whose copy of the arena is left as it is.
        // SAFETY: the buffer that read the block is gone: it owned this value.
        let _ = unsafe { dealloc(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use crate::arena::{Arena, ArenaOptions, find};
    use crate::device::DeviceKind;

    /// Promise of the arena: a buffer in it is found by the lender, and its memory comes back with
    /// its last slice.
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
