//! Device memory of other processes, mapped until its last user is gone.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemGenericAllocationHandle};

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::failure::code;
use crate::device::cuda::functions::HANDLE_BYTES;
use crate::device::cuda::functions::IpcHandle;
use crate::device::cuda::later;
use crate::device::cuda::memory::{POSIX_FD, map, unmap};
use crate::device::cuda::once::Once;
use crate::device::cuda::pointer::Pointer;
use crate::device::cuda::stream::log_drop_error;
use crate::error::{Error, Result};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag of the call.
const LAZY_PEER_ACCESS: u32 = 1;

/// An allocation of another process, which the device accesses at [`address`](Self::address). It is
/// closed at some time after the drop ([`later`]): the owner of enqueued work holds the mapping
/// until the work is done.
///
/// The other process should not write to lent memory, but it can. So no reader may read a value
/// twice.
#[derive(Debug)]
pub struct ImportedMemory {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    kind: ImportKind,
}

#[derive(Debug)]
enum ImportKind {
    /// The driver opens a handle only once in each process.
    Legacy([u8; HANDLE_BYTES]),
    Fd(CUmemGenericAllocationHandle),
}

/// The key of memory that a process may open only once: the id of a context, because a device has
/// another context after a reset, and a legacy handle.
type ImportKey = (u64, [u8; HANDLE_BYTES]);

/// The open memory of this process.
static OPEN: Once<ImportKey, ImportedMemory> = Once::new();

impl ImportedMemory {
    /// Opens the allocation of another process by a legacy handle. The other process announced
    /// `len` bytes. Returns the existing mapping if the allocation is already open.
    ///
    /// # Errors
    ///
    /// `InvalidData` if the driver does not know the handle: the memory was freed, or its process
    /// is gone or is this process. `Protocol` if the allocation is shorter than `len`. Also the
    /// driver's errors.
    pub fn open(
        device: &Arc<Device>,
        handle: &[u8; HANDLE_BYTES],
        len: usize,
    ) -> Result<Arc<Self>> {
        let key = (device.id, *handle);
        let mapping = OPEN.get(&key, || Self::open_now(device, handle, len))?;
        mapping.ensure(len)?;
        Ok(mapping)
    }

    fn open_now(device: &Arc<Device>, handle: &[u8; HANDLE_BYTES], len: usize) -> Result<Self> {
        let _current = device.enter()?;
        let driver = device.driver;
        let mut address = 0;
        let raw = IpcHandle(*handle);
        // SAFETY: `address` is writable; the driver checks the handle.
        unsafe { driver.cuIpcOpenMemHandle_v2(&raw mut address, raw, LAZY_PEER_ACCESS) }
            .map_err(|failure| failure.to_open("memory", device.ordinal()))?;
        let len = size_at(device, address, len).inspect_err(|_| {
            // SAFETY: opened above, and nobody has used the memory.
            let outcome = unsafe { driver.cuIpcCloseMemHandle(address) };
            log_drop_error(outcome, "a peer's memory");
        })?;
        Ok(Self {
            device: Arc::clone(device),
            address,
            len,
            kind: ImportKind::Legacy(*handle),
        })
    }

    /// Maps a whole allocation by a descriptor that another process exported. The other process
    /// announced `len` bytes. Each call makes a new mapping; `fd` may close afterwards.
    ///
    /// # Errors
    ///
    /// `Protocol` if the descriptor is not of GPU memory, or `len` is not its length;
    /// `OutOfMemory`; the driver's errors.
    pub fn map(device: &Arc<Device>, fd: &OwnedFd, len: usize) -> Result<Arc<Self>> {
        let _current = device.enter()?;
        let driver = device.driver;
        let mut handle = 0;
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        // The driver takes the descriptor's number in place of a pointer.
        let shareable = std::ptr::without_provenance_mut(number);
        let refused = |failure: super::Failure| {
            let error = Error::from(failure);
            let of_the_peer = match failure.call {
                "cuMemImportFromShareableHandle" => failure.is_of_a_handle(),
                // A driver may report a length beyond the allocation as not supported.
                "cuMemMap" => failure.is_of_a_handle() || failure.code == code::NOT_SUPPORTED,
                "cuMemAddressReserve" => failure.code == code::INVALID_VALUE,
                _ => false,
            };
            if !of_the_peer {
                return error;
            }
            Error::protocol(format!(
                "the peer's descriptor is no memory of GPU {} with {len} bytes: {error}",
                device.ordinal()
            ))
        };
        // SAFETY: `handle` is writable; the driver checks the descriptor, which is open.
        unsafe { driver.cuMemImportFromShareableHandle(&raw mut handle, shareable, POSIX_FD) }
            .map_err(refused)?;
        let mapped = map(device, handle, len).map_err(|failure| {
            // SAFETY: the handle was imported above, and no mapping uses it.
            let outcome = unsafe { driver.cuMemRelease(handle) };
            log_drop_error(outcome, "a peer's memory");
            refused(failure)
        });
        Ok(Arc::new(Self {
            device: Arc::clone(device),
            address: mapped?,
            len,
            kind: ImportKind::Fd(handle),
        }))
    }

    fn ensure(&self, len: usize) -> Result<()> {
        if len <= self.len {
            return Ok(());
        }
        Err(Error::protocol(format!(
            "the peer said that its memory has {len} bytes, and it has {}",
            self.len
        )))
    }

    /// Calls `close` on a thread that may wait, and then permits others to open `key`.
    fn close_later(
        &self,
        key: ImportKey,
        close: impl FnOnce(&Driver) -> Result<()> + Send + 'static,
    ) {
        let device = Arc::clone(&self.device);
        later::run(move || {
            let outcome = device
                .enter_to_drop()
                .and_then(|_current| close(device.driver));
            log_drop_error(outcome, "a peer's memory");
            OPEN.closed(&key);
        });
    }

    /// The device address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length of the allocation in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The device address of `len` bytes at `offset`, if all of them lie in the allocation.
    pub fn slice(&self, offset: u64, len: usize) -> Option<u64> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.len).then(|| self.address + offset)
    }
}

impl Drop for ImportedMemory {
    fn drop(&mut self) {
        if Driver::get().is_err() {
            // A forked child, where locks may be held for ever.
            return;
        }
        let (address, len) = (self.address, self.len);
        match &self.kind {
            ImportKind::Legacy(handle) => {
                let key = (self.device.id, *handle);
                self.close_later(key, move |driver| {
                    // SAFETY: the mapping opened the handle, and its users are done.
                    Ok(unsafe { driver.cuIpcCloseMemHandle(address) }?)
                });
            }
            ImportKind::Fd(handle) => {
                let handle = *handle;
                later::free(&self.device, "a peer's memory", move |device| {
                    // SAFETY: the mapping mapped the memory, and its users are done.
                    let unmapped = unsafe { unmap(device, address, len) };
                    // SAFETY: the mapping imported the handle, and only this call releases it.
                    let released = unsafe { device.driver.cuMemRelease(handle) };
                    Ok(unmapped.and(released)?)
                });
            }
        }
    }
}

/// The bytes of opened memory from `address` on, as the driver knows them; `said` if the driver
/// does not know. The handle may be of a part of a larger allocation.
fn size_at(device: &Device, address: CUdeviceptr, said: usize) -> Result<usize> {
    let Some(pointer) = Pointer::at(device, address)? else {
        return Ok(said);
    };
    if pointer.ordinal != device.ordinal() {
        return Err(Error::protocol(format!(
            "the peer said that its memory is GPU {}'s, and it is GPU {}'s",
            device.ordinal(),
            pointer.ordinal
        )));
    }
    let end = pointer.base.saturating_add(pointer.size as u64);
    Ok(usize::try_from(end.saturating_sub(address)).unwrap_or(0))
}
