//! Memory of the producer's that can be lent to a peer without a copy.
//!
//! An [`Arena`] gives out blocks of regions that a peer can map: sealed memfds on the host,
//! exportable allocations on a GPU. The shm transport recognises a buffer that lies in one
//! ([`find`], [`find_on_gpu`]) and sends its address instead of its bytes, without asking the
//! driver. Memory outlives the arena's handle: it goes when the last block is deallocated.
//!
//! A peer that is lent one buffer of a region can read the whole region for as long as it likes, so
//! an arena is as public as the most public ticket whose batches lie in it.

mod bytes;
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

pub use registry::{Finder, Regions, dealloc, find, find_on_gpu};

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
    handle: ArenaKind,
}

#[derive(Debug, Clone)]
enum ArenaKind {
    Host(Arc<ArenaHandle<Region>>),
    Gpu(Arc<ArenaHandle<CudaRegion>>),
}

/// Does the same with either kind.
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
    /// An arena on the host, or on the first device of another kind, as [`on`](Self::on).
    ///
    /// # Errors
    ///
    /// As [`on`](Self::on).
    pub fn new(device: DeviceKind, options: ArenaOptions) -> Result<Self> {
        Self::on(device, 0, options)
    }

    /// An arena on the device of this kind with the number `id`, which says nothing of the host. It
    /// has no memory yet.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a kind whose memory cannot be lent, and where there is no such device or
    /// driver; `InvalidArgument` when `region_bytes` is 0, or where the driver sees other devices
    /// only.
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

    /// Allocates `len` bytes, aligned to 64. Their content is undefined. A length of 0 gives a
    /// pointer of its own all the same, to be deallocated like any other.
    ///
    /// On a GPU the pointer is the device's: the processor must not touch it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` when `max_bytes` or the memory of the system or the GPU is reached;
    /// `OutOfResources` when no file descriptor is left; `Forked` in a child process.
    pub fn alloc(&self, len: usize) -> Result<NonNull<u8>> {
        shared!(self, shared => ArenaCore::alloc(shared, len))
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
        shared!(self, shared => registry::release(block, Some(shared)))
    }

    /// Where its memory lies.
    pub fn device(&self) -> DeviceKind {
        match &self.handle {
            ArenaKind::Host(_) => DeviceKind::CPU,
            ArenaKind::Gpu(_) => DeviceKind::CUDA,
        }
    }

    /// The number of its device, as `ArrowDeviceArray.device_id` has it: -1 for the host.
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

    /// Bytes of all its regions.
    pub fn mapped_bytes(&self) -> u64 {
        shared!(self, shared => shared.mapped_bytes())
    }
}

#[cfg(test)]
mod tests;
