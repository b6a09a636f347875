//! Memory of a device, for this process or for lending.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType,
    CUmemGenericAllocationHandle,
};

use parking_lot::Mutex;

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::failure::{Failure, code};
use crate::device::cuda::later;
use crate::device::cuda::pinned::PinnedBlock;
use crate::device::cuda::recycle::KeepFor;
use crate::device::cuda::stream::log_drop_error;
use crate::error::{Error, Result};

/// The longest wait for freed memory when the device has no memory left.
const MOST_PATIENCE: Duration = Duration::from_secs(10);

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(super) const POSIX_FD: u32 = 1;

/// The purpose of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For this process only.
    Own,
    /// For lending to other processes as a file descriptor. Lengths are multiples of the device's
    /// mapping unit, mostly 2 MiB.
    Lend,
}

/// Device memory, owned by a [`DeviceMemory`] in use or by the device's recycling list.
#[derive(Debug)]
pub struct Block {
    address: CUdeviceptr,
    pub(super) len: usize,
    /// The exportable allocation that is mapped at `address`; `None` for plain memory.
    handle: Option<CUmemGenericAllocationHandle>,
}

impl Block {
    pub(super) fn is_exportable(&self) -> bool {
        self.handle.is_some()
    }

    /// The caller has entered the device.
    fn plain(device: &Device, len: usize) -> Result<Self, Failure> {
        let mut address = 0;
        // SAFETY: `address` is writable, and the device's context is current.
        unsafe { device.driver.cuMemAlloc_v2(&raw mut address, len) }?;
        Ok(Self {
            address,
            len,
            handle: None,
        })
    }

    /// `len` is a multiple of the device's unit. The caller has entered the device.
    fn exportable(device: &Device, len: usize) -> Result<Self, Failure> {
        let driver = device.driver;
        let properties = properties(device);
        let mut handle = 0;
        // SAFETY: `handle` is writable and `properties` a whole struct.
        unsafe { driver.cuMemCreate(&raw mut handle, len, &raw const properties, 0) }?;
        let mapped = map(device, handle, len).inspect_err(|_| {
            // SAFETY: the handle was made above, and no mapping uses it.
            let outcome = unsafe { driver.cuMemRelease(handle) };
            log_drop_error(outcome, "memory of a GPU");
        });
        Ok(Self {
            address: mapped?,
            len,
            handle: Some(handle),
        })
    }

    /// Returns the memory to the driver. The caller has entered the device.
    fn free(self, device: &Device) -> Result<()> {
        let driver = device.driver;
        Ok(match self.handle {
            // SAFETY: the block owns the memory, and its users are done.
            None => unsafe { driver.cuMemFree_v2(self.address) },
            Some(handle) => {
                // SAFETY: the block owns the mapping, and its users are done.
                let unmapped = unsafe { unmap(device, self.address, self.len) };
                // SAFETY: the block owns the handle. Exported descriptors keep the memory alive on
                // their own.
                let released = unsafe { driver.cuMemRelease(handle) };
                unmapped.and(released)
            }
        }?)
    }
}

fn ensure_lendable(device: &Device) -> Result<()> {
    if device.exports_fds() {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "memory of GPU {} cannot be given to other processes as a file descriptor: the device or \
         its driver lacks virtual memory management",
        device.ordinal()
    )))
}

/// The properties of all exportable memory.
fn properties(device: &Device) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        location: device.location(),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

/// Maps a whole allocation at a new address, for reads and writes of `device`.
pub(super) fn map(
    device: &Device,
    handle: CUmemGenericAllocationHandle,
    len: usize,
) -> Result<CUdeviceptr, Failure> {
    let driver = device.driver;
    let mut address = 0;
    // SAFETY: `address` is writable; the driver chooses the addresses.
    unsafe { driver.cuMemAddressReserve(&raw mut address, len, 0, 0, 0) }?;
    let free = || {
        // SAFETY: reserved above, and no mapping is left in the range.
        let outcome = unsafe { driver.cuMemAddressFree(address, len) };
        log_drop_error(outcome, "addresses of a GPU");
    };
    // SAFETY: the addresses are reserved and empty; the driver checks the handle and the length.
    unsafe { driver.cuMemMap(address, len, 0, handle, 0) }.inspect_err(|_| free())?;
    let access = CUmemAccessDesc {
        location: device.location(),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the mapping was made above, and `access` is one whole struct.
    let allowed = unsafe { driver.cuMemSetAccess(address, len, &raw const access, 1) };
    allowed.inspect_err(|_| {
        // SAFETY: the mapping was made above.
        let outcome = unsafe { driver.cuMemUnmap(address, len) };
        log_drop_error(outcome, "a mapping of a GPU");
        free();
    })?;
    Ok(address)
}

/// Undoes [`map`]. The second step runs even if the first fails.
///
/// # Safety
///
/// `address` and `len` come from [`map`], and nobody uses the memory any more.
pub(super) unsafe fn unmap(
    device: &Device,
    address: CUdeviceptr,
    len: usize,
) -> Result<(), Failure> {
    let driver = device.driver;
    // SAFETY: the caller promises a whole mapping without users.
    let unmapped = unsafe { driver.cuMemUnmap(address, len) };
    // SAFETY: the addresses were reserved for this mapping only.
    let freed = unsafe { driver.cuMemAddressFree(address, len) };
    unmapped.and(freed)
}

/// Plain memory in use, by address. The value is true once another process got a handle to it.
static PLAIN: Mutex<BTreeMap<CUdeviceptr, Arc<AtomicBool>>> = Mutex::new(BTreeMap::new());

/// Records that another process gets a legacy handle to the allocation at `base`. Memory of this
/// process is then not recycled for other data.
pub(super) fn note_exported(base: CUdeviceptr) {
    if let Some(exported) = PLAIN.lock().get(&base) {
        exported.store(true, Ordering::Release);
    }
}

/// Memory of a device. Its first content is undefined and may be earlier data of this process.
///
/// No work may use the memory when it is dropped, because others may get it at once. The owner of
/// enqueued work takes care of that.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Arc<Device>,
    /// `None` only during the drop.
    block: Option<Block>,
    /// True if a peer may have the memory mapped for ever: it is not recycled for other data.
    exported: Arc<AtomicBool>,
}

impl DeviceMemory {
    /// At least `len` bytes of `device`'s memory, aligned to 256 bytes or more.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, after the recycled memory was freed in vain; `Unsupported` if the device
    /// cannot lend memory; as [`Device::enter`].
    pub fn new(device: &Arc<Device>, len: usize, purpose: Purpose) -> Result<Self> {
        let lend = purpose == Purpose::Lend;
        // The driver allocates nothing for a length of 0.
        let mut len = len.max(1);
        if lend {
            let unit = Self::lend_unit(device)?;
            len = len
                .checked_next_multiple_of(unit)
                .ok_or_else(|| Error::out_of_memory(format!("no GPU has {len} bytes")))?;
        }
        // After a reset of the context the recycled memory is gone.
        device.ensure_alive()?;
        let most = len.saturating_mul(2);
        let kept = (!lend).then(|| device.kept.lock().device.take(len, most));
        let block = match kept.flatten() {
            Some(block) => block,
            None => {
                let make = match purpose {
                    Purpose::Own => Block::plain,
                    Purpose::Lend => Block::exportable,
                };
                device.make(|| make(device, len)).map_err(|error| {
                    error.context(format!(
                        "allocating {len} bytes on GPU {}",
                        device.ordinal()
                    ))
                })?
            }
        };
        let exported = Arc::new(AtomicBool::new(false));
        if !block.is_exportable() {
            let mut plain = PLAIN.lock();
            plain.insert(block.address, Arc::clone(&exported));
        }
        Ok(Self {
            device: Arc::clone(device),
            block: Some(block),
            exported,
        })
    }

    /// The unit of lengths of lendable memory, in bytes.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device cannot lend memory; as [`Device::enter`].
    pub fn lend_unit(device: &Device) -> Result<usize> {
        ensure_lendable(device)?;
        let _current = device.enter()?;
        let properties = properties(device);
        let mut unit = 0;
        // SAFETY: `unit` is writable and `properties` a whole struct; 0 requests the minimum.
        unsafe {
            device
                .driver
                .cuMemGetAllocationGranularity(&raw mut unit, &raw const properties, 0)
        }?;
        Ok(unit.max(1))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The device address of the first byte.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.address)
    }

    /// Length in bytes, at least the requested length.
    pub fn len(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len)
    }

    /// A file descriptor for another process, which maps the whole memory by it. The memory is not
    /// recycled for other data after its drop.
    ///
    /// # Errors
    ///
    /// `Unsupported` for memory that was not made to [lend](Purpose::Lend); the driver's error.
    pub fn export(&self) -> Result<OwnedFd> {
        let handle = self.block.as_ref().and_then(|block| block.handle);
        let handle = handle
            .ok_or_else(|| Error::unsupported("this memory of the GPU was not made to be lent"))?;
        // Set before the descriptor exists, because the descriptor may be duplicated at once.
        self.exported.store(true, Ordering::Release);
        let _current = self.device.enter()?;
        // SAFETY: the block owns the handle, which is live.
        Ok(unsafe { export_fd(&self.device, handle) }?)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else {
            return;
        };
        if Driver::get().is_err() {
            // A forked child, where locks may be held for ever.
            return;
        }
        if !block.is_exportable() {
            let mut plain = PLAIN.lock();
            // After a reset, other memory may have this address.
            if (plain.get(&block.address)).is_some_and(|known| Arc::ptr_eq(known, &self.exported)) {
                plain.remove(&block.address);
            }
        }
        // A borrower of a part sees all of the lendable memory. So lendable memory with earlier
        // data is not recycled.
        let surplus = if self.exported.load(Ordering::Acquire) || block.is_exportable() {
            vec![block]
        } else {
            self.device.kept.lock().device.give(block)
        };
        self.device.free(surplus, Block::free);
    }
}

/// A new file descriptor of an allocation.
///
/// # Safety
///
/// `handle` is a live allocation of the driver.
pub(super) unsafe fn export_fd(
    device: &Device,
    handle: CUmemGenericAllocationHandle,
) -> Result<OwnedFd, Failure> {
    let mut fd: std::ffi::c_int = -1;
    let target: *mut c_void = (&raw mut fd).cast();
    // SAFETY: for this handle type the driver writes an int; the caller promises the allocation.
    unsafe {
        device
            .driver
            .cuMemExportToShareableHandle(target, handle, POSIX_FD, 0)
    }?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor that this value owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Device {
    /// Makes memory. If that fails, frees the recycled memory and tries once more.
    pub(super) fn make<B>(self: &Arc<Self>, make: impl Fn() -> Result<B, Failure>) -> Result<B> {
        let _current = self.enter()?;
        match make() {
            Err(Failure {
                code: code::OUT_OF_MEMORY,
                ..
            }) => self.trim()?,
            made => return Ok(made?),
        }
        Ok(make()?)
    }

    /// Returns blocks to the driver later, on another thread.
    pub(super) fn free<B: KeepFor>(
        self: &Arc<Self>,
        blocks: Vec<B>,
        free: fn(B, &Self) -> Result<()>,
    ) {
        for block in blocks {
            later::free(self, B::WHAT, move |device| free(block, device));
        }
    }

    /// Returns the recycled memory to the driver. Waits until the driver has it, and all memory
    /// that was freed before. Only for threads that may wait for the device.
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    pub fn trim(self: &Arc<Self>) -> Result<()> {
        drop(self.enter()?);
        // Memory whose work ends now goes to the recycling lists first.
        later::wait(MOST_PATIENCE);
        let (device, pinned) = {
            let mut kept = self.kept.lock();
            (kept.device.clear(), kept.pinned.clear())
        };
        self.free(device, Block::free);
        self.free(pinned, PinnedBlock::free);
        later::wait(MOST_PATIENCE);
        Ok(())
    }
}
