//! The state that the clones of an arena share: its regions, their growth and their end.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::arena::ArenaOptions;
use crate::arena::memory::{ArenaRegion, RegionPlace as _};
use crate::device::memfd;
use crate::error::{Error, Result};
use crate::fork::Generation;

/// Closes the arena when the last clone is dropped.
pub struct ArenaHandle<R: ArenaRegion> {
    pub shared: Arc<ArenaCore<R>>,
}

pub struct ArenaCore<R: ArenaRegion> {
    pub place: R::Place,
    options: ArenaOptions,
    /// The length of a region is a multiple of this unit, in bytes.
    unit: u64,
    pub generation: Generation,
    /// Held during growth, so that only one of several threads that need a region makes it.
    grow: Mutex<()>,
    pub state: Mutex<ArenaState<R>>,
}

pub struct ArenaState<R: ArenaRegion> {
    /// The regions by the address of the first byte.
    regions: BTreeMap<usize, Arc<R>>,
    /// The key of the region with the last allocated block; the next search begins there.
    current: usize,
    /// Bytes of all regions: in use, being made, or held by peers only.
    mapped: Arc<AtomicU64>,
    /// True after the last handle is gone. Empty regions are then removed.
    closed: bool,
}

impl<R: ArenaRegion> std::fmt::Debug for ArenaHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Arena")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl<R: ArenaRegion> ArenaHandle<R> {
    pub fn new(place: R::Place, options: ArenaOptions) -> Result<Self> {
        let unit = place.unit()?;
        let state = ArenaState {
            regions: BTreeMap::new(),
            current: 0,
            mapped: Arc::default(),
            closed: false,
        };
        let shared = ArenaCore {
            place,
            options,
            unit,
            generation: Generation::now(),
            grow: Mutex::new(()),
            state: Mutex::new(state),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }
}

impl<R: ArenaRegion> Drop for ArenaHandle<R> {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may hold the lock for ever.
        if !self.shared.generation.is_same_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.remove_empty();
        drop(state);
        self.shared.place.settle();
    }
}

impl<R: ArenaRegion> ArenaState<R> {
    fn alloc(&mut self, len: u64) -> Option<NonNull<u8>> {
        let in_region = |base: usize, region: &R| {
            let offset = usize::try_from(region.blocks().alloc(len)?).ok()?;
            Some((base, region.block(offset)?))
        };
        let (base, block) = self
            .regions
            .get(&self.current)
            .and_then(|region| in_region(self.current, region))
            .or_else(|| {
                self.regions
                    .iter()
                    .find_map(|(base, region)| in_region(*base, region))
            })?;
        self.current = base;
        Some(block)
    }

    /// Removes the regions that match `goes` from the arena and from the registry.
    fn remove(&mut self, goes: impl Fn(&R) -> bool) {
        let gone: Vec<Arc<R>> = (self.regions)
            .extract_if(.., |_, region| goes(region))
            .map(|(_, region)| region)
            .collect();
        if gone.is_empty() {
            return;
        }
        drop(R::registry().remove(&gone));
    }

    fn remove_empty(&mut self) {
        self.remove(|region| region.blocks().used_bytes() == 0);
    }
}

impl<R: ArenaRegion> ArenaCore<R> {
    pub fn alloc(self: &Arc<Self>, len: usize) -> Result<NonNull<u8>> {
        self.generation.ensure_same_process()?;
        self.place.ensure_alive()?;
        let wanted = u64::try_from(len)
            .map_err(|_| Error::out_of_memory(format!("no region has {len} bytes")))?;
        if let Some(block) = self.state.lock().alloc(wanted) {
            return Ok(block);
        }
        let _growing = self.grow.lock();
        // Another thread may have made a region while this thread waited for `grow`.
        if let Some(block) = self.state.lock().alloc(wanted) {
            return Ok(block);
        }
        self.grow(wanted)
    }

    pub fn used_bytes(&self) -> u64 {
        if !self.generation.is_same_process() {
            return 0;
        }
        let state = self.state.lock();
        let regions = state.regions.values();
        regions.map(|region| region.blocks().used_bytes()).sum()
    }

    pub fn mapped_bytes(&self) -> u64 {
        if !self.generation.is_same_process() {
            return 0;
        }
        memfd::collect();
        self.state.lock().mapped.load(Relaxed)
    }

    /// Makes a region and allocates its first block. The caller holds the lock `grow`.
    fn grow(self: &Arc<Self>, len: u64) -> Result<NonNull<u8>> {
        let ArenaOptions {
            region_bytes: standard,
            max_bytes,
        } = self.options;
        let unit = self.unit;
        let most = self.place.most_bytes();
        let standard = standard.min(most - most % unit);
        let refused = |mapped: u64| {
            Error::out_of_memory(format!(
                "{len} bytes more would pass the arena's max_bytes of {max_bytes} ({mapped} \
                 mapped, in units of {unit}); raise it or release arrays sooner"
            ))
        };
        let needed = len
            .max(1)
            .checked_next_multiple_of(unit)
            .ok_or_else(|| refused(0))?;
        // Returns the charges of memory that peers gave up.
        memfd::collect();
        let charge = {
            let mut state = self.state.lock();
            // The empty region is too small, or it would have given the block.
            if max_bytes.saturating_sub(state.mapped.load(Relaxed)) < needed.max(standard) {
                state.remove_empty();
                memfd::collect();
            }
            let mapped = state.mapped.load(Relaxed);
            let left = max_bytes.saturating_sub(mapped);
            if left < needed {
                return Err(refused(mapped));
            }
            let whole = standard.checked_next_multiple_of(unit).unwrap_or(standard);
            let size = if whole <= left {
                needed.max(whole)
            } else {
                needed.max(left - left % unit)
            };
            Mapped::add(&state.mapped, size)
        };
        // Without the lock, because making a region is slow.
        let region = Arc::new(R::make(&self.place, charge.bytes)?);
        region.charge(Box::new(charge));
        let mut state = self.state.lock();
        let base = region.address();
        state.regions.insert(base, Arc::clone(&region));
        state.current = base;
        R::registry().add(region, self);
        state
            .alloc(len)
            .ok_or_else(|| refused(state.mapped.load(Relaxed)))
    }

    /// Handles a region that just lost its last block.
    pub fn emptied(&self, region: &Arc<R>) {
        let mut state = self.state.lock();
        // Allocation needs this lock, so an empty region stays empty while the lock is held.
        if region.blocks().used_bytes() != 0 {
            return;
        }
        let identity = region.blocks().identity();
        let known = state.regions.get(&region.address());
        if known.is_none_or(|known| known.blocks().identity() != identity) {
            // Another thread has removed this region meanwhile, and kept another empty one.
            return;
        }
        if state.closed || region.blocks().is_tainted() {
            // Rule F4: a tainted region goes with its last block.
            state.remove(|other| other.blocks().identity() == identity);
        } else {
            // One empty region stays. So a producer that makes and releases one batch after the
            // other does not map and unmap a region for each batch.
            state.remove(|other| {
                other.blocks().identity() != identity && other.blocks().used_bytes() == 0
            });
        }
    }
}

/// The bytes of one region, counted in the arena's total until dropped.
struct Mapped {
    total: Arc<AtomicU64>,
    bytes: u64,
}

impl Mapped {
    fn add(total: &Arc<AtomicU64>, bytes: u64) -> Self {
        // Relaxed, like all loads of the total, because it is a mere sum and guards no memory. What
        // an arena shares between threads is under its lock, and what it lends to another process
        // is ordered by the message that tells of it.
        total.fetch_add(bytes, Relaxed);
        Self {
            total: Arc::clone(total),
            bytes,
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Relaxed);
    }
}
