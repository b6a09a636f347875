//! Bounds on memory and mappings, which several owners share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::device::memfd;
use crate::error::{Error, Result, Status};

/// A bound on memory that several owners share.
#[derive(Debug, Default)]
pub struct MemoryBudget {
    limit: u64,
    used: AtomicU64,
    /// The budget that this one is a share of.
    whole: Option<Arc<Self>>,
    /// The shares of users, by uid.
    shares: Mutex<HashMap<u32, Weak<Self>>>,
}

impl MemoryBudget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The share of one user: half of the budget, for all processes of the user together. So no
    /// user can take all memory.
    pub fn share_of(self: &Arc<Self>, uid: u32) -> Arc<Self> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&uid).and_then(Weak::upgrade) {
            return share;
        }
        // Drops the shares of users that hold nothing.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Self {
            whole: Some(Arc::clone(self)),
            ..Self::new(self.limit / 2)
        });
        shares.insert(uid, Arc::downgrade(&share));
        share
    }

    /// Takes `bytes`, as [`take`](Self::take), until the charge is dropped.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        self.take(bytes)?;
        Ok(Charge {
            budget: Arc::clone(self),
            bytes,
        })
    }

    /// Takes `bytes` if that stays within the limit.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, with the limit in the text; nothing was taken.
    pub fn take(&self, bytes: u64) -> Result<()> {
        let Some(whole) = &self.whole else {
            // Peers may have released memory since the last check.
            memfd::collect();
            return self.take_here(bytes);
        };
        whole.take(bytes)?;
        self.take_here(bytes)
            .inspect_err(|_| whole.give_back(bytes))
    }

    fn take_here(&self, bytes: u64) -> Result<()> {
        self.used
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= self.limit)
            })
            .map(|_| ())
            .map_err(|used| {
                Error::out_of_memory(format!(
                    "{bytes} bytes more would pass the limit of {} bytes for regions ({used} in \
                     use); raise max_bytes or release batches sooner",
                    self.limit
                ))
            })
    }

    /// Gives back `bytes` taken before.
    pub fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }

    /// Bytes taken now.
    pub fn used(&self) -> u64 {
        memfd::collect();
        self.used.load(Relaxed)
    }
}

/// Bytes that are taken from a budget until the drop.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<MemoryBudget>,
    bytes: u64,
}

impl Charge {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// Most mappings by default: half of what the system gives a process (`vm.max_map_count`). The
/// other half is for the host's own memory.
const MOST_MAPPINGS: usize = 32_768;

/// A bound on mappings of the host's memory, shared by the connections of one server. A mapping
/// counts until no array points into it.
#[derive(Debug)]
pub struct MappingBudget {
    most: usize,
    used: AtomicUsize,
}

impl Default for MappingBudget {
    fn default() -> Self {
        Self::new(MOST_MAPPINGS)
    }
}

impl MappingBudget {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            used: AtomicUsize::new(0),
        }
    }

    /// Counts a mapping that is about to be made.
    ///
    /// # Errors
    ///
    /// `OutOfResources`: there are too many mappings.
    pub(super) fn charge(self: &Arc<Self>) -> Result<MappingCharge> {
        let more = |used: usize| (used < self.most).then_some(used + 1);
        let charged = self.used.fetch_update(Relaxed, Relaxed, more);
        match charged {
            Ok(_) => Ok(MappingCharge(Arc::clone(self))),
            Err(used) => Err(Error::new(
                Status::OutOfResources,
                format!(
                    "{used} regions of peers are mapped here, and the system gives a process \
                     about 65,000 mappings: release arrays, or have peers use fewer arenas"
                ),
            )),
        }
    }
}

/// One mapping that counts towards a budget.
#[derive(Debug)]
pub(super) struct MappingCharge(Arc<MappingBudget>);

impl Drop for MappingCharge {
    fn drop(&mut self) {
        self.0.used.fetch_sub(1, Relaxed);
    }
}
