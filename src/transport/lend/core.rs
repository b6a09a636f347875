//! What a pool shares with the leases that are out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::device::BufferRef;
use crate::error::Result;
use crate::fork::Generation;
use crate::transport::lend::export::Borrower;
use crate::transport::lend::gpu::events::Events;
use crate::transport::lend::memory::{Borrow, LentMemory};
use crate::transport::lend::regions::LentRegions;
use crate::transport::{BodyPolicy, LendingOptions, RegionNotice};

/// The regions of one connection, and whom they are lent to.
#[derive(Debug)]
pub(super) struct PoolCore {
    pub options: LendingOptions,
    pub peer: Borrower,
    pub generation: Generation,
    /// Some region was numbered, and the peer is not told of it yet.
    pub news: AtomicBool,
    /// Some region is to be retired now.
    pub due: AtomicBool,
    pub regions: Mutex<LentRegions>,
    /// Events that the peer is told to wait for.
    pub events: Mutex<Events>,
}

impl PoolCore {
    /// The regions of one connection to `peer`: none yet.
    pub fn new(options: &LendingOptions, peer: Borrower) -> Arc<Self> {
        Arc::new(Self {
            options: options.clone(),
            peer,
            generation: Generation::now(),
            news: AtomicBool::new(false),
            due: AtomicBool::new(false),
            regions: Mutex::new(LentRegions::new(options.lent_limit)),
            events: Mutex::default(),
        })
    }

    /// The regions; `None` in a forked child, where the lock may be held for ever.
    pub fn lock(&self) -> Option<MutexGuard<'_, LentRegions>> {
        let is_same = self.generation.is_same_process();
        is_same.then(|| self.regions.lock())
    }

    /// Whether to lend whatever can be lent.
    fn lends_always(&self) -> bool {
        self.options.body == BodyPolicy::Lent
    }

    /// Whether to copy a body into the host's memory and lend it from there. A peer that does not
    /// map regions receives sent bytes in place, without that copy.
    pub fn lends_host_copies(&self) -> bool {
        self.lends_always() || self.peer.export.is_mapped()
    }

    /// Whether a body is large enough to be lent.
    pub fn is_worth_lending(&self, buffers: &[BufferRef], policy: BodyPolicy) -> bool {
        let total = buffers.iter().try_fold(0u64, |sum, buffer| {
            sum.checked_add(u64::try_from(buffer.len).ok()?)
        });
        let least = match self.lends_always() || policy == BodyPolicy::Lent {
            true => 0,
            false => self.options.inline_bytes,
        };
        total.is_some_and(|total| total > least)
    }

    /// One more lease of a producer's memory. `None`: it cannot be lent, or not now.
    pub fn borrow(&self, memory: &LentMemory) -> Result<Option<Arc<Borrow>>> {
        let known = self.regions.lock().borrow(memory);
        if known.is_some() {
            return Ok(known);
        }
        let Some(exported) = memory.export(&self.peer)? else {
            return Ok(None);
        };
        let mut regions = self.regions.lock();
        // Another thread may have been faster.
        let known = regions.borrow(memory);
        self.news.store(true, Ordering::Release);
        Ok(known.or_else(|| regions.learn(memory, exported)))
    }

    /// The notices of the regions that the peer was not told of yet.
    pub fn take_news(&self) -> Vec<RegionNotice> {
        // A region gets its number under the lock, before a lease of it is known to anybody.
        if !self.news.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut regions = self.regions.lock();
        self.news.store(false, Ordering::Relaxed);
        regions.take_untold()
    }

    /// Has the driver look for regions to retire, where there are some.
    pub fn note_due(&self, regions: &LentRegions) {
        if !regions.due.is_empty() {
            self.due.store(true, Ordering::Relaxed);
        }
    }
}
