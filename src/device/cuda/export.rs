//! Device memory for other processes: the handles that they open or map.
//!
//! A handle is always of a whole allocation. Its holder can access every byte of the allocation,
//! even if a part was lent.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cudarc::driver::sys::CUmemGenericAllocationHandle;

use crate::device::cuda::context::Device;
use crate::device::cuda::failure::{Failure, code};
use crate::device::cuda::functions::HANDLE_BYTES;
use crate::device::cuda::functions::IpcHandle;
use crate::device::cuda::later;
use crate::device::cuda::memory::{self, export_fd};
use crate::device::cuda::pointer::Pointer;
use crate::device::offset_within;
use crate::error::{Error, Result};

/// The handle of an allocation for another process.
#[derive(Debug)]
pub enum ExportHandle {
    /// For memory of `cuMemAlloc`. The exporter must not free the memory while any process has it
    /// open. The end of the exporter frees the memory.
    Legacy([u8; HANDLE_BYTES]),
    /// For memory that was made for export. The descriptor keeps the memory alive, and goes to
    /// other processes over a Unix socket.
    Fd(OwnedFd),
}

/// An allocation of a device that may be lent many times. [`AllocationId`] tells it from a later
/// allocation at the same addresses.
#[derive(Debug)]
pub struct Allocation {
    pub(crate) device: Arc<Device>,
    /// The address of the first byte in this process.
    pub base: u64,
    /// In bytes.
    pub size: usize,
    kind: ExportKind,
}

/// The kind of export of an allocation.
#[derive(Debug)]
enum ExportKind {
    /// Not exportable.
    None,
    Legacy,
    /// The driver's handle. While it is held, it identifies this allocation.
    Fd(CUmemGenericAllocationHandle),
}

/// The identity of an allocation, unique while an [`Allocation`] with it lives. For legacy memory
/// it is unique only until the owner frees the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AllocationId {
    context: u64,
    base: u64,
    size: usize,
    /// The driver's handle, or 0.
    handle: u64,
}

impl Allocation {
    /// The allocation of `device` that contains `len` bytes at `address`; `None` if no single
    /// allocation does.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the address is not memory of the device; the driver's error.
    pub fn of(device: &Arc<Device>, address: u64, len: usize) -> Result<Option<Self>> {
        let _current = device.enter()?;
        let Some(pointer) = allocation_at(device, address, len)? else {
            return Ok(None);
        };
        let Pointer { base, size, .. } = pointer;
        // Memory of a pool is not exported: it would take the pool as well.
        let is_vmm = pointer.posix_fd && pointer.pool == 0;
        let retained = is_vmm.then(|| retain(device, base));
        let kind = match retained.transpose()?.flatten() {
            Some(handle) => ExportKind::Fd(handle),
            None if pointer.legacy_ipc && pointer.pool == 0 => ExportKind::Legacy,
            None => ExportKind::None,
        };
        Ok(Some(Self {
            device: Arc::clone(device),
            base,
            size,
            kind,
        }))
    }

    /// The offset of `len` bytes at `address`, if all of them lie in the allocation.
    pub fn offset_of(&self, address: u64, len: usize) -> Option<u64> {
        offset_within((self.base, self.size), address, len)
    }

    /// True if the memory must not be freed while another process has it open, because the handle
    /// does not keep it alive.
    pub fn must_outlive_importers(&self) -> bool {
        matches!(self.kind, ExportKind::Legacy)
    }

    /// The identity.
    pub fn id(&self) -> AllocationId {
        AllocationId {
            context: self.device.id,
            base: self.base,
            size: self.size,
            handle: match &self.kind {
                ExportKind::None | ExportKind::Legacy => 0,
                ExportKind::Fd(handle) => *handle,
            },
        }
    }

    /// The handle for another process; `None` if the memory cannot be exported and must be copied.
    /// The memory must not be freed before every importer is done with it.
    ///
    /// # Errors
    ///
    /// The driver's error; as [`Device::enter`].
    pub fn export(&self) -> Result<Option<ExportHandle>> {
        let _current = self.device.enter()?;
        match &self.kind {
            ExportKind::None => Ok(None),
            ExportKind::Legacy => Ok(legacy_of(&self.device, self.base)?.map(ExportHandle::Legacy)),
            ExportKind::Fd(handle) => {
                // SAFETY: this value holds the handle.
                let fd = unsafe { export_fd(&self.device, *handle) };
                Ok(unless_not_possible(fd)?.map(ExportHandle::Fd))
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let ExportKind::Fd(handle) = self.kind {
            // If the owner has freed the memory, the release of the handle frees its pages.
            later::free(&self.device, "a handle of a GPU's memory", move |device| {
                // SAFETY: `of` retained the handle, and only this call releases it.
                Ok(unsafe { device.driver.cuMemRelease(handle) }?)
            });
        }
    }
}

/// A pointer to the allocation that contains the bytes. The caller has entered the device.
fn allocation_at(device: &Device, address: u64, len: usize) -> Result<Option<Pointer>> {
    let pointer = Pointer::on_device(device, address, len)?;
    // Memory of another context may not be exportable from this context.
    if pointer.foreign_context {
        return Ok(None);
    }
    let (mut base, mut size) = (0, 0);
    // SAFETY: both variables are writable; the driver looks the address up and does not access it.
    let ranged = unsafe {
        device
            .driver
            .cuMemGetAddressRange_v2(&raw mut base, &raw mut size, address)
    };
    let Some(()) = unless_not_possible(ranged)? else {
        return Ok(None);
    };
    // Addresses that were reserved together may have several allocations.
    let allocation = Pointer {
        base,
        size,
        ..pointer
    };
    Ok(allocation.contains(address, len).then_some(allocation))
}

/// Turns "not possible for this kind of memory", for example of the default pool, into `None`.
fn unless_not_possible<T>(outcome: Result<T, Failure>) -> Result<Option<T>> {
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

/// The handle of the allocation at an address, for one release. The caller has entered the device.
fn retain(device: &Device, base: u64) -> Result<Option<CUmemGenericAllocationHandle>> {
    let driver = device.driver;
    let mut handle = 0;
    let place = std::ptr::without_provenance_mut(
        usize::try_from(base).map_err(|_| Error::invalid_data("no such address"))?,
    );
    // SAFETY: `handle` is writable; the driver looks the address up and does not access it.
    let retained = unsafe { driver.cuMemRetainAllocationHandle(&raw mut handle, place) };
    Ok(unless_not_possible(retained)?.map(|()| handle))
}

/// The handle of memory of `cuMemAlloc`. The caller has entered the device.
fn legacy_of(device: &Device, base: u64) -> Result<Option<[u8; HANDLE_BYTES]>> {
    let mut handle = IpcHandle([0; HANDLE_BYTES]);
    // SAFETY: `handle` is writable; the driver looks the address up and does not access it.
    let made = unsafe { device.driver.cuIpcGetMemHandle(&raw mut handle, base) };
    memory::note_exported(base);
    Ok(unless_not_possible(made)?.map(|()| handle.0))
}
