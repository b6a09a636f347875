//! Host memory that devices copy from and to at full speed.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::device::BufferRef;
use crate::device::cuda::context::Device;
use crate::device::cuda::driver::{Driver, Failure, code};
use crate::device::cuda::later;
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`: every device copies and reads it.
const PORTABLE_MAPPED: u32 = 1 | 2;

/// `CU_MEMHOSTREGISTER_PORTABLE`: every device copies there at full speed.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_READ_ONLY`: devices only read there, as the process itself may.
const READ_ONLY: u32 = 8;

/// The memory that is registered, by its first byte, and how long it is.
static REGISTERED: RwLock<BTreeMap<usize, usize>> = RwLock::new(BTreeMap::new());

/// Pinned host memory without an owner.
#[derive(Debug)]
pub struct PinnedBlock {
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: a block owns its memory alone; nothing about it belongs to a thread.
unsafe impl Send for PinnedBlock {}

impl PinnedBlock {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    fn new(device: &Device, len: usize) -> Result<Self, Failure> {
        let mut data = std::ptr::null_mut();
        // SAFETY: `data` is writable, and the device's context is current.
        unsafe {
            device
                .driver()
                .cuMemHostAlloc(&raw mut data, len, PORTABLE_MAPPED)
        }?;
        let data = NonNull::new(data.cast::<u8>()).ok_or(Failure {
            call: "cuMemHostAlloc",
            code: code::OUT_OF_MEMORY,
        })?;
        // Nobody reads what was never written, and a slice of it may be made.
        // SAFETY: the driver
        // gave `len` bytes that the processor writes, and they are nobody else's.
        unsafe { data.as_ptr().write_bytes(0, len) };
        Ok(Self { data, len })
    }

    pub(super) fn free(self, device: &Device) -> Result<()> {
        // SAFETY: the block owns the memory, and who used it is done with it.
        Ok(unsafe { device.driver().cuMemFreeHost(self.data.as_ptr().cast()) }?)
    }
}

/// Host memory that stays where it is, so that devices copy from and to it asynchronously and at
/// the full rate, and kernels read and write it by the same address. Always initialised.
///
/// As [`DeviceMemory`](super::DeviceMemory), it is dropped when no work uses it any more.
pub struct PinnedMemory {
    device: Arc<Device>,
    /// `None` only while it is dropped.
    block: Option<PinnedBlock>,
}

// SAFETY: shared access only reads, and gives the address.
unsafe impl Sync for PinnedMemory {}

impl fmt::Debug for PinnedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedMemory({:#x}, {})", self.address(), self.len())
    }
}

impl PinnedMemory {
    /// At least `len` bytes, initialised, to what is not defined.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; as [`Device::enter`].
    pub fn new(device: &Arc<Device>, len: usize) -> Result<Self> {
        let len = len.max(1);
        // What was kept is gone with a context that was reset.
        device.ensure_alive()?;
        let kept = device.kept.lock().pinned.take(len, len.saturating_mul(2));
        let block = match kept {
            Some(block) => block,
            None => {
                let _current = device.enter()?;
                let made = match PinnedBlock::new(device, len.next_multiple_of(4096)) {
                    Err(Failure {
                        code: code::OUT_OF_MEMORY,
                        ..
                    }) => {
                        device.trim()?;
                        PinnedBlock::new(device, len)
                    }
                    made => made,
                };
                made.map_err(|failure| {
                    Error::from(failure).context(format!("pinning {len} bytes of host memory"))
                })?
            }
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

    /// The first byte, for the processor and for devices.
    pub fn address(&self) -> u64 {
        self.data().as_ptr() as u64
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.block.as_ref().map_or(0, PinnedBlock::len)
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    ///
    /// # Safety
    ///
    /// No work that writes here is under way, during the borrow.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the block has `len` initialised bytes; the caller promises that no device writes,
        // and the borrow that this process does not.
        unsafe { std::slice::from_raw_parts(self.data().as_ptr(), self.len()) }
    }

    /// The bytes, to be written.
    ///
    /// # Safety
    ///
    /// No work that reads or writes here is under way, during the borrow.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the exclusive borrow makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.data().as_ptr(), self.len()) }
    }
}

/// Host memory of others that devices copy to at full speed while this lives.
pub struct Registered {
    device: Arc<Device>,
    address: usize,
    /// Keeps the memory mapped until the driver has let go of it.
    memory: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registered({:?}, {:#x})", self.device, self.address)
    }
}

/// What devices do with registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// They read and write.
    ReadWrite,
    /// They read: the memory is mapped to be read alone.
    Read,
}

impl Registered {
    /// Pins `len` bytes at `address`, whole pages, of `memory`, which is held until the driver has
    /// let go of them: some time after this is dropped.
    ///
    /// # Errors
    ///
    /// What the driver says: the memory is pinned already, or cannot be; as [`Device::enter`].
    ///
    /// # Safety
    ///
    /// The memory stays mapped as it is while `memory` is held, and no work uses it when this is
    /// dropped.
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
                .driver()
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

/// Whether a buffer lies whole in memory that is registered now: devices copy from there
/// asynchronously, without the processor.
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
            let gone = device.enter_to_drop().and_then(|_current| {
                let address = std::ptr::without_provenance_mut(address);
                // SAFETY: registered by what was dropped, and no work uses it any more, as its
                // maker promised; `memory` keeps it mapped.
                Ok(unsafe { device.driver().cuMemHostUnregister(address) }?)
            });
            left(gone, "pinned pages of the host");
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
        let gone = self.device.kept.lock().pinned.give(block);
        self.device.free(gone, PinnedBlock::free);
    }
}
