//! The allocation of blocks within a region.
//!
//! Best fit over two ordered indexes: every operation is logarithmic in the number of free runs.
//! (Published offset allocators either search linearly or refuse a block as large as the region,
//! which a body with a region of its own needs.)

use std::collections::{BTreeMap, BTreeSet};

/// Offsets and lengths of blocks are multiples of this, Arrow's alignment (rule A2).
pub const UNIT: u64 = 64;

/// The blocks of one run of bytes.
#[derive(Debug, Default)]
pub struct Blocks {
    /// Free runs: offset to length. No two of them touch.
    free: BTreeMap<u64, u64>,
    /// The same runs as (length, offset), to find the smallest that fits.
    by_length: BTreeSet<(u64, u64)>,
    /// Blocks in use: offset to length.
    used: BTreeMap<u64, u64>,
    used_bytes: u64,
}

impl Blocks {
    /// `length` free bytes. A rest below one unit is never given out.
    pub fn new(length: u64) -> Self {
        let mut blocks = Self::default();
        let whole = length - length % UNIT;
        if whole > 0 {
            blocks.insert_free(0, whole);
        }
        blocks
    }

    /// Allocates at least `length` bytes; 0 takes one unit. `None` if no free run is long enough.
    pub fn alloc(&mut self, length: u64) -> Option<u64> {
        let length = length.max(1).checked_next_multiple_of(UNIT)?;
        let &(found, offset) = self.by_length.range((length, 0)..).next()?;
        self.remove_free(offset, found);
        if found > length {
            self.insert_free(offset + length, found - length);
        }
        self.used.insert(offset, length);
        self.used_bytes += length;
        Some(offset)
    }

    /// Frees the block at `offset` and returns its length. `None` if no block begins there.
    pub fn free(&mut self, offset: u64) -> Option<u64> {
        let length = self.used.remove(&offset)?;
        self.used_bytes -= length;
        let (mut start, mut end) = (offset, offset + length);
        if let Some((&before, &before_length)) = self.free.range(..offset).next_back()
            && before + before_length == offset
        {
            self.remove_free(before, before_length);
            start = before;
        }
        if let Some(&after_length) = self.free.get(&end) {
            self.remove_free(end, after_length);
            end += after_length;
        }
        self.insert_free(start, end - start);
        Some(length)
    }

    /// Bytes in use; each block is a multiple of [`UNIT`].
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// True if no block is in use.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// True if a block in use begins at `offset`.
    pub fn is_block(&self, offset: u64) -> bool {
        self.used.contains_key(&offset)
    }

    fn insert_free(&mut self, offset: u64, length: u64) {
        self.free.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn remove_free(&mut self, offset: u64, length: u64) {
        self.free.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A block can be as large as the whole run, and the run is whole again after the free.
    #[test]
    fn the_whole_run_is_one_block() {
        let mut blocks = Blocks::new(4096 + 63);
        assert_eq!(blocks.alloc(4097), None);
        assert_eq!(blocks.alloc(4096), Some(0));
        assert_eq!(blocks.alloc(1), None);
        assert_eq!(blocks.free(0), Some(4096));
        assert_eq!(blocks.free(0), None);
        assert_eq!(blocks.alloc(4096), Some(0));
    }

    /// Lengths near the end of the number range are refused, not wrapped.
    #[test]
    fn impossible_lengths_are_refused() {
        let mut blocks = Blocks::new(u64::MAX);
        assert_eq!(blocks.alloc(u64::MAX), None);
        assert_eq!(blocks.alloc(u64::MAX - 63), Some(0));
        assert_eq!(Blocks::new(63).alloc(0), None);
    }

    proptest! {
        /// Blocks in use never overlap, are aligned, and can all be freed.
        #[test]
        fn blocks_never_overlap(
            steps in prop::collection::vec((0u64..2000, any::<bool>()), 1..200),
        ) {
            let total = 64 * 256;
            let mut blocks = Blocks::new(total);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (number, take) in steps {
                if take || live.is_empty() {
                    if let Some(offset) = blocks.alloc(number) {
                        let end = offset + number.max(1);
                        prop_assert_eq!(offset % UNIT, 0);
                        prop_assert!(end <= total);
                        prop_assert!(live.iter().all(|(o, e)| end <= *o || *e <= offset));
                        live.push((offset, end));
                    }
                } else {
                    let index = usize::try_from(number).unwrap() % live.len();
                    let (offset, _) = live.swap_remove(index);
                    prop_assert!(blocks.free(offset).is_some());
                }
                let ends: u64 = live.iter().map(|(o, e)| (e - o).next_multiple_of(UNIT)).sum();
                prop_assert_eq!(blocks.used_bytes(), ends);
            }
            for (offset, _) in live {
                prop_assert!(blocks.free(offset).is_some());
            }
            prop_assert!(blocks.is_empty());
            prop_assert_eq!(blocks.alloc(total), Some(0));
        }
    }
}
