//! How a body is lent: from the memory in which it lies already, or from a copy in a region; and
//! what a pool does about memory of GPUs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::device::{BufferRef, memfd};
use crate::error::Result;
use crate::proto::Span;
use crate::transport::lend::address::address;
use crate::transport::lend::gpu::{self, OnDevice};
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::host::HostPlace;
use crate::transport::lend::memory::LentBlock;
use crate::transport::lend::place::{BufferSource, LendingPlace};
use crate::transport::lend::pool::RegionPool;
use crate::transport::lend::regions::NoRoom;
use crate::transport::{BodyPolicy, Lease, Lender, OnGpu, Placement};

/// Size of a connection's first region for copies, if the options allow it. Small bodies share
/// regions, because each region takes a descriptor here and a mapping at the peer.
const FIRST_REGION_BYTES: u64 = 1 << 20;
/// Least size of later regions.
const LEAST_REGION_BYTES: u64 = 2 << 20;

impl RegionPool {
    /// Whether bodies on a GPU are lent there to this client, as far as can be known beforehand.
    pub fn lends_on_gpus(&self) -> bool {
        self.generation.is_same_process() && gpu::lends(self)
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
#[path = "lending_tests.rs"]
mod tests;
