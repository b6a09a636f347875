//! Lending memory of a GPU to a process of this host that reaches the same GPU.
//!
//! Memory that can be exported is lent where it lies; the rest of a body is copied, on the device, to
//! a region of the connection. To a client that wants bodies on the host, or reaches another GPU, they
//! are copied into a region of host memory ([`stage`]), once.
//!
//! Who owns what. While a lease is out its [`Hold`](hold::Hold) has the block of copies, and a place
//! ([`Keep`]) for the producer's array. When the lease is back, the array is let go, unless some
//! of it is legacy memory or of a pool: that must not be freed while the peer has it open, so the array
//! stays until the peer has acknowledged REGION_GONE. When the connection ends first, everything that is out, or
//! may be open, stays until the peer's process has ended ([`afterlife`]).

mod events;
mod hold;
mod known;
mod pools;
mod stage;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::arena;
use crate::device::BufferRef;
use crate::device::afterlife;
use crate::device::cuda::export::{Allocation, Handle};
use crate::device::cuda::{CudaRegion, Device, DeviceMemory, Event, Stream, uuids};
use crate::error::Result;
use crate::proto::Span;
use crate::transport::lend::address;
use crate::transport::lend::handle::{GpuHandle, Way};
use crate::transport::lend::pool::{ALIGNMENT, FIRST_REGION_BYTES, Shared};
use crate::transport::lend::state::NoRoom;
use crate::transport::{Charge, Keep, Lease, OnGpu, Owner, Placement, RegionNotice};
pub(super) use events::Events;
use hold::Hold;
use known::{Block, Found};
pub(super) use known::{GivenUp, State};

/// The process at the other end, where the system tells of its end: memory of a GPU is lent to no
/// other.
#[derive(Debug)]
pub struct PeerProcess {
    /// Becomes readable when it has ended.
    pub death: Arc<OwnedFd>,
    /// It is this process: nothing tells when it is done with memory, and it cannot open handles of
    /// its own.
    pub is_this: bool,
    /// It runs as this process's user.
    pub same_user: bool,
}

/// Where one buffer of a body comes from.
enum Source {
    Empty,
    /// It lies in memory that is lent: which of those found, and where in it.
    Lent {
        found: usize,
        offset: u64,
    },
    /// It is to be copied, to this offset in the block.
    Copy {
        at: u64,
    },
}

/// What is known of the buffers of a body before any of it is lent.
#[derive(Default)]
struct Sources {
    /// Of each buffer.
    buffers: Vec<Source>,
    /// The memory to lend, and, of that which the peer does not know, what leads to it.
    found: Vec<(Found, Option<Handle>)>,
    /// Memory that nothing leads to.
    closed: Vec<Found>,
    /// Bytes of those to copy, each padded to 64.
    copies: u64,
}

impl Sources {
    /// Looks every buffer up. `None` when the bytes to copy cannot be counted.
    fn find(shared: &Shared, device: &Arc<Device>, buffers: &[BufferRef]) -> Result<Option<Self>> {
        let mut sources = Self::default();
        for buffer in buffers {
            let source = if buffer.len == 0 {
                Source::Empty
            } else if let Some((found, offset)) = sources.lendable(shared, device, buffer)? {
                Source::Lent { found, offset }
            } else {
                let at = sources.copies;
                let padded = u64::try_from(buffer.len)
                    .ok()
                    .and_then(|len| len.checked_next_multiple_of(ALIGNMENT))
                    .and_then(|len| at.checked_add(len));
                let Some(end) = padded else { return Ok(None) };
                sources.copies = end;
                Source::Copy { at }
            };
            sources.buffers.push(source);
        }
        Ok(Some(sources))
    }

    /// Which memory a buffer lies in that can be lent, and where in it.
    fn lendable(
        &mut self,
        shared: &Shared,
        device: &Arc<Device>,
        buffer: &BufferRef,
    ) -> Result<Option<(usize, u64)>> {
        let (start, len) = (buffer.data as u64, buffer.len);
        // The buffers of a batch lie in one allocation, or a few: the driver is rarely asked.
        let mut known = self.found.iter().enumerate();
        let offset = known.find_map(|(at, (found, _))| Some((at, found.offset_of(start, len)?)));
        if offset.is_some() {
            return Ok(offset);
        }
        if (self.closed.iter()).any(|closed| closed.offset_of(start, len).is_some()) {
            return Ok(None);
        }
        let Some((found, handle)) = look_up(shared, device, start, len)? else {
            return Ok(None);
        };
        let Some(offset) = found.offset_of(start, len) else {
            return Ok(None);
        };
        if handle.is_none() && !shared.state.lock().gpu.knows(&found) {
            self.closed.push(found);
            return Ok(None);
        }
        self.found.push((found, handle));
        Ok(Some((self.found.len() - 1, offset)))
    }
}

/// The memory in which the bytes lie, and, where the peer does not know it and something leads to
/// it, what does.
fn look_up(
    shared: &Shared,
    device: &Arc<Device>,
    start: u64,
    len: usize,
) -> Result<Option<(Found, Option<Handle>)>> {
    let in_this = shared.peer.as_ref().is_some_and(|peer| peer.is_this);
    if let Some((region, _)) = arena::find_on_gpu(start, len) {
        // Of another GPU, which the client may not reach.
        if !Arc::ptr_eq(region.device(), device) {
            return Ok(None);
        }
        let found = Found::Arena(region);
        let known = shared.state.lock().gpu.knows(&found);
        let handle = match &found {
            Found::Arena(region) if !known => Some(Handle::Fd(region.memory().export()?)),
            _ => None,
        };
        return Ok(Some((found, handle)));
    }
    let Some(allocation) = Allocation::of(device, start, len)? else {
        return Ok(None);
    };
    let found = Found::Allocation(allocation);
    let known = shared.state.lock().gpu.knows(&found);
    let handle = match &found {
        // Nothing would say when this process is done with it.
        Found::Allocation(allocation) if !known && !in_this => allocation.export()?,
        _ => None,
    };
    Ok(Some((found, handle)))
}

impl Shared {
    /// Whether this client is lent memory of GPUs, as far as can be told before any is seen. Where the
    /// answer is no, none is lent until the client asks anew: it has been told so.
    pub(super) fn lends_on_gpus(&self) -> bool {
        if self.peer.is_none() || !self.state.lock().gpu.wanted {
            return false;
        }
        let ours = uuids().unwrap_or_default();
        let mut state = self.state.lock();
        let reached = state.gpu.gpus.iter().any(|gpu| ours.contains(gpu));
        state.gpu.wanted &= reached;
        reached
    }

    /// What the client said of GPUs.
    pub(super) fn set_gpus(&self, device_type: i32, gpus: &[[u8; 16]]) {
        let mut state = self.state.lock();
        // As sent, or on a CUDA device.
        state.gpu.wanted = matches!(device_type, 0 | 2);
        state.gpu.gpus = gpus.to_vec();
    }

    /// Whether all of a body would be lent where it lies.
    pub(super) fn lends_in_place_on_gpu(&self, buffers: &[BufferRef], gpu: OnGpu<'_>) -> bool {
        let device = gpu.stream.device();
        if self.peer.is_none() || !self.state.lock().gpu.reaches(device) {
            return false;
        }
        match Sources::find(self, device, buffers) {
            Ok(Some(sources)) => sources.copies == 0,
            Ok(None) | Err(_) => false,
        }
    }

    /// Lends a body on a GPU there. `None`: it cannot be, or not now.
    ///
    /// # Errors
    ///
    /// What the driver says. Nothing is out then.
    pub(super) fn lend_on_gpu(
        self: &Arc<Self>,
        buffers: &[BufferRef],
        gpu: OnGpu<'_>,
    ) -> Result<Option<Placement>> {
        let device = gpu.stream.device();
        let Some(peer) = &self.peer else {
            return Ok(None);
        };
        if !self.state.lock().gpu.reaches(device) {
            return Ok(None);
        }
        let Some(sources) = Sources::find(self, device, buffers)? else {
            return Ok(None);
        };
        let Sources {
            buffers: sources,
            found,
            copies,
            ..
        } = sources;
        let block = if copies > 0 {
            match self.take_gpu_block(gpu, copies)? {
                Some(block) => Some(block),
                None => return Ok(None),
            }
        } else {
            None
        };
        let shares = found.iter().filter_map(|(found, _)| found.share().cloned());
        let keep = Keep::with(Box::new(shares.collect::<Vec<_>>()));
        // Made at once: it gives everything back where the rest fails.
        let mut hold = Hold::new(self, block, keep);
        for (found, handle) in found {
            let Some(id) = self.borrow_on_gpu(device, found, handle)? else {
                return Ok(None);
            };
            hold.add(id);
        }
        self.copy_on_gpu(buffers, &sources, &mut hold, gpu)?;
        let ready = if hold.is_busy() || !gpu.ready.is_ready()? {
            self.order(peer, gpu)?
        } else {
            None
        };
        let mut state = self.state.lock();
        if state.abandoned {
            return Ok(None);
        }
        // Only now is it certain that the lease goes out.
        let announce = state.gpu.announce(hold.lent(), hold.block());
        drop(state);
        let (mut copied, mut borrowed) = (0, 0);
        let spans = buffers
            .iter()
            .zip(&sources)
            .map(|(buffer, source)| {
                let length = u64::try_from(buffer.len).unwrap_or(u64::MAX);
                let address = match source {
                    Source::Empty => None,
                    Source::Lent { found, offset } => {
                        borrowed += length;
                        hold.lent().get(*found).map(|id| address(*id, *offset))
                    }
                    Source::Copy { at } => {
                        copied += length;
                        hold.block()
                            .map(|block| address(block.id, block.offset + at))
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
        Ok(Some(Placement::Lent(Lease {
            announce,
            borrowed,
            in_place: copied == 0,
            copied_on_device: copied,
            keep: Some(hold.keep()),
            ready,
            ..Lease::new(spans, Owner::One(Box::new(hold)))
        })))
    }

    /// Counts a lease of memory, which the peer is to be told of where it does not know it. `None`:
    /// nothing may be lent now.
    fn borrow_on_gpu(
        &self,
        device: &Arc<Device>,
        found: Found,
        handle: Option<Handle>,
    ) -> Result<Option<u16>> {
        let known = self.state.lock().borrow_gpu(&found);
        if known.is_some() {
            return Ok(known);
        }
        // It was known a moment ago, and has been retired since.
        let handle = match (handle, &found) {
            (Some(handle), _) => Some(handle),
            (None, Found::Arena(region)) => Some(Handle::Fd(region.memory().export()?)),
            (None, Found::Allocation(allocation)) => allocation.export()?,
        };
        let Some(handle) = handle else {
            return Ok(None);
        };
        Ok(self.state.lock().learn_gpu(device, found, handle))
    }

    /// Enqueues the copies of a lease.
    fn copy_on_gpu(
        &self,
        buffers: &[BufferRef],
        sources: &[Source],
        hold: &mut Hold,
        gpu: OnGpu<'_>,
    ) -> Result<()> {
        let Some(target) = hold.block().map(|block| block.region.base() + block.offset) else {
            return Ok(());
        };
        let enqueued = (|| {
            for (buffer, source) in buffers.iter().zip(sources) {
                let Source::Copy { at } = source else {
                    continue;
                };
                // SAFETY: the buffer is readable once the stream has come here, behind what makes it
                // so (`OnGpu`), and its owner is kept until the event below has happened: by the
                // caller until it is in the lease's `Keep`, then by the hold. The block has room for
                // every buffer at the offset counted out for it, nobody else has it, and the hold
                // gives it back after that event.
                unsafe { gpu.stream.copy(target + at, buffer.data as u64, buffer.len) }?;
            }
            let done = Event::new(gpu.stream.device())?;
            done.record(gpu.stream)?;
            Ok(done)
        })();
        match enqueued {
            Ok(done) => {
                hold.set_busy(done);
                Ok(())
            }
            Err(error) => {
                // What was enqueued is done before the block and the buffers are anybody else's.
                let _ = gpu.stream.settle();
                Err(error)
            }
        }
    }

    /// Has the peer wait for everything given to the stream. `None`: it has happened.
    fn order(
        &self,
        peer: &PeerProcess,
        gpu: OnGpu<'_>,
    ) -> Result<Option<crate::transport::ReadyNotice>> {
        if !peer.is_this {
            match self.events.lock().record(gpu.stream) {
                Ok(ready) => return Ok(ready),
                Err(error) => tracing::debug!("the peer cannot wait by itself: {error}"),
            }
        }
        gpu.stream.settle().map(|()| None)
    }

    fn take_gpu_block(self: &Arc<Self>, gpu: OnGpu<'_>, len: u64) -> Result<Option<Block>> {
        let device = gpu.stream.device();
        let NoRoom { lent_limit, pooled } = match self.state.lock().take_gpu_block(device, len) {
            Ok(found) => return Ok(found),
            Err(no_room) => no_room,
        };
        if !device.exports_fds() {
            return Ok(None);
        }
        // A new one is made without the lock, as on the host.
        let unit = u64::try_from(DeviceMemory::lend_unit(device)?).unwrap_or(u64::MAX);
        let standard = self.options.region_bytes.min(lent_limit);
        let wanted = standard.min(pooled.max(FIRST_REGION_BYTES)).max(len);
        let lengths = [wanted, len].map(|len| len.checked_next_multiple_of(unit));
        let mut charges = lengths.into_iter().flatten();
        let charge = charges.find_map(|bytes| self.options.budget.charge(bytes).ok());
        let Some(charge) = charge else {
            return Ok(None);
        };
        let region = Arc::new(CudaRegion::create(device, charge.bytes())?);
        // The peer sees all of it, also what this process had there before. On a stream of its own: the
        // encoder's may wait for the producer, for which no thread is to wait.
        let clearing = Stream::new(device)?;
        // SAFETY: nobody else knows of the region yet.
        let cleared = unsafe { clearing.fill(region.base(), 0, region.len()) };
        let settled = clearing.settle();
        cleared.and(settled)?;
        let fd = region.memory().export()?;
        let mut state = self.state.lock();
        if state.add_gpu_region(region, charge, fd).is_none() {
            return Ok(None);
        }
        Ok(state.take_gpu_block(device, len).ok().flatten())
    }
}

/// What the peer has returned, and was asked to close, when the connection ends: one that ends it in
/// order has closed what it mapped before, and one that is killed is waited for.
pub(super) fn let_go(peer: Option<&PeerProcess>, owners: Vec<Keep>) {
    if let Some(peer) = peer
        && !peer.is_this
        && !owners.is_empty()
    {
        afterlife::keep_for_a_while(&peer.death, Box::new(owners));
    }
}

/// Keeps what regions of a GPU count against when the connection ends: the driver does not tell who
/// has a region open. Of a peer of another user it counts until its process has ended, whatever
/// that has said.
pub(super) fn keep_charges(peer: Option<&PeerProcess>, charges: Vec<Charge>) {
    let Some(peer) = peer.filter(|peer| !peer.is_this && !charges.is_empty()) else {
        return;
    };
    if peer.same_user {
        afterlife::keep_for_a_while(&peer.death, Box::new(charges));
    } else {
        afterlife::keep_until_end(&peer.death, Box::new(charges));
    }
}

/// The same when the peer says that it has closed a region.
pub(super) fn forgotten(peer: Option<&PeerProcess>, charge: Option<Charge>) {
    if peer.is_some_and(|peer| !peer.same_user) {
        keep_charges(peer, charge.into_iter().collect());
    }
}

/// A region of a GPU as the peer is told of it.
fn notice(
    id: u16,
    device: &Device,
    len: usize,
    way: Way,
    fd: Option<Arc<OwnedFd>>,
) -> RegionNotice {
    let handle = GpuHandle {
        length: u64::try_from(len).unwrap_or(u64::MAX),
        uuid: *device.uuid(),
        way,
    };
    RegionNotice {
        id,
        handle: handle.encode(),
        fd,
    }
}
