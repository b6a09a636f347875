//! The sender's memory for lending: the regions of one connection, and which parts of them are
//! lent.
//!
//! A region for copies holds data of one connection only, so a pool belongs to one connection.
//! Regions of arenas belong to the producer; the pool only numbers those of which the peer was
//! told.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::device::BufferRef;
use crate::error::Result;
use crate::fork::Generation;
use crate::transport::lend::export::{Borrower, Export, PeerProcess};
use crate::transport::lend::gpu::events::Events;
use crate::transport::lend::memory::{Borrow, LentMemory};
use crate::transport::lend::regions::LentRegions;
use crate::transport::{BodyPolicy, LendingOptions, RegionNotice};

/// [`Lender`](crate::transport::Lender) over the regions of one connection. The leases that are out
/// hold it.
#[derive(Debug)]
pub struct RegionPool {
    pub(super) options: LendingOptions,
    pub(super) peer: Borrower,
    pub(super) generation: Generation,
    /// A region has a number of which the peer was not told yet.
    pub(super) news: AtomicBool,
    /// A region must be retired now.
    due: AtomicBool,
    pub(super) regions: Mutex<LentRegions>,
    /// Events that the peer is told to wait for.
    pub(super) events: Mutex<Events>,
}

impl RegionPool {
    /// An empty pool for one connection. Memory of GPUs is lent only if `process` is known.
    pub fn new(
        options: &LendingOptions,
        export: Box<dyn Export>,
        process: Option<PeerProcess>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options: options.clone(),
            peer: Borrower { export, process },
            generation: Generation::now(),
            news: AtomicBool::new(false),
            due: AtomicBool::new(false),
            regions: Mutex::new(LentRegions::new(options.lent_limit)),
            events: Mutex::default(),
        })
    }

    /// Sets what the client asked for: its own limit on copies that are lent and not returned (from
    /// now on the lower of this limit and the option counts), where it wants bodies (an
    /// `ArrowDeviceType`, 0 as sent), and the UUIDs of the GPUs that it reaches.
    pub fn set_client(&self, lent_limit: u64, device_type: i32, gpus: &[[u8; 16]]) {
        if let Some(mut regions) = self.lock() {
            regions.lent_limit = lent_limit.min(self.options.lent_limit);
            // Bodies as they are, or on a CUDA device.
            regions.gpus = match device_type {
                0 | 2 => gpus.to_vec(),
                _ => Vec::new(),
            };
        }
    }

    /// The notices of regions that the peer does not know yet. The caller sends them before the
    /// list of any lease that it has: several streams may lend from the same region.
    pub fn take_news(&self) -> Vec<RegionNotice> {
        // A region gets its number under the lock, before anybody has a lease of it.
        if !self.news.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut regions = self.regions.lock();
        self.news.store(false, Ordering::Relaxed);
        regions.take_untold()
    }

    /// Whether [`take_retired`](Self::take_retired) would return any ids.
    pub fn has_retired(&self) -> bool {
        self.due.load(Ordering::Relaxed)
    }

    /// The ids of regions that must be retired at once.
    pub fn take_retired(&self) -> Vec<u16> {
        let Some(mut regions) = self.lock() else {
            return Vec::new();
        };
        self.due.store(false, Ordering::Relaxed);
        std::mem::take(&mut regions.due)
    }

    /// How long an unused region is kept.
    pub fn idle_time(&self) -> Duration {
        self.options.idle_time()
    }

    /// The ids of regions that have been idle too long, for REGION_GONE messages, and the time
    /// until the next check.
    pub fn retire_idle(&self) -> (Vec<u16>, Option<Duration>) {
        let idle = self.options.region_idle;
        let retired = self.lock().map(|mut regions| regions.retire_idle(idle));
        // Dropped after the lock is released, because unmapping is slow.
        let (gone, next, _unknown) = retired.unwrap_or_default();
        (gone, next)
    }

    /// The regions; `None` in a forked child, where the lock may be held for ever.
    pub(super) fn lock(&self) -> Option<MutexGuard<'_, LentRegions>> {
        let is_same = self.generation.is_same_process();
        is_same.then(|| self.regions.lock())
    }

    /// Whether to lend everything that can be lent.
    fn lends_always(&self) -> bool {
        self.options.body == BodyPolicy::Lent
    }

    /// Whether to copy a body into the host's memory and lend it from there. A peer that does not
    /// map regions receives sent bytes in place, without that copy.
    pub(super) fn lends_host_copies(&self) -> bool {
        self.lends_always() || self.peer.export.is_mapped()
    }

    /// Whether a body is large enough to be lent.
    pub(super) fn is_worth_lending(&self, buffers: &[BufferRef], policy: BodyPolicy) -> bool {
        let total = buffers.iter().try_fold(0u64, |sum, buffer| {
            sum.checked_add(u64::try_from(buffer.len).ok()?)
        });
        let least = match self.lends_always() || policy == BodyPolicy::Lent {
            true => 0,
            false => self.options.inline_bytes,
        };
        total.is_some_and(|total| total > least)
    }

    /// One more lease of a producer's memory. `None`: the memory cannot be lent, or not now.
    pub(super) fn borrow(&self, memory: &LentMemory) -> Result<Option<Arc<Borrow>>> {
        let known = self.regions.lock().borrow(memory);
        if known.is_some() {
            return Ok(known);
        }
        let Some(exported) = memory.export(&self.peer)? else {
            return Ok(None);
        };
        let mut regions = self.regions.lock();
        // Another thread may have borrowed it first.
        let known = regions.borrow(memory);
        self.news.store(true, Ordering::Release);
        Ok(known.or_else(|| regions.learn(memory, exported)))
    }

    /// Notes whether there are regions to retire, so that a turn of the connection retires them.
    pub(super) fn note_due(&self, regions: &LentRegions) {
        if !regions.due.is_empty() {
            self.due.store(true, Ordering::Relaxed);
        }
    }
}
