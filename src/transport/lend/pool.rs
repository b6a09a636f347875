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

use crate::device::{BufferRef, memfd};
use crate::error::Result;
use crate::fork::Generation;
use crate::proto::Span;
use crate::transport::lend::address::address;
use crate::transport::lend::export::{Borrower, Export, PeerProcess};
use crate::transport::lend::gpu::events::Events;
use crate::transport::lend::gpu::{self, OnDevice};
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::host::HostPlace;
use crate::transport::lend::memory::{Borrow, LentBlock, LentMemory};
use crate::transport::lend::place::{BufferSource, LendingPlace};
use crate::transport::lend::regions::{LentRegions, NoRoom};
use crate::transport::{BodyPolicy, Lease, Lender, LendingOptions, OnGpu, Placement, RegionNotice};

/// Size of a connection's first region for copies, if the options allow it. Small bodies share
/// regions, because each region takes a descriptor here and a mapping at the peer.
const FIRST_REGION_BYTES: u64 = 1 << 20;
/// Least size of later regions.
const LEAST_REGION_BYTES: u64 = 2 << 20;

/// [`Lender`] over the regions of one connection. The leases that are out hold it.
#[derive(Debug)]
pub struct RegionPool {
    options: LendingOptions,
    pub(super) peer: Borrower,
    pub(super) generation: Generation,
    /// A region has a number of which the peer was not told yet.
    news: AtomicBool,
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

    /// Whether bodies on a GPU are lent there to this client, as far as can be known beforehand.
    pub fn lends_on_gpus(&self) -> bool {
        self.generation.is_same_process() && gpu::lends(self)
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

    /// The peer has acknowledged REGION_GONE: the id may be used again.
    pub fn region_forgotten(&self, id: u16) {
        // A peer that forgets a region that was not retired changes nothing.
        let forgotten = self.lock().and_then(|mut regions| regions.forget(id));
        if let Some(mut forgotten) = forgotten {
            gpu::forgotten(&self.peer, forgotten.charge.take());
        }
    }

    /// The connection is over, and the peer may have memory mapped: nothing that is lent now is
    /// ever written again (rule F4), and nothing more is lent.
    pub fn abandon(&self) {
        // Rule F4: the pool's own regions are given up whole, so no block of them is ever used
        // again.
        let remains = self.lock().map(|mut regions| regions.abandon());
        if let Some(remains) = remains {
            let peer = &self.peer;
            remains.out.iter().for_each(|memory| memory.abandon(peer));
            gpu::let_go(peer, remains.retiring);
            gpu::keep_charges(peer, remains.charges);
        }
    }

    /// The regions; `None` in a forked child, where the lock may be held for ever.
    fn lock(&self) -> Option<MutexGuard<'_, LentRegions>> {
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

impl Lender for RegionPool {
    fn place(
        self: Arc<Self>,
        buffers: &[BufferRef],
        gpu: Option<OnGpu<'_>>,
        policy: BodyPolicy,
    ) -> Result<Placement> {
        self.generation.ensure_same_process()?;
        if !self.is_worth_lending(buffers, policy) {
            return Ok(Placement::Packed);
        }
        let lease = match gpu {
            Some(gpu) => lend_from_gpu(&self, buffers, gpu)?,
            None => lend(&self, &HostPlace(None), buffers)?,
        };
        Ok(lease.map_or(Placement::Packed, Placement::Lent))
    }
}

/// Places a body that lies on a GPU.
fn lend_from_gpu(
    pool: &Arc<RegionPool>,
    buffers: &[BufferRef],
    gpu: OnGpu<'_>,
) -> Result<Option<Lease>> {
    match lend(pool, &OnDevice(gpu), buffers) {
        Ok(None) => {}
        Ok(lease) => return Ok(lease),
        Err(error) => tracing::debug!("a body on a GPU is copied to the host: {error}"),
    }
    let lease = lend(pool, &HostPlace(Some(gpu)), buffers)?;
    if lease.is_none() {
        // Copies that have begun may still read the producer's memory.
        gpu.stream.settle()?;
    }
    Ok(lease)
}

/// Lends a body that lies at `place`: takes everything that the lease needs, or nothing. `None`:
/// the bytes can still be sent.
/// Errors: Those of a GPU's driver. Nothing is lent then.
fn lend(
    pool: &Arc<RegionPool>,
    place: &impl LendingPlace,
    buffers: &[BufferRef],
) -> Result<Option<Lease>> {
    // Made first: its drop gives everything back if a later step fails.
    let mut hold = LeaseHold::new(pool);
    let Some(sources) = place.find(&mut hold, buffers)? else {
        return Ok(None);
    };
    if sources.copied_bytes > 0 {
        hold.block = take_block(pool, place, sources.copied_bytes)?;
        if hold.block.is_none() {
            return Ok(None);
        }
    }
    let ready = place.copy(&mut hold, buffers, &sources)?;
    let (mut copied, mut lent) = (0, 0);
    let spans = (buffers.iter().zip(&sources.buffers))
        .map(|(buffer, source)| {
            let length = u64::try_from(buffer.len).unwrap_or(u64::MAX);
            let address = match source {
                BufferSource::Empty => None,
                BufferSource::Lent { borrowed, offset } => {
                    lent += length;
                    let borrow = hold.borrowed.get(*borrowed);
                    borrow.map(|borrow| address(borrow.id, *offset))
                }
                BufferSource::Copy { at } => {
                    copied += length;
                    let block = hold.block.as_ref();
                    block.map(|block| address(block.id, block.offset + at))
                }
            };
            // Rule A1: an empty buffer is (0, 0).
            address.map_or(Span::default(), |address| Span { address, length })
        })
        .collect();
    let keep = hold.keep.clone();
    let mut lease = Lease {
        borrowed: lent,
        in_place: copied == 0 && pool.peer.export.is_mapped(),
        keep,
        ready,
        ..Lease::new(spans, hold.into_owner())
    };
    place.count(&mut lease, copied);
    Ok(Some(lease))
}

/// A block for copies; `None` when nothing may be lent now.
fn take_block(pool: &RegionPool, place: &impl LendingPlace, len: u64) -> Result<Option<LentBlock>> {
    let device = place.device();
    let NoRoom { lent_limit, bytes } = match pool.regions.lock().take_block(device, len) {
        Ok(found) => return Ok(found),
        Err(no_room) => no_room,
    };
    // A new region is made without the lock: the allocation of its pages takes milliseconds, and
    // returns of leases must not wait for that.
    let Some(needed) = len.checked_next_multiple_of(place.unit()?) else {
        return Ok(None);
    };
    let largest = pool
        .options
        .region_bytes
        .min(lent_limit)
        .min(memfd::most_bytes());
    let budget = &pool.options.budget;
    let wanted = [region_bytes(bytes, needed, largest), needed];
    let charge = wanted.iter().find_map(|bytes| budget.charge(*bytes).ok());
    let made = charge
        .map(|charge| place.create(charge))
        .transpose()?
        .flatten();
    let Some((region, charge)) = made else {
        return Ok(None);
    };
    let Some(exported) = region.memory().export(&pool.peer)? else {
        return Ok(None);
    };
    let mut regions = pool.regions.lock();
    pool.news.store(true, Ordering::Release);
    regions.add_copies(Arc::new(region), exported, charge);
    Ok(regions.take_block(device, len).ok().flatten())
}

/// Bytes of the next region, for a body of `needed` if the pool has `pooled` already: a tenth of
/// `pooled`, in whole bodies, because the next bodies are mostly as large. Regions should be small,
/// because their pages are allocated at once, but few, because each takes a descriptor and a
/// mapping.
fn region_bytes(pooled: u64, needed: u64, largest: u64) -> u64 {
    let least = match pooled {
        0 => FIRST_REGION_BYTES,
        _ => LEAST_REGION_BYTES,
    };
    let needed = needed.max(1);
    let bodies = (pooled / 10).max(least).div_ceil(needed);
    needed.saturating_mul(bodies.min(largest / needed).max(1))
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
