//! Device memory for other processes: what they open or map it by.
//!
//! The handle is always one of a whole allocation: who has it reaches every byte of that, whatever
//! was meant to be lent.

use std::os::fd::OwnedFd;

use cudarc::driver::sys::CUipcMemHandle;

use crate::device::cuda::context::Device;
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
        let handle = if pointer.posix_fd {
            Handle::Fd(fd_of(device, pointer.base)?)
        } else if pointer.legacy_ipc {
            Handle::Legacy(legacy_of(device, pointer.base)?)
        } else {
            return Ok(None);
        };
        Ok(Some(Self {
            base: pointer.base,
            size: pointer.size,
            handle,
        }))
    }
}

fn fd_of(device: &Device, base: u64) -> Result<OwnedFd> {
    let _current = device.enter()?;
    let driver = device.driver();
    let mut handle = 0;
    let place = std::ptr::without_provenance_mut(
        usize::try_from(base).map_err(|_| Error::invalid_data("no such address"))?,
    );
    // SAFETY: `handle` is writable; the address is looked up, not looked at.
    unsafe { driver.cuMemRetainAllocationHandle(&raw mut handle, place) }?;
    // SAFETY: the handle was retained above.
    let fd = unsafe { export_fd(device, handle) };
    // SAFETY: what was retained above is given back once; the descriptor stands by itself.
    let gone = unsafe { driver.cuMemRelease(handle) };
    left(gone.map_err(Error::from), "a handle of a GPU's memory");
    Ok(fd?)
}

fn legacy_of(device: &Device, base: u64) -> Result<[u8; HANDLE_BYTES]> {
    let _current = device.enter()?;
    let mut handle = CUipcMemHandle {
        reserved: [0; HANDLE_BYTES],
    };
    // SAFETY: `handle` is writable; the address is looked up, not looked at.
    unsafe { device.driver().cuIpcGetMemHandle(&raw mut handle, base) }?;
    Ok(handle.reserved.map(i8::cast_unsigned))
}
