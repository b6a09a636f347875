//! The regions of every arena of the process, by address.

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

/// The regions of one kind of memory, by the address of the first byte. The host's and the devices'
/// never share an address.
///
/// Locks are taken in the order arena, then registry; a region's own lock comes last.
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

    /// Makes a region of `arena` known.
    pub fn add(&'static self, region: Arc<R>, arena: &Arc<ArenaCore<R>>) {
        let entry = RegistryEntry {
            region,
            arena: Arc::clone(arena),
        };
        self.0.get().write().insert(entry.region.address(), entry);
    }

    /// Forgets regions, and gives what goes with them: it is dropped, which is slow, after the
    /// registry is unlocked.
    pub fn remove(&'static self, regions: &[Arc<R>]) -> Vec<impl Sized + use<R>> {
        let mut entries = Vec::with_capacity(regions.len());
        let mut registry = self.0.get().write();
        for region in regions {
            // Where a device was reset, another region may have the address.
            let ours = |entry: &RegistryEntry<R>| Arc::ptr_eq(&entry.region, region);
            if registry.get(&region.address()).is_some_and(ours) {
                entries.extend(registry.remove(&region.address()));
            }
        }
        entries
    }

    /// The region in which `len` bytes at `address` lie whole, and their offset in it.
    fn find(&'static self, address: usize, len: usize) -> Option<(Arc<R>, u64)> {
        let registry = self.0.get().read();
        let (_, entry) = registry.range(..=address).next_back()?;
        let offset = entry.region.place_of(address, len)?;
        Some((Arc::clone(&entry.region), offset))
    }

    /// The region and the arena that `address` lies in, and its offset.
    fn owner(&'static self, address: usize) -> Option<(Arc<R>, Arc<ArenaCore<R>>, u64)> {
        let registry = self.0.get().read();
        let (_, entry) = registry.range(..=address).next_back()?;
        // An address behind the region, on the stack say, must not keep it alive even for a moment.
        let offset = entry.region.place_of(address, 1)?;
        Some((Arc::clone(&entry.region), Arc::clone(&entry.arena), offset))
    }

    /// Keeps everybody out.
    #[cfg(test)]
    pub fn hold(&'static self) -> impl Sized {
        self.0.get().write()
    }
}

/// Finds the region of an arena of host memory in which `len` bytes at `data` lie whole, and their
/// offset in it.
pub fn find(data: *const u8, len: usize) -> Option<(Arc<Region>, u64)> {
    Region::registry().find(data as usize, len)
}

/// Finds the region of an arena on a GPU in which `len` bytes at `address` lie whole, and their
/// offset in it. The driver is not asked.
pub fn find_on_gpu(address: u64, len: usize) -> Option<(Arc<CudaRegion>, u64)> {
    let found = CudaRegion::registry().find(usize::try_from(address).ok()?, len)?;
    // Of a device that was reset, other memory may have the addresses.
    (!found.0.device().is_lost()).then_some(found)
}

/// Regions of arenas; the buffers of a batch mostly lie in one.
pub type Regions = SmallVec<[Arc<Region>; 1]>;

/// Looks up many buffers of the host, which tend to lie beside each other. The regions of the
/// process's arenas neither come nor go while it lives, so it must not live long.
pub struct Finder {
    registry: RwLockReadGuard<'static, Entries<Region>>,
    /// Those found, each once.
    regions: Regions,
    /// Which of them was found last.
    last: usize,
}

impl Finder {
    /// Keeps arenas from taking and giving up regions from now on.
    pub fn lock() -> Self {
        Self {
            registry: Region::registry().0.get().read(),
            regions: Regions::new(),
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
    pub fn regions(self) -> Regions {
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
/// Nobody reads or writes the block any more, nor does work of a GPU's, except a peer that it is
/// lent to.
pub unsafe fn dealloc(block: NonNull<u8>) -> Result<()> {
    // An address is one of the host's or of a device's, never both.
    if CudaRegion::registry()
        .owner(block.as_ptr() as usize)
        .is_some()
    {
        return release::<CudaRegion>(block, None);
    }
    release::<Region>(block, None)
}

/// Gives back a block, which must be one of `owner`'s where that is given.
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
    // An arena that the child of a fork itself made passes.
    if let Some(owner) = owner {
        owner.generation.ensure_same_process()?;
    }
    let found = R::registry().owner(block.as_ptr() as usize);
    let (region, arena, offset) = found.ok_or_else(|| {
        // The arenas of a parent are not known here.
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
