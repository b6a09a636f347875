//! What a pool knows of its regions, under its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use foldhash::HashMap;

use crate::device::cuda::Registered;
use crate::device::region::Region;
use crate::transport::lend::MOST_REGIONS;
use crate::transport::lend::export::Exported;
use crate::transport::lend::gpu::{self, GivenUp};
use crate::transport::lend::hold::{Borrow, Hold};
use crate::transport::lend::pool::Block;
use crate::transport::{Charge, Keep, RegionNotice};

#[derive(Debug)]
pub(super) struct State {
    /// After [`Lender::abandon`]: nothing is lent any more, and nothing that was is written.
    pub(super) abandoned: bool,
    pub(super) ids: Ids,
    /// Regions for copies.
    pub(super) pooled: BTreeMap<u16, Pooled>,
    /// Regions of arenas that the peer knows, by their identity.
    pub(super) borrowed: HashMap<u64, Borrowed>,
    /// Retired and not yet forgotten by the peer.
    pub(super) retiring: HashMap<u16, Retiring>,
    /// Bytes of copies that are out.
    pub(super) lent: u64,
    /// The most that `lent` may be.
    pub(super) lent_limit: u64,
    /// Memory of GPUs.
    pub(super) gpu: gpu::State,
}

/// A region that the peer was told to forget, until it says that it has.
#[derive(Debug, Default)]
pub(super) struct Retiring {
    /// Of a GPU's region. The host's count by themselves until nobody has them.
    pub(super) charge: Option<Charge>,
    /// What keeps memory alive that the peer may still have open.
    pub(super) owner: Option<Keep>,
}

#[derive(Debug)]
pub(super) struct Pooled {
    /// First: the peer's access ends before the memory does.
    pub(super) exported: Exported,
    pub(super) registration: Registration,
    pub(super) region: Arc<Region>,
    pub(super) announced: bool,
    /// Since when no block is in use.
    pub(super) idle_since: Option<Instant>,
}

/// Whether GPUs copy to a region at their full rate.
#[derive(Debug, Clone)]
pub(super) enum Registration {
    Untried,
    Refused,
    Made(Arc<Registered>),
}

impl Pooled {
    pub(super) fn registration(&mut self) -> &mut Registration {
        &mut self.registration
    }
}

#[derive(Debug)]
pub(super) struct Borrowed {
    pub(super) id: u16,
    /// Weak, so that an arena can give the region up.
    pub(super) region: Weak<Region>,
    pub(super) exported: Exported,
    pub(super) announced: bool,
    /// What the leases that are out share.
    pub(super) out: Weak<Borrow>,
}

impl Borrowed {
    /// Whether a lease is out.
    pub(super) fn is_out(&self) -> bool {
        self.out.strong_count() > 0
    }
}

/// Region ids: 1 to [`MOST_REGIONS`], one that came back before one never used.
#[derive(Debug, Default)]
pub(super) struct Ids {
    pub(super) last: u16,
    free: BTreeSet<u16>,
}

impl Ids {
    pub(super) fn take(&mut self) -> Option<u16> {
        if let Some(id) = self.free.pop_first() {
            return Some(id);
        }
        if self.last >= MOST_REGIONS {
            return None;
        }
        self.last += 1;
        Some(self.last)
    }

    pub(super) fn free(&mut self, id: u16) {
        self.free.insert(id);
    }
}

/// What is given up, to be dropped without the lock: first the peer's access goes, then the memory.
#[derive(Default)]
pub(super) struct Retired {
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
    pub(super) fn take_block(&mut self, len: u64) -> Result<Option<Block>, NoRoom> {
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
            let pooled = (self.pooled.values())
                .map(|pooled| pooled.region.len() as u64)
                .sum();
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
    pub(super) fn learn_region(&mut self, region: &Arc<Region>, exported: Exported) -> Option<()> {
        if self.abandoned {
            return None;
        }
        if !self.borrowed.contains_key(&region.identity()) {
            let known = Borrowed {
                id: self.ids.take()?,
                region: Arc::downgrade(region),
                exported,
                announced: false,
                out: Weak::new(),
            };
            self.borrowed.insert(region.identity(), known);
        }
        Some(())
    }

    /// One more lease of an arena's region, and whether the peer was told of it; `None` where it has no
    /// id yet.
    pub(super) fn borrow_region(&mut self, region: &Arc<Region>) -> Option<(Arc<Borrow>, bool)> {
        let known = self.borrowed.get_mut(&region.identity())?;
        let borrow = known.out.upgrade().unwrap_or_else(|| {
            let borrow = Arc::new(Borrow {
                id: known.id,
                region: Arc::clone(region),
            });
            known.out = Arc::downgrade(&borrow);
            borrow
        });
        Some((borrow, known.announced))
    }

    /// The regions of a lease that the peer was not told of yet; from now on it counts as told.
    /// There may be regions of arenas among them only where there are `news`.
    pub(super) fn announce(&mut self, hold: &Hold, news: bool) -> Vec<RegionNotice> {
        let mut notices = Vec::new();
        for borrow in hold.borrowed().iter().filter(|_| news) {
            if let Some(known) = self.borrowed.get_mut(&borrow.region.identity())
                && !std::mem::replace(&mut known.announced, true)
            {
                notices.push(known.exported.notice(borrow.id));
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
    pub(super) fn retire(&mut self, idle: Duration) -> (Vec<u16>, Option<Duration>, Retired) {
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
                self.retiring.insert(id, Retiring::default());
                gone.push(id);
            } else {
                // The peer never heard of it.
                self.ids.free(id);
            }
        }
        let done = self
            .borrowed
            .extract_if(|_, known| !known.is_out() && known.region.strong_count() == 0);
        for (_, known) in done {
            let Borrowed {
                id,
                announced,
                exported,
                ..
            } = known;
            retired._exported.push(exported);
            if announced {
                self.retiring.insert(id, Retiring::default());
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
