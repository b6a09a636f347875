//! The blocks of a region that peers may map: who uses which bytes, and whether they may be used
//! again.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::device::blocks::Blocks;

/// The blocks of one region, of the host's memory or a GPU's.
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

/// What giving a block back left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Length of the block, whole units.
    pub len: u64,
    /// Whether no block of the region is in use any more.
    pub emptied: bool,
}

impl Lendable {
    /// `len` bytes, none in use.
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

    /// A number that no other region of this process has, or had, whatever memory it is of.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Takes a block of at least `len` bytes, aligned to 64, and returns its offset. `None` when it
    /// does not fit, or the region is [tainted](Self::taint).
    pub fn alloc(&self, len: u64) -> Option<u64> {
        let mut state = self.state.lock();
        // Rule F4: what a peer may still see is not given out again.
        if state.tainted {
            return None;
        }
        state.blocks.alloc(len)
    }

    /// Gives back the block at `offset`; `None` when no block begins there.
    pub fn free(&self, offset: u64) -> Option<Freed> {
        let mut state = self.state.lock();
        let len = state.blocks.free(offset)?;
        Some(Freed {
            len,
            emptied: state.blocks.is_empty(),
        })
    }

    /// Whether a block in use begins at `offset`.
    pub fn is_block(&self, offset: u64) -> bool {
        self.state.lock().blocks.is_block(offset)
    }

    /// Bytes of the blocks in use.
    pub fn used_bytes(&self) -> u64 {
        self.state.lock().blocks.used_bytes()
    }

    /// Rule F4: a peer went away without returning what it was lent from here and may have it
    /// mapped for ever. No block is given out again; the region goes with its last block.
    pub fn taint(&self) {
        self.state.lock().tainted = true;
    }

    /// Whether [`taint`](Self::taint) was called.
    pub fn is_tainted(&self) -> bool {
        self.state.lock().tainted
    }
}
