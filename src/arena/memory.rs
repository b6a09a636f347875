//! The memory of an arena: regions, and the place where they are made.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::registry::Registry;
use crate::device::cuda::{CudaRegion, Device, DeviceMemory, later};
use crate::device::lendable::Lendable;
use crate::device::memfd::{self, FileCharge};
use crate::device::region::Region;
use crate::error::Result;

/// The device that regions are made on.
pub trait RegionPlace {
    /// The length of a region is a multiple of this unit, in bytes.
    fn unit(&self) -> Result<u64>;

    /// The most bytes of one region.
    fn most_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Fails if the regions of the device are lost, for example after a reset.
    fn ensure_alive(&self) -> Result<()> {
        Ok(())
    }

    /// Waits for a bounded time until the system has the freed memory back.
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

/// A region that an arena allocates blocks of, and that a peer can read. Addresses are numbers,
/// because the processor may not reach the memory.
pub trait ArenaRegion: Sized + Send + Sync + 'static {
    /// The device that regions of this kind are made on.
    type Place: RegionPlace + Send + Sync;

    /// The registry of the process's regions of this kind.
    fn registry() -> &'static Registry<Self>;

    /// Makes a region of `len` bytes. `len` is a multiple of the unit.
    fn make(place: &Self::Place, len: u64) -> Result<Self>;

    /// The address of the first byte.
    fn address(&self) -> usize;

    /// The pointer to the block at `offset`, for the arena's user.
    fn block(&self, offset: usize) -> Option<NonNull<u8>>;

    /// The length in bytes.
    fn bytes(&self) -> usize;

    /// The allocator of the blocks.
    fn blocks(&self) -> &Lendable;

    /// Attaches `charge`, which is dropped when the memory is free. Host memory is free when no
    /// process has it; GPU memory when this process does not have it.
    fn charge(&self, charge: FileCharge);

    /// The offset of `len` bytes at `address`, if all of them lie in the region.
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
        // Addresses have 64 bits on every machine with CUDA.
        usize::try_from(self.base()).unwrap_or(usize::MAX)
    }

    fn block(&self, offset: usize) -> Option<NonNull<u8>> {
        let address = self.address().checked_add(offset)?;
        // A device address: nobody may read or write through the pointer here.
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
