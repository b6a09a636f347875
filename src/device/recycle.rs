//! Recycled memory for bodies.
//!
//! Fresh pages of the system cost several times as much as a copy into used pages, and a stream
//! frees bodies as fast as it receives them. So the pool keeps the last blocks, and gives out the
//! last returned block first: it is the most likely to be in a cache.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;

use once_cell::sync::Lazy;
use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::{Error, Result};

/// Bodies of at least this many bytes use the pool; the heap serves smaller bodies.
pub const LEAST_BYTES: usize = 16 << 10;
/// Blocks of at least this many bytes are mappings of their own; smaller blocks come from the heap,
/// because the system limits the number of mappings.
const LEAST_MAPPED_BYTES: usize = 256 << 10;
/// The alignment of every block, in bytes.
const ALIGNMENT: usize = 64;
/// Most bytes of blocks in the pool. A stream with the default window has up to 256 MiB of bodies
/// under way.
const MOST_KEPT_BYTES: usize = 512 << 20;
/// Most bytes of blocks whose pages the process keeps. The system may reclaim the pages of further
/// mapped blocks; further heap blocks are freed.
const HELD_BYTES: usize = 128 << 20;
/// The size of a huge page. Blocks of this size get huge pages if the system has them.
const HUGE_PAGE_BYTES: usize = 2 << 20;

static POOL: Lazy<Mutex<RecycledBlocks>> = Lazy::new(Mutex::default);

/// The pool. A consumer may return thousands of blocks at once, for example of a table.
#[derive(Default)]
struct RecycledBlocks {
    /// The blocks by their length, and by the number of their return.
    blocks: BTreeMap<(usize, u64), RecycledBlock>,
    bytes: usize,
    /// The lengths of the blocks whose pages the process keeps, by number of the return.
    held: BTreeMap<u64, usize>,
    held_bytes: usize,
    /// The lengths of the blocks whose pages the system may reclaim, by number of the return.
    offered: BTreeMap<u64, usize>,
    /// The number of returns so far.
    returns: u64,
}

/// Readable and writable memory, aligned to [`ALIGNMENT`]. The content is initialised but
/// undefined: zeros, or bytes of an earlier body of this process.
#[derive(Debug)]
pub struct RecycledBlock {
    data: NonNull<u8>,
    /// From [`LEAST_MAPPED_BYTES`] on, the block is a mapping; a smaller block is of the heap.
    len: usize,
}

// SAFETY: a block is the only owner of its memory and is not tied to a thread.
unsafe impl Send for RecycledBlock {}

impl RecycledBlock {
    /// A recycled or new block of at least `len` bytes; `len` is above 0.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system has no memory.
    pub fn take(len: usize) -> Result<Self> {
        // Does not wait for the lock: another thread may have held it at a fork.
        if let Some(mut kept) = POOL.try_lock()
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
                // SAFETY: the caller promises a `len` above 0, so the layout has a size above 0.
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

    /// Lets the system reclaim the pages of an unused block until they are written again. Reclaimed
    /// pages read as zeros. Returns false for a block of the heap.
    fn offer(&self) -> bool {
        let mapped = self.len >= LEAST_MAPPED_BYTES;
        if mapped {
            // SAFETY: this block owns the mapping, and its content is undefined. If the system
            // ignores the advice, the pages stay. `madvise` of libc, as in `drop`.
            let _ = unsafe { libc::madvise(self.data.as_ptr().cast(), self.len, libc::MADV_FREE) };
        }
        mapped
    }

    /// Returns the block to the pool, or frees it.
    pub fn give_back(self) {
        let surplus = match POOL.try_lock() {
            Some(mut kept) => kept.give(self),
            None => return,
        };
        // Freed without the lock: unmapping is slow.
        drop(surplus);
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, ALIGNMENT).ok()
}

fn map(len: usize, huge: bool) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping at an address that the system chooses affects no other mapping.
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
        // SAFETY: the mapping was made above; the advice changes no contents. If the system ignores
        // it, the pages are small.
        let _ = unsafe { madvise(mapped, len, Advice::LinuxHugepage) };
    }
    NonNull::new(mapped.cast())
}

impl Drop for RecycledBlock {
    fn drop(&mut self) {
        if self.len >= LEAST_MAPPED_BYTES {
            // SAFETY: `map` made the mapping, and its only owner is dropped here. `munmap` of libc,
            // because UCX hooks it to drop its cache entries for the addresses.
            let _ = unsafe { libc::munmap(self.data.as_ptr().cast(), self.len) };
        } else if let Some(layout) = layout(self.len) {
            // SAFETY: `data` came from `alloc_zeroed` with this layout and is freed only here.
            unsafe { dealloc(self.data.as_ptr(), layout) };
        }
    }
}

impl RecycledBlocks {
    /// Takes the smallest block of at least `len` and at most about twice `len` bytes. Of blocks of
    /// one length it takes the last returned.
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

    /// Adds `block`, and returns the blocks over the bounds: the block itself, or the oldest ones.
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
        let mut surplus = Vec::new();
        while self.bytes > MOST_KEPT_BYTES {
            let oldest = self.offered.first_key_value();
            let Some((&number, &len)) = oldest.or_else(|| self.held.first_key_value()) else {
                break;
            };
            surplus.extend(self.remove(len, number));
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
                surplus.extend(self.remove(len, number));
            }
        }
        surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A returned block serves a body of about its size, and no much smaller body.
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

    /// The pool is bounded, and the oldest blocks go first.
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
        // The system cannot reclaim blocks of the heap, so `HELD_BYTES` bounds them.
        for _ in 0..HELD_BYTES / LEAST_BYTES + 10 {
            kept.give(RecycledBlock::new(LEAST_BYTES).unwrap());
        }
        let of_heap = kept.blocks.range(..(LEAST_MAPPED_BYTES, 0)).count();
        assert_eq!(of_heap, HELD_BYTES / LEAST_BYTES);
        assert_eq!(kept.held_bytes, HELD_BYTES);
        assert_eq!(kept.blocks.len(), kept.held.len() + kept.offered.len());
    }

    /// The returned blocks of one table serve the next table.
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

    /// The system may reclaim the oldest blocks of the pool, beyond `HELD_BYTES`.
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
        // SAFETY: the block has this many bytes and belongs to this test alone.
        unsafe { block.data().as_ptr().write_bytes(7, HELD_BYTES / 2) };
        kept.give(block);
        assert!(numbers(&kept).is_empty());
    }

    /// Of blocks of one length, the last returned is taken first, both of the heap and mapped.
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

    /// An impossible length is an error.
    #[test]
    fn an_impossible_length_is_an_error() {
        assert!(RecycledBlock::take(usize::MAX).is_err());
        assert!(RecycledBlock::take(isize::MAX as usize).is_err());
    }
}
