//! Pinned host memory, for copies of devices at full speed.

use std::any::Any;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::device::BufferRef;
use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::failure::{Failure, code};
use crate::device::cuda::later;
use crate::device::cuda::stream::log_drop_error;
use crate::error::Result;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: every device can copy and access it.
const PORTABLE_MAPPED: u32 = 1 | 2;

/// `CU_MEMHOSTREGISTER_PORTABLE`: every device can copy at full speed.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: devices only read; for read-only mappings.
const READ_ONLY: u32 = 8;

/// The registered memory: address of the first byte to length.
static REGISTERED: RwLock<BTreeMap<usize, usize>> = RwLock::new(BTreeMap::new());

/// Pinned host memory, owned by a [`PinnedMemory`] in use or by the device's recycling list.
#[derive(Debug)]
pub struct PinnedBlock {
    data: NonNull<u8>,
    pub(super) len: usize,
}

// SAFETY: a block is the only owner of its memory and is not tied to a thread.
unsafe impl Send for PinnedBlock {}

impl PinnedBlock {
    fn new(device: &Device, len: usize) -> Result<Self, Failure> {
        let mut data = std::ptr::null_mut();
        // SAFETY: `data` is writable, and the device's context is current.
        unsafe {
            device
                .driver
                .cuMemHostAlloc(&raw mut data, len, PORTABLE_MAPPED)
        }?;
        let data = NonNull::new(data.cast::<u8>()).ok_or(Failure {
            call: "cuMemHostAlloc",
            code: code::OUT_OF_MEMORY,
        })?;
        // Zeroed, because slices of the memory must be initialised.
        // SAFETY: the driver returned `len` writable bytes that nobody else uses.
        unsafe { data.as_ptr().write_bytes(0, len) };
        Ok(Self { data, len })
    }

    pub(super) fn free(self, device: &Device) -> Result<()> {
        // SAFETY: the block owns the memory, and its users are done.
        Ok(unsafe { device.driver.cuMemFreeHost(self.data.as_ptr().cast()) }?)
    }
}

/// Pinned host memory. Devices copy from and to it asynchronously at the full rate, and kernels
/// access it at the same address. Always initialised.
///
/// As for [`DeviceMemory`](super::DeviceMemory), no work may use it when it is dropped.
#[derive(Debug)]
pub struct PinnedMemory {
    device: Arc<Device>,
    /// `None` only during the drop.
    block: Option<PinnedBlock>,
}

// SAFETY: shared access only reads, and returns the address.
unsafe impl Sync for PinnedMemory {}

impl PinnedMemory {
    /// At least `len` bytes, initialised but with undefined content.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; as [`Device::enter`].
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self> {
        let len = len.max(1);
        // After a reset of the context the recycled memory is gone.
        device.ensure_alive()?;
        let kept = device.kept.lock().pinned.take(len, len.saturating_mul(2));
        let block = match kept {
            Some(block) => block,
            None => device
                .make(|| PinnedBlock::new(device, len.next_multiple_of(4096)))
                .map_err(|error| error.context(format!("pinning {len} bytes of host memory")))?,
        };
        Ok(Self {
            device: Arc::clone(device),
            block: Some(block),
        })
    }

    fn data(&self) -> NonNull<u8> {
        self.block
            .as_ref()
            .map_or(NonNull::dangling(), |block| block.data)
    }

    /// The address of the first byte, for the processor and for devices.
    pub fn address(&self) -> u64 {
        self.data().as_ptr() as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len)
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// No work writes to the memory during the borrow.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the block has `len` initialised bytes. The caller promises that no device writes,
        // and the borrow prevents writes of this process.
        unsafe { std::slice::from_raw_parts(self.data().as_ptr(), self.len()) }
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    ///
    /// No work reads or writes the memory during the borrow.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the block has `len` initialised bytes. The caller promises that no work reads or
        // writes them, and the exclusive borrow makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.data().as_ptr(), self.len()) }
    }
}

/// Registers host memory of another owner, so that devices copy at full speed.
#[derive(Debug)]
pub struct Registered {
    device: Arc<Device>,
    address: usize,
    /// Keeps the memory mapped until the driver has unregistered it.
    memory: Arc<dyn Any + Send + Sync>,
}

/// The access of devices to registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Devices read and write.
    ReadWrite,
    /// Devices only read, as the memory is mapped read-only.
    Read,
}

impl Registered {
    /// Pins `len` bytes at `address`, whole pages of `memory`. They stay pinned, and `memory` is
    /// held, until some time after the drop.
    ///
    /// # Errors
    ///
    /// The driver's error, for example for memory that is already pinned; as [`Device::enter`].
    ///
    /// # Safety
    ///
    /// The memory stays mapped and unchanged while `memory` is held. No work uses it when the
    /// returned value is dropped.
    pub unsafe fn new(
        device: &Arc<Device>,
        address: NonNull<u8>,
        len: usize,
        access: Access,
        memory: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let flags = match access {
            Access::ReadWrite => PORTABLE,
            Access::Read => PORTABLE | READ_ONLY,
        };
        let _current = device.enter()?;
        // SAFETY: the caller promises the memory, and the device's context is current.
        unsafe {
            device
                .driver
                .cuMemHostRegister_v2(address.as_ptr().cast(), len, flags)
        }?;
        let address = address.as_ptr() as usize;
        REGISTERED.write().insert(address, len);
        Ok(Self {
            device: Arc::clone(device),
            address,
            memory,
        })
    }
}

/// True if the whole buffer is registered. Devices then copy from it asynchronously, without the
/// processor.
pub fn is_registered(buffer: BufferRef) -> bool {
    let registered = REGISTERED.read();
    let before = registered.range(..=buffer.data.addr()).next_back();
    before.is_some_and(|(start, len)| {
        let offset = buffer.data.addr() - start;
        offset
            .checked_add(buffer.len)
            .is_some_and(|end| end <= *len)
    })
}

impl Drop for Registered {
    fn drop(&mut self) {
        let (device, address) = (Arc::clone(&self.device), self.address);
        let memory = Arc::clone(&self.memory);
        later::run(move || {
            REGISTERED.write().remove(&address);
            let outcome = device.enter_to_drop().and_then(|_current| {
                let address = std::ptr::without_provenance_mut(address);
                // SAFETY: the dropped value registered the address. As its maker promised, no work
                // uses the memory any more. `memory` keeps it mapped.
                Ok(unsafe { device.driver.cuMemHostUnregister(address) }?)
            });
            log_drop_error(outcome, "pinned pages of the host");
            drop(memory);
        });
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        if Driver::get().is_err() {
            // A forked child, where locks may be held for ever.
            return;
        }
        let surplus = self.device.kept.lock().pinned.give(block);
        self.device.free(surplus, PinnedBlock::free);
    }
}
