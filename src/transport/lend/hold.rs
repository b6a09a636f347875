//! What one lease holds until the peer returns it.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::device::BufferRef;
use crate::device::copy::BodyCopy;
use crate::device::region::Region;
use crate::proto::Span;
use crate::transport::lend::address;
use crate::transport::lend::pool::{Block, Shared, Source};
use crate::transport::{Lease, Owner, RegionNotice};

/// The block and the regions of one lease. Dropping it, on any thread and also after the pool is
/// abandoned or gone, gives them back.
#[derive(Debug)]
pub(super) struct Hold {
    shared: Arc<Shared>,
    pub(super) block: Option<Block>,
    /// Regions of arenas, each once, in the order of [`Source::Arena`].
    borrowed: SmallVec<[Arc<Borrow>; 1]>,
}

/// A region of an arena that the peer may read. All leases of it that are out at once share one.
#[derive(Debug)]
pub(super) struct Borrow {
    pub(super) id: u16,
    pub(super) region: Arc<Region>,
}

impl Hold {
    pub(super) fn new(shared: Arc<Shared>, block: Option<Block>, regions: usize) -> Self {
        Self {
            shared,
            block,
            borrowed: SmallVec::with_capacity(regions),
        }
    }

    pub(super) fn add_borrowed(&mut self, borrow: Arc<Borrow>) {
        self.borrowed.push(borrow);
    }

    /// The arena regions.
    pub(super) fn borrowed(&self) -> &[Arc<Borrow>] {
        &self.borrowed
    }

    /// Itself, or as little as there is to it: a lease of one region, as most are, takes no memory of its own.
    fn into_owner(mut self) -> Owner {
        if self.block.is_none()
            && self.borrowed.len() == 1
            && let Some(borrow) = self.borrowed.pop()
        {
            return Owner::Shared(borrow);
        }
        Owner::One(Box::new(self))
    }

    /// Copies what is to be copied and names every buffer.
    pub(super) fn fill(
        self,
        buffers: &[BufferRef],
        sources: &[Source],
        announce: Vec<RegionNotice>,
    ) -> Lease {
        let (mut copied, mut borrowed) = (0, 0);
        let to_copy = (buffers.iter().zip(sources))
            .filter(|(_, source)| matches!(source, Source::Copy { .. }))
            .map(|(buffer, _)| buffer.len as u64)
            .sum();
        let mut copy = BodyCopy::new(to_copy);
        let spans = buffers
            .iter()
            .zip(sources)
            .map(|(buffer, source)| {
                let length = u64::try_from(buffer.len).unwrap_or(u64::MAX);
                let address = match source {
                    Source::Empty => None,
                    Source::Arena { region, offset } => {
                        borrowed += length;
                        let known = self.borrowed.get(*region);
                        known.map(|borrow| address(borrow.id, *offset))
                    }
                    Source::Copy { at } => {
                        copied += length;
                        let block = self.block.as_ref();
                        block.map(|block| block.fill(&mut copy, *at, *buffer))
                    }
                };
                // Rule A1: an empty buffer is (0, 0).
                address.map_or(
                    Span {
                        address: 0,
                        length: 0,
                    },
                    |address| Span { address, length },
                )
            })
            .collect();
        // Only now may anyone be told of it.
        drop(copy);
        Lease {
            announce,
            copied,
            borrowed,
            in_place: copied == 0 && self.shared.is_mapped(),
            ..Lease::new(spans, self.into_owner())
        }
    }
}

impl Block {
    /// The byte at offset `at` in the block.
    pub(super) fn target(&self, at: u64) -> Option<*mut u8> {
        let offset = usize::try_from(self.offset + at).ok()?;
        Some(self.region.base().as_ptr().wrapping_add(offset))
    }

    /// Copies `buffer` to offset `at` in the block and returns its address.
    fn fill(&self, copy: &mut BodyCopy, at: u64, buffer: BufferRef) -> u64 {
        let offset = self.offset + at;
        let target = self.target(at).unwrap_or(std::ptr::null_mut());
        debug_assert!(self.region.offset_of(target, buffer.len).is_some());
        // SAFETY: `buffer` is readable for its length: its holder keeps the owner alive, as
        // `BufferRef` says. `target` is writable for it: the block has room for every buffer at the
        // offset that `Sources` counted out, the region is mapped while `self.region` is held,
        // and an offset in a mapping fits in `usize`. They do not overlap: the block was free, so
        // no buffer of a producer's lies in it, and nobody else writes it until the lease is
        // returned. The peer may read the bytes at any time; it is told of them after `copy` is dropped, and
        // another process's reads are not accesses of this program.
        unsafe { copy.add(buffer.data, target, buffer.len) };
        address(self.id, offset)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let Some(block) = &self.block else {
            return;
        };
        // A forked child has no thread to ever release a lock that was held at the fork; its copies
        // of the counts do not matter.
        if !self.shared.generation.is_same_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        // Rule F4: once abandoned, nothing is used again; the regions go with their last holder.
        if state.abandoned {
            return;
        }
        state.lent = state.lent.saturating_sub(block.len);
        let emptied = block
            .region
            .free(block.offset)
            .is_some_and(|freed| freed.emptied);
        if emptied && let Some(pooled) = state.pooled.get_mut(&block.id) {
            pooled.idle_since = Some(Instant::now());
        }
    }
}
