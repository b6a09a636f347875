//! Device memory of other processes, mapped here until the last user is gone.

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{CUdeviceptr, CUipcMemHandle, CUmemGenericAllocationHandle};
use parking_lot::{Condvar, Mutex};

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::event::HANDLE_BYTES;
use crate::device::cuda::memory::{POSIX_FD, map, unmap};
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag that there is.
const LAZY_PEER_ACCESS: u32 = 1;

/// An allocation of another process, which the device reads at [`address`](Self::address). It is
/// closed when this is dropped, so no work may use it any more then: whoever enqueued work holds
/// the mapping until it is done.
///
/// The other process should not write to what it lent, and may; whoever reads checks nothing twice.
pub struct Mapping {
    device: Arc<Device>,
    address: CUdeviceptr,
    len: usize,
    kind: Kind,
}

enum Kind {
    /// The driver has one opening of a handle for each process.
    Legacy([u8; HANDLE_BYTES]),
    Fd(CUmemGenericAllocationHandle),
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Mapping({:?}, {:#x}, {})",
            self.device, self.address, self.len
        )
    }
}

/// A legacy handle that is open: where, or `None` while it is being opened or closed.
struct Open {
    device: i32,
    handle: [u8; HANDLE_BYTES],
    mapping: Option<Weak<Mapping>>,
}

/// The legacy handles that are open in this process. The lock is never held during a call of the
/// driver, which may wait for the device.
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());
static CHANGED: Condvar = Condvar::new();

impl Mapping {
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
        let ordinal = device.ordinal();
        let same = |open: &Open| open.device == ordinal && open.handle == *handle;
        let mut open = OPEN.lock();
        loop {
            let found = open.iter().find(|open| same(open));
            match found.map(|open| open.mapping.as_ref().and_then(Weak::upgrade)) {
                None => break,
                Some(Some(mapping)) => {
                    // Before anything else: dropping a mapping takes the lock.
                    drop(open);
                    mapping.ensure(len)?;
                    return Ok(mapping);
                }
                // Another thread opens it, or closes it since its last user is gone.
                Some(None) => CHANGED.wait(&mut open),
            }
        }
        open.push(Open {
            device: ordinal,
            handle: *handle,
            mapping: None,
        });
        drop(open);
        let opened = Self::open_now(device, handle, len).map(Arc::new);
        let mut open = OPEN.lock();
        match &opened {
            Ok(mapping) => {
                if let Some(entry) = open.iter_mut().find(|open| same(open)) {
                    entry.mapping = Some(Arc::downgrade(mapping));
                }
            }
            Err(_) => open.retain(|open| !same(open)),
        }
        CHANGED.notify_all();
        drop(open);
        // After the lock: dropping it takes the lock.
        let opened = opened?;
        opened.ensure(len)?;
        Ok(opened)
    }

    fn open_now(device: &Arc<Device>, handle: &[u8; HANDLE_BYTES], len: usize) -> Result<Self> {
        let _current = device.enter()?;
        let driver = device.driver();
        let mut address = 0;
        let raw = CUipcMemHandle {
            reserved: handle.map(u8::cast_signed),
        };
        // SAFETY: `address` is writable; the driver checks the handle.
        unsafe { driver.cuIpcOpenMemHandle_v2(&raw mut address, raw, LAZY_PEER_ACCESS) }?;
        let close = |error: Error| {
            // SAFETY: opened above, and nobody has used it.
            let gone = unsafe { driver.cuIpcCloseMemHandle(address) };
            left(gone.map_err(Error::from), "a peer's memory");
            error
        };
        // The peer's word for its length is not taken.
        let found = super::pointer::Pointer::at(device, address).map_err(close)?;
        // The handle may be of a part of what the driver allocated at once.
        let size = found.map_or(len, |pointer| {
            let end = pointer.base.saturating_add(pointer.size as u64);
            usize::try_from(end.saturating_sub(address)).unwrap_or(0)
        });
        Ok(Self {
            device: Arc::clone(device),
            address,
            len: size,
            kind: Kind::Legacy(*handle),
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
            match (failure.call, failure.code) {
                // What the driver says of descriptors and lengths that are not its own.
                ("cuMemImportFromShareableHandle" | "cuMemMap", 1 | 304 | 400 | 999)
                | ("cuMemAddressReserve", 1) => Error::protocol(format!(
                    "what the peer sent is no memory of GPU {} with {len} bytes: {error}",
                    device.ordinal()
                )),
                _ => error,
            }
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
            kind: Kind::Fd(handle),
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

impl Drop for Mapping {
    fn drop(&mut self) {
        if Driver::get().is_err() {
            // A forked child, where locks may be held for ever.
            return;
        }
        let gone = self.device.enter_to_drop().and_then(|_current| {
            let driver = self.device.driver();
            match self.kind {
                // SAFETY: opened by this mapping, whose users are done with it.
                Kind::Legacy(_) => Ok(unsafe { driver.cuIpcCloseMemHandle(self.address) }?),
                Kind::Fd(handle) => {
                    // SAFETY: mapped by this mapping, whose users are done with it.
                    let unmapped = unsafe { unmap(&self.device, self.address, self.len) };
                    // SAFETY: imported by this mapping, and released only here.
                    let released = unsafe { driver.cuMemRelease(handle) };
                    Ok(unmapped.and(released)?)
                }
            }
        });
        left(gone, "a peer's memory");
        if let Kind::Legacy(handle) = self.kind {
            let ordinal = self.device.ordinal();
            OPEN.lock()
                .retain(|open| open.device != ordinal || open.handle != handle);
            CHANGED.notify_all();
        }
    }
}
