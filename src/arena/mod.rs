//! Memory of the producer that peers can read without a copy.
//!
//! An [`Arena`] allocates blocks of regions that a peer can map: sealed memfds on the host,
//! exportable allocations on a GPU. The shm transport finds the region of a buffer ([`find`],
//! [`find_on_gpu`]) without a call of the driver, and sends the address instead of the bytes. The
//! memory outlives the arena's handle: the last deallocated block frees it.
//!
//! A peer that is lent one buffer of a region can read the whole region for any time. So an arena
//! is as public as the most public ticket with a batch in the arena.

mod buffers;
mod bytes;
mod file;
mod memory;
mod registry;
mod room;
mod shared;

use std::ptr::NonNull;
use std::sync::Arc;

use crate::arena::shared::{ArenaCore, ArenaHandle};
use crate::device::DeviceKind;
use crate::device::cuda::{CudaRegion, Device};
use crate::device::region::Region;
use crate::error::{Error, Result};

pub use buffers::ArenaBuffer;
pub use file::ArenaFile;
pub use registry::{Finder, Regions, dealloc, find, find_on_gpu};

/// Options of an [`Arena`].
#[derive(Debug, Clone)]
pub struct ArenaOptions {
    /// Size of a region in bytes; a larger block gets a region of its own.
    #[doc(hidden)]
    pub region_bytes: u64,
    /// Most bytes of all regions together.
    #[doc(hidden)]
    pub max_bytes: u64,
}

impl ArenaOptions {
    /// Size of a region in bytes; a larger block gets a region of its own. Default: 64 MiB.
    #[must_use]
    pub fn region_bytes(mut self, bytes: u64) -> Self {
        self.region_bytes = bytes;
        self
    }

    /// Most bytes of all regions together. Default: no limit.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }
}

impl Default for ArenaOptions {
    fn default() -> Self {
        Self {
            region_bytes: 64 << 20,
            max_bytes: u64::MAX,
        }
    }
}

/// Lendable memory. Clones share it; any thread may call every method.
#[derive(Debug, Clone)]
pub struct Arena {
    handle: ArenaKind,
}

#[derive(Debug, Clone)]
enum ArenaKind {
    Host(Arc<ArenaHandle<Region>>),
    Gpu(Arc<ArenaHandle<CudaRegion>>),
}

/// Evaluates the same body for either kind of arena.
macro_rules! shared {
    ($arena:expr, $shared:ident => $body:expr) => {
        match &$arena.handle {
            ArenaKind::Host(handle) => {
                let $shared = &handle.shared;
                $body
            }
            ArenaKind::Gpu(handle) => {
                let $shared = &handle.shared;
                $body
            }
        }
    };
}

impl Arena {
    /// An arena on the host, or on device 0 of another kind; see [`on`](Self::on).
    ///
    /// # Errors
    ///
    /// As [`on`](Self::on).
    pub fn new(device: DeviceKind, options: ArenaOptions) -> Result<Self> {
        Self::on(device, 0, options)
    }

    /// An arena on device `id` of this kind; the host ignores `id`. The arena has no memory yet.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a kind whose memory cannot be lent, and if the device or its driver is
    /// missing; `InvalidArgument` if `region_bytes` is 0, or if the driver has no device `id`.
    pub fn on(device: DeviceKind, id: i64, options: ArenaOptions) -> Result<Self> {
        if options.region_bytes == 0 {
            return Err(Error::invalid_argument(
                "the regions of an arena cannot have 0 bytes",
            ));
        }
        let handle = match device {
            DeviceKind::CPU => ArenaKind::Host(Arc::new(ArenaHandle::new((), options)?)),
            DeviceKind::CUDA => {
                ArenaKind::Gpu(Arc::new(ArenaHandle::new(Device::get(id)?, options)?))
            }
            other => {
                return Err(Error::unsupported(format!(
                    "no arena on Arrow device type {}: memory of the host (type 1) and of CUDA \
                     devices (type 2) can be lent",
                    other.0
                )));
            }
        };
        Ok(Self { handle })
    }

    /// Allocates `len` bytes, aligned to 64, with undefined content. A block of 0 bytes has an
    /// address of its own too, and must be deallocated.
    ///
    /// On a GPU the pointer is a device address: the processor must not access it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if `max_bytes` is reached, or the system or the GPU has no memory left;
    /// `OutOfResources` if no file descriptor is left; `Forked` in a child process.
    #[doc(hidden)]
    pub fn alloc(&self, len: usize) -> Result<NonNull<u8>> {
        shared!(self, shared => ArenaCore::alloc(shared, len))
    }

    /// Deallocates a block of this arena.
    ///
    /// # Errors
    ///
    /// As [`dealloc`]; also `InvalidArgument` for a block of another arena.
    ///
    /// # Safety
    ///
    /// As for [`dealloc`].
    #[doc(hidden)]
    pub unsafe fn dealloc(&self, block: NonNull<u8>) -> Result<()> {
        shared!(self, shared => registry::release(block, Some(shared)))
    }

    /// The kind of device of the memory.
    pub fn device(&self) -> DeviceKind {
        match &self.handle {
            ArenaKind::Host(_) => DeviceKind::CPU,
            ArenaKind::Gpu(_) => DeviceKind::CUDA,
        }
    }

    /// The device number, as in `ArrowDeviceArray.device_id`: -1 for the host.
    pub fn device_id(&self) -> i64 {
        match &self.handle {
            ArenaKind::Host(_) => -1,
            ArenaKind::Gpu(handle) => i64::from(handle.shared.place.ordinal()),
        }
    }

    /// Bytes of the blocks in use, each rounded up to 64.
    pub fn used_bytes(&self) -> u64 {
        shared!(self, shared => shared.used_bytes())
    }

    /// Bytes of all regions.
    pub fn mapped_bytes(&self) -> u64 {
        shared!(self, shared => shared.mapped_bytes())
    }
}

#[cfg(test)]
mod tests;
