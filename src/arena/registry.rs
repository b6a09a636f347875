//! The regions of every arena of the process, by address.
//!
//! `memory`, `shared` and this file import each other. An arena registers its regions here. The
//! free of a block has only an address, and finds the region and its arena here.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use smallvec::SmallVec;

use crate::arena::memory::ArenaRegion;
use crate::arena::shared::ArenaCore;
use crate::device::cuda::CudaRegion;
use crate::device::region::Region;
use crate::error::{Error, Result, Status};
use crate::fork::{self, PerProcess};

/// The regions of one kind of memory, by the address of the first byte. Regions of the host and of
/// the devices never share an address.
///
/// Lock order: arena, then registry, then region.
pub struct Registry<R: ArenaRegion>(PerProcess<RwLock<Entries<R>>>);

type Entries<R> = BTreeMap<usize, RegistryEntry<R>>;

struct RegistryEntry<R: ArenaRegion> {
    region: Arc<R>,
    arena: Arc<ArenaCore<R>>,
}

impl<R: ArenaRegion> Registry<R> {
    pub const fn new() -> Self {
        Self(PerProcess::new(|| RwLock::new(BTreeMap::new())))
    }

    /// Registers a region of `arena`.
    pub fn add(&'static self, region: Arc<R>, arena: &Arc<ArenaCore<R>>) {
        let entry = RegistryEntry {
            region,
            arena: Arc::clone(arena),
        };
        self.0.get().write().insert(entry.region.address(), entry);
    }

    /// Unregisters regions and returns the entries. Dropping them is slow, so the caller drops them
    /// after the registry is unlocked.
    pub fn remove(&'static self, regions: &[Arc<R>]) -> Vec<impl Sized + use<R>> {
        let mut entries = Vec::with_capacity(regions.len());
        let mut registry = self.0.get().write();
        for region in regions {
            // After a reset of the device, another region may have the same address.
            let ours = |entry: &RegistryEntry<R>| Arc::ptr_eq(&entry.region, region);
            if registry.get(&region.address()).is_some_and(ours) {
                entries.extend(registry.remove(&region.address()));
            }
        }
        entries
    }

    /// The region that contains `len` bytes at `address`, and their offset in the region.
    fn find(&'static self, address: usize, len: usize) -> Option<(Arc<R>, u64)> {
        let registry = self.0.get().read();
        let (_, entry) = registry.range(..=address).next_back()?;
        let offset = entry.region.place_of(address, len)?;
        Some((Arc::clone(&entry.region), offset))
    }

    /// The region that contains `address`, its arena, and the offset in the region.
    fn owner(&'static self, address: usize) -> Option<(Arc<R>, Arc<ArenaCore<R>>, u64)> {
        let registry = self.0.get().read();
        let (_, entry) = registry.range(..=address).next_back()?;
        // An unrelated address, on the stack say, must not keep a region alive even for a moment.
        let offset = entry.region.place_of(address, 1)?;
        Some((Arc::clone(&entry.region), Arc::clone(&entry.arena), offset))
    }

    /// Locks the registry against all users.
    #[cfg(test)]
    pub fn hold(&'static self) -> impl Sized {
        self.0.get().write()
    }
}

/// Finds the region of a host arena that contains `len` bytes at `data`, and their offset in the
/// region.
pub fn find(data: *const u8, len: usize) -> Option<(Arc<Region>, u64)> {
    Region::registry().find(data as usize, len)
}

/// Finds the region of a GPU arena that contains `len` bytes at `address`, and their offset in the
/// region. Does not call the driver.
pub fn find_on_gpu(address: u64, len: usize) -> Option<(Arc<CudaRegion>, u64)> {
    let found = CudaRegion::registry().find(usize::try_from(address).ok()?, len)?;
    // After a reset of the device, other memory may have the addresses.
    (!found.0.device().is_lost()).then_some(found)
}

/// Regions of arenas; most batches lie in one region.
pub type Regions = SmallVec<[Arc<Region>; 1]>;

/// Looks up many buffers of the host. While it lives, arenas can neither add nor remove regions, so
/// keep it for a short time.
pub struct Finder {
    registry: RwLockReadGuard<'static, Entries<Region>>,
    /// The regions of the found buffers, without duplicates.
    regions: Regions,
    /// The index of the region that was found last.
    last: usize,
}

impl Finder {
    /// Locks the registry, so that arenas neither add nor remove regions.
    pub fn lock() -> Self {
        Self {
            registry: Region::registry().0.get().read(),
            regions: Regions::new(),
            last: 0,
        }
    }

    /// Finds the region that contains `len` bytes at `data`. Returns its index in
    /// [`regions`](Self::regions), and the offset in the region.
    pub fn find(&mut self, data: *const u8, len: usize) -> Option<(usize, u64)> {
        // The buffers of a batch lie in few regions, so the last region mostly matches.
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

    /// Every region that was found, without duplicates.
    pub fn regions(self) -> Regions {
        self.regions
    }
}

/// Deallocates a block of any arena of the process, even if the arena's handles are gone.
///
/// # Errors
///
/// `InvalidArgument` if no block in use begins at `block`; `Forked` in a child process. Nothing
/// changes then.
///
/// # Safety
///
/// No thread and no GPU work reads or writes the block any more. A peer that borrows the block may
/// still read it.
pub unsafe fn dealloc(block: NonNull<u8>) -> Result<()> {
    // An address belongs to the host or to a device, never to both.
    if CudaRegion::registry()
        .owner(block.as_ptr() as usize)
        .is_some()
    {
        return release::<CudaRegion>(block, None);
    }
    release::<Region>(block, None)
}

/// Deallocates a block. If `owner` is given, the block must belong to it.
pub fn release<R: ArenaRegion>(
    block: NonNull<u8>,
    owner: Option<&Arc<ArenaCore<R>>>,
) -> Result<()> {
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
    // A forked child may use an arena that it made itself.
    if let Some(owner) = owner {
        owner.generation.ensure_same_process()?;
    }
    let found = R::registry().owner(block.as_ptr() as usize);
    let (region, arena, offset) = found.ok_or_else(|| {
        // The registry of a forked child does not have the parent's arenas.
        if owner.is_none() && fork::is_child() {
            let text = format!(
                "no block of an arena of this process begins at {block:p}, and what its parent \
                 allocated before the fork is not freed here"
            );
            return Error::new(Status::Forked, text);
        }
        unknown()
    })?;
    if owner.is_some_and(|owner| !Arc::ptr_eq(owner, &arena)) {
        return Err(unknown());
    }
    if region.blocks().free(offset).ok_or_else(unknown)?.emptied {
        arena.emptied(&region);
    }
    Ok(())
}
