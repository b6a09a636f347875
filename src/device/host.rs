//! Host memory for bodies that arrive as bytes.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::device::BufferRef;
use crate::device::recycle::{self, RecycledBlock};
use crate::error::{Error, Result};

/// An allocation on the host, aligned to 64 bytes as Arrow recommends (rule A2). The memory is
/// always initialised.
#[derive(Debug)]
pub struct HostBuffer {
    data: NonNull<u8>,
    len: usize,
    memory: Backing,
}

/// The memory of a buffer.
#[derive(Debug)]
enum Backing {
    /// No memory: the buffer is empty.
    None,
    /// An allocation of the heap, which begins at this address and has room for so many aligned
    /// bytes.
    Heap(NonNull<u8>, usize),
    /// A recycled block: a large buffer of [`to_fill`](HostBuffer::to_fill).
    Block(RecycledBlock),
}

/// The alignment of every [`HostBuffer`], in bytes.
const ALIGNMENT: usize = 64;
/// The natural alignment of heap allocations. `on_heap` allocates some bytes more and aligns
/// itself, because `malloc` is slow with a larger alignment.
const HEAP_ALIGNMENT: usize = 16;

impl HostBuffer {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system has no memory.
    pub fn new(len: usize) -> Result<Self> {
        // SAFETY: `alloc_zeroed` initialises the memory.
        unsafe { Self::on_heap(len, alloc_zeroed) }
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        let copy = if bytes.len() < recycle::LEAST_BYTES {
            // SAFETY: the copy below writes all of the memory.
            unsafe { Self::on_heap(bytes.len(), alloc) }?
        } else {
            Self::to_fill(bytes.len())?
        };
        // SAFETY: `data` is valid for writes of `bytes.len()` bytes. The allocation is new, so it
        // does not overlap `bytes`.
        unsafe {
            let to = copy.data.as_ptr();
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(copy)
    }

    /// Allocates memory of the heap by `allocate`, which is `alloc` or `alloc_zeroed`.
    ///
    /// # Safety
    ///
    /// The caller writes the memory before anybody reads it, unless `allocate` is `alloc_zeroed`.
    unsafe fn on_heap(len: usize, allocate: unsafe fn(Layout) -> *mut u8) -> Result<Self> {
        if len == 0 {
            // A dangling pointer with the promised alignment.
            let data = NonNull::without_provenance(
                std::num::NonZeroUsize::MIN.saturating_add(ALIGNMENT - 1),
            );
            return Ok(Self {
                data,
                len,
                memory: Backing::None,
            });
        }
        let refused = || Error::out_of_memory(format!("cannot allocate {len} bytes for a body"));
        let layout = heap_layout(len).ok_or_else(refused)?;
        // SAFETY: `layout` has a size above zero, because `len` is above zero.
        let base = NonNull::new(unsafe { allocate(layout) }).ok_or_else(refused)?;
        let skip = base.addr().get().wrapping_neg() % ALIGNMENT;
        Ok(Self {
            // SAFETY: `base` is aligned to HEAP_ALIGNMENT, so `skip` is at most the difference
            // between the size of the layout and `len`.
            data: unsafe { base.add(skip) },
            len,
            memory: Backing::Heap(base, len),
        })
    }

    /// A buffer of `len` bytes. The caller writes all of it before anybody reads it: it may hold
    /// bytes of an earlier body of this process.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn to_fill(len: usize) -> Result<Self> {
        if len < recycle::LEAST_BYTES {
            return Self::new(len);
        }
        let block = RecycledBlock::take(len)?;
        Ok(Self {
            data: block.data(),
            len,
            memory: Backing::Block(block),
        })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets the bytes from `len` on. Does nothing if there are no more than `len`.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
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
        // SAFETY: `data` is aligned and valid for `len` bytes until drop. They are initialised: by
        // the constructor, or as the content of a block. The shared borrow of self rules out a
        // mutable reference.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: `data` is aligned and valid for `len` initialised bytes until drop. The exclusive
        // borrow of self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

/// The layout of a heap allocation that has room for `len` aligned bytes.
fn heap_layout(len: usize) -> Option<Layout> {
    let size = len.checked_add(ALIGNMENT - HEAP_ALIGNMENT)?;
    Layout::from_size_align(size, HEAP_ALIGNMENT).ok()
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.memory, Backing::None) {
            Backing::None => {}
            Backing::Block(block) => block.give_back(),
            Backing::Heap(base, room) => {
                if let Some(layout) = heap_layout(room) {
                    // SAFETY: `base` came from `on_heap` with this layout and is freed only here.
                    unsafe { dealloc(base.as_ptr(), layout) };
                }
            }
        }
    }
}

// SAFETY: the buffer is the only owner of its memory and is not tied to a thread.
unsafe impl Send for HostBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for HostBuffer {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rule A2: received bodies are aligned to 64 bytes, even if empty; `new` zeroes them.
    #[test]
    fn host_buffers_are_aligned_to_64_bytes() {
        for len in [0, 1, 64, 4097] {
            let mut buffer = HostBuffer::new(len).unwrap();
            assert_eq!(buffer.as_ref().data as usize % ALIGNMENT, 0);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
            buffer.as_mut_slice().fill(7);
            assert_eq!(buffer.as_slice().len(), len);
            buffer.truncate(len / 2);
            assert_eq!(buffer.as_slice().len(), len / 2);
        }
    }

    /// A large recycled buffer can be written and read as a whole.
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

    /// An impossible length is an error, not an abort.
    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(HostBuffer::new(usize::MAX).is_err());
        assert!(HostBuffer::new(isize::MAX as usize - 128).is_err());
    }
}
