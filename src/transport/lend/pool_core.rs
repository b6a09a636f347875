//! What a pool shares with the leases that are out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::error::Result;
use crate::fork::Generation;
use crate::transport::lend::export::{Borrower, ExportedRegion};
use crate::transport::lend::memory::{Borrow, CopyRegion, LentBlock, LentMemory};
use crate::transport::lend::regions::LentRegions;
use crate::transport::{BodyPolicy, Charge, LinkOptions, RegionNotice};

/// The regions of one connection, and whom they are lent to.
#[derive(Debug)]
pub(super) struct PoolCore {
    pub options: LinkOptions,
    pub peer: Borrower,
    pub generation: Generation,
    /// Some region was numbered, and the peer is not told of it yet.
    news: AtomicBool,
    /// Some region is to be retired now.
    pub due: AtomicBool,
    pub regions: Mutex<LentRegions>,
}

impl PoolCore {
    pub fn new(options: &LinkOptions, peer: Borrower) -> Self {
        Self {
            options: options.clone(),
            peer,
            generation: Generation::now(),
            news: AtomicBool::new(false),
            due: AtomicBool::new(false),
            regions: Mutex::new(LentRegions::new(options.lent_limit)),
        }
    }

    /// Whether to lend whatever can be lent.
    pub fn lends_always(&self) -> bool {
        self.options.body == BodyPolicy::Lent
    }

    /// Whether to copy a body into the host's memory and lend it from there.
    pub fn lends_host_copies(&self) -> bool {
        self.lends_always() || self.peer.export.lends_copies()
    }

    /// One more lease of a producer's memory. `None`: it cannot be lent, or not now.
    ///
    /// # Errors
    ///
    /// As [`LentMemory::export`].
    pub fn borrow(&self, memory: &Arc<dyn LentMemory>) -> Result<Option<Arc<Borrow>>> {
        let known = self.regions.lock().borrow(memory);
        if known.is_some() {
            return Ok(known);
        }
        let pool = match memory.pool() {
            Some(pool) => match self.borrow(&pool)? {
                Some(pool) => Some(pool),
                None => return Ok(None),
            },
            None => None,
        };
        let exported = memory.export(&self.peer, pool.as_ref().map(|pool| pool.id));
        let borrow = exported.map(|exported| {
            let mut regions = self.regions.lock();
            // Another thread may have been faster.
            let known = regions.borrow(memory);
            self.news.store(true, Ordering::Relaxed);
            known.or_else(|| regions.learn(memory, exported?, pool.as_ref()))
        });
        // The lease, if there is one, has the pool too.
        if let Some(pool) = pool {
            let mut regions = self.regions.lock();
            regions.return_borrow(pool, None);
            self.note_due(&regions);
        }
        borrow
    }

    /// Takes up a region for copies, unless no number is left or nothing may be lent any more.
    pub fn add_copies(
        &self,
        region: Arc<dyn CopyRegion>,
        exported: ExportedRegion,
        charge: Option<Charge>,
    ) {
        let mut regions = self.regions.lock();
        self.news.store(true, Ordering::Relaxed);
        regions.add_copies(region, exported, charge);
    }

    /// The notices of a lease's regions that the peer was not told of yet.
    pub fn announce(
        &self,
        borrowed: &[Arc<Borrow>],
        block: Option<&LentBlock>,
    ) -> Vec<RegionNotice> {
        // Numbers are given under the lock, which this thread has had since.
        if !self.news.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut regions = self.regions.lock();
        let notices = regions.announce(borrowed, block);
        self.news.store(regions.has_untold(), Ordering::Relaxed);
        notices
    }

    /// Has the driver look for regions to retire, where there are some.
    pub fn note_due(&self, regions: &LentRegions) {
        if !regions.due.is_empty() {
            self.due.store(true, Ordering::Relaxed);
        }
    }
}
