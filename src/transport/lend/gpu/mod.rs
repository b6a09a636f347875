//! Lending memory of a GPU to a process of this host that reaches the same GPU.
//!
//! Memory that can be exported is lent where it lies; the other buffers of a body are copied, on
//! the device, to a region of the connection. If a client wants bodies on the host, or reaches
//! another GPU, it gets them in the host's memory ([`HostPlace`](super::host::HostPlace)).
//!
//! While a lease is out, its [`LeaseHold`] has the block of copies, and a place ([`Keep`]) for the
//! producer's array. If an allocation of an array was lent, the array must not be freed while the
//! peer has the allocation open: it stays until the peer has acknowledged REGION_GONE. If the
//! connection ends first, all memory that is lent, or may be open, stays until the peer's process
//! has ended ([`outlive`]).

pub(super) mod announced;
pub(super) mod events;
pub(super) mod handle;
pub(super) mod orders;

use std::sync::Arc;

use crate::arena;
use crate::device::cuda::export::Allocation;
use crate::device::cuda::{CudaRegion, Device, DeviceMemory, Event, Stream, uuids};
use crate::device::{BufferRef, outlive};
use crate::error::Result;
use crate::transport::lend::export::Borrower;
use crate::transport::lend::hold::LeaseHold;
use crate::transport::lend::memory::{CopyRegion, LentBlock, LentMemory};
use crate::transport::lend::place::{BodySources, LendingPlace};
use crate::transport::lend::pool::RegionPool;
use crate::transport::lend::regions::Retiring;
use crate::transport::{Charge, Keep, Lease, OnGpu, ReadyNotice};

/// Whether this client is lent memory of GPUs, as far as can be known. If not, no such memory is
/// lent until the client asks again.
pub(super) fn lends(pool: &RegionPool) -> bool {
    if pool.peer.process.is_none() || pool.regions.lock().gpus.is_empty() {
        return false;
    }
    let ours = uuids().unwrap_or_default();
    let mut regions = pool.regions.lock();
    regions.gpus.retain(|gpu| ours.contains(gpu));
    !regions.gpus.is_empty()
}

/// A GPU whose memory the peer reaches.
pub(super) struct OnDevice<'a>(pub OnGpu<'a>);

impl LentMemory {
    /// The memory of `device` in which the bytes lie.
    fn look_up(device: &Arc<Device>, start: u64, len: usize) -> Result<Option<Self>> {
        if let Some((region, _)) = arena::find_on_gpu(start, len) {
            // The client may not reach another GPU, so memory there is not lent.
            let is_here = Arc::ptr_eq(region.device(), device);
            return Ok(is_here.then_some(Self::Gpu(region)));
        }
        let found = Allocation::of(device, start, len)?;
        Ok(found.map(|allocation| Self::Allocation(Arc::new(allocation))))
    }

    fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        match self {
            Self::Allocation(allocation) => allocation.offset_of(address, len),
            Self::Gpu(region) => region.offset_of(address, len),
            Self::Host(_) => None,
        }
    }
}

/// Makes the peer wait for everything given to the stream so far. `None`: all of it has happened.
fn order(pool: &RegionPool, stream: &Arc<Stream>) -> Result<Option<ReadyNotice>> {
    if !pool.peer.is_this_process() {
        match pool.events.lock().record(stream) {
            Ok(ready) => return Ok(ready),
            Err(error) => tracing::debug!("the peer cannot wait by itself: {error}"),
        }
    }
    stream.settle().map(|()| None)
}

impl LendingPlace for OnDevice<'_> {
    fn device(&self) -> Option<&Arc<Device>> {
        Some(self.0.stream.device())
    }

    fn find(&self, hold: &mut LeaseHold, buffers: &[BufferRef]) -> Result<Option<BodySources>> {
        let device = self.0.stream.device();
        let pool = Arc::clone(&hold.pool);
        if pool.peer.process.is_none() || !pool.regions.lock().gpus.contains(device.uuid()) {
            return Ok(None);
        }
        hold.keep = Some(Keep::default());
        let mut sources = BodySources::with_capacity(buffers.len());
        // The buffers of a batch lie in a few allocations. Each has its place among the borrowed
        // ones, unless it cannot be lent.
        let mut seen: Vec<(LentMemory, Option<usize>)> = Vec::new();
        for buffer in buffers {
            let (start, len) = (buffer.data as u64, buffer.len);
            let is_in = |(found, at): &(LentMemory, Option<usize>)| {
                Some((*at, found.offset_of(start, len)?))
            };
            let mut lent = None;
            if len > 0 {
                let known = seen.iter().find_map(is_in);
                if known.is_none()
                    && let Some(found) = LentMemory::look_up(device, start, len)?
                {
                    let borrow = pool.borrow(&found)?;
                    let at = borrow.is_some().then_some(hold.borrowed.len());
                    hold.borrowed.extend(borrow);
                    seen.push((found, at));
                }
                let known = known.or_else(|| seen.last().and_then(is_in));
                lent = known.and_then(|(at, offset)| Some((at?, offset)));
            }
            if sources.add(*buffer, lent).is_none() {
                return Ok(None);
            }
        }
        let is_possible = sources.copied_bytes == 0 || device.exports_fds();
        Ok(is_possible.then_some(sources))
    }

    fn unit(&self) -> Result<u64> {
        let unit = DeviceMemory::lend_unit(self.0.stream.device())?;
        Ok(u64::try_from(unit).unwrap_or(u64::MAX))
    }

    fn create(&self, charge: Charge) -> Result<Option<(CopyRegion, Option<Charge>)>> {
        let device = self.0.stream.device();
        let region = CudaRegion::create(device, charge.bytes())?;
        // The peer sees the whole region. Cleared on a stream of its own, because the encoder's
        // stream may wait for the producer.
        let clearing = Stream::new(device)?;
        // SAFETY: nobody else knows of the region yet.
        let cleared = unsafe { clearing.fill(region.base(), 0, region.len()) };
        let settled = clearing.settle();
        cleared.and(settled)?;
        Ok(Some((CopyRegion::Gpu(Arc::new(region)), Some(charge))))
    }

    fn copy(
        &self,
        hold: &mut LeaseHold,
        buffers: &[BufferRef],
        sources: &BodySources,
    ) -> Result<Option<ReadyNotice>> {
        let stream = self.0.stream;
        if let Some(block) = &hold.block {
            let done = enqueue(block, buffers, sources, stream).and_then(|()| {
                let done = Event::new(stream.device())?;
                done.record(stream)?;
                Ok(done)
            });
            // What was enqueued must be done before the block and the buffers get other users.
            hold.busy = Some(done.inspect_err(|_| drop(stream.settle()))?);
        }
        if hold.busy.is_some() || !self.0.ready.is_ready()? {
            return order(&hold.pool, stream);
        }
        Ok(None)
    }

    fn count(&self, lease: &mut Lease, copied: u64) {
        lease.copied_on_device = copied;
    }
}

/// Enqueues the copies of a body to a block of a GPU's memory, or of the host's.
pub(super) fn enqueue(
    block: &LentBlock,
    buffers: &[BufferRef],
    sources: &BodySources,
    stream: &Stream,
) -> Result<()> {
    for (buffer, at) in sources.copies(buffers) {
        // SAFETY: the buffer is readable once the stream has come here, after the work that makes
        // it readable (`OnGpu`). Its owner is kept until the copies are done: by the caller until
        // it is in the lease's `Keep`, then by the hold, or until the stream has settled. The block
        // has room for every buffer at its offset, nobody else has the block, and the hold gives it
        // back only after the copies.
        unsafe { stream.copy(block.target(at) as u64, buffer.data as u64, buffer.len) }?;
    }
    Ok(())
}

/// When the connection ends: keeps memory that the peer has returned and was asked to close. A peer
/// that ends the connection in order has closed the memory before; for a killed peer, its end is
/// waited for.
pub(super) fn let_go(peer: &Borrower, mut retiring: Vec<Retiring>) {
    retiring.retain(|gone| gone.keep.is_some());
    if let Some(process) = &peer.process
        && !process.is_this
        && !retiring.is_empty()
    {
        outlive::keep_for_a_while(&process.death, Box::new(retiring));
    }
}

/// When the connection ends: keeps the charges of regions on a GPU, because the driver does not
/// report who has a region open. If the peer belongs to another user, a region counts until the
/// peer's process has ended.
pub(super) fn keep_charges(peer: &Borrower, charges: Vec<Charge>) {
    let Some(process) = peer.process.as_ref().filter(|process| !process.is_this) else {
        return;
    };
    if charges.is_empty() {
        return;
    }
    if process.same_user {
        outlive::keep_for_a_while(&process.death, Box::new(charges));
    } else {
        outlive::keep_until_end(&process.death, Box::new(charges));
    }
}

/// The same, when the peer says that it has closed a region.
pub(super) fn forgotten(peer: &Borrower, charge: Option<Charge>) {
    if (peer.process.as_ref()).is_some_and(|process| !process.same_user) {
        keep_charges(peer, charge.into_iter().collect());
    }
}
