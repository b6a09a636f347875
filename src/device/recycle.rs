//! Memory of large bodies, used again.
//!
//! Pages that the system gives fresh cost several times what copying into used ones does, and a
//! stream frees bodies at the rate at which it receives them. So the blocks of the last few are kept.

use std::ptr::NonNull;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};

/// Bodies of at least this many bytes have blocks of their own; the heap serves smaller ones.
pub const LEAST_BYTES: usize = 256 << 10;
/// Most bytes of blocks that are kept for later.
const MOST_KEPT_BYTES: usize = 128 << 20;
/// The size of a huge page, which a block gets where the system has them: one fault instead of 512.
const HUGE_PAGE_BYTES: usize = 2 << 20;

static KEPT: Lazy<Mutex<Kept>> = Lazy::new(Mutex::default);

#[derive(Default)]
struct Kept {
    blocks: Vec<Block>,
    bytes: usize,
}

/// Mapped memory, readable and writable, aligned to pages. What it holds is not defined, but
/// initialised: zeros, or what an earlier body of this process was.
#[derive(Debug)]
pub struct Block {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: a block owns its mapping alone; nothing about it belongs to a thread.
unsafe impl Send for Block {}

impl Block {
    /// A block of at least `len` bytes, which are not 0: one that was kept, or a new one.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when the system does not give the memory.
    pub fn take(len: usize) -> Result<Self> {
        // Another thread's turn, or a fork in the middle of one, is not waited for.
        if let Some(mut kept) = KEPT.try_lock()
            && let Some(block) = kept.take(len)
        {
            return Ok(block);
        }
        Self::map(len)
    }

    fn map(len: usize) -> Result<Self> {
        let refused = || Error::out_of_memory(format!("cannot allocate {len} bytes for a body"));
        let unit = if len >= HUGE_PAGE_BYTES {
            HUGE_PAGE_BYTES
        } else {
            rustix::param::page_size()
        };
        let len = len.checked_next_multiple_of(unit).ok_or_else(refused)?;
        // SAFETY: a new private mapping at an address that the system chooses touches nobody's.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let mapped = mapped.map_err(|_| refused())?.cast::<u8>();
        let data = NonNull::new(mapped).ok_or_else(refused)?;
        if unit == HUGE_PAGE_BYTES {
            // SAFETY: the mapping was made above; the advice changes no contents. Where it is not
            // taken the pages are small, and all is well.
            let _ = unsafe { madvise(data.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(Self { data, len })
    }

    /// The first byte.
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Gives it back: to be kept, or to the system.
    pub fn give_back(self) {
        if let Some(mut kept) = KEPT.try_lock() {
            kept.give(self);
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the mapping of `map`, whose only owner is dropped here.
        let _ = unsafe { munmap(self.data.as_ptr().cast(), self.len) };
    }
}

impl Kept {
    /// The smallest block that fits and is not more than twice too large.
    fn take(&mut self, len: usize) -> Option<Block> {
        let fits = |block: &Block| block.len >= len && block.len / 2 <= len.max(HUGE_PAGE_BYTES);
        let (index, _) = (self.blocks.iter().enumerate())
            .filter(|(_, block)| fits(block))
            .min_by_key(|(_, block)| block.len)?;
        let block = self.blocks.swap_remove(index);
        self.bytes -= block.len;
        Some(block)
    }

    /// Keeps `block`; the oldest ones go where there are too many.
    fn give(&mut self, block: Block) {
        if block.len > MOST_KEPT_BYTES {
            return;
        }
        self.bytes += block.len;
        self.blocks.push(block);
        while self.bytes > MOST_KEPT_BYTES && !self.blocks.is_empty() {
            self.bytes -= self.blocks.remove(0).len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that comes back serves the next body of about its size, and no much smaller one.
    #[test]
    fn blocks_are_used_again() {
        let mut kept = Kept::default();
        let block = Block::map(8 << 20).unwrap();
        let data = block.data();
        kept.give(block);
        assert!(kept.take(9 << 20).is_none());
        assert!(kept.take(1 << 20).is_none());
        assert_eq!(kept.take(5 << 20).unwrap().data(), data);
        assert_eq!(kept.bytes, 0);
    }

    /// What is kept is bounded, and the oldest goes first.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        for _ in 0..5 {
            kept.give(Block::map(MOST_KEPT_BYTES / 3).unwrap());
            assert!(kept.bytes <= MOST_KEPT_BYTES);
        }
        kept.give(Block::map(2 * MOST_KEPT_BYTES).unwrap());
        assert!(kept.take(MOST_KEPT_BYTES + 1).is_none());
    }

    /// A length that no machine has is an error.
    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(Block::take(usize::MAX).is_err());
        assert!(Block::take(isize::MAX as usize).is_err());
    }
}
