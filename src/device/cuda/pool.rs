//! Pools of stream-ordered memory (`cuMemAllocAsync`, `cuMemAllocFromPoolAsync`), between
//! processes.
//!
//! A process imports the pool of another by a file descriptor, and then single allocations of it by
//! 64 opaque bytes each. As with legacy handles, an allocation must not be freed before every
//! importer has freed what it imported; and the driver counts imports badly: of an allocation
//! imported twice in one process, the first that is freed takes the memory from both. So both a
//! pool and an allocation are imported once in a process, and everybody is told of an allocation by
//! the same bytes as long as anybody may have it open.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{
    CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemPoolPtrExportData, CUmemoryPool,
};
use parking_lot::Mutex;

use crate::device::cuda::context::Device;
use crate::device::cuda::driver::Driver;
use crate::device::cuda::later;
use crate::device::cuda::memory::POSIX_FD;
use crate::device::cuda::once::Once;
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// Bytes of what leads to an allocation of an imported pool.
pub const SHARE_BYTES: usize = 64;
/// Bytes of what tells pools of one process apart.
pub const POOL_ID_BYTES: usize = 16;

/// A pool of this process that others can import. It is this pool as long as an allocation of it
/// lives; the driver may give a later one the same handle.
pub struct ExportedPool {
    pool: usize,
    id: [u8; POOL_ID_BYTES],
    fd: Arc<OwnedFd>,
    /// Allocations that others may have open, by their first bytes.
    shares: Mutex<HashMap<CUdeviceptr, Weak<Share>>>,
}

impl fmt::Debug for ExportedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExportedPool({:#x})", self.pool)
    }
}

/// An allocation of a pool as others are told of it. It is held as long as the memory is, by
/// whoever keeps that for them: then it is this allocation that lies there, and no later one.
pub struct Share {
    pool: Arc<ExportedPool>,
    base: CUdeviceptr,
    bytes: [u8; SHARE_BYTES],
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({:#x} of {:?})", self.base, self.pool)
    }
}

/// The pools that were exported, by their contexts and handles: after a reset a handle is another
/// pool's.
static EXPORTED: Mutex<Vec<(ExportedKey, Weak<ExportedPool>)>> = Mutex::new(Vec::new());

/// The context, and the driver's handle of the pool there.
type ExportedKey = (u64, usize);

impl ExportedPool {
    /// The pool behind a handle; `None` where it was not made to be exported. Under the device's
    /// context.
    fn of(device: &Device, pool: usize) -> Result<Option<Arc<Self>>> {
        let key = (device.id(), pool);
        if let Some(known) = Self::known(key) {
            return Ok(Some(known));
        }
        let mut fd: std::ffi::c_int = -1;
        // SAFETY: of this kind of handle the driver writes an int; it gave the pool as that of
        // memory that lives.
        let exported = unsafe {
            device.driver().cuMemPoolExportToShareableHandle(
                (&raw mut fd).cast(),
                handle_of(pool),
                POSIX_FD,
                0,
            )
        };
        let Some(()) = super::export::unless_not_possible(exported)? else {
            return Ok(None);
        };
        // SAFETY: the call succeeded, so `fd` is a new descriptor, which nobody else owns.
        let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut id = [0; POOL_ID_BYTES];
        rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Error::os("cannot draw a pool's id", errno))?;
        let mut exported = EXPORTED.lock();
        exported.retain(|(_, pool)| pool.strong_count() > 0);
        // Another thread may have been faster.
        let known = exported.iter().find(|(of, _)| *of == key);
        if let Some(known) = known.and_then(|(_, known)| known.upgrade()) {
            return Ok(Some(known));
        }
        let fresh = Arc::new(Self {
            pool,
            id,
            fd,
            shares: Mutex::default(),
        });
        exported.push((key, Arc::downgrade(&fresh)));
        Ok(Some(fresh))
    }

    fn known(key: ExportedKey) -> Option<Arc<Self>> {
        let exported = EXPORTED.lock();
        let known = exported.iter().find(|(of, _)| *of == key)?;
        known.1.upgrade()
    }

    /// What tells it from the other pools that this process exported, ever.
    pub fn id(&self) -> &[u8; POOL_ID_BYTES] {
        &self.id
    }

    /// The descriptor that another process imports it by.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }
}

impl Share {
    /// What leads to the allocation that begins at `base`, which lives, of the pool with this
    /// handle; `None` where nothing does. Under the device's context.
    pub(super) fn of(device: &Device, pool: usize, base: CUdeviceptr) -> Result<Option<Arc<Self>>> {
        let Some(pool) = ExportedPool::of(device, pool)? else {
            return Ok(None);
        };
        let known = |shares: &HashMap<_, Weak<Self>>| shares.get(&base).and_then(Weak::upgrade);
        if let Some(share) = known(&pool.shares.lock()) {
            return Ok(Some(share));
        }
        let mut data = CUmemPoolPtrExportData {
            reserved: [0; SHARE_BYTES],
        };
        // SAFETY: `data` is writable; the address is looked up, not looked at.
        let exported = unsafe { device.driver().cuMemPoolExportPointer(&raw mut data, base) };
        let Some(()) = super::export::unless_not_possible(exported)? else {
            return Ok(None);
        };
        let mut shares = pool.shares.lock();
        // Another thread may have been faster: everybody is told the same bytes.
        if let Some(share) = known(&shares) {
            return Ok(Some(share));
        }
        let share = Arc::new(Self {
            pool: Arc::clone(&pool),
            base,
            bytes: data.reserved,
        });
        shares.insert(base, Arc::downgrade(&share));
        drop(shares);
        Ok(Some(share))
    }

    /// The pool.
    pub fn pool(&self) -> &Arc<ExportedPool> {
        &self.pool
    }

    /// What another process imports it by, once it has the pool.
    pub fn bytes(&self) -> &[u8; SHARE_BYTES] {
        &self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.pool.shares.lock();
        // Unless another one has taken the place.
        if shares
            .get(&self.base)
            .is_some_and(|share| share.strong_count() == 0)
        {
            shares.remove(&self.base);
        }
    }
}

/// The driver's handle of a pool, which is a pointer.
fn handle_of(pool: usize) -> CUmemoryPool {
    std::ptr::without_provenance_mut(pool)
}

/// Whose pool it is: the number of the process as the kernel says it, 0 where that is not known,
/// and the pool's id there.
pub type PoolKey = (i32, [u8; POOL_ID_BYTES]);

/// A pool of another process, imported once here; destroyed when nothing of it is left.
pub struct ImportedPool {
    device: Arc<Device>,
    pool: usize,
    key: (u64, PoolKey),
}

impl fmt::Debug for ImportedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImportedPool({:?}, {:#x})", self.device, self.pool)
    }
}

/// The pools that are imported in this process, by the contexts and their keys.
static IMPORTED: Once<(u64, PoolKey), ImportedPool> = Once::new();

impl ImportedPool {
    /// Imports the pool behind a descriptor of another process, for `device`, where its memory
    /// lies. Imported already, it is shared; `fd` is not needed afterwards.
    ///
    /// # Errors
    ///
    /// `Protocol` where the descriptor is none of a pool; what else the driver says.
    pub fn import(device: &Arc<Device>, key: PoolKey, fd: &OwnedFd) -> Result<Arc<Self>> {
        let key = (device.id(), key);
        IMPORTED.get(&key, || Self::import_now(device, key, fd))
    }

    fn import_now(device: &Arc<Device>, key: (u64, PoolKey), fd: &OwnedFd) -> Result<Self> {
        let _current = device.enter()?;
        let driver = device.driver();
        let mut pool = std::ptr::null_mut();
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        // The driver takes the number itself where a pointer is asked for.
        let shareable = std::ptr::without_provenance_mut(number);
        // SAFETY: `pool` is writable; the driver checks the descriptor, which is open.
        let imported = unsafe {
            driver.cuMemPoolImportFromShareableHandle(&raw mut pool, shareable, POSIX_FD, 0)
        };
        imported.map_err(|failure| match failure.is_of_a_handle() {
            true => Error::protocol(format!(
                "what the peer sent is no pool of GPU {}: {}",
                device.ordinal(),
                Error::from(failure)
            )),
            false => failure.into(),
        })?;
        let access = CUmemAccessDesc {
            location: device.location(),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: imported above, and `access` is one whole struct.
        let allowed = unsafe { driver.cuMemPoolSetAccess(pool, &raw const access, 1) };
        allowed.inspect_err(|_| {
            // SAFETY: imported above, and nothing lies in it.
            let gone = unsafe { driver.cuMemPoolDestroy(pool) };
            left(gone.map_err(Error::from), "a peer's pool");
        })?;
        Ok(Self {
            device: Arc::clone(device),
            pool: pool as usize,
            key,
        })
    }

    /// Where the allocation behind `share` is here. It is to be given back to the driver once
    /// (`cuMemFree`). Under the device's context.
    pub(super) fn open(&self, share: &[u8; SHARE_BYTES]) -> Result<CUdeviceptr> {
        let mut address = 0;
        let mut data = CUmemPoolPtrExportData { reserved: *share };
        let driver = self.device.driver();
        // SAFETY: `address` is writable and the pool this one's; the driver checks the bytes.
        unsafe {
            driver.cuMemPoolImportPointer(&raw mut address, handle_of(self.pool), &raw mut data)
        }
        .map_err(|failure| failure.to_open("memory of a pool", self.device.ordinal()))?;
        Ok(address)
    }

    /// The device that its memory lies on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for ImportedPool {
    fn drop(&mut self) {
        if Driver::get().is_err() {
            // A forked child, where locks may be held for ever.
            return;
        }
        let (device, pool, key) = (Arc::clone(&self.device), self.pool, self.key);
        later::run(move || {
            let gone = device.enter_to_drop().and_then(|_current| {
                // SAFETY: imported by this, and destroyed only here; what was imported from it is
                // freed.
                Ok(unsafe { device.driver().cuMemPoolDestroy(handle_of(pool)) }?)
            });
            left(gone, "a peer's pool");
            IMPORTED.closed(&key);
        });
    }
}
