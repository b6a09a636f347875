//! The sender's memory for lending: the regions of one connection, and what of them is out.
//!
//! Who may see what (design, "Who may see a region"): a region for copies holds data of one
//! connection only, so a pool belongs to one connection. Regions of arenas belong to the producer;
//! the pool only numbers those that the peer was told of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use crate::device::region::HUGE_PAGE_BYTES;
use crate::device::{BufferRef, memfd};
use crate::error::Result;
use crate::proto::Span;
use crate::transport::lend::address;
use crate::transport::lend::export::{Borrower, Export, PeerProcess};
use crate::transport::lend::gpu::{self, OnDevice, Staged};
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::host::HostPlace;
use crate::transport::lend::memory::LentBlock;
use crate::transport::lend::place::{BufferSource, LendingPlace};
use crate::transport::lend::pool_core::PoolCore;
use crate::transport::lend::regions::NoRoom;
use crate::transport::{Lease, Lender, LinkOptions, OnGpu, Placement};

/// Size of a connection's first region for copies, where the options allow that. Small bodies share
/// regions, since each takes a descriptor here and a mapping at the peer.
const FIRST_REGION_BYTES: u64 = 1 << 20;

/// [`Lender`] over regions.
#[derive(Debug)]
pub struct RegionPool {
    core: Arc<PoolCore>,
    /// Events that the peer is told to wait for.
    events: Mutex<gpu::Events>,
}

impl RegionPool {
    /// An empty pool for one connection. Memory of GPUs is lent where the `process` is known.
    pub fn new(
        options: &LinkOptions,
        export: Box<dyn Export>,
        process: Option<PeerProcess>,
    ) -> Self {
        let peer = Borrower { export, process };
        Self {
            core: Arc::new(PoolCore::new(options, peer)),
            events: Mutex::default(),
        }
    }

    /// Whether a body is large enough to be lent.
    fn is_worth_lending(&self, buffers: &[BufferRef]) -> bool {
        let total = buffers.iter().try_fold(0u64, |sum, buffer| {
            sum.checked_add(u64::try_from(buffer.len).ok()?)
        });
        let least = match self.core.lends_always() {
            true => 0,
            false => self.core.options.inline_bytes,
        };
        total.is_some_and(|total| total > least)
    }

    /// Places a body that lies on a GPU.
    fn place_gpu(&self, buffers: &[BufferRef], gpu: OnGpu<'_>) -> Result<Option<Lease>> {
        let on_device = OnDevice::new(gpu, &self.events);
        match lend(&self.core, &on_device, buffers) {
            Ok(None) => {}
            Ok(lease) => return Ok(lease),
            Err(error) => tracing::debug!("a body on a GPU is copied to the host: {error}"),
        }
        let lease = lend(&self.core, &Staged(gpu), buffers)?;
        if lease.is_none() {
            // Copies that were begun all the same read the producer's memory.
            gpu.stream.settle()?;
        }
        Ok(lease)
    }
}

impl Lender for RegionPool {
    fn place(&self, buffers: &[BufferRef], gpu: Option<OnGpu<'_>>) -> Result<Placement> {
        self.core.generation.ensure_same_process()?;
        if !self.is_worth_lending(buffers) {
            return Ok(Placement::Packed);
        }
        let lease = match gpu {
            Some(gpu) => self.place_gpu(buffers, gpu)?,
            None => lend(&self.core, &HostPlace, buffers)?,
        };
        Ok(lease.map_or(Placement::Packed, Placement::Lent))
    }

    fn set_client(&self, lent_limit: u64, device_type: i32, gpus: &[[u8; 16]]) {
        if self.core.generation.is_same_process() {
            let mut regions = self.core.regions.lock();
            regions.lent_limit = lent_limit.min(self.core.options.lent_limit);
            // Bodies as they are, or on a CUDA device.
            regions.gpus = match device_type {
                0 | 2 => gpus.to_vec(),
                _ => Vec::new(),
            };
        }
    }

    fn lends_on_gpus(&self) -> bool {
        self.core.generation.is_same_process() && gpu::lends(&self.core)
    }

    fn has_retired(&self) -> bool {
        self.core.due.load(Ordering::Relaxed)
    }

    fn take_retired(&self) -> Vec<u16> {
        if !self.core.generation.is_same_process() {
            return Vec::new();
        }
        let mut regions = self.core.regions.lock();
        self.core.due.store(false, Ordering::Relaxed);
        std::mem::take(&mut regions.due)
    }

    fn retire_idle(&self) -> (Vec<u16>, Option<Duration>) {
        if !self.core.generation.is_same_process() {
            return (Vec::new(), None);
        }
        let idle = self.core.options.region_idle;
        // Unmapping is slow; the regions drop after the lock.
        let (gone, next, _unknown) = self.core.regions.lock().retire_idle(idle);
        (gone, next)
    }

    fn region_forgotten(&self, id: u16) {
        if !self.core.generation.is_same_process() {
            return;
        }
        // A peer that forgets what was not retired changes nothing.
        let forgotten = self.core.regions.lock().forget(id);
        let charge = forgotten.and_then(|mut forgotten| forgotten.charge.take());
        gpu::forgotten(&self.core.peer, charge);
    }

    fn abandon(&self) {
        if !self.core.generation.is_same_process() {
            return;
        }
        // Rule F4: the pool's own regions go whole, so no block of them is ever used again.
        let remains = self.core.regions.lock().abandon();
        let peer = &self.core.peer;
        for memory in &remains.out {
            memory.abandon(peer);
        }
        gpu::let_go(peer, remains.retiring);
        gpu::keep_charges(peer, remains.charges);
    }
}

/// Lends a body that lies at `place`: takes all that it needs, or nothing. `None`: the bytes can
/// still be sent.
///
/// # Errors
///
/// What a GPU's driver says. Nothing is out then.
fn lend(
    core: &Arc<PoolCore>,
    place: &impl LendingPlace,
    buffers: &[BufferRef],
) -> Result<Option<Lease>> {
    // Made at once: it gives everything back where the rest fails.
    let mut hold = LeaseHold::new(core);
    let Some(sources) = place.find(&mut hold, buffers)? else {
        return Ok(None);
    };
    if sources.copied_bytes > 0 {
        hold.block = take_block(core, place, sources.copied_bytes)?;
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
    // Only now is it certain that the lease goes out.
    let announce = core.announce(&hold.borrowed, hold.block.as_ref());
    let keep = hold.keep.clone();
    let mut lease = Lease {
        announce,
        borrowed: lent,
        in_place: copied == 0 && core.peer.export.is_mapped(),
        keep,
        ready,
        ..Lease::new(spans, hold.into_owner())
    };
    place.count(&mut lease, copied);
    Ok(Some(lease))
}

/// A block for copies; `None` when nothing may be lent now.
fn take_block(core: &PoolCore, place: &impl LendingPlace, len: u64) -> Result<Option<LentBlock>> {
    let device = place.device();
    let NoRoom { lent_limit, bytes } = match core.regions.lock().take_block(device, len) {
        Ok(found) => return Ok(found),
        Err(no_room) => no_room,
    };
    // A new region is made without the lock: allocating its pages takes milliseconds, and returns
    // must not wait for that.
    let Some(needed) = len.checked_next_multiple_of(place.unit()?) else {
        return Ok(None);
    };
    let largest = core
        .options
        .region_bytes
        .min(lent_limit)
        .min(memfd::most_bytes());
    let budget = &core.options.budget;
    let wanted = [region_bytes(bytes, needed, largest), needed];
    let charge = wanted.iter().find_map(|bytes| budget.charge(*bytes).ok());
    let made = charge
        .map(|charge| place.create(charge))
        .transpose()?
        .flatten();
    let Some((region, charge)) = made else {
        return Ok(None);
    };
    let Some(exported) = region.export(&core.peer, None)? else {
        return Ok(None);
    };
    core.add_copies(region, exported, charge);
    Ok(core.regions.lock().take_block(device, len).ok().flatten())
}

/// Bytes of the next region, for a body of `needed` where the pool has `pooled` already: a tenth of
/// that, in whole bodies, since the next bodies are most often as large. Pages are allocated from
/// the start, so a region should not be much larger than what is lent at once; and each region
/// takes a descriptor and a mapping, so there should not be many.
fn region_bytes(pooled: u64, needed: u64, largest: u64) -> u64 {
    let least = match pooled {
        0 => FIRST_REGION_BYTES,
        _ => HUGE_PAGE_BYTES as u64,
    };
    let needed = needed.max(1);
    let bodies = (pooled / 10).max(least).div_ceil(needed);
    needed.saturating_mul(bodies.min(largest / needed).max(1))
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
