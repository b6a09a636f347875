//! Memory of the producer's that can be lent to a peer without a copy.
//!
//! An [`Arena`] gives out blocks of sealed memfd regions. The shm transport recognises a buffer that
//! lies in one ([`find`]) and sends its address instead of its bytes. Memory outlives the arena's
//! handle: it goes when the last block is deallocated.
//!
//! A peer that is lent one buffer of a region can read the whole region for as long as it likes, so
//! an arena is as public as the most public ticket whose batches lie in it.

mod bytes;

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::device::DeviceKind;
use crate::device::region::Region;
use crate::error::{Error, Result};
use crate::fork::Generation;

/// Options of an [`Arena`].
#[derive(Debug, Clone)]
pub struct ArenaOptions {
    /// Size of its regions in bytes; a larger block gets a region of its own.
    pub region_bytes: u64,
    /// Bound on all its regions together, in bytes.
    pub max_bytes: u64,
}

impl Default for ArenaOptions {
    fn default() -> Self {
        Self {
            region_bytes: 64 << 20,
            max_bytes: u64::MAX,
        }
    }
}

/// Lendable memory. Clones share it; every method may be called from any thread.
#[derive(Debug, Clone)]
pub struct Arena {
    handle: Arc<Handle>,
}

/// Closes the arena when the last clone is dropped.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ArenaOptions,
    generation: Generation,
    /// Held while a region is made, so that threads that run out at once make one between them.
    grow: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By address of the first byte.
    regions: BTreeMap<usize, Arc<Region>>,
    /// Where the last block was found; tried first.
    current: usize,
    /// Bytes of all regions, and of one that is being made.
    mapped: u64,
    /// The last handle is gone: regions go as they empty.
    closed: bool,
}

struct Entry {
    region: Arc<Region>,
    arena: Arc<Shared>,
}

/// Every region of every arena of the process, by address.
///
/// Locks are taken in the order arena, then registry; a region's own lock comes last.
static REGISTRY: RwLock<BTreeMap<usize, Entry>> = RwLock::new(BTreeMap::new());

/// Finds the region of an arena in which `len` bytes at `data` lie whole, and their offset in it.
pub fn find(data: *const u8, len: usize) -> Option<(Arc<Region>, u64)> {
    let mut finder = Finder::lock();
    let offset = finder.find(data, len)?.1;
    Some((finder.regions.pop()?, offset))
}

/// Looks up many buffers, which tend to lie beside each other. The regions of the process's arenas
/// neither come nor go while it lives, so it must not live long.
pub struct Finder {
    registry: RwLockReadGuard<'static, BTreeMap<usize, Entry>>,
    /// Those found, each once.
    regions: Vec<Arc<Region>>,
    /// Which of them was found last.
    last: usize,
}

impl Finder {
    /// Keeps arenas from taking and giving up regions from now on.
    pub fn lock() -> Self {
        Self {
            registry: REGISTRY.read(),
            regions: Vec::new(),
            last: 0,
        }
    }

    /// Finds the region in which `len` bytes at `data` lie whole: its place among
    /// [`regions`](Self::regions), and their offset in it.
    pub fn find(&mut self, data: *const u8, len: usize) -> Option<(usize, u64)> {
        // The buffers of a batch lie in one region, or a few: the registry is rarely asked.
        let last = self.regions.get(self.last);
        if let Some(offset) = last.and_then(|region| region.offset_of(data, len)) {
            return Some((self.last, offset));
        }
        let (_, entry) = self.registry.range(..=data as usize).next_back()?;
        let offset = entry.region.offset_of(data, len)?;
        let mut known = self.regions.iter();
        self.last = if let Some(at) = known.position(|known| Arc::ptr_eq(known, &entry.region)) {
            at
        } else {
            self.regions.push(Arc::clone(&entry.region));
            self.regions.len() - 1
        };
        Some((self.last, offset))
    }

    /// Every region that was found, each once.
    pub fn regions(self) -> Vec<Arc<Region>> {
        self.regions
    }
}

/// Gives back a block of any arena of the process, also of one whose handles are gone.
///
/// # Errors
///
/// `InvalidArgument` when no block in use begins at `block`; `Forked` in a child process. Nothing
/// changed.
///
/// # Safety
///
/// Nobody reads or writes the block any more, except a peer that it is lent to.
pub unsafe fn dealloc(block: NonNull<u8>) -> Result<()> {
    release(block, None)
}

fn release(block: NonNull<u8>, owner: Option<&Arc<Shared>>) -> Result<()> {
    let unknown = || {
        Error::invalid_argument(format!(
            "no block of {} begins at {block:p}: it was freed already or never allocated here",
            if owner.is_some() {
                "this arena"
            } else {
                "any arena"
            }
        ))
    };
    // Before the lock: in a forked child another thread's hold on it would last for ever. An
    // arena that the child itself made passes the check below.
    if let Some(owner) = owner {
        owner.generation.ensure_same_process()?;
    }
    let (region, arena, offset) = {
        let registry = REGISTRY.read();
        let (_, entry) = registry
            .range(..=block.as_ptr() as usize)
            .next_back()
            .ok_or_else(unknown)?;
        // An address behind the region, on the stack say, must not keep it alive even for a moment.
        let offset = entry
            .region
            .offset_of(block.as_ptr(), 1)
            .ok_or_else(unknown)?;
        (Arc::clone(&entry.region), Arc::clone(&entry.arena), offset)
    };
    if owner.is_some_and(|owner| !Arc::ptr_eq(owner, &arena)) {
        return Err(unknown());
    }
    arena.generation.ensure_same_process()?;
    if region.free(offset).ok_or_else(unknown)?.emptied {
        arena.emptied(&region);
    }
    Ok(())
}

impl Arena {
    /// An arena on `device`. It has no memory yet.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a device whose memory this build cannot lend; `InvalidArgument` when
    /// `region_bytes` is 0.
    pub fn new(device: DeviceKind, options: ArenaOptions) -> Result<Self> {
        if device != DeviceKind::CPU {
            return Err(Error::unsupported(format!(
                "no arena on Arrow device type {}: this build lends host memory (type 1) only",
                device.0
            )));
        }
        if options.region_bytes == 0 {
            return Err(Error::invalid_argument(
                "the regions of an arena cannot have 0 bytes",
            ));
        }
        let state = State {
            regions: BTreeMap::new(),
            current: 0,
            mapped: 0,
            closed: false,
        };
        let shared = Shared {
            options,
            generation: Generation::now(),
            grow: Mutex::new(()),
            state: Mutex::new(state),
        };
        Ok(Self {
            handle: Arc::new(Handle {
                shared: Arc::new(shared),
            }),
        })
    }

    /// Allocates `len` bytes, aligned to 64. Their content is undefined. A length of 0 gives a
    /// pointer of its own all the same, to be deallocated like any other.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when `max_bytes` or the system's memory is reached; `OutOfResources` when no
    /// file descriptor is left; `Forked` in a child process.
    pub fn alloc(&self, len: usize) -> Result<NonNull<u8>> {
        let shared = &self.handle.shared;
        shared.generation.ensure_same_process()?;
        let wanted = u64::try_from(len)
            .map_err(|_| Error::out_of_memory(format!("no region has {len} bytes")))?;
        if let Some(block) = shared.state.lock().alloc(wanted) {
            return Ok(block);
        }
        let _growing = shared.grow.lock();
        // Somebody else may have made a region while this thread waited for its turn.
        if let Some(block) = shared.state.lock().alloc(wanted) {
            return Ok(block);
        }
        shared.grow(wanted)
    }

    /// Gives back a block of this arena.
    ///
    /// # Errors
    ///
    /// As [`dealloc`]; a block of another arena is unknown to this one.
    ///
    /// # Safety
    ///
    /// As for [`dealloc`].
    pub unsafe fn dealloc(&self, block: NonNull<u8>) -> Result<()> {
        release(block, Some(&self.handle.shared))
    }

    /// Bytes of the blocks in use, each rounded up to 64.
    pub fn used_bytes(&self) -> u64 {
        let shared = &self.handle.shared;
        if !shared.generation.is_same_process() {
            return 0;
        }
        shared
            .state
            .lock()
            .regions
            .values()
            .map(|region| region.used_bytes())
            .sum()
    }

    /// Bytes of all its regions.
    pub fn mapped_bytes(&self) -> u64 {
        let shared = &self.handle.shared;
        if !shared.generation.is_same_process() {
            return 0;
        }
        shared.state.lock().mapped
    }
}

impl State {
    fn alloc(&mut self, len: u64) -> Option<NonNull<u8>> {
        let in_region = |base: usize, region: &Region| {
            let offset = usize::try_from(region.alloc(len)?).ok()?;
            NonNull::new(region.base().as_ptr().wrapping_add(offset)).map(|block| (base, block))
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

    /// Takes the regions for which `goes` holds out of the arena and of the registry.
    fn remove(&mut self, goes: impl Fn(&Region) -> bool) {
        let gone: Vec<usize> = self
            .regions
            .iter()
            .filter(|(_, r)| goes(r))
            .map(|(base, _)| *base)
            .collect();
        // Unmapping is slow; it happens when these drop, after the registry is unlocked.
        let mut entries = Vec::with_capacity(gone.len());
        let mut registry = REGISTRY.write();
        for base in gone {
            if let Some(region) = self.regions.remove(&base) {
                self.mapped = self.mapped.saturating_sub(region_bytes(&region));
                entries.extend(registry.remove(&base));
            }
        }
        drop(registry);
    }

    fn remove_empty(&mut self) {
        self.remove(|region| region.used_bytes() == 0);
    }
}

impl Shared {
    /// Makes a region and takes the first block of it. The caller holds `grow`.
    fn grow(self: &Arc<Self>, len: u64) -> Result<NonNull<u8>> {
        let ArenaOptions {
            region_bytes: standard,
            max_bytes,
        } = self.options;
        let refused = |mapped: u64| {
            Error::out_of_memory(format!(
                "{len} bytes more would pass the arena's max_bytes of {max_bytes} ({mapped} \
                 mapped); raise it or release arrays sooner"
            ))
        };
        let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
        let needed = len
            .max(1)
            .checked_next_multiple_of(page)
            .ok_or_else(|| refused(0))?;
        let size = {
            let mut state = self.state.lock();
            // The empty region kept for reuse is too small, or it would have served.
            if max_bytes - state.mapped.min(max_bytes) < needed.max(standard) {
                state.remove_empty();
            }
            let left = max_bytes - state.mapped.min(max_bytes);
            if left < needed {
                return Err(refused(state.mapped));
            }
            let whole = standard.checked_next_multiple_of(page).unwrap_or(standard);
            let size = if whole <= left {
                needed.max(whole)
            } else {
                needed.max(left - left % page)
            };
            state.mapped += size;
            size
        };
        // Without the lock: allocating the pages takes milliseconds.
        let made = Region::create(size, "dipc-arena");
        let mut state = self.state.lock();
        let region = match made {
            Ok(region) => Arc::new(region),
            Err(error) => {
                state.mapped = state.mapped.saturating_sub(size);
                return Err(error);
            }
        };
        let base = region.base().as_ptr() as usize;
        state.regions.insert(base, Arc::clone(&region));
        state.current = base;
        REGISTRY.write().insert(
            base,
            Entry {
                region,
                arena: Arc::clone(self),
            },
        );
        state.alloc(len).ok_or_else(|| refused(state.mapped))
    }

    /// A region has just lost its last block.
    fn emptied(&self, region: &Arc<Region>) {
        let mut state = self.state.lock();
        // Blocks are taken under this lock only, so an empty region stays empty until it ends.
        if region.used_bytes() != 0 {
            return;
        }
        let identity = region.identity();
        if state.closed || region.is_tainted() {
            // Rule F4: a tainted region goes with its last block.
            state.remove(|other| other.identity() == identity);
        } else {
            // One empty region stays, so that a producer that makes and releases one batch after
            // the other does not map and unmap for each.
            state.remove(|other| other.identity() != identity && other.used_bytes() == 0);
        }
    }
}

fn region_bytes(region: &Region) -> u64 {
    u64::try_from(region.len()).unwrap_or(u64::MAX)
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that does not exist there.
        if !self.shared.generation.is_same_process() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.closed = true;
        state.remove_empty();
    }
}

#[cfg(test)]
#[path = "arena_tests.rs"]
mod tests;
