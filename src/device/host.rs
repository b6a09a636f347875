//! Host memory for bodies that arrive as bytes.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::device::BufferRef;
use crate::device::recycle::{self, RecycledBlock};
use crate::error::{Error, Result};

/// An allocation on the host, aligned to 64 bytes as Arrow recommends (rule A2).
///
/// It is always initialised memory.
#[derive(Debug)]
pub struct HostBuffer {
    data: NonNull<u8>,
    len: usize,
    memory: Backing,
}

/// What a buffer's bytes lie in.
#[derive(Debug)]
enum Backing {
    /// Nothing: there are none.
    None,
    /// An allocation of the heap, which begins here.
    Heap(NonNull<u8>),
    /// Memory that other bodies use in turn: a large buffer that was made
    /// [`to_fill`](HostBuffer::to_fill).
    Block(RecycledBlock),
}

/// The alignment of every [`HostBuffer`], in bytes.
const ALIGNMENT: usize = 64;
/// The alignment that every allocation has: more is asked for by asking for more bytes, for
/// `malloc` takes five times as long where it has to align by itself.
const HEAP_ALIGNMENT: usize = 16;

impl HostBuffer {
    /// Allocates `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the system does not give the memory.
    pub fn new(len: usize) -> Result<Self> {
        // SAFETY: it is zeroed.
        unsafe { Self::on_heap(len, alloc_zeroed) }
    }

    /// A copy of `bytes`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn copy_of(bytes: &[u8]) -> Result<Self> {
        let copy = if bytes.len() < recycle::LEAST_BYTES {
            // SAFETY: all of it is written below.
            unsafe { Self::on_heap(bytes.len(), alloc) }?
        } else {
            Self::to_fill(bytes.len())?
        };
        // SAFETY: `data` is valid for writes of `len` bytes, which are of an allocation that nobody
        // else knows.
        unsafe {
            let to = copy.data.as_ptr();
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        Ok(copy)
    }

    /// Takes memory of the heap by `allocate`, `alloc` or `alloc_zeroed`.
    ///
    /// # Safety
    ///
    /// What is not zeroed is written before anybody reads it.
    unsafe fn on_heap(len: usize, allocate: unsafe fn(Layout) -> *mut u8) -> Result<Self> {
        if len == 0 {
            // A dangling pointer that keeps the promised alignment.
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
        // SAFETY: the size of `layout` is not zero: `len` is not.
        let base = NonNull::new(unsafe { allocate(layout) }).ok_or_else(refused)?;
        let skip = base.addr().get().wrapping_neg() % ALIGNMENT;
        Ok(Self {
            // SAFETY: `base` is aligned to HEAP_ALIGNMENT, so that `skip` is at most what the
            // layout has more than `len`.
            data: unsafe { base.add(skip) },
            len,
            memory: Backing::Heap(base),
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
        // SAFETY: `data` is aligned and valid for `len` initialised bytes until drop: written whole
        // when it was made, or of a block, which is initialised and at least as long. And the
        // shared borrow of self rules out a mutable one.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the exclusive borrow of self makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len) }
    }
}

/// What is allocated for `len` bytes that can be aligned.
fn heap_layout(len: usize) -> Option<Layout> {
    let size = len.checked_add(ALIGNMENT - HEAP_ALIGNMENT)?;
    Layout::from_size_align(size, HEAP_ALIGNMENT).ok()
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.memory, Backing::None) {
            Backing::None => {}
            Backing::Block(block) => block.give_back(),
            Backing::Heap(base) => {
                if let Some(layout) = heap_layout(self.len) {
                    // SAFETY: `base` came from `on_heap` with this layout and is freed only here.
                    unsafe { dealloc(base.as_ptr(), layout) };
                }
            }
        }
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
