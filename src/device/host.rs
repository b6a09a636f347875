//! Host memory for bodies that arrive as bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::device::BufferRef;
use crate::device::recycle::{self, Block};
use crate::error::{Error, Result};

/// An allocation on the host, aligned to 64 bytes as Arrow recommends (rule A2).
///
/// It is always initialised memory.
#[derive(Debug)]
pub struct HostBuffer {
    data: NonNull<u8>,
    len: usize,
    /// Where `data` begins, in a buffer that was made [`to_fill`](Self::to_fill) and is large.
    block: Option<Block>,
}

/// The alignment of every [`HostBuffer`], in bytes.
const ALIGNMENT: usize = 64;

impl HostBuffer {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the system does not give the memory.
    pub fn new(len: usize) -> Result<Self> {
        if len == 0 {
            // A dangling pointer that keeps the promised alignment.
            let data = NonNull::without_provenance(
                std::num::NonZeroUsize::MIN.saturating_add(ALIGNMENT - 1),
            );
            return Ok(Self {
                data,
                len,
                block: None,
            });
        }
        let refused = || Error::out_of_memory(format!("cannot allocate {len} bytes for a body"));
        let layout = Layout::from_size_align(len, ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: the size of `layout` is not zero, checked above.
        let data = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Self {
            data,
            len,
            block: None,
        })
    }

    /// A buffer of `len` bytes that is filled whole before anyone reads it: it may hold what an
    /// earlier body of this process was.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn to_fill(len: usize) -> Result<Self> {
        if len < recycle::LEAST_BYTES {
            return Self::new(len);
        }
        let block = Block::take(len)?;
        Ok(Self {
            data: block.data(),
            len,
            block: Some(block),
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Describes the bytes; the caller keeps the buffer alive.
    pub fn as_ref(&self) -> BufferRef {
        BufferRef {
            data: self.data.as_ptr(),
            len: self.len,
        }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `data` is aligned and valid for `len` initialised bytes until drop: zeroed by the
        // heap, or of a block, which is initialised and at least as long. And the shared borrow of self rules out a mutable one.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the exclusive borrow of self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        if let Some(block) = self.block.take() {
            block.give_back();
            return;
        }
        // SAFETY: `new` made a valid layout of the same size and alignment.
        let layout = unsafe { Layout::from_size_align_unchecked(self.len, ALIGNMENT) };
        // SAFETY: `data` came from `alloc_zeroed` with this layout and is freed only here.
        unsafe { dealloc(self.data.as_ptr(), layout) };
    }
}

// SAFETY: the buffer owns its memory alone; nothing about it belongs to a thread.
unsafe impl Send for HostBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostBuffer {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule A2: received bodies are aligned to 64 bytes, empty ones too; these are zeroed.
    #[test]
    fn host_buffers_are_aligned_to_64_bytes() {
        for len in [0, 1, 64, 4097] {
            let mut buffer = HostBuffer::new(len).unwrap();
            assert_eq!(buffer.as_ref().data as usize % ALIGNMENT, 0);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
            buffer.as_mut_slice().fill(7);
            assert_eq!(buffer.as_slice().len(), len);
        }
    }

    /// A large buffer comes from memory that was used before, and can be written and read whole.
    #[test]
    fn large_buffers_to_fill_are_whole() {
        for len in [recycle::LEAST_BYTES, 300 << 10, (3 << 20) + 1] {
            let mut buffer = HostBuffer::to_fill(len).unwrap();
            assert_eq!(buffer.as_ref().data as usize % ALIGNMENT, 0);
            buffer.as_mut_slice().fill(7);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 7));
        }
        assert!(HostBuffer::to_fill(usize::MAX).is_err());
    }

    /// A length that no machine has is an error, not an abort.
    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(HostBuffer::new(usize::MAX).is_err());
        assert!(HostBuffer::new(isize::MAX as usize - 128).is_err());
    }
}
