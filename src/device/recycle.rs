//! Memory of bodies, used again.
//!
//! Pages that the system gives fresh cost several times what copying into used ones does, and a
//! stream frees bodies at the rate at which it receives them. So the blocks of the last few are kept,
//! and the one that came back last is given out first: it is the likeliest to lie in a cache.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::{Error, Result};

/// Bodies of at least this many bytes have blocks of their own; the heap serves smaller ones.
pub const LEAST_BYTES: usize = 16 << 10;
/// Blocks of at least this many bytes are mappings of their own, of which the system allows only so
/// many; smaller ones come from the heap.
const LEAST_MAPPED_BYTES: usize = 256 << 10;
/// The alignment of every block, in bytes.
const ALIGNMENT: usize = 64;
/// Most bytes of blocks that are kept for later: a stream of the default window has up to 256 MiB of
/// bodies on the way.
const MOST_KEPT_BYTES: usize = 512 << 20;
/// Bytes of blocks that stay this process's own; pages of others are the system's if it needs them.
const HELD_BYTES: usize = 128 << 20;
/// Most blocks that are kept for later: looking through them must stay cheap.
const MOST_KEPT_BLOCKS: usize = 64;
/// The size of a huge page, which a block gets where the system has them: one fault instead of 512.
const HUGE_PAGE_BYTES: usize = 2 << 20;

static KEPT: Lazy<Mutex<Kept>> = Lazy::new(Mutex::default);

#[derive(Default)]
struct Kept {
    blocks: Vec<Block>,
    bytes: usize,
}

/// Memory, readable and writable, aligned to [`ALIGNMENT`]. What it holds is not defined, but
/// initialised: zeros, or what an earlier body of this process was.
#[derive(Debug)]
pub struct Block {
    data: NonNull<u8>,
    /// From [`LEAST_MAPPED_BYTES`] on, a mapping of its own; else of the heap.
    len: usize,
    /// The system may take its pages, until they are written again; they are zeros then.
    offered: bool,
}

// SAFETY: a block owns its memory alone; nothing about it belongs to a thread.
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
        Self::new(len)
    }

    fn new(len: usize) -> Result<Self> {
        let unit = match len {
            HUGE_PAGE_BYTES.. => HUGE_PAGE_BYTES,
            LEAST_MAPPED_BYTES.. => rustix::param::page_size(),
            _ => ALIGNMENT,
        };
        let whole = len.checked_next_multiple_of(unit);
        let data = whole.and_then(|whole| {
            if whole >= LEAST_MAPPED_BYTES {
                map(whole, unit == HUGE_PAGE_BYTES)
            } else {
                // SAFETY: the size of the layout is not 0, as the caller promises.
                NonNull::new(unsafe { alloc_zeroed(layout(whole)?) })
            }
        });
        match (data, whole) {
            (Some(data), Some(len)) => Ok(Self {
                data,
                len,
                offered: false,
            }),
            _ => Err(Error::out_of_memory(format!(
                "cannot allocate {len} bytes for a body"
            ))),
        }
    }

    /// The first byte.
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Lets the system have the pages if it needs them. Nobody uses the block meanwhile.
    fn offer(&mut self) {
        self.offered = true;
        if self.len >= LEAST_MAPPED_BYTES {
            // SAFETY: the mapping is this block's, and what is in it is not defined. Where the advice
            // is not taken the pages stay.
            // By libc, as below.
            let _ = unsafe { libc::madvise(self.data.as_ptr().cast(), self.len, libc::MADV_FREE) };
        }
    }

    /// Gives it back: to be kept, or to the system.
    pub fn give_back(self) {
        let oldest = match KEPT.try_lock() {
            Some(mut kept) => kept.give(self),
            None => return,
        };
        // Without the lock: the system takes its time.
        drop(oldest);
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, ALIGNMENT).ok()
}

fn map(len: usize, huge: bool) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address that the system chooses touches nobody's.
    let mapped = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let mapped = mapped.ok()?;
    if huge {
        // SAFETY: the mapping was made above; the advice changes no contents. Where it is not taken
        // the pages are small, and all is well.
        let _ = unsafe { madvise(mapped, len, Advice::LinuxHugepage) };
    }
    NonNull::new(mapped.cast())
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.len >= LEAST_MAPPED_BYTES {
            // SAFETY: the mapping of `map`, whose only owner is dropped here.
            // By libc, whose calls UCX watches: it forgets what it knows of the addresses.
            let _ = unsafe { libc::munmap(self.data.as_ptr().cast(), self.len) };
        } else if let Some(layout) = layout(self.len) {
            // SAFETY: `data` came from `alloc_zeroed` with this layout and is freed only here.
            unsafe { dealloc(self.data.as_ptr(), layout) };
        }
    }
}

impl Kept {
    /// The smallest block that fits and is not more than twice too large; of several, the one that
    /// came back last.
    fn take(&mut self, len: usize) -> Option<Block> {
        let fits = |block: &Block| block.len >= len && block.len / 2 <= len;
        let (index, _) = (self.blocks.iter().enumerate().rev())
            .filter(|(_, block)| fits(block))
            .min_by_key(|(_, block)| block.len)?;
        // In order of their return: the oldest ones go first.
        let mut block = self.blocks.remove(index);
        self.bytes -= block.len;
        block.offered = false;
        Some(block)
    }

    /// Keeps `block`, and gives out what is too much: itself, or the oldest ones.
    fn give(&mut self, block: Block) -> Vec<Block> {
        if block.len > MOST_KEPT_BYTES {
            return vec![block];
        }
        self.bytes += block.len;
        self.blocks.push(block);
        let mut gone = 0;
        while self.bytes > MOST_KEPT_BYTES || self.blocks.len() - gone > MOST_KEPT_BLOCKS {
            self.bytes -= self.blocks[gone].len;
            gone += 1;
        }
        let gone = self.blocks.drain(..gone).collect();
        let mine = self.blocks.iter().filter(|block| !block.offered);
        let mut held: usize = mine.map(|block| block.len).sum();
        for block in self.blocks.iter_mut().filter(|block| !block.offered) {
            if held <= HELD_BYTES {
                break;
            }
            held -= block.len;
            block.offer();
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block that comes back serves the next body of about its size, and no much smaller one.
    #[test]
    fn blocks_are_used_again() {
        let mut kept = Kept::default();
        let block = Block::new(8 << 20).unwrap();
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
            kept.give(Block::new(MOST_KEPT_BYTES / 3).unwrap());
            assert!(kept.bytes <= MOST_KEPT_BYTES);
        }
        kept.give(Block::new(2 * MOST_KEPT_BYTES).unwrap());
        assert!(kept.take(MOST_KEPT_BYTES + 1).is_none());
        assert!(kept.take(MOST_KEPT_BYTES / 3).is_some());
        for _ in 0..2 * MOST_KEPT_BLOCKS {
            kept.give(Block::new(LEAST_BYTES).unwrap());
        }
        assert_eq!(kept.blocks.len(), MOST_KEPT_BLOCKS);
    }

    /// Of what is kept, the system may have the oldest but for a part.
    #[test]
    fn most_of_what_is_kept_may_be_taken() {
        let mut kept = Kept::default();
        for _ in 0..3 {
            kept.give(Block::new(HELD_BYTES / 2).unwrap());
        }
        let offered =
            |kept: &Kept| -> Vec<bool> { kept.blocks.iter().map(|block| block.offered).collect() };
        assert_eq!(offered(&kept), [true, false, false]);
        let mut blocks: Vec<_> = (0..3).map(|_| kept.take(HELD_BYTES / 2).unwrap()).collect();
        let block = blocks.pop().unwrap();
        assert!(!block.offered);
        // SAFETY: the block has as many bytes, and is this test's alone.
        unsafe { block.data().as_ptr().write_bytes(7, HELD_BYTES / 2) };
        kept.give(block);
        assert_eq!(offered(&kept), [false]);
    }

    /// Of blocks that fit alike, the one that came back last is given out, and is used again whether
    /// it is of the heap or a mapping.
    #[test]
    fn the_last_block_back_is_the_first_out() {
        for len in [LEAST_BYTES, LEAST_MAPPED_BYTES] {
            let mut kept = Kept::default();
            let blocks: Vec<_> = (0..3).map(|_| Block::new(len).unwrap()).collect();
            let last = blocks[2].data();
            for block in blocks {
                kept.give(block);
            }
            assert_eq!(kept.take(len).unwrap().data(), last);
        }
    }

    /// A length that no machine has is an error.
    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(Block::take(usize::MAX).is_err());
        assert!(Block::take(isize::MAX as usize).is_err());
    }
}
