//! Device memory for other processes: what they open or map it by.
//!
//! The handle is always one of a whole allocation: who has it reaches every byte of that, whatever
//! was meant to be lent.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cudarc::driver::sys::{CUipcMemHandle, CUmemGenericAllocationHandle};

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::{Failure, code};
use crate::device::cuda::event::HANDLE_BYTES;
use crate::device::cuda::later;
use crate::device::cuda::memory::{self, export_fd};
use crate::device::cuda::pointer::Pointer;
use crate::device::cuda::pool::Share;
use crate::error::{Error, Result};

/// An allocation as another process can get it.
#[derive(Debug)]
pub struct ExportedAllocation {
    /// Its first byte, in this process.
    pub base: u64,
    /// Its bytes.
    pub size: usize,
    /// What leads to it.
    pub handle: ExportHandle,
}

/// What leads to an allocation of another process.
#[derive(Debug)]
pub enum ExportHandle {
    /// Of memory of `cuMemAlloc`. The exporter must not free it while it is open anywhere, and its
    /// pages are gone when the exporter dies.
    Legacy([u8; HANDLE_BYTES]),
    /// Of memory made to be exported. It keeps the pages alive by itself, and goes from process to
    /// process over a Unix socket.
    Fd(OwnedFd),
    /// Of memory of a pool made to be exported, to who has the pool. The exporter must not free it
    /// before every importer has freed it there, and holds the share as long.
    Pooled(Arc<Share>),
}

impl ExportedAllocation {
    /// The allocation of `device` in which `len` bytes at `address` lie, `None` where there is no
    /// way to give it to another process: it must be copied.
    ///
    /// The memory must not be freed before every importer is done with it.
    ///
    /// # Errors
    ///
    /// `InvalidData` where that is no memory of the device; what the driver says.
    pub fn of(device: &Arc<Device>, address: u64, len: usize) -> Result<Option<Self>> {
        let Some(allocation) = Allocation::of(device, address, len)? else {
            return Ok(None);
        };
        let handle = allocation.export()?;
        Ok(handle.map(|handle| Self {
            base: allocation.base,
            size: allocation.size,
            handle,
        }))
    }
}

/// An allocation of a device that may be lent again and again: it can be told from another one that
/// has the same addresses later.
#[derive(Debug)]
pub struct Allocation {
    device: Arc<Device>,
    base: u64,
    size: usize,
    way: ExportKind,
}

/// How an allocation can be given to another process.
#[derive(Debug)]
enum ExportKind {
    /// Not at all.
    None,
    Legacy,
    /// The driver's handle, which is this allocation's as long as it is held.
    Fd(CUmemGenericAllocationHandle),
    /// The share is this allocation's as long as it is held.
    Pooled(Arc<Share>),
}

/// The name of an allocation: no other one has it while a value of [`Allocation`] with it lives. Of
/// legacy memory that is so only while its owner does not free it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllocationId {
    context: u64,
    base: u64,
    size: usize,
    /// The driver's handle, or the address of the share.
    handle: u64,
}

impl Allocation {
    /// The allocation of `device` in which `len` bytes at `address` lie; `None` where they do not
    /// lie in a single one.
    ///
    /// # Errors
    ///
    /// As [`ExportedAllocation::of`].
    pub fn of(device: &Arc<Device>, address: u64, len: usize) -> Result<Option<Self>> {
        let _current = device.enter()?;
        let Some(pointer) = allocation_at(device, address, len)? else {
            return Ok(None);
        };
        let Pointer { base, size, .. } = pointer;
        let way = if pointer.pool != 0 {
            // The default pool is none to be exported, and says so here.
            let pool = usize::try_from(pointer.pool).unwrap_or(0);
            let exportable = pointer.posix_fd.then(|| Share::of(device, pool, base));
            exportable
                .transpose()?
                .flatten()
                .map_or(ExportKind::None, ExportKind::Pooled)
        } else {
            let retained = pointer.posix_fd.then(|| retain(device, base));
            match retained.transpose()?.flatten() {
                Some(handle) => ExportKind::Fd(handle),
                None if pointer.legacy_ipc => ExportKind::Legacy,
                None => ExportKind::None,
            }
        };
        Ok(Some(Self {
            device: Arc::clone(device),
            base,
            size,
            way,
        }))
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where `len` bytes at `address` lie in it, if they lie in it whole.
    pub fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        let offset = address.checked_sub(self.base)?;
        let end = usize::try_from(offset).ok()?.checked_add(len)?;
        (end <= self.size).then_some(offset)
    }

    /// Whether it must not be freed while another process has it open: its pages do not go on
    /// living by themselves.
    pub fn must_outlive_importers(&self) -> bool {
        matches!(self.way, ExportKind::Legacy | ExportKind::Pooled(_))
    }

    /// Of memory of a pool: what others are told of it by, which is to be held as long as they may
    /// have it open.
    pub fn share(&self) -> Option<&Arc<Share>> {
        match &self.way {
            ExportKind::Pooled(share) => Some(share),
            _ => None,
        }
    }

    /// Its name.
    pub fn id(&self) -> AllocationId {
        AllocationId {
            context: self.device.id(),
            base: self.base,
            size: self.size,
            handle: match &self.way {
                ExportKind::None | ExportKind::Legacy => 0,
                ExportKind::Fd(handle) => *handle,
                ExportKind::Pooled(share) => Arc::as_ptr(share) as u64,
            },
        }
    }

    /// What leads another process to it, `None` where nothing does.
    ///
    /// # Errors
    ///
    /// What the driver says; as [`Device::enter`].
    pub fn export(&self) -> Result<Option<ExportHandle>> {
        let _current = self.device.enter()?;
        match &self.way {
            ExportKind::None => Ok(None),
            ExportKind::Pooled(share) => Ok(Some(ExportHandle::Pooled(Arc::clone(share)))),
            ExportKind::Legacy => Ok(legacy_of(&self.device, self.base)?.map(ExportHandle::Legacy)),
            ExportKind::Fd(handle) => {
                // SAFETY: this holds the handle.
                let fd = unsafe { export_fd(&self.device, *handle) };
                Ok(unless_not_possible(fd)?.map(ExportHandle::Fd))
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let ExportKind::Fd(handle) = self.way {
            // Where its owner has freed it, it goes with this handle.
            later::free(&self.device, "a handle of a GPU's memory", move |device| {
                // SAFETY: `of` retained the handle, which is given back once.
                Ok(unsafe { device.driver().cuMemRelease(handle) }?)
            });
        }
    }
}

/// The allocation in which the bytes lie, as a pointer to it. Under the device's context.
fn allocation_at(device: &Device, address: u64, len: usize) -> Result<Option<Pointer>> {
    let pointer = Pointer::on_device(device, address, len)?;
    // Nothing says that what other contexts have can be exported from this one.
    if pointer.foreign_context {
        return Ok(None);
    }
    let (mut base, mut size) = (0, 0);
    // SAFETY: both are writable; the address is looked up, not looked at.
    let ranged = unsafe {
        device
            .driver()
            .cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address)
    };
    let Some(()) = unless_not_possible(ranged)? else {
        return Ok(None);
    };
    // Addresses that were reserved together may have several allocations behind them.
    let allocation = Pointer {
        base,
        size,
        ..pointer
    };
    Ok(allocation.contains(address, len).then_some(allocation))
}

/// `None` where the driver says that memory of this kind has no such thing, as that of the default
/// pool.
pub(super) fn unless_not_possible<T>(outcome: Result<T, Failure>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        // Invalid value, invalid handle, not supported.
        Err(Failure {
            code: code::INVALID_VALUE | 400 | 801,
            ..
        }) => Ok(None),
        Err(failure) => Err(failure.into()),
    }
}

/// The handle behind an address, to be [released](release). Under the device's context.
fn retain(device: &Device, base: u64) -> Result<Option<CUmemGenericAllocationHandle>> {
    let driver = device.driver();
    let mut handle = 0;
    let place = std::ptr::without_provenance_mut(
        usize::try_from(base).map_err(|_| Error::invalid_data("no such address"))?,
    );
    // SAFETY: `handle` is writable; the address is looked up, not looked at.
    let retained = unsafe { driver.cuMemRetainAllocationHandle(&raw mut handle, place) };
    Ok(unless_not_possible(retained)?.map(|()| handle))
}

/// Under the device's context.
fn legacy_of(device: &Device, base: u64) -> Result<Option<[u8; HANDLE_BYTES]>> {
    let mut handle = CUipcMemHandle {
        reserved: [0; HANDLE_BYTES],
    };
    // SAFETY: `handle` is writable; the address is looked up, not looked at.
    let made = unsafe { device.driver().cuIpcGetMemHandle(&raw mut handle, base) };
    memory::note_exported(base);
    Ok(unless_not_possible(made)?.map(|()| handle.reserved.map(i8::cast_unsigned)))
}
