//! Memory of a device, for ourselves or to be lent.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt;
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
use crate::device::cuda::driver::{Driver, Failure, code};
use crate::device::cuda::later;
use crate::device::cuda::pinned::PinnedBlock;
use crate::device::cuda::recycle::KeepFor;
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// How long memory is waited for, where there is none, that was given up before.
const MOST_PATIENCE: Duration = Duration::from_secs(10);

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
pub(super) const POSIX_FD: u32 = 1;

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It stays in this process.
    Own,
    /// It may be lent to other processes, as a file descriptor. Lengths are rounded up to what the
    /// device maps at once, mostly 2 MiB.
    Lend,
}

/// Device memory without an owner: [`DeviceMemory`] while it is used, kept by the device after.
#[derive(Debug)]
pub struct Block {
    address: CUdeviceptr,
    len: usize,
    /// Of memory that can be exported: the allocation that is mapped at `address`.
    handle: Option<CUmemGenericAllocationHandle>,
}

impl Block {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_exportable(&self) -> bool {
        self.handle.is_some()
    }

    /// Under the device's context.
    fn plain(device: &Device, len: usize) -> Result<Self, Failure> {
        let mut address = 0;
        // SAFETY: `address` is writable, and the device's context is current.
        unsafe { device.driver().cuMemAlloc_v2(&raw mut address, len) }?;
        Ok(Self {
            address,
            len,
            handle: None,
        })
    }

    /// `len` is a multiple of the device's unit.
    fn exportable(device: &Device, len: usize) -> Result<Self, Failure> {
        let driver = device.driver();
        let properties = properties(device);
        let mut handle = 0;
        // SAFETY: `handle` is writable and `properties` a whole struct.
        unsafe { driver.cuMemCreate(&raw mut handle, len, &raw const properties, 0) }?;
        let mapped = map(device, handle, len).inspect_err(|_| {
            // SAFETY: the handle was made above, and nothing is mapped of it.
            let gone = unsafe { driver.cuMemRelease(handle) };
            left(gone.map_err(Error::from), "memory of a GPU");
        });
        Ok(Self {
            address: mapped?,
            len,
            handle: Some(handle),
        })
    }

    /// Gives it back to the driver, under the device's context.
    fn free(self, device: &Device) -> Result<()> {
        let driver = device.driver();
        Ok(match self.handle {
            // SAFETY: the block owns the memory, and who used it is done with it.
            None => unsafe { driver.cuMemFree_v2(self.address) },
            Some(handle) => {
                // SAFETY: the mapping is the block's, which owns it.
                let unmapped = unsafe { unmap(device, self.address, self.len) };
                // SAFETY: the handle is the block's; exported descriptors keep the memory by
                // themselves.
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

/// What all memory that can be exported is made with.
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

/// Maps all of an allocation at an address of its own, to be read and written by `device`.
pub(super) fn map(
    device: &Device,
    handle: CUmemGenericAllocationHandle,
    len: usize,
) -> Result<CUdeviceptr, Failure> {
    let driver = device.driver();
    let mut address = 0;
    // SAFETY: `address` is writable; the driver chooses the place.
    unsafe { driver.cuMemAddressReserve(&raw mut address, len, 0, 0, 0) }?;
    let free = || {
        // SAFETY: reserved above, with nothing mapped in it any more.
        let gone = unsafe { driver.cuMemAddressFree(address, len) };
        left(gone.map_err(Error::from), "addresses of a GPU");
    };
    // SAFETY: the addresses are ours and empty; the driver checks the handle and the length.
    unsafe { driver.cuMemMap(address, len, 0, handle, 0) }.inspect_err(|_| free())?;
    let access = CUmemAccessDesc {
        location: device.location(),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the mapping is the one made above, and `access` one whole struct.
    let allowed = unsafe { driver.cuMemSetAccess(address, len, &raw const access, 1) };
    allowed.inspect_err(|_| {
        // SAFETY: the mapping is the one made above.
        let gone = unsafe { driver.cuMemUnmap(address, len) };
        left(gone.map_err(Error::from), "a mapping of a GPU");
        free();
    })?;
    Ok(address)
}

/// Takes back what [`map`] made. Both halves are done, whatever the first says.
///
/// # Safety
///
/// `address` and `len` are those of [`map`], and nobody uses the memory any more.
pub(super) unsafe fn unmap(
    device: &Device,
    address: CUdeviceptr,
    len: usize,
) -> Result<(), Failure> {
    let driver = device.driver();
    // SAFETY: the caller promises that it is a whole mapping, and done with.
    let unmapped = unsafe { driver.cuMemUnmap(address, len) };
    // SAFETY: the addresses were reserved for the mapping alone.
    let freed = unsafe { driver.cuMemAddressFree(address, len) };
    unmapped.and(freed)
}

/// Plain memory that is in use, by its address, and whether another process was given a handle to
/// it.
static PLAIN: Mutex<BTreeMap<CUdeviceptr, Arc<AtomicBool>>> = Mutex::new(BTreeMap::new());

/// Another process gets a legacy handle to the allocation at `base`: where that is memory of ours,
/// nobody else's data may come there later.
pub(super) fn note_exported(base: CUdeviceptr) {
    if let Some(exported) = PLAIN.lock().get(&base) {
        exported.store(true, Ordering::Release);
    }
}

/// Memory of a device. What it holds at first is not defined: it may be what was there before, of
/// this process.
///
/// It is dropped when no work uses it any more, which whoever enqueued the work sees to: it may
/// serve others at once.
pub struct DeviceMemory {
    device: Arc<Device>,
    /// `None` only while it is dropped.
    block: Option<Block>,
    /// A peer may have it mapped for ever: nobody else's data may come here.
    exported: Arc<AtomicBool>,
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DeviceMemory({:?}, {:#x}, {})",
            self.device,
            self.address(),
            self.len()
        )
    }
}

impl DeviceMemory {
    /// At least `len` bytes of `device`'s memory, aligned to 256 bytes or more.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`, also where what was kept for later has been given up; `Unsupported` where the
    /// device has no memory to lend; as [`Device::enter`].
    pub fn new(device: &Arc<Device>, len: usize, purpose: Purpose) -> Result<Self> {
        let lend = purpose == Purpose::Lend;
        // The driver gives nothing for a length of 0.
        let mut len = len.max(1);
        if lend {
            let unit = Self::lend_unit(device)?;
            len = len
                .checked_next_multiple_of(unit)
                .ok_or_else(|| Error::out_of_memory(format!("no GPU has {len} bytes")))?;
        }
        // What was kept is gone with a context that was reset.
        device.ensure_alive()?;
        let most = len.saturating_mul(2);
        let kept = (!lend).then(|| device.kept.lock().device.take(len, most));
        let block = match kept.flatten() {
            Some(block) => block,
            None => {
                let _current = device.enter()?;
                let make = if lend {
                    Block::exportable
                } else {
                    Block::plain
                };
                let made = match make(device, len) {
                    Err(Failure {
                        code: code::OUT_OF_MEMORY,
                        ..
                    }) => {
                        device.trim()?;
                        make(device, len)
                    }
                    made => made,
                };
                made.map_err(|failure| {
                    let doing = format!("allocating {len} bytes on GPU {}", device.ordinal());
                    Error::from(failure).context(doing)
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

    /// What lengths of memory that can be lent are rounded up to.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the device has none; as [`Device::enter`].
    pub fn lend_unit(device: &Device) -> Result<usize> {
        ensure_lendable(device)?;
        let _current = device.enter()?;
        let properties = properties(device);
        let mut unit = 0;
        // SAFETY: `unit` is writable and `properties` a whole struct; 0 asks for the least.
        unsafe {
            device
                .driver()
                .cuMemGetAllocationGranularity(&raw mut unit, &raw const properties, 0)
        }?;
        Ok(unit.max(1))
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The first byte, for the device.
    pub fn address(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.address)
    }

    /// Length in bytes; never less than what was asked for.
    pub fn len(&self) -> usize {
        self.block.as_ref().map_or(0, Block::len)
    }

    /// Never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A file descriptor by which another process maps all of it. From now on this memory is not
    /// used for anything else when it is dropped.
    ///
    /// # Errors
    ///
    /// `Unsupported` for memory that was not made to be [lent](Purpose::Lend); what the driver
    /// says.
    pub fn export(&self) -> Result<OwnedFd> {
        let handle = self.block.as_ref().and_then(|block| block.handle);
        let handle = handle
            .ok_or_else(|| Error::unsupported("this memory of the GPU was not made to be lent"))?;
        // Before the descriptor is there: it may be duplicated at once.
        self.exported.store(true, Ordering::Release);
        let _current = self.device.enter()?;
        // SAFETY: the handle is the block's, live as long as it.
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
            // After a reset other memory may have the address.
            if (plain.get(&block.address)).is_some_and(|known| Arc::ptr_eq(known, &self.exported)) {
                plain.remove(&block.address);
            }
        }
        // Memory to be lent is seen whole by who is lent a part: nobody gets it with what another
        // left.
        let gone = if self.exported.load(Ordering::Acquire) || block.is_exportable() {
            vec![block]
        } else {
            self.device.kept.lock().device.give(block)
        };
        self.device.free(gone, Block::free);
    }
}

/// A descriptor of an allocation.
///
/// # Safety
///
/// `handle` is a live allocation of the driver's.
pub(super) unsafe fn export_fd(
    device: &Device,
    handle: CUmemGenericAllocationHandle,
) -> Result<OwnedFd, Failure> {
    let mut fd: std::ffi::c_int = -1;
    let target: *mut c_void = (&raw mut fd).cast();
    // SAFETY: of this kind of handle the driver writes an int; the caller promises the allocation.
    unsafe {
        device
            .driver()
            .cuMemExportToShareableHandle(target, handle, POSIX_FD, 0)
    }?;
    // SAFETY: the call succeeded, so `fd` is a new descriptor, which the caller of it owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

impl Device {
    /// Gives blocks back to the driver, later.
    pub(super) fn free<B: KeepFor>(
        self: &Arc<Self>,
        blocks: Vec<B>,
        free: fn(B, &Self) -> Result<()>,
    ) {
        for block in blocks {
            later::free(self, B::WHAT, move |device| free(block, device));
        }
    }

    /// Gives the memory that is kept for later back to the driver, and waits until it has that and
    /// whatever else was given up before. For threads that may wait for the device.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    pub fn trim(self: &Arc<Self>) -> Result<()> {
        drop(self.enter()?);
        // What waits for work of ours is kept for later next.
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
