//! Device memory for other processes: what they open or map it by.
//!
//! The handle is always one of a whole allocation: who has it reaches every byte of that, whatever
//! was meant to be lent.

use std::os::fd::OwnedFd;

use cudarc::driver::sys::CUipcMemHandle;

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::{Failure, code};
use crate::device::cuda::event::HANDLE_BYTES;
use crate::device::cuda::memory::export_fd;
use crate::device::cuda::pointer::Pointer;
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// An allocation as another process can get it.
#[derive(Debug)]
pub struct Exported {
    /// Its first byte, in this process.
    pub base: u64,
    /// Its bytes.
    pub size: usize,
    /// What leads to it.
    pub handle: Handle,
}

/// What leads to an allocation of another process.
#[derive(Debug)]
pub enum Handle {
    /// Of memory of `cuMemAlloc`. The exporter must not free it while it is open anywhere, and its
    /// pages are gone when the exporter dies.
    Legacy([u8; HANDLE_BYTES]),
    /// Of memory made to be exported. It keeps the pages alive by itself, and goes from process to
    /// process over a Unix socket.
    Fd(OwnedFd),
}

impl Exported {
    /// The allocation of `device` in which `len` bytes at `address` lie, `None` where there is no
    /// way to give it to another process: it must be copied.
    ///
    /// The memory must not be freed before every importer is done with it.
    ///
    /// # Errors
    ///
    /// `InvalidData` where that is no memory of the device; what the driver says.
    pub fn of(device: &Device, address: u64, len: usize) -> Result<Option<Self>> {
        let pointer = Pointer::on_device(device, address, len)?;
        let _current = device.enter()?;
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
        if !allocation.contains(address, len) {
            return Ok(None);
        }
        let mut handle = None;
        if pointer.posix_fd {
            handle = fd_of(device, base)?.map(Handle::Fd);
        }
        if handle.is_none() && pointer.legacy_ipc {
            handle = legacy_of(device, base)?.map(Handle::Legacy);
        }
        Ok(handle.map(|handle| Self { base, size, handle }))
    }
}

/// `None` where the driver says that memory of this kind has no such thing, as that of pools.
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

/// Under the device's context.
fn fd_of(device: &Device, base: u64) -> Result<Option<OwnedFd>> {
    let driver = device.driver();
    let mut handle = 0;
    let place = std::ptr::without_provenance_mut(
        usize::try_from(base).map_err(|_| Error::invalid_data("no such address"))?,
    );
    // SAFETY: `handle` is writable; the address is looked up, not looked at.
    let retained = unsafe { driver.cuMemRetainAllocationHandle(&raw mut handle, place) };
    let Some(()) = unless_not_possible(retained)? else {
        return Ok(None);
    };
    // SAFETY: the handle was retained above.
    let fd = unsafe { export_fd(device, handle) };
    // SAFETY: what was retained above is given back once; the descriptor stands by itself.
    let gone = unsafe { driver.cuMemRelease(handle) };
    left(gone.map_err(Error::from), "a handle of a GPU's memory");
    unless_not_possible(fd)
}

/// Under the device's context.
fn legacy_of(device: &Device, base: u64) -> Result<Option<[u8; HANDLE_BYTES]>> {
    let mut handle = CUipcMemHandle {
        reserved: [0; HANDLE_BYTES],
    };
    // SAFETY: `handle` is writable; the address is looked up, not looked at.
    let made = unsafe { device.driver().cuIpcGetMemHandle(&raw mut handle, base) };
    Ok(unless_not_possible(made)?.map(|()| handle.reserved.map(i8::cast_unsigned)))
}
