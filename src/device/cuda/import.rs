//! Device memory of other processes, mapped here until the last user is gone.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUipcMemHandle, CUmemGenericAllocationHandle};

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::{Driver, code};
use crate::device::cuda::event::HANDLE_BYTES;
use crate::device::cuda::later;
use crate::device::cuda::memory::{POSIX_FD, map, unmap};
use crate::device::cuda::once::Once;
use crate::device::cuda::pointer::Pointer;
use crate::device::cuda::pool::{ImportedPool, SHARE_BYTES};
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag that there is.
const LAZY_PEER_ACCESS: u32 = 1;

/// An allocation of another process, which the device reads at [`address`](Self::address). It is
/// closed some time after this is dropped ([`later`]), so no work may use it any more then: whoever
/// enqueued work holds the mapping until it is done.
///
/// The other process should not write to what it lent, and may; whoever reads checks nothing twice.
pub struct ImportedMemory {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    kind: ImportKind,
}

enum ImportKind {
    /// The driver has one opening of a handle for each process.
    Legacy([u8; HANDLE_BYTES]),
    Fd(CUmemGenericAllocationHandle),
    /// Nor does it count how often memory of a pool was imported.
    Pooled(Arc<ImportedPool>, [u8; SHARE_BYTES]),
}

impl fmt::Debug for ImportedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ImportedMemory({:?}, {:#x}, {})",
            self.device, self.address, self.len
        )
    }
}

/// What opens memory that is open once in a process.
#[derive(Clone, PartialEq)]
enum ImportKey {
    /// In a context, by a legacy handle: after a reset a device has another one.
    Legacy(u64, [u8; HANDLE_BYTES]),
    /// From a pool, which lives as long as what was opened of it.
    Pooled(*const ImportedPool, [u8; SHARE_BYTES]),
}

// SAFETY: the pointer is only compared.
unsafe impl Send for ImportKey {}

/// What is open in this process.
static OPEN: Once<ImportKey, ImportedMemory> = Once::new();

impl ImportedMemory {
    /// Opens the allocation of another process behind a legacy handle, which the other says has
    /// `len` bytes. Opened already, it is shared.
    ///
    /// # Errors
    ///
    /// `InvalidData` where the driver does not know the handle: the memory was freed, the process
    /// is gone, or is this one. `Protocol` where the allocation is smaller than was said. What else
    /// the driver says.
    pub fn open(
        device: &Arc<Device>,
        handle: &[u8; HANDLE_BYTES],
        len: usize,
    ) -> Result<Arc<Self>> {
        let key = ImportKey::Legacy(device.id(), *handle);
        let mapping = OPEN.get(&key, || Self::open_now(device, handle, len))?;
        mapping.ensure(len)?;
        Ok(mapping)
    }

    /// Opens an allocation of another process's pool, which the other says has `len` bytes. Opened
    /// already, it is shared.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn of_pool(
        pool: &Arc<ImportedPool>,
        share: &[u8; SHARE_BYTES],
        len: usize,
    ) -> Result<Arc<Self>> {
        let key = ImportKey::Pooled(Arc::as_ptr(pool), *share);
        let mapping = OPEN.get(&key, || Self::open_of_pool(pool, share, len))?;
        mapping.ensure(len)?;
        Ok(mapping)
    }

    fn open_of_pool(
        pool: &Arc<ImportedPool>,
        share: &[u8; SHARE_BYTES],
        len: usize,
    ) -> Result<Self> {
        let device = pool.device();
        let _current = device.enter()?;
        let address = pool.open(share)?;
        let len = size_at(device, address, len).inspect_err(|_| {
            // SAFETY: opened above, and nobody has used it.
            let gone = unsafe { device.driver().cuMemFree_v2(address) };
            left(gone.map_err(Error::from), "a peer's memory");
        })?;
        Ok(Self {
            device: Arc::clone(device),
            address,
            len,
            kind: ImportKind::Pooled(Arc::clone(pool), *share),
        })
    }

    fn open_now(device: &Arc<Device>, handle: &[u8; HANDLE_BYTES], len: usize) -> Result<Self> {
        let _current = device.enter()?;
        let driver = device.driver();
        let mut address = 0;
        let raw = CUipcMemHandle {
            reserved: handle.map(u8::cast_signed),
        };
        // SAFETY: `address` is writable; the driver checks the handle.
        unsafe { driver.cuIpcOpenMemHandle_v2(&raw mut address, raw, LAZY_PEER_ACCESS) }
            .map_err(|failure| failure.to_open("memory", device.ordinal()))?;
        let len = size_at(device, address, len).inspect_err(|_| {
            // SAFETY: opened above, and nobody has used it.
            let gone = unsafe { driver.cuIpcCloseMemHandle(address) };
            left(gone.map_err(Error::from), "a peer's memory");
        })?;
        Ok(Self {
            device: Arc::clone(device),
            address,
            len,
            kind: ImportKind::Legacy(*handle),
        })
    }

    /// Maps all of the allocation behind a descriptor that another process exported, which the
    /// other says has `len` bytes. Each call makes a mapping of its own; `fd` is not needed
    /// afterwards.
    ///
    /// # Errors
    ///
    /// `Protocol` where the descriptor is none of a GPU's memory, or `len` is not its length;
    /// `OutOfMemory`; what else the driver says.
    pub fn map(device: &Arc<Device>, fd: &OwnedFd, len: usize) -> Result<Arc<Self>> {
        let _current = device.enter()?;
        let driver = device.driver();
        let mut handle = 0;
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        // The driver takes the number itself where a pointer is asked for.
        let shareable = std::ptr::without_provenance_mut(number);
        let refused = |failure: super::Failure| {
            let error = Error::from(failure);
            let of_the_peer = match failure.call {
                "cuMemImportFromShareableHandle" => failure.is_of_a_handle(),
                // A driver may call a length beyond the allocation not supported.
                "cuMemMap" => failure.is_of_a_handle() || failure.code == code::NOT_SUPPORTED,
                "cuMemAddressReserve" => failure.code == code::INVALID_VALUE,
                _ => false,
            };
            if !of_the_peer {
                return error;
            }
            Error::protocol(format!(
                "what the peer sent is no memory of GPU {} with {len} bytes: {error}",
                device.ordinal()
            ))
        };
        // SAFETY: `handle` is writable; the driver checks the descriptor, which is open.
        unsafe { driver.cuMemImportFromShareableHandle(&raw mut handle, shareable, POSIX_FD) }
            .map_err(refused)?;
        let mapped = map(device, handle, len).map_err(|failure| {
            // SAFETY: imported above, and nothing is mapped of it.
            let gone = unsafe { driver.cuMemRelease(handle) };
            left(gone.map_err(Error::from), "a peer's memory");
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

    /// Has `close` called where it may wait, and then lets others open `key` again.
    fn close_later(
        &self,
        key: ImportKey,
        close: impl FnOnce(&Driver) -> Result<()> + Send + 'static,
    ) {
        let device = Arc::clone(&self.device);
        later::run(move || {
            let gone = device
                .enter_to_drop()
                .and_then(|_current| close(device.driver()));
            left(gone, "a peer's memory");
            OPEN.closed(&key);
        });
    }

    /// Where the allocation begins, for the device.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Bytes of the allocation.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: there is no allocation without bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of `len` bytes at `offset`, if they lie in it whole.
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
                let key = ImportKey::Legacy(self.device.id(), *handle);
                self.close_later(key, move |driver| {
                    // SAFETY: opened by the mapping, whose users are done with it.
                    Ok(unsafe { driver.cuIpcCloseMemHandle(address) }?)
                });
            }
            ImportKind::Pooled(pool, share) => {
                let key = ImportKey::Pooled(Arc::as_ptr(pool), *share);
                let pool = Arc::clone(pool);
                self.close_later(key, move |driver| {
                    // SAFETY: as above; what is imported is freed as what was allocated is.
                    let freed = unsafe { driver.cuMemFree_v2(address) };
                    // Not before what came from it.
                    drop(pool);
                    Ok(freed?)
                });
            }
            ImportKind::Fd(handle) => {
                let handle = *handle;
                later::free(&self.device, "a peer's memory", move |device| {
                    // SAFETY: mapped by the mapping, whose users are done with it.
                    let unmapped = unsafe { unmap(device, address, len) };
                    // SAFETY: imported by the mapping, and released only here.
                    let released = unsafe { device.driver().cuMemRelease(handle) };
                    Ok(unmapped.and(released)?)
                });
            }
        }
    }
}

/// Bytes of opened memory from its first one on, where the driver knows them: the peer's word for
/// its length, `said`, is not taken. The handle may be of a part of what the driver allocated at
/// once.
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
