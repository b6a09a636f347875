//! The regions that one connection lends from, under the lock of its pool.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::HashMap;

use crate::device::cuda::Device;
use crate::transport::lend::address::MOST_REGIONS;
use crate::transport::lend::export::ExportedRegion;
use crate::transport::lend::memory::{Borrow, CopyRegion, LentBlock, LentMemory, MemoryKey};
use crate::transport::{Charge, Keep, RegionNotice};

/// How long the pool keeps an idle allocation of a producer's alive. In this time it is lent again
/// at no cost, and a producer that frees it soon gets its memory back.
const KEEP_ALLOCATION: Duration = Duration::from_secs(1);

/// Ends the peer's access to a region when it is dropped.
type PeerAccess = Option<Box<dyn Any + Send + Sync>>;

/// The regions of one connection.
#[derive(Debug, Default)]
pub(super) struct LentRegions {
    /// The connection is over. The pool lends no more memory, and never writes to lent memory again.
    pub abandoned: bool,
    pub ids: Ids,
    /// Regions for copies.
    copies: BTreeMap<u16, Copies>,
    /// Memory of producers that has a number on the connection.
    known: HashMap<MemoryKey, NumberedMemory>,
    /// Notices of regions that the peer was not told of yet.
    untold: Vec<RegionNotice>,
    /// Regions that are retired, but that the peer has not forgotten yet.
    retiring: HashMap<u16, Retiring>,
    /// Regions that are retired, but of which the peer was not told yet.
    pub due: Vec<u16>,
    /// Bytes of copies that are lent now.
    pub lent: u64,
    /// The most that `lent` may be.
    pub lent_limit: u64,
    /// The GPUs that the client reaches and wants bodies on.
    pub gpus: Vec<[u8; 16]>,
}

/// A region for copies.
#[derive(Debug)]
struct Copies {
    /// Declared first: the peer's access must end before the memory does.
    access: PeerAccess,
    region: Arc<CopyRegion>,
    /// For a region on a GPU. Regions of the host are charged until no process has them.
    charge: Option<Charge>,
    /// Since when no block is in use.
    idle_since: Option<Instant>,
}

/// Memory of a producer.
#[derive(Debug)]
struct NumberedMemory {
    id: u16,
    access: PeerAccess,
    /// Weak, so that the owner can give the memory up.
    memory: Weak<dyn Any + Send + Sync>,
    /// The value that all leases of it share.
    out: Weak<Borrow>,
    /// An idle allocation that only this keeps alive, and since when it is idle.
    kept: Option<(LentMemory, Instant)>,
}

/// A region that the peer may have open until it says that it has forgotten it.
#[derive(Debug, Default)]
pub(super) struct Retiring {
    /// Declared first, as in [`Copies`].
    _access: PeerAccess,
    _copies: Option<Arc<CopyRegion>>,
    _memory: Option<LentMemory>,
    /// The producer's array, if its memory must not be freed before the peer has closed it.
    pub keep: Option<Keep>,
    pub charge: Option<Charge>,
}

/// Region ids: 1 to [`MOST_REGIONS`]. The pool uses a returned id before a new one.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pub last: u16,
    free: BTreeSet<u16>,
}

impl Ids {
    fn take(&mut self) -> Option<u16> {
        if let Some(id) = self.free.pop_first() {
            return Some(id);
        }
        if self.last >= MOST_REGIONS {
            return None;
        }
        self.last += 1;
        Some(self.last)
    }
}

/// No region for copies has room.
pub(super) struct NoRoom {
    pub lent_limit: u64,
    /// Bytes of the existing regions.
    pub bytes: u64,
}

/// What is left of a connection that is over. It is dropped without the lock.
pub(super) struct RegionRemains {
    _copies: Vec<(PeerAccess, Arc<CopyRegion>)>,
    _known: Vec<NumberedMemory>,
    /// Regions that the peer may still have open.
    pub retiring: Vec<Retiring>,
    /// The charges of regions on GPUs that the peer knows.
    pub charges: Vec<Charge>,
    /// Memory that is lent now.
    pub out: Vec<LentMemory>,
}

impl LentRegions {
    /// No regions yet, and a limit of `lent_limit` bytes of lent copies.
    pub fn new(lent_limit: u64) -> Self {
        Self {
            lent_limit,
            ..Self::default()
        }
    }

    /// A block of a region for copies, on `device` or on the host; `None` if nothing may be lent
    /// now.
    pub fn take_block(
        &mut self,
        device: Option<&Arc<Device>>,
        len: u64,
    ) -> Result<Option<LentBlock>, NoRoom> {
        let lent = self.lent.checked_add(len);
        let Some(lent) = lent.filter(|lent| *lent <= self.lent_limit && !self.abandoned) else {
            return Ok(None);
        };
        let is_there = |region: &CopyRegion| match (device, region.device()) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        let mut bytes = 0;
        for (id, copies) in &mut self.copies {
            if !is_there(&copies.region) {
                continue;
            }
            if let Some(offset) = copies.region.blocks().alloc(len) {
                copies.idle_since = None;
                self.lent = lent;
                return Ok(Some(LentBlock {
                    id: *id,
                    region: Arc::clone(&copies.region),
                    offset,
                    len,
                }));
            }
            bytes += copies.region.len() as u64;
        }
        Err(NoRoom {
            lent_limit: self.lent_limit,
            bytes,
        })
    }

    /// Adds a region for copies; `None` if no id is left, or nothing may be lent any more.
    pub fn add_copies(
        &mut self,
        region: Arc<CopyRegion>,
        exported: ExportedRegion,
        charge: Option<Charge>,
    ) -> Option<()> {
        let (id, access) = self.number(exported)?;
        let copies = Copies {
            access,
            region,
            charge,
            idle_since: Some(Instant::now()),
        };
        self.copies.insert(id, copies);
        Some(())
    }

    /// A block is back.
    pub fn return_block(&mut self, block: &LentBlock) {
        self.lent = self.lent.saturating_sub(block.len);
        let freed = block.region.blocks().free(block.offset);
        if freed.is_some_and(|freed| freed.emptied)
            && let Some(copies) = self.copies.get_mut(&block.id)
        {
            copies.idle_since = Some(Instant::now());
        }
    }

    /// One more lease of memory that has a number; `None` if it has none.
    pub fn borrow(&mut self, memory: &LentMemory) -> Option<Arc<Borrow>> {
        let known = self.known.get_mut(&memory.key())?;
        if let Some(borrow) = known.out.upgrade() {
            return Some(borrow);
        }
        let kept = known.kept.take().map(|(memory, _)| memory);
        let borrow = Borrow::new(known.id, kept.as_ref().unwrap_or(memory));
        known.out = Arc::downgrade(&borrow);
        Some(borrow)
    }

    /// The first lease of memory, which gets a number; `None` if no number is left, or nothing may
    /// be lent any more.
    pub fn learn(&mut self, memory: &LentMemory, exported: ExportedRegion) -> Option<Arc<Borrow>> {
        let (id, access) = self.number(exported)?;
        let borrow = Borrow::new(id, memory);
        let known = NumberedMemory {
            id,
            access,
            memory: memory.downgrade(),
            out: Arc::downgrade(&borrow),
            kept: None,
        };
        self.known.insert(memory.key(), known);
        Some(borrow)
    }

    /// A number for a region of which the peer is to be told.
    fn number(&mut self, exported: ExportedRegion) -> Option<(u16, PeerAccess)> {
        if self.abandoned {
            return None;
        }
        let id = self.ids.take()?;
        let ExportedRegion { handle, fd, access } = exported;
        self.untold.push(RegionNotice { id, handle, fd });
        Some((id, access))
    }

    /// A lease is back. A producer's allocation stays for a while, unless it must not be freed
    /// before the peer has closed it. In that case it is retired, and `keep`, which holds the
    /// producer's array, stays until the peer has closed the allocation.
    pub fn return_borrow(&mut self, borrow: Arc<Borrow>, keep: &Keep) {
        // The arrays of the other leases still keep the memory.
        let Some(Borrow { id, memory }) = Arc::into_inner(borrow) else {
            return;
        };
        let LentMemory::Allocation(allocation) = &memory else {
            return;
        };
        let key = memory.key();
        let Some(known) = self.known.get_mut(&key).filter(|known| known.id == id) else {
            return;
        };
        if !allocation.must_outlive_importers() {
            known.kept = Some((memory, Instant::now()));
            return;
        }
        let retiring = Retiring {
            _access: self.known.remove(&key).and_then(|known| known.access),
            _memory: Some(memory),
            keep: Some(keep.clone()),
            ..Retiring::default()
        };
        drop(self.retire(id, retiring));
    }

    /// The notices of the regions of which the peer was not told yet. From now on they count as
    /// told.
    pub fn take_untold(&mut self) -> Vec<RegionNotice> {
        std::mem::take(&mut self.untold)
    }

    /// Makes the peer forget a region. Returns the region if the peer never heard of it.
    fn retire(&mut self, id: u16, retiring: Retiring) -> Option<Retiring> {
        if let Some(at) = self.untold.iter().position(|notice| notice.id == id) {
            self.untold.swap_remove(at);
            self.ids.free.insert(id);
            return Some(retiring);
        }
        self.retiring.insert(id, retiring);
        self.due.push(id);
        None
    }

    /// Retires regions that have been idle for `idle`, and memory that its owner has given up.
    /// Returns the ids to tell the peer, the time until the next check, and what is to be dropped
    /// without the lock.
    pub fn retire_idle(&mut self, idle: Duration) -> (Vec<u16>, Option<Duration>, Vec<Retiring>) {
        let now = Instant::now();
        let keep = idle.min(KEEP_ALLOCATION);
        let left = |since: Instant, limit: Duration| {
            limit.saturating_sub(now.saturating_duration_since(since))
        };
        let copies_left = |copies: &Copies| Some(left(copies.idle_since?, idle));
        // Nothing reports that an owner gives memory up, so this is checked again later.
        let known_left = |known: &NumberedMemory| {
            let since = known.kept.as_ref().map(|(_, since)| *since);
            since.map_or(idle, |since| left(since, keep))
        };
        let is_over = |_: &u16, copies: &mut Copies| copies_left(copies) == Some(Duration::ZERO);
        let copies: Vec<_> = self.copies.extract_if(.., is_over).collect();
        let is_gone = |_: &MemoryKey, known: &mut NumberedMemory| match &known.kept {
            Some((_, since)) => left(*since, keep).is_zero(),
            None => known.memory.strong_count() == 0,
        };
        let known: Vec<_> = self.known.extract_if(is_gone).collect();
        let mut unknown = Vec::new();
        for (id, copies) in copies {
            let retiring = Retiring {
                _access: copies.access,
                _copies: Some(copies.region),
                charge: copies.charge,
                ..Retiring::default()
            };
            unknown.extend(self.retire(id, retiring));
        }
        for (_, known) in known {
            let retiring = Retiring {
                _access: known.access,
                _memory: known.kept.map(|(memory, _)| memory),
                ..Retiring::default()
            };
            unknown.extend(self.retire(known.id, retiring));
        }
        let next = self.copies.values().filter_map(copies_left);
        let next = next.chain(self.known.values().map(known_left)).min();
        (std::mem::take(&mut self.due), next, unknown)
    }

    /// The peer has forgotten a region; `None`: it was not retired.
    pub fn forget(&mut self, id: u16) -> Option<Retiring> {
        let retiring = self.retiring.remove(&id)?;
        self.ids.free.insert(id);
        Some(retiring)
    }

    /// The connection is over.
    pub fn abandon(&mut self) -> RegionRemains {
        self.abandoned = true;
        let is_told = |id: u16| self.untold.iter().all(|notice| notice.id != id);
        let mut charges = Vec::new();
        let mut copies = Vec::new();
        for (id, region) in std::mem::take(&mut self.copies) {
            charges.extend(region.charge.filter(|_| is_told(id)));
            copies.push((region.access, region.region));
        }
        let known: Vec<_> = std::mem::take(&mut self.known).into_values().collect();
        let mut retiring: Vec<_> = std::mem::take(&mut self.retiring).into_values().collect();
        charges.extend(retiring.iter_mut().filter_map(|gone| gone.charge.take()));
        let out = known.iter().filter_map(|known| known.out.upgrade());
        RegionRemains {
            out: out.map(|borrow| borrow.memory.clone()).collect(),
            _copies: copies,
            _known: known,
            retiring,
            charges,
        }
    }

    /// Whether no region for copies has a block in use.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.lent == 0 && (self.copies.values()).all(|copies| copies.idle_since.is_some())
    }
}
