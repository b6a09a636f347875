//! The sender's memory for lending: the regions of one connection, and what of them is out.
//!
//! Who may see what (design, "Who may see a region"): a region for copies holds data of one
//! connection only, so a pool belongs to one connection. Regions of arenas belong to the producer;
//! the pool only numbers those that the peer was told of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::arena;
use crate::device::BufferRef;
use crate::device::memfd;
use crate::device::region::Region;
use crate::error::Result;
use crate::fork::Generation;
use crate::transport::lend::export::{Export, Exported};
use crate::transport::lend::gpu::{self, PeerProcess};
use crate::transport::lend::hold::Hold;
use crate::transport::lend::state::{Ids, NoRoom, Pooled, Registration, State};
use crate::transport::{BodyPolicy, Lender, LinkOptions, OnGpu, Placement, RegionNotice};

/// Copies begin at multiples of this (rule A2).
pub(super) const ALIGNMENT: u64 = 64;
/// Size of a connection's first region, where the option does not ask for smaller ones.
pub(super) const FIRST_REGION_BYTES: u64 = 1 << 20;
/// Least size of those after it, likewise: they have huge pages, where the system has some.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// [`Lender`] over regions.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
}

/// What a pool and the leases that are out share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: LinkOptions,
    export: Box<dyn Export>,
    /// `None`: no memory of GPUs is lent.
    pub(super) peer: Option<PeerProcess>,
    pub(super) generation: Generation,
    /// Events that the peer is told to wait for.
    pub(super) events: Mutex<gpu::Events>,
    /// Some of a GPU's memory is to be retired now.
    due: AtomicBool,
    pub(super) state: Mutex<State>,
}

/// Where one buffer of a body comes from.
pub(super) enum Source {
    Empty,
    /// It lies in a region of an arena: which of those found, and where in it.
    Arena {
        region: usize,
        offset: u64,
    },
    /// It is to be copied, to this offset in the block.
    Copy {
        at: u64,
    },
}

/// A block of a pooled region for the copies of one body.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) id: u16,
    pub(super) region: Arc<Region>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

impl Pool {
    /// An empty pool for one connection.
    pub fn new(options: &LinkOptions, export: Box<dyn Export>) -> Self {
        Self::for_process(options, export, None)
    }

    /// As [`new`](Self::new), to lend memory of GPUs too where the process is known.
    pub fn for_process(
        options: &LinkOptions,
        export: Box<dyn Export>,
        peer: Option<PeerProcess>,
    ) -> Self {
        let shared = Shared {
            options: options.clone(),
            export,
            peer,
            generation: Generation::now(),
            events: Mutex::default(),
            due: AtomicBool::new(false),
            state: Mutex::new(State {
                abandoned: false,
                ids: Ids::default(),
                pooled: BTreeMap::new(),
                borrowed: HashMap::default(),
                retiring: HashMap::default(),
                lent: 0,
                lent_limit: options.lent_limit,
                gpu: gpu::State::default(),
            }),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl Lender for Pool {
    fn place(&self, buffers: &[BufferRef], gpu: Option<OnGpu<'_>>) -> Result<Placement> {
        let shared = &self.shared;
        shared.generation.ensure_same_process()?;
        let total = buffers.iter().try_fold(0u64, |sum, buffer| {
            sum.checked_add(u64::try_from(buffer.len).ok()?)
        });
        let always = shared.options.body == BodyPolicy::Lent;
        let least = if always {
            0
        } else {
            shared.options.inline_bytes
        };
        if total.is_none_or(|total| total <= least) {
            return Ok(Placement::Packed);
        }
        if let Some(gpu) = gpu {
            return shared.place_gpu(buffers, gpu);
        }
        let Some(Sources {
            buffers: sources,
            regions,
            copies,
        }) = Sources::find(buffers)
        else {
            return Ok(Placement::Packed);
        };
        if copies > 0 && !always && !shared.export.lends_copies() {
            return Ok(Placement::Packed);
        }
        let Some((hold, announce)) = shared.reserve(regions, copies) else {
            return Ok(Placement::Packed);
        };
        Ok(Placement::Lent(hold.fill(buffers, &sources, announce)))
    }

    fn lends_in_place(&self, buffers: &[BufferRef], gpu: Option<OnGpu<'_>>) -> bool {
        let shared = &self.shared;
        if !shared.export.is_mapped() || !shared.generation.is_same_process() {
            return false;
        }
        let total = buffers.iter().map(|buffer| buffer.len as u64).sum::<u64>();
        if shared.options.body != BodyPolicy::Lent && total <= shared.options.inline_bytes {
            return false;
        }
        if let Some(gpu) = gpu {
            return shared.lends_in_place_on_gpu(buffers, gpu);
        }
        let mut finder = arena::Finder::lock();
        (buffers.iter().filter(|buffer| buffer.len > 0))
            .all(|buffer| finder.find(buffer.data, buffer.len).is_some())
    }

    fn set_client(&self, lent_limit: u64, device_type: i32, gpus: &[[u8; 16]]) {
        let shared = &self.shared;
        if shared.generation.is_same_process() {
            shared.state.lock().lent_limit = lent_limit.min(shared.options.lent_limit);
            shared.set_gpus(device_type, gpus);
        }
    }

    fn lends_on_gpus(&self) -> bool {
        self.shared.generation.is_same_process() && self.shared.lends_on_gpus()
    }

    fn has_retired(&self) -> bool {
        self.shared.due.load(Ordering::Relaxed)
    }

    fn take_retired(&self) -> Vec<u16> {
        if !self.shared.generation.is_same_process() {
            return Vec::new();
        }
        let mut state = self.shared.state.lock();
        self.shared.due.store(false, Ordering::Relaxed);
        std::mem::take(&mut state.gpu.due)
    }

    fn retire_idle(&self) -> (Vec<u16>, Option<Duration>) {
        if !self.shared.generation.is_same_process() {
            return (Vec::new(), None);
        }
        // Unmapping is slow; the regions drop after the lock.
        let (gone, next, _retired) = self
            .shared
            .state
            .lock()
            .retire(self.shared.options.region_idle);
        (gone, next)
    }

    fn region_forgotten(&self, id: u16) {
        if !self.shared.generation.is_same_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        // A peer that forgets what was not retired changes nothing.
        let Some(mut forgotten) = state.retiring.remove(&id) else {
            return;
        };
        state.ids.free(id);
        drop(state);
        gpu::forgotten(self.shared.peer.as_ref(), forgotten.charge.take());
        // And what the peer has closed, without the lock.
        drop(forgotten);
    }

    fn abandon(&self) {
        if !self.shared.generation.is_same_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.abandoned = true;
        for borrowed in std::mem::take(&mut state.borrowed).into_values() {
            // Rule F4. One that comes back between the look and the mark costs a region that is not used again.
            if borrowed.is_out()
                && !self.shared.export.is_revocable()
                && let Some(region) = borrowed.region.upgrade()
            {
                region.taint();
            }
        }
        let shared = &self.shared;
        if shared.peer.as_ref().is_some_and(|peer| peer.is_this) {
            state.gpu.taint_arenas();
        }
        // Rule F4: the pool's own regions go whole, so no block of them is ever used again.
        let gpu = std::mem::take(&mut state.gpu);
        let mut retiring = std::mem::take(&mut state.retiring);
        let pooled = std::mem::take(&mut state.pooled);
        drop(state);
        let done = retiring.values_mut().filter_map(|gone| gone.owner.take());
        gpu::let_go(shared.peer.as_ref(), done.collect());
        let asked = retiring.values_mut().filter_map(|gone| gone.charge.take());
        let charges = gpu.into_charges().into_iter().chain(asked).collect();
        gpu::keep_charges(shared.peer.as_ref(), charges);
        drop((pooled, retiring));
    }
}

/// What is known of the buffers of a body before any of it is lent.
struct Sources {
    /// Of each buffer.
    buffers: SmallVec<[Source; 4]>,
    /// The regions of arenas in which some lie, each once.
    regions: arena::Regions,
    /// Bytes of those to copy, each padded to 64.
    copies: u64,
}

impl Sources {
    /// Looks every buffer up. `None` when the bytes to copy cannot be counted.
    fn find(buffers: &[BufferRef]) -> Option<Self> {
        let mut copies = 0u64;
        let mut sources = SmallVec::with_capacity(buffers.len());
        let mut finder = arena::Finder::lock();
        for buffer in buffers {
            sources.push(if buffer.len == 0 {
                Source::Empty
            } else if let Some((region, offset)) = finder.find(buffer.data, buffer.len) {
                Source::Arena { region, offset }
            } else {
                let at = copies;
                let len = u64::try_from(buffer.len)
                    .ok()?
                    .checked_next_multiple_of(ALIGNMENT)?;
                copies = copies.checked_add(len)?;
                Source::Copy { at }
            });
        }
        Some(Self {
            buffers: sources,
            regions: finder.regions(),
            copies,
        })
    }
}

impl Shared {
    /// Whether the peer reads regions where they are.
    pub(super) fn is_mapped(&self) -> bool {
        self.export.is_mapped()
    }

    /// Places a body that lies on a GPU.
    fn place_gpu(self: &Arc<Self>, buffers: &[BufferRef], gpu: OnGpu<'_>) -> Result<Placement> {
        match self.lend_on_gpu(buffers, gpu) {
            Ok(Some(placement)) => return Ok(placement),
            Ok(None) => {}
            Err(error) => tracing::debug!("a body on a GPU is copied to the host: {error}"),
        }
        let always = self.options.body == BodyPolicy::Lent;
        if (always || self.export.lends_copies())
            && let Some(placement) = self.stage(buffers, gpu)?
        {
            return Ok(placement);
        }
        // Copies that were begun all the same read the producer's memory.
        gpu.stream.settle()?;
        Ok(Placement::Packed)
    }

    /// Has the driver look for regions to retire, where there are some.
    pub(super) fn note_due(&self, state: &State) {
        if !state.gpu.is_quiet() {
            self.due.store(true, Ordering::Relaxed);
        }
    }

    /// The regions of a lease of copies that the peer was not told of yet; `None`: nothing may be
    /// lent any more.
    pub(super) fn announce(&self, hold: &Hold) -> Option<Vec<RegionNotice>> {
        let mut state = self.state.lock();
        if state.abandoned {
            return None;
        }
        Some(state.announce(hold, false))
    }

    /// Takes everything that a body needs, or nothing.
    fn reserve(
        self: &Arc<Self>,
        regions: arena::Regions,
        copies: u64,
    ) -> Option<(Hold, Vec<RegionNotice>)> {
        let block = if copies > 0 {
            Some(self.take_block(copies)?)
        } else {
            None
        };
        // Made at once: it gives everything back where the rest fails.
        let mut hold = Hold::new(Arc::clone(self), block, regions.len());
        let mut state = self.state.lock();
        let mut news = false;
        for region in regions {
            let mut known = state.borrow_region(&region);
            if known.is_none() {
                drop(state);
                let exported = self.export(&region)?;
                state = self.state.lock();
                state.learn_region(&region, exported)?;
                known = state.borrow_region(&region);
            }
            let (borrow, announced) = known?;
            news |= !announced;
            hold.add_borrowed(borrow);
        }
        if state.abandoned {
            return None;
        }
        // Only now is it certain that the lease goes out.
        let announce = state.announce(&hold, news);
        drop(state);
        Some((hold, announce))
    }

    /// `None`: the bytes can still be sent.
    fn export(&self, region: &Arc<Region>) -> Option<Exported> {
        let exported = self.export.export(region);
        exported
            .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"))
            .ok()
    }

    pub(super) fn take_block(&self, len: u64) -> Option<Block> {
        let NoRoom { lent_limit, pooled } = match self.state.lock().take_block(len) {
            Ok(found) => return found,
            Err(no_room) => no_room,
        };
        // No pooled region has room. A new one is made without the lock: allocating its pages takes
        // milliseconds, and returns must not wait for that.
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let needed = len.checked_next_multiple_of(page)?;
        let largest = (self.options.region_bytes.min(lent_limit)).min(memfd::most_bytes());
        let whole = region_bytes(pooled, needed, largest);
        let budget = &self.options.budget;
        let charge = budget
            .charge(whole)
            .or_else(|_| budget.charge(needed))
            .ok()?;
        // Out of memory or descriptors: the bytes can still be sent.
        let region = Region::create(charge.bytes(), "dipc-copies")
            .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"))
            .ok()?;
        region.charge(Box::new(charge));
        let region = Arc::new(region);
        let exported = self.export(&region)?;
        let mut state = self.state.lock();
        if state.abandoned {
            return None;
        }
        let id = state.ids.take()?;
        let idle_since = Some(Instant::now());
        state.pooled.insert(
            id,
            Pooled {
                registration: Registration::Untried,
                region,
                exported,
                announced: false,
                idle_since,
            },
        );
        state.take_block(len).ok().flatten()
    }
}

/// Bytes of the next region, for a body of `needed` where the pool has `pooled` already: a tenth of that, in
/// whole bodies, since the next ones are most often as large. Pages are there from the start, so that what a
/// region has beyond what is lent at once is memory for nothing; a region each would be a descriptor and a
/// mapping each.
fn region_bytes(pooled: u64, needed: u64, largest: u64) -> u64 {
    let least = if pooled == 0 {
        FIRST_REGION_BYTES
    } else {
        HUGE_PAGE_BYTES
    };
    let bodies = (pooled / 10).max(least).div_ceil(needed.max(1));
    let most = (largest / needed.max(1)).max(1);
    needed.saturating_mul(bodies.min(most))
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
