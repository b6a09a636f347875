//! Memory of bodies, used again.
//!
//! Pages that the system gives fresh cost several times what copying into used ones does, and a
//! stream frees bodies at the rate at which it receives them. So the blocks of the last few are
//! kept, and the one that came back last is given out first: it is the likeliest to lie in a cache.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
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
/// Most bytes of blocks that are kept for later: a stream of the default window has up to 256 MiB
/// of bodies on the way.
const MOST_KEPT_BYTES: usize = 512 << 20;
/// Bytes of blocks that stay this process's own; the pages of others are the system's if it needs
/// them, and what is of the heap goes back to it.
const HELD_BYTES: usize = 128 << 20;
/// The size of a huge page, which a block gets where the system has them: one fault instead of 512.
const HUGE_PAGE_BYTES: usize = 2 << 20;

static KEPT: Lazy<Mutex<RecycledBlocks>> = Lazy::new(Mutex::default);

/// Blocks for later. A consumer may give back thousands at once, a table's worth.
#[derive(Default)]
struct RecycledBlocks {
    /// By length, and of one length in the order of their return.
    blocks: BTreeMap<(usize, u64), RecycledBlock>,
    bytes: usize,
    /// The lengths of those that are this process's own, in the order of their return.
    held: BTreeMap<u64, usize>,
    held_bytes: usize,
    /// The same of those that the system may have.
    offered: BTreeMap<u64, usize>,
    /// Blocks that have come back so far.
    returns: u64,
}

/// Memory, readable and writable, aligned to [`ALIGNMENT`]. What it holds is not defined, but
/// initialised: zeros, or what an earlier body of this process was.
#[derive(Debug)]
pub struct RecycledBlock {
    data: NonNull<u8>,
    /// From [`LEAST_MAPPED_BYTES`] on, a mapping of its own; else of the heap.
    len: usize,
}

// SAFETY: a block owns its memory alone; nothing about it belongs to a thread.
unsafe impl Send for RecycledBlock {}

impl RecycledBlock {
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
            (Some(data), Some(len)) => Ok(Self { data, len }),
            _ => Err(Error::out_of_memory(format!(
                "cannot allocate {len} bytes for a body"
            ))),
        }
    }

    /// The first byte.
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Lets the system have the pages if it needs them, until they are written again; they are
    /// zeros then. Nobody uses the block meanwhile. Returns whether they are pages of its own.
    fn offer(&self) -> bool {
        let mapped = self.len >= LEAST_MAPPED_BYTES;
        if mapped {
            // SAFETY: the mapping is this block's, and what is in it is not defined. Where the
            // advice is not taken the pages stay. By libc, as below.
            let _ = unsafe { libc::madvise(self.data.as_ptr().cast(), self.len, libc::MADV_FREE) };
        }
        mapped
    }

    /// Gives it back: to be kept, or to the system.
    pub fn give_back(self) {
        let gone = match KEPT.try_lock() {
            Some(mut kept) => kept.give(self),
            None => return,
        };
        // Without the lock: the system takes its time.
        drop(gone);
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

impl Drop for RecycledBlock {
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

impl RecycledBlocks {
    /// The smallest block that fits and is not more than twice too large; of several, the one that
    /// came back last.
    fn take(&mut self, len: usize) -> Option<RecycledBlock> {
        let most = len.saturating_mul(2).saturating_add(1);
        let fits = (len, 0)..=(most, u64::MAX);
        let (&(len, _), _) = self.blocks.range(fits).next()?;
        let (&(_, number), _) = self.blocks.range((len, 0)..=(len, u64::MAX)).next_back()?;
        self.remove(len, number)
    }

    fn remove(&mut self, len: usize, number: u64) -> Option<RecycledBlock> {
        if self.held.remove(&number).is_some() {
            self.held_bytes -= len;
        } else {
            self.offered.remove(&number);
        }
        self.bytes -= len;
        self.blocks.remove(&(len, number))
    }

    /// Keeps `block`, and gives out what is too much: itself, or the oldest ones.
    fn give(&mut self, block: RecycledBlock) -> Vec<RecycledBlock> {
        let len = block.len;
        if len > MOST_KEPT_BYTES {
            return vec![block];
        }
        self.returns += 1;
        self.bytes += len;
        self.held_bytes += len;
        self.held.insert(self.returns, len);
        self.blocks.insert((len, self.returns), block);
        let mut gone = Vec::new();
        while self.bytes > MOST_KEPT_BYTES {
            let oldest = self.offered.first_key_value();
            let Some((&number, &len)) = oldest.or_else(|| self.held.first_key_value()) else {
                break;
            };
            gone.extend(self.remove(len, number));
        }
        while self.held_bytes > HELD_BYTES
            && let Some((number, len)) = self.held.pop_first()
        {
            self.held_bytes -= len;
            self.offered.insert(number, len);
            if !self
                .blocks
                .get(&(len, number))
                .is_some_and(RecycledBlock::offer)
            {
                gone.extend(self.remove(len, number));
            }
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
        let mut kept = RecycledBlocks::default();
        let block = RecycledBlock::new(8 << 20).unwrap();
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
        let mut kept = RecycledBlocks::default();
        for _ in 0..5 {
            kept.give(RecycledBlock::new(MOST_KEPT_BYTES / 3).unwrap());
            assert!(kept.bytes <= MOST_KEPT_BYTES);
        }
        kept.give(RecycledBlock::new(2 * MOST_KEPT_BYTES).unwrap());
        assert!(kept.take(MOST_KEPT_BYTES + 1).is_none());
        assert!(kept.take(MOST_KEPT_BYTES / 3).is_some());
        // What is of the heap cannot be taken by the system, and is bounded by what stays this
        // process's own.
        for _ in 0..HELD_BYTES / LEAST_BYTES + 10 {
            kept.give(RecycledBlock::new(LEAST_BYTES).unwrap());
        }
        let of_heap = kept.blocks.range(..(LEAST_MAPPED_BYTES, 0)).count();
        assert_eq!(of_heap, HELD_BYTES / LEAST_BYTES);
        assert_eq!(kept.held_bytes, HELD_BYTES);
        assert_eq!(kept.blocks.len(), kept.held.len() + kept.offered.len());
    }

    /// A table's worth of bodies that come back at once serves the next table.
    #[test]
    fn a_table_of_small_bodies_is_kept() {
        let mut kept = RecycledBlocks::default();
        for _ in 0..2 {
            let taken = (0..1000).map(|_| kept.take(100_000));
            let blocks: Vec<_> = taken
                .map(|block| block.unwrap_or_else(|| RecycledBlock::new(100_000).unwrap()))
                .collect();
            assert!(kept.blocks.is_empty() && kept.bytes == 0);
            for block in blocks {
                assert!(kept.give(block).is_empty());
            }
        }
        assert_eq!(kept.blocks.len(), 1000);
    }

    /// Of what is kept, the system may have the oldest but for a part.
    #[test]
    fn most_of_what_is_kept_may_be_taken() {
        let mut kept = RecycledBlocks::default();
        for _ in 0..3 {
            kept.give(RecycledBlock::new(HELD_BYTES / 2).unwrap());
        }
        let numbers =
            |kept: &RecycledBlocks| -> Vec<u64> { kept.offered.keys().copied().collect() };
        assert_eq!(numbers(&kept), [1]);
        let mut blocks: Vec<_> = (0..3).map(|_| kept.take(HELD_BYTES / 2).unwrap()).collect();
        let block = blocks.pop().unwrap();
        assert!(kept.offered.is_empty() && kept.held_bytes == 0);
        // SAFETY: the block has as many bytes, and is this test's alone.
        unsafe { block.data().as_ptr().write_bytes(7, HELD_BYTES / 2) };
        kept.give(block);
        assert!(numbers(&kept).is_empty());
    }

    /// Of blocks that fit alike, the one that came back last is given out, and is used again
    /// whether it is of the heap or a mapping.
    #[test]
    fn the_last_block_back_is_the_first_out() {
        for len in [LEAST_BYTES, LEAST_MAPPED_BYTES] {
            let mut kept = RecycledBlocks::default();
            let blocks: Vec<_> = (0..3).map(|_| RecycledBlock::new(len).unwrap()).collect();
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
        assert!(RecycledBlock::take(usize::MAX).is_err());
        assert!(RecycledBlock::take(isize::MAX as usize).is_err());
    }
}
