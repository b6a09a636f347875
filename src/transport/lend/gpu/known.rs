//! The memory of GPUs that the peer of one connection knows, under the pool's lock.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::device::cuda::export::{Allocation, Handle};
use crate::device::cuda::pool::Share;
use crate::device::cuda::{CudaRegion, Device};
use crate::transport::lend::gpu::notice;
use crate::transport::lend::gpu::pools::Pool;
use crate::transport::lend::handle::Way;
use crate::transport::lend::state::{self, NoRoom, Retiring};
use crate::transport::{Charge, Keep, RegionNotice};

/// An allocation of a producer's of which nothing is out is kept known for so long at most.
const MOST_IDLE: Duration = Duration::from_secs(1);

/// What the pool knows of GPUs.
#[derive(Debug, Default)]
pub(in crate::transport::lend) struct State {
    /// The client wants bodies on a GPU, or as they are.
    pub(super) wanted: bool,
    /// The GPUs that it reaches.
    pub(super) gpus: Vec<[u8; 16]>,
    /// Memory of producers.
    pub(super) lent: BTreeMap<u16, Lent>,
    /// The same, by where it begins.
    by_base: HashMap<u64, u16>,
    /// The pools that some of it is of.
    pub(super) pools: BTreeMap<u16, Pool>,
    /// Regions for copies.
    pub(super) pooled: BTreeMap<u16, Pooled>,
    /// Retired, and the peer is still to be told.
    pub(in crate::transport::lend) due: Vec<u16>,
}

/// An allocation of a producer's, or a region of an arena.
#[derive(Debug)]
pub(in crate::transport::lend) struct Lent {
    memory: Memory,
    notice: RegionNotice,
    announced: bool,
    pub(super) leases: usize,
    /// Other memory lies at its addresses now: it goes with its last lease.
    superseded: bool,
    /// Since when nothing of it is out.
    idle_since: Option<Instant>,
}

#[derive(Debug)]
enum Memory {
    Allocation(Allocation),
    /// Of the pool with this number. Who keeps the allocation alive keeps the share.
    Pooled {
        base: u64,
        share: Weak<Share>,
        pool: u16,
    },
    /// Weak, so that an arena can give the region up.
    Arena(Weak<CudaRegion>),
}

/// A region for copies.
#[derive(Debug)]
pub(super) struct Pooled {
    notice: RegionNotice,
    announced: bool,
    region: Arc<CudaRegion>,
    charge: Charge,
    pub(super) idle_since: Option<Instant>,
}

/// Memory in which buffers of a body lie.
#[derive(Debug)]
pub(super) enum Found {
    Allocation(Allocation),
    Arena(Arc<CudaRegion>),
}

impl Found {
    pub(super) fn base(&self) -> u64 {
        match self {
            Self::Allocation(allocation) => allocation.base(),
            Self::Arena(region) => region.base(),
        }
    }

    pub(super) fn size(&self) -> usize {
        match self {
            Self::Allocation(allocation) => allocation.size(),
            Self::Arena(region) => region.len(),
        }
    }

    /// Of memory of a pool: what the peer is told of it by.
    pub(super) fn share(&self) -> Option<&Arc<Share>> {
        match self {
            Self::Allocation(allocation) => allocation.share(),
            Self::Arena(_) => None,
        }
    }

    pub(super) fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        match self {
            Self::Allocation(allocation) => allocation.offset_of(address, len),
            Self::Arena(region) => region.offset_of(address, len),
        }
    }
}

/// A block of a region for copies.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) id: u16,
    pub(super) region: Arc<CudaRegion>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What is given up with a region, to be dropped without the lock: the driver takes its time.
#[derive(Debug)]
pub(in crate::transport::lend) enum GivenUp {
    #[expect(dead_code, reason = "held until it is dropped")]
    Lent(Lent),
    #[expect(dead_code, reason = "held until it is dropped")]
    Pooled(Arc<CudaRegion>),
}

impl State {
    /// Whether the client wants memory of this GPU, and reaches it.
    pub(super) fn reaches(&self, device: &Device) -> bool {
        self.wanted && self.gpus.contains(device.uuid())
    }

    /// Whether memory that begins and ends like `found` is known.
    pub(super) fn knows(&self, found: &Found) -> bool {
        let known = self.by_base.get(&found.base());
        known
            .and_then(|id| self.lent.get(id))
            .is_some_and(|lent| lent.is(found))
    }

    /// The regions of a lease that the peer was not told of yet; from now on it counts as told.
    pub(super) fn announce(&mut self, lent: &[u16], block: Option<&Block>) -> Vec<RegionNotice> {
        let mut notices = Vec::new();
        for id in lent {
            if let Some(known) = self.lent.get_mut(id)
                && !std::mem::replace(&mut known.announced, true)
            {
                if let Memory::Pooled { pool, .. } = &known.memory
                    && let Some(pool) = self.pools.get_mut(pool)
                    && !std::mem::replace(&mut pool.announced, true)
                {
                    notices.push(pool.notice.clone());
                }
                notices.push(known.notice.clone());
            }
        }
        if let Some(block) = block
            && let Some(pooled) = self.pooled.get_mut(&block.id)
            && !std::mem::replace(&mut pooled.announced, true)
        {
            notices.push(pooled.notice.clone());
        }
        notices
    }

    /// Gives up everything but what the regions that the peer knows count against.
    pub(in crate::transport::lend) fn into_charges(self) -> Vec<Charge> {
        let known = self.pooled.into_values().filter(|pooled| pooled.announced);
        known.map(|pooled| pooled.charge).collect()
    }

    /// Whether no region is to be retired at once.
    pub(in crate::transport::lend) fn is_quiet(&self) -> bool {
        self.due.is_empty()
    }

    /// Rule F4, for arenas of a peer in this very process, whose end nobody sees: what is out is not
    /// given out again.
    pub(in crate::transport::lend) fn taint_arenas(&self) {
        let out = self.lent.values().filter(|lent| lent.leases > 0);
        for region in out.filter_map(Lent::arena) {
            region.taint();
        }
    }
}

impl Lent {
    fn is(&self, found: &Found) -> bool {
        match (&self.memory, found) {
            (Memory::Allocation(known), Found::Allocation(found)) => known.is(found),
            (Memory::Pooled { share, .. }, Found::Allocation(found)) => found
                .share()
                .is_some_and(|found| std::ptr::eq(share.as_ptr(), Arc::as_ptr(found))),
            (Memory::Arena(known), Found::Arena(found)) => {
                std::ptr::eq(known.as_ptr(), Arc::as_ptr(found))
            }
            _ => false,
        }
    }

    fn arena(&self) -> Option<Arc<CudaRegion>> {
        match &self.memory {
            Memory::Allocation(_) | Memory::Pooled { .. } => None,
            Memory::Arena(region) => region.upgrade(),
        }
    }

    /// Whether it must not be freed before the peer has closed it, so that it is not kept open
    /// without need.
    fn must_be_closed(&self) -> bool {
        match &self.memory {
            Memory::Allocation(allocation) => allocation.must_outlive_importers(),
            Memory::Pooled { .. } => true,
            Memory::Arena(_) => false,
        }
    }

    /// Whether its arena is done with it.
    fn is_orphaned(&self) -> bool {
        matches!(&self.memory, Memory::Arena(region) if region.strong_count() == 0)
    }
}

/// What concerns the ids too, which regions of the host share.
impl state::State {
    /// Counts one more lease of memory that is known, and gives its id; `None` where it is not.
    pub(super) fn borrow_gpu(&mut self, found: &Found) -> Option<u16> {
        let id = *self.gpu.by_base.get(&found.base())?;
        let known = self.gpu.lent.get_mut(&id)?;
        if known.is(found) {
            known.leases += 1;
            known.idle_since = None;
            return Some(id);
        }
        // Another allocation has taken the addresses: the one known is gone at the producer.
        known.superseded = true;
        self.gpu.by_base.remove(&found.base());
        None
    }

    /// Numbers memory that is not known; `None` when no id is left, or nothing may be lent any more.
    pub(super) fn learn_gpu(
        &mut self,
        device: &Device,
        found: Found,
        handle: Handle,
    ) -> Option<u16> {
        if self.abandoned {
            return None;
        }
        let id = self.ids.take()?;
        let (base, size) = (found.base(), found.size());
        let mut memory = match found {
            Found::Allocation(allocation) => Memory::Allocation(allocation),
            Found::Arena(region) => Memory::Arena(Arc::downgrade(&region)),
        };
        let (way, fd) = match handle {
            Handle::Fd(fd) => (Way::Descriptor, Some(Arc::new(fd))),
            Handle::Legacy(handle) => (Way::Legacy(handle), None),
            Handle::Pooled(share) => {
                let Some(pool) = self.join_pool(device, share.pool()) else {
                    self.ids.free(id);
                    return None;
                };
                let way = Way::Pooled {
                    pool,
                    share: *share.bytes(),
                };
                memory = Memory::Pooled {
                    base,
                    share: Arc::downgrade(&share),
                    pool,
                };
                (way, None)
            }
        };
        let known = Lent {
            memory,
            notice: notice(id, device, size, way, fd),
            announced: false,
            leases: 1,
            superseded: false,
            idle_since: None,
        };
        self.gpu.lent.insert(id, known);
        self.gpu.by_base.insert(base, id);
        Some(id)
    }

    /// The peer is to be told that `id` is gone, where it knows of it: by whoever looks at `due`.
    pub(super) fn retire_id(&mut self, id: u16, announced: bool, retiring: Retiring) {
        if announced {
            self.retiring.insert(id, retiring);
            self.gpu.due.push(id);
        } else {
            self.ids.free(id);
        }
    }

    /// One lease of `id` is back. What must be closed first is retired with the last one, and `keep`
    /// held until the peer has closed it.
    pub(super) fn return_gpu(&mut self, id: u16, keep: &Keep) -> Option<GivenUp> {
        let known = self.gpu.lent.get_mut(&id)?;
        known.leases = known.leases.saturating_sub(1);
        if known.leases > 0 {
            // The arrays behind the others keep the allocation.
            return None;
        }
        let owned = known.must_be_closed();
        if owned || known.superseded {
            return self.retire_gpu(id, owned.then(|| keep.clone()));
        }
        known.idle_since = Some(Instant::now());
        None
    }

    /// Takes out memory that nothing is out of. `owner` keeps it alive until the peer has closed it.
    fn retire_gpu(&mut self, id: u16, owner: Option<Keep>) -> Option<GivenUp> {
        let lent = self.gpu.lent.remove(&id)?;
        let base = match &lent.memory {
            Memory::Allocation(allocation) => Some(allocation.base()),
            Memory::Pooled { base, .. } => Some(*base),
            Memory::Arena(_) => None,
        };
        match base {
            Some(base) if self.gpu.by_base.get(&base) == Some(&id) => {
                self.gpu.by_base.remove(&base);
            }
            Some(_) => {}
            None => self.gpu.by_base.retain(|_, known| *known != id),
        }
        let retiring = Retiring {
            owner,
            ..Retiring::default()
        };
        self.retire_id(id, lent.announced, retiring);
        if let Memory::Pooled { pool, .. } = &lent.memory {
            self.leave_pool(*pool);
        }
        Some(GivenUp::Lent(lent))
    }

    /// A block for copies; `None` when nothing may be lent now.
    pub(super) fn take_gpu_block(
        &mut self,
        device: &Arc<Device>,
        len: u64,
    ) -> Result<Option<Block>, NoRoom> {
        let lent = self.lent.checked_add(len);
        let Some(lent) = lent.filter(|lent| *lent <= self.lent_limit && !self.abandoned) else {
            return Ok(None);
        };
        let found = self.gpu.pooled.iter_mut().find_map(|(id, pooled)| {
            if !Arc::ptr_eq(pooled.region.device(), device) {
                return None;
            }
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
            return Err(NoRoom {
                lent_limit: self.lent_limit,
                pooled: self.gpu.pooled.values().map(|p| p.charge.bytes()).sum(),
            });
        };
        self.lent = lent;
        Ok(Some(block))
    }

    /// Takes up a region for copies; `None` when no id is left, or nothing may be lent any more.
    pub(super) fn add_gpu_region(
        &mut self,
        region: Arc<CudaRegion>,
        charge: Charge,
        fd: OwnedFd,
    ) -> Option<()> {
        if self.abandoned {
            return None;
        }
        let id = self.ids.take()?;
        let fd = Some(Arc::new(fd));
        let pooled = Pooled {
            notice: notice(id, region.device(), region.len(), Way::Descriptor, fd),
            announced: false,
            region,
            charge,
            idle_since: Some(Instant::now()),
        };
        self.gpu.pooled.insert(id, pooled);
        Some(())
    }

    /// A block for copies is back.
    pub(super) fn return_gpu_block(&mut self, block: &Block) {
        self.lent = self.lent.saturating_sub(block.len);
        let freed = block.region.free(block.offset);
        if freed.is_some_and(|freed| freed.emptied)
            && let Some(pooled) = self.gpu.pooled.get_mut(&block.id)
        {
            pooled.idle_since = Some(Instant::now());
        }
    }

    /// Takes out what has been idle for `idle`. Adds the ids to `gone`, and what is to be dropped to
    /// `given_up`; gives the time until the next look.
    pub(in crate::transport::lend) fn retire_idle_gpu(
        &mut self,
        idle: Duration,
        gone: &mut Vec<u16>,
        given_up: &mut Vec<GivenUp>,
    ) -> Option<Duration> {
        let now = Instant::now();
        let left = |since: Instant| idle.saturating_sub(now.saturating_duration_since(since));
        // Memory that the producer has freed stays while it is known here.
        let soon = idle.min(MOST_IDLE);
        let left_of = |since: Instant| soon.saturating_sub(now.saturating_duration_since(since));
        let mut next: Option<Duration> = None;
        let mut due = Vec::new();
        for (id, lent) in &self.gpu.lent {
            if lent.leases > 0 {
                // What is back later may have nobody else to look.
                next = Some(next.map_or(idle, |next| next.min(idle)));
                continue;
            }
            let is_arena = matches!(lent.memory, Memory::Arena(_));
            let idle_left = lent.idle_since.map(|since| match is_arena {
                true => left(since),
                false => left_of(since),
            });
            match idle_left {
                _ if lent.is_orphaned() || lent.superseded => due.push(*id),
                Some(Duration::ZERO) => due.push(*id),
                Some(left) => next = Some(next.map_or(left, |next| next.min(left))),
                None => {}
            }
        }
        for id in due {
            given_up.extend(self.retire_gpu(id, None));
        }
        let idle_regions: Vec<_> = self
            .gpu
            .pooled
            .extract_if(.., |_, pooled| match pooled.idle_since.map(left) {
                Some(Duration::ZERO) => true,
                Some(left) => {
                    next = Some(next.map_or(left, |next| next.min(left)));
                    false
                }
                None => false,
            })
            .collect();
        for (id, pooled) in idle_regions {
            given_up.push(GivenUp::Pooled(pooled.region));
            let retiring = Retiring {
                charge: Some(pooled.charge),
                ..Retiring::default()
            };
            self.retire_id(id, pooled.announced, retiring);
        }
        gone.append(&mut self.gpu.due);
        next
    }
}
