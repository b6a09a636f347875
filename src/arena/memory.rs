//! What an arena must know of the memory it gives out.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::registry::Registry;
use crate::device::cuda::{CudaRegion, Device, DeviceMemory, later};
use crate::device::lendable::Lendable;
use crate::device::memfd::{self, FileCharge};
use crate::device::region::Region;
use crate::error::Result;

/// Where regions are made.
pub trait RegionPlace {
    /// What lengths of regions are rounded up to.
    fn unit(&self) -> Result<u64>;

    /// The most bytes that a region can have there.
    fn most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Fails where what was made there is gone.
    fn ensure_alive(&self) -> Result<()> {
        Ok(())
    }

    /// Waits for a while until memory that was given up is back with the system.
    fn settle(&self) {}
}

impl RegionPlace for () {
    fn unit(&self) -> Result<u64> {
        Ok(u64::try_from(rustix::param::page_size()).unwrap_or(4096))
    }

    fn most_bytes(&self) -> u64 {
        memfd::most_bytes()
    }
}

impl RegionPlace for Arc<Device> {
    fn unit(&self) -> Result<u64> {
        Ok(u64::try_from(DeviceMemory::lend_unit(self)?).unwrap_or(u64::MAX))
    }

    fn ensure_alive(&self) -> Result<()> {
        Device::ensure_alive(self).map_err(|error| error.context("the arena's memory is gone"))
    }

    fn settle(&self) {
        later::wait(later::PATIENCE);
    }
}

/// A region that an arena gives out in blocks, and that a peer can be given to read. Addresses are
/// numbers here: the processor need not reach them.
pub trait ArenaRegion: Sized + Send + Sync + 'static {
    /// Where regions of this kind are made.
    type Place: RegionPlace + Send + Sync;

    /// Where the process's regions of this kind are found.
    fn registry() -> &'static Registry<Self>;

    /// Makes a region of `len` bytes, whole units.
    fn make(place: &Self::Place, len: u64) -> Result<Self>;

    /// Its first byte.
    fn address(&self) -> usize;

    /// The block at `offset`, as arenas give it out.
    fn block(&self, offset: usize) -> Option<NonNull<u8>>;

    /// Its length.
    fn bytes(&self) -> usize;

    /// Its blocks.
    fn blocks(&self) -> &Lendable;

    /// Has it count: `charge` is dropped once nobody has its memory any more, or, on a GPU, this
    /// process has not.
    fn charge(&self, charge: FileCharge);

    /// Where `len` bytes at `address` lie in it, if they lie in it whole.
    fn place_of(&self, address: usize, len: usize) -> Option<u64> {
        let offset = address.checked_sub(self.address())?;
        let end = offset.checked_add(len)?;
        let fits = end <= self.bytes();
        fits.then(|| u64::try_from(offset).ok()).flatten()
    }
}

impl ArenaRegion for Region {
    type Place = ();

    fn registry() -> &'static Registry<Self> {
        static REGISTRY: Registry<Region> = Registry::new();
        &REGISTRY
    }

    fn make((): &(), len: u64) -> Result<Self> {
        Self::create(len, "dipc-arena")
    }

    fn address(&self) -> usize {
        self.base().as_ptr() as usize
    }

    fn block(&self, offset: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.base().as_ptr().wrapping_add(offset))
    }

    fn bytes(&self) -> usize {
        self.len()
    }

    fn blocks(&self) -> &Lendable {
        self
    }

    fn charge(&self, charge: FileCharge) {
        self.charge(charge);
    }
}

impl ArenaRegion for CudaRegion {
    type Place = Arc<Device>;

    fn registry() -> &'static Registry<Self> {
        static REGISTRY: Registry<CudaRegion> = Registry::new();
        &REGISTRY
    }

    fn make(place: &Arc<Device>, len: u64) -> Result<Self> {
        Self::create(place, len)
    }

    fn address(&self) -> usize {
        // Both have 64 bits wherever there is CUDA.
        usize::try_from(self.base()).unwrap_or(usize::MAX)
    }

    fn block(&self, offset: usize) -> Option<NonNull<u8>> {
        let address = self.address().checked_add(offset)?;
        // It is the device's: nothing here may read or write through it.
        NonNull::new(std::ptr::without_provenance_mut(address))
    }

    fn bytes(&self) -> usize {
        self.len()
    }

    fn blocks(&self) -> &Lendable {
        self
    }

    fn charge(&self, charge: FileCharge) {
        self.charge(charge);
    }
}
