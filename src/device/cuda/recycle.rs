//! Recycled memory of a device. Fresh memory of the driver is slow, and the driver waits for the
//! device when it frees memory.

use crate::device::cuda::memory::Block;
use crate::device::cuda::pinned::PinnedBlock;

/// Most recycled bytes of device memory, for each device.
const MOST_DEVICE_BYTES: usize = 256 << 20;
/// Most recycled bytes of pinned host memory, for each device.
const MOST_PINNED_BYTES: usize = 64 << 20;

/// The recycled blocks of one device.
#[derive(Debug, Default)]
pub struct RecycledMemory {
    pub(super) device: RecycleList<Block>,
    pub(super) pinned: RecycleList<PinnedBlock>,
}

/// A block of memory that can be recycled.
pub(super) trait KeepFor: Send + 'static {
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Names the kind of block in error messages.
    const WHAT: &str;
    /// Most recycled bytes of this kind.
    const MOST: usize;
}

impl KeepFor for Block {
    fn len(&self) -> usize {
        self.len
    }
    const WHAT: &str = "memory of a GPU";
    const MOST: usize = MOST_DEVICE_BYTES;
}

impl KeepFor for PinnedBlock {
    fn len(&self) -> usize {
        self.len
    }
    const WHAT: &str = "pinned memory";
    const MOST: usize = MOST_PINNED_BYTES;
}

/// Recycled blocks of one kind, oldest first.
#[derive(Debug)]
pub(super) struct RecycleList<B> {
    blocks: Vec<B>,
    bytes: usize,
}

impl<B> Default for RecycleList<B> {
    fn default() -> Self {
        Self {
            blocks: Vec::new(),
            bytes: 0,
        }
    }
}

impl<B: KeepFor> RecycleList<B> {
    /// Takes the smallest block of at least `len` and at most `most` bytes.
    pub(super) fn take(&mut self, len: usize, most: usize) -> Option<B> {
        let (index, _) = (self.blocks.iter().enumerate())
            .filter(|(_, block)| (len..=most).contains(&block.len()))
            .min_by_key(|(_, block)| block.len())?;
        let block = self.blocks.remove(index);
        self.bytes -= block.len();
        Some(block)
    }

    /// Adds `block`, and returns the blocks over the bound, which the caller frees.
    #[must_use]
    pub(super) fn give(&mut self, block: B) -> Vec<B> {
        self.bytes += block.len();
        self.blocks.push(block);
        let mut surplus = 0;
        let mut bytes = self.bytes;
        while bytes > B::MOST {
            let Some(block) = self.blocks.get(surplus) else {
                break;
            };
            bytes -= block.len();
            surplus += 1;
        }
        self.bytes = bytes;
        self.blocks.drain(..surplus).collect()
    }

    /// Takes all blocks.
    pub(super) fn clear(&mut self) -> Vec<B> {
        self.bytes = 0;
        std::mem::take(&mut self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(usize);

    impl KeepFor for Fake {
        fn len(&self) -> usize {
            self.0
        }
        const WHAT: &str = "nothing";
        const MOST: usize = 100;
    }

    /// `take` returns the smallest block within the requested lengths, and no other.
    #[test]
    fn blocks_serve_what_they_fit() {
        let mut list = RecycleList::default();
        assert!(list.give(Fake(40)).is_empty());
        assert!(list.give(Fake(30)).is_empty());
        assert!(list.take(41, 82).is_none());
        assert!(list.take(14, 28).is_none());
        assert_eq!(list.take(25, 50).unwrap().0, 30);
        assert!(list.take(15, 30).is_none());
        assert_eq!(list.take(25, 50).unwrap().0, 40);
        assert_eq!(list.bytes, 0);
    }

    /// The list is bounded: the oldest blocks go first, and a too large block goes at once.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut list = RecycleList::default();
        assert!(list.give(Fake(60)).is_empty());
        let surplus = list.give(Fake(70));
        assert_eq!(surplus.len(), 1);
        assert_eq!(surplus[0].0, 60);
        assert_eq!(list.give(Fake(101)).len(), 2);
        assert_eq!((list.bytes, list.blocks.len()), (0, 0));
    }
}
