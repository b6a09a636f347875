//! What one lease holds until the peer returns it.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::cuda::Event;
use crate::device::outlive;
use crate::transport::lend::memory::{Borrow, LentBlock};
use crate::transport::lend::pool::RegionPool;
use crate::transport::{Keep, MemoryOwner};

/// The block and the memory of one lease. Its drop gives them back, on any thread, even after the
/// pool is abandoned or gone.
#[derive(Debug)]
pub(super) struct LeaseHold {
    pub pool: Arc<RegionPool>,
    /// Memory that is lent where it lies, each region once.
    pub borrowed: SmallVec<[Arc<Borrow>; 1]>,
    pub block: Option<LentBlock>,
    /// For a body on a GPU: the place for the producer's array.
    pub keep: Option<Keep>,
    /// Our copies to the block end before this event. Until then the block and the producer's
    /// array stay.
    pub busy: Option<Event>,
    /// The peer gave the lease back before the connection ended; now it waits only for `busy`.
    returned: bool,
}

impl LeaseHold {
    /// Holds nothing yet.
    pub fn new(pool: &Arc<RegionPool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            borrowed: SmallVec::new(),
            block: None,
            keep: None,
            busy: None,
            returned: false,
        }
    }

    /// Turns this into the owner of a lease. Most leases have one region of an arena. They need no
    /// allocation here, because the return of such memory needs no call.
    pub fn into_owner(mut self) -> MemoryOwner {
        if self.block.is_none()
            && self.keep.is_none()
            && self.borrowed.len() == 1
            && let Some(borrow) = self.borrowed.pop()
        {
            return MemoryOwner::Shared(borrow);
        }
        MemoryOwner::One(Box::new(self))
    }

    /// Takes everything out, so that the drop of `self` gives nothing back.
    fn take(&mut self) -> Self {
        Self {
            pool: Arc::clone(&self.pool),
            borrowed: std::mem::take(&mut self.borrowed),
            block: self.block.take(),
            keep: self.keep.take(),
            busy: None,
            returned: self.returned,
        }
    }

    /// For a lease that was out when the connection ended: the peer may read a GPU's memory as long
    /// as the peer's process lives.
    fn outlive(&mut self) {
        // The peer has returned this block, so it does not read the block any more. The region of
        // the block is not used again.
        if self.keep.is_none() || self.returned && self.borrowed.is_empty() {
            return;
        }
        // Rule F4: for this process as the peer, and on the host, no region with a lease out is
        // used again.
        let process = self.pool.peer.process.as_ref();
        if let Some(peer) = process.filter(|peer| !peer.is_this) {
            let lent = (std::mem::take(&mut self.borrowed), self.block.take());
            outlive::keep_until_end(&peer.death, Box::new((lent, self.keep.take())));
        }
    }
}

impl Drop for LeaseHold {
    fn drop(&mut self) {
        if self.block.is_none() && self.keep.is_none() {
            return;
        }
        // A forked child has no driver, and no thread that would release a lock held at the fork.
        if !self.pool.generation.is_same_process() {
            if self.keep.is_some() {
                let _left = ManuallyDrop::new((self.take(), self.busy.take()));
            }
            return;
        }
        // A client that does not want the body may return it without waiting for our copies.
        if let Some(busy) = self.busy.take()
            && !matches!(busy.is_ready(), Ok(true))
        {
            self.returned = !self.pool.regions.lock().abandoned;
            outlive::keep_until_happened(busy, Box::new(self.take()));
            return;
        }
        let mut regions = self.pool.regions.lock();
        if regions.abandoned {
            drop(regions);
            self.outlive();
            return;
        }
        if let Some(block) = &self.block {
            regions.return_block(block);
        }
        // The host's memory needs no call. The drop of its last lease may unmap it, which takes
        // time.
        if let Some(keep) = &self.keep {
            for borrow in std::mem::take(&mut self.borrowed) {
                regions.return_borrow(borrow, keep);
            }
            self.pool.note_due(&regions);
        }
    }
}
