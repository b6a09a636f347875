//! The allocator for the blocks of a region that peers may map.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::blocks::Blocks;

/// The blocks of one region, on the host or on a GPU.
#[derive(Debug)]
pub struct Lendable {
    identity: u64,
    state: Mutex<BlockState>,
}

#[derive(Debug)]
struct BlockState {
    blocks: Blocks,
    tainted: bool,
}

/// The result of freeing a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Length of the block in bytes, a multiple of 64.
    pub len: u64,
    /// True if the region has no more blocks in use.
    pub emptied: bool,
}

impl Lendable {
    /// `len` free bytes.
    pub fn new(len: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            identity: NEXT.fetch_add(1, Ordering::Relaxed),
            state: Mutex::new(BlockState {
                blocks: Blocks::new(len),
                tainted: false,
            }),
        }
    }

    /// A number that is unique among all regions of this process, past and present, of all kinds.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Allocates a block of at least `len` bytes, aligned to 64, and returns its offset. `None` if
    /// no free run is long enough, or the region is [tainted](Self::taint).
    pub fn alloc(&self, len: u64) -> Option<u64> {
        let mut state = self.state.lock();
        // Rule F4: a peer may still read the memory, so it is not given out again.
        if state.tainted {
            return None;
        }
        state.blocks.alloc(len)
    }

    /// Frees the block at `offset`; `None` if no block begins there.
    pub fn free(&self, offset: u64) -> Option<Freed> {
        let mut state = self.state.lock();
        let len = state.blocks.free(offset)?;
        Some(Freed {
            len,
            emptied: state.blocks.is_empty(),
        })
    }

    /// True if a block in use begins at `offset`.
    pub fn is_block(&self, offset: u64) -> bool {
        self.state.lock().blocks.is_block(offset)
    }

    /// Bytes of the blocks in use.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().blocks.used_bytes()
    }

    /// Rule F4: marks that a lost peer did not return all blocks and may read the region for ever.
    /// The region gives out no more blocks and goes with its last block.
    pub fn taint(&self) {
        self.state.lock().tainted = true;
    }

    /// True after [`taint`](Self::taint).
    pub fn is_tainted(&self) -> bool {
        self.state.lock().tainted
    }
}
