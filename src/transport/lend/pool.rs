//! The sender's memory for lending: the regions of one connection, and what of them is out.
//!
//! Who may see what (design, "Who may see a region"): a region for copies holds data of one
//! connection only, so a pool belongs to one connection. Regions of arenas belong to the producer;
//! the pool only numbers those that the peer was told of.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::arena;
use crate::device::BufferRef;
use crate::device::cuda::Registered;
use crate::device::region::Region;
use crate::error::Result;
use crate::fork::Generation;
use crate::transport::lend::export::{Export, Exported};
use crate::transport::lend::gpu::{self, GivenUp, PeerProcess};
use crate::transport::lend::hold::Hold;
use crate::transport::{
    BodyPolicy, Budget, Keep, Lender, LinkOptions, OnGpu, Placement, RegionNotice,
};

/// Copies begin at multiples of this (rule A2).
pub(super) const ALIGNMENT: u64 = 64;
/// Size of a connection's first region, where the option does not ask for smaller ones.
pub(super) const FIRST_REGION_BYTES: u64 = 1 << 20;

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

#[derive(Debug)]
pub(super) struct State {
    /// After [`Lender::abandon`]: nothing is lent any more, and nothing that was is written.
    pub(super) abandoned: bool,
    pub(super) ids: Ids,
    /// Regions for copies.
    pub(super) pooled: BTreeMap<u16, Pooled>,
    /// Regions of arenas that the peer knows, by their identity.
    pub(super) borrowed: HashMap<u64, Borrowed>,
    /// Retired and not yet forgotten by the peer. While it has them mapped they use memory, so
    /// they stay charged.
    pub(super) retiring: HashMap<u16, Retiring>,
    /// Bytes of copies that are out.
    pub(super) lent: u64,
    /// The most that `lent` may be.
    pub(super) lent_limit: u64,
    /// Memory of GPUs.
    pub(super) gpu: gpu::State,
}

/// A region that the peer was told to forget, until it says that it has.
#[derive(Debug)]
pub(super) struct Retiring {
    pub(super) _charge: Option<Charge>,
    /// What keeps memory alive that the peer may still have open.
    pub(super) owners: Vec<Keep>,
}

#[derive(Debug)]
pub(super) struct Pooled {
    /// First: the peer's access ends before the memory does.
    exported: Exported,
    registration: Registration,
    region: Arc<Region>,
    charge: Charge,
    announced: bool,
    /// Since when no block is in use.
    pub(super) idle_since: Option<Instant>,
}

/// Whether GPUs copy to a region at their full rate.
#[derive(Debug, Clone)]
pub(super) enum Registration {
    Untried,
    Refused,
    Made(Arc<Pinned>),
}

/// A region that is pinned for GPUs. What is pinned goes before it is unmapped.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) _registered: Registered,
    pub(super) _region: Arc<Region>,
}

impl Pooled {
    pub(super) fn registration(&mut self) -> &mut Registration {
        &mut self.registration
    }
}

#[derive(Debug)]
pub(super) struct Borrowed {
    id: u16,
    /// Weak, so that an arena can give the region up.
    region: Weak<Region>,
    exported: Exported,
    announced: bool,
    /// Leases that are out.
    pub(super) leases: usize,
}

/// What a region takes of the server's budget.
#[derive(Debug)]
pub(super) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    pub(super) fn take(budget: &Arc<Budget>, bytes: u64) -> Option<Self> {
        budget.take(bytes).ok()?;
        Some(Self {
            budget: Arc::clone(budget),
            bytes,
        })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Region ids: 1 to 65535, one that came back before one never used.
#[derive(Debug, Default)]
pub(super) struct Ids {
    last: u16,
    free: BTreeSet<u16>,
}

impl Ids {
    pub(super) fn take(&mut self) -> Option<u16> {
        if let Some(id) = self.free.pop_first() {
            return Some(id);
        }
        self.last = self.last.checked_add(1)?;
        Some(self.last)
    }

    pub(super) fn free(&mut self, id: u16) {
        self.free.insert(id);
    }
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
                borrowed: HashMap::new(),
                retiring: HashMap::new(),
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

    fn lends_in_place(&self, buffers: &[BufferRef]) -> bool {
        let shared = &self.shared;
        if !shared.export.is_mapped() || !shared.generation.is_same_process() {
            return false;
        }
        let total = buffers.iter().map(|buffer| buffer.len as u64).sum::<u64>();
        if shared.options.body != BodyPolicy::Lent && total <= shared.options.inline_bytes {
            return false;
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
        let forgotten = state.retiring.remove(&id);
        if forgotten.is_some() {
            state.ids.free(id);
        }
        drop(state);
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
            // Rule F4. Under the lock: no lease can come back between the look and the mark.
            if borrowed.leases > 0
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
        let mut gpu = std::mem::take(&mut state.gpu);
        let mut retiring = std::mem::take(&mut state.retiring);
        let pooled = std::mem::take(&mut state.pooled);
        drop(state);
        let mut owners = gpu.take_owners();
        owners.extend(retiring.values_mut().flat_map(|gone| gone.owners.drain(..)));
        gpu::bury(shared.peer.as_ref(), owners);
        drop((pooled, gpu, retiring));
    }
}

/// What is known of the buffers of a body before any of it is lent.
struct Sources {
    /// Of each buffer.
    buffers: Vec<Source>,
    /// The regions of arenas in which some lie, each once.
    regions: Vec<Arc<Region>>,
    /// Bytes of those to copy, each padded to 64.
    copies: u64,
}

impl Sources {
    /// Looks every buffer up. `None` when the bytes to copy cannot be counted.
    fn find(buffers: &[BufferRef]) -> Option<Self> {
        let mut copies = 0u64;
        let mut sources = Vec::with_capacity(buffers.len());
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
        regions: Vec<Arc<Region>>,
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
            let (id, announced) = known?;
            news |= !announced;
            hold.add_borrowed(id, region);
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
        // Regions double what there is, so that a small table does not cost a large one's memory.
        let standard = self.options.region_bytes.min(lent_limit);
        let whole = standard.min(pooled.max(FIRST_REGION_BYTES)).max(needed);
        let whole = whole.checked_next_multiple_of(page).unwrap_or(needed);
        let budget = &self.options.budget;
        let charge = Charge::take(budget, whole).or_else(|| Charge::take(budget, needed))?;
        // Out of memory or descriptors: the bytes can still be sent.
        let region = Region::create(charge.bytes, "dipc-copies")
            .inspect_err(|error| tracing::debug!("bodies travel as bytes: {error}"))
            .ok()?;
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
                charge,
                exported,
                announced: false,
                idle_since,
            },
        );
        state.take_block(len).ok().flatten()
    }
}

/// What is given up, to be dropped without the lock: first the peer's access goes, then the memory.
#[derive(Default)]
struct Retired {
    _exported: Vec<Exported>,
    _registrations: Vec<Registration>,
    _regions: Vec<Arc<Region>>,
    _gpu: Vec<GivenUp>,
}

/// No pooled region has room.
pub(super) struct NoRoom {
    pub(super) lent_limit: u64,
    /// Bytes of the pooled regions.
    pub(super) pooled: u64,
}

impl State {
    /// A block of a pooled region; `None` when nothing may be lent now.
    fn take_block(&mut self, len: u64) -> Result<Option<Block>, NoRoom> {
        let lent = self
            .lent
            .checked_add(len)
            .filter(|lent| *lent <= self.lent_limit);
        let Some(lent) = lent.filter(|_| !self.abandoned) else {
            return Ok(None);
        };
        let found = self.pooled.iter_mut().find_map(|(id, pooled)| {
            let offset = pooled.region.alloc(len)?;
            pooled.idle_since = None;
            Some(Block {
                id: *id,
                region: Arc::clone(&pooled.region),
                offset,
                len,
            })
        });
        let Some(block) = found else {
            let pooled = self.pooled.values().map(|pooled| pooled.charge.bytes).sum();
            return Err(NoRoom {
                lent_limit: self.lent_limit,
                pooled,
            });
        };
        self.lent = lent;
        Ok(Some(block))
    }

    /// Numbers an arena's region, unless another thread has; `None` when no id is left for it, or
    /// nothing may be lent any more.
    fn learn_region(&mut self, region: &Arc<Region>, exported: Exported) -> Option<()> {
        if self.abandoned {
            return None;
        }
        if !self.borrowed.contains_key(&region.identity()) {
            let known = Borrowed {
                id: self.ids.take()?,
                region: Arc::downgrade(region),
                exported,
                announced: false,
                leases: 0,
            };
            self.borrowed.insert(region.identity(), known);
        }
        Some(())
    }

    /// Counts one more lease of an arena's region, and returns its id and whether the peer was told
    /// of it; `None` where it has no id yet.
    fn borrow_region(&mut self, region: &Arc<Region>) -> Option<(u16, bool)> {
        let known = self.borrowed.get_mut(&region.identity())?;
        known.leases += 1;
        Some((known.id, known.announced))
    }

    /// The regions of a lease that the peer was not told of yet; from now on it counts as told.
    /// There may be regions of arenas among them only where there are `news`.
    fn announce(&mut self, hold: &Hold, news: bool) -> Vec<RegionNotice> {
        let mut notices = Vec::new();
        for (id, region) in hold.borrowed().iter().filter(|_| news) {
            if let Some(known) = self.borrowed.get_mut(&region.identity())
                && !std::mem::replace(&mut known.announced, true)
            {
                notices.push(known.exported.notice(*id));
            }
        }
        if let Some(block) = &hold.block
            && let Some(pooled) = self.pooled.get_mut(&block.id)
            && !std::mem::replace(&mut pooled.announced, true)
        {
            notices.push(pooled.exported.notice(block.id));
        }
        notices
    }

    /// Takes out the regions that have been idle for `idle` and those whose arena is done with
    /// them. Returns their ids, the time until the next look, and what is to be unmapped.
    fn retire(&mut self, idle: Duration) -> (Vec<u16>, Option<Duration>, Retired) {
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut retired = Retired::default();
        let mut next: Option<Duration> = None;
        let left = |since: Instant| idle.saturating_sub(now.saturating_duration_since(since));
        let due = self
            .pooled
            .extract_if(.., |_, pooled| match pooled.idle_since.map(left) {
                Some(Duration::ZERO) => true,
                Some(left) => {
                    next = Some(next.map_or(left, |next| next.min(left)));
                    false
                }
                None => false,
            });
        for (
            id,
            Pooled {
                region,
                charge,
                exported,
                registration,
                announced,
                ..
            },
        ) in due
        {
            retired._exported.push(exported);
            retired._registrations.push(registration);
            retired._regions.push(region);
            if announced {
                let retiring = Retiring {
                    _charge: Some(charge),
                    owners: Vec::new(),
                };
                self.retiring.insert(id, retiring);
                gone.push(id);
            } else {
                // The peer never heard of it.
                self.ids.free(id);
            }
        }
        let done = self
            .borrowed
            .extract_if(|_, b| b.leases == 0 && b.region.strong_count() == 0);
        for (_, known) in done {
            let Borrowed {
                id,
                announced,
                exported,
                ..
            } = known;
            retired._exported.push(exported);
            if announced {
                let retiring = Retiring {
                    _charge: None,
                    owners: Vec::new(),
                };
                self.retiring.insert(id, retiring);
                gone.push(id);
            } else {
                self.ids.free(id);
            }
        }
        if !self.borrowed.is_empty() {
            // Nothing tells when an arena is done with a region, so look again after a while.
            next = Some(next.map_or(idle, |next| next.min(idle)));
        }
        if let Some(after) = self.retire_idle_gpu(idle, &mut gone, &mut retired._gpu) {
            next = Some(next.map_or(after, |next| next.min(after)));
        }
        (gone, next, retired)
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
