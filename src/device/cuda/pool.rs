//! Pools of stream-ordered memory (`cuMemAllocAsync`, `cuMemAllocFromPoolAsync`), between
//! processes.
//!
//! A process imports the pool of another process by a file descriptor, and then each allocation by
//! 64 opaque bytes. As with legacy handles, the exporter must free an allocation only after every
//! importer has freed it. The driver does not count imports: if a process imports an allocation
//! twice, the first free takes the memory from both. So a process imports each pool and each
//! allocation once, and sends the same bytes for an allocation while any process may have it open.

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
use crate::device::cuda::stream::log_drop_error;
use crate::error::{Error, Result};

/// Bytes of the share of an allocation.
pub const SHARE_BYTES: usize = 64;
/// Bytes of the id of a pool.
pub const POOL_ID_BYTES: usize = 16;

/// A pool of this process that others can import. The handle identifies the pool only while one of
/// its allocations lives; a later pool may get the same handle.
pub struct ExportedPool {
    pool: usize,
    id: [u8; POOL_ID_BYTES],
    fd: Arc<OwnedFd>,
    /// Shares of allocations that others may have open, by the address of the first byte.
    shares: Mutex<HashMap<CUdeviceptr, Weak<Share>>>,
}

impl fmt::Debug for ExportedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExportedPool({:#x})", self.pool)
    }
}

/// The share of an allocation of a pool, for other processes. The owner of the memory holds it as
/// long as the memory, so that it cannot stand for a later allocation.
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

/// The exported pools by context and handle. After a reset a handle may belong to another pool.
static EXPORTED: Mutex<Vec<(ExportedKey, Weak<ExportedPool>)>> = Mutex::new(Vec::new());

/// The id of the context, and the driver's handle of the pool.
type ExportedKey = (u64, usize);

impl ExportedPool {
    /// The pool with this handle; `None` if the pool is not exportable. The caller has entered the
    /// device.
    fn of(device: &Device, pool: usize) -> Result<Option<Arc<Self>>> {
        let key = (device.id(), pool);
        if let Some(known) = Self::known(key) {
            return Ok(Some(known));
        }
        let mut fd: std::ffi::c_int = -1;
        // SAFETY: for this handle type the driver writes an int. The pool's handle comes from the
        // driver, for memory that is live.
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
        // SAFETY: the call succeeded, so `fd` is a new descriptor that nobody else owns.
        let fd = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        let mut id = [0; POOL_ID_BYTES];
        rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Error::os("cannot draw a pool's id", errno))?;
        let mut exported = EXPORTED.lock();
        exported.retain(|(_, pool)| pool.strong_count() > 0);
        // Another thread may have exported the pool meanwhile.
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

    /// The id, unique among all pools that this process ever exported.
    pub fn id(&self) -> &[u8; POOL_ID_BYTES] {
        &self.id
    }

    /// The file descriptor for an import in another process.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }
}

impl Share {
    /// The share of the live allocation at `base` of the pool with this handle; `None` if the
    /// memory is not exportable. The caller has entered the device.
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
        // SAFETY: `data` is writable; the driver looks the address up and does not access it.
        let exported = unsafe { device.driver().cuMemPoolExportPointer(&raw mut data, base) };
        let Some(()) = super::export::unless_not_possible(exported)? else {
            return Ok(None);
        };
        let mut shares = pool.shares.lock();
        // Another thread may have made a share meanwhile. All processes must get the same bytes.
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

    /// The opaque bytes for an import in another process that has the pool.
    pub fn bytes(&self) -> &[u8; SHARE_BYTES] {
        &self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.pool.shares.lock();
        // A new share may have replaced this share.
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

/// Identifies a pool: the exporting process's number according to the kernel (0 if unknown), and
/// the pool's id in that process.
pub type PoolKey = (i32, [u8; POOL_ID_BYTES]);

/// A pool of another process, imported once; destroyed after its last user.
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

/// The imported pools of this process, by context and key.
static IMPORTED: Once<(u64, PoolKey), ImportedPool> = Once::new();

impl ImportedPool {
    /// Imports the pool of a descriptor of another process. The pool's memory lies on `device`.
    /// Returns the existing import, if any; `fd` may close afterwards.
    ///
    /// # Errors
    ///
    /// `Protocol` if the descriptor is not of a pool; the driver's errors.
    pub fn import(device: &Arc<Device>, key: PoolKey, fd: &OwnedFd) -> Result<Arc<Self>> {
        let key = (device.id(), key);
        IMPORTED.get(&key, || Self::import_now(device, key, fd))
    }

    fn import_now(device: &Arc<Device>, key: (u64, PoolKey), fd: &OwnedFd) -> Result<Self> {
        let _current = device.enter()?;
        let driver = device.driver();
        let mut pool = std::ptr::null_mut();
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        // The driver takes the descriptor's number in place of a pointer.
        let shareable = std::ptr::without_provenance_mut(number);
        // SAFETY: `pool` is writable; the driver checks the descriptor, which is open.
        let imported = unsafe {
            driver.cuMemPoolImportFromShareableHandle(&raw mut pool, shareable, POSIX_FD, 0)
        };
        imported.map_err(|failure| match failure.is_of_a_handle() {
            true => Error::protocol(format!(
                "the peer's descriptor is no pool of GPU {}: {}",
                device.ordinal(),
                Error::from(failure)
            )),
            false => failure.into(),
        })?;
        let access = CUmemAccessDesc {
            location: device.location(),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the pool was imported above, and `access` is one whole struct.
        let allowed = unsafe { driver.cuMemPoolSetAccess(pool, &raw const access, 1) };
        allowed.inspect_err(|_| {
            // SAFETY: the pool was imported above, and has no memory in use.
            let outcome = unsafe { driver.cuMemPoolDestroy(pool) };
            log_drop_error(outcome.map_err(Error::from), "a peer's pool");
        })?;
        Ok(Self {
            device: Arc::clone(device),
            pool: pool as usize,
            key,
        })
    }

    /// The address of the allocation of `share` in this process. The caller frees it once
    /// (`cuMemFree`). The caller has entered the device.
    pub(super) fn open(&self, share: &[u8; SHARE_BYTES]) -> Result<CUdeviceptr> {
        let mut address = 0;
        let mut data = CUmemPoolPtrExportData { reserved: *share };
        let driver = self.device.driver();
        // SAFETY: `address` is writable, and the pool is live; the driver checks the bytes.
        unsafe {
            driver.cuMemPoolImportPointer(&raw mut address, handle_of(self.pool), &raw mut data)
        }
        .map_err(|failure| failure.to_open("memory of a pool", self.device.ordinal()))?;
        Ok(address)
    }

    /// The device of the pool's memory.
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
            let outcome = device.enter_to_drop().and_then(|_current| {
                // SAFETY: this value imported the pool, and only this call destroys it. All memory
                // from the pool is freed.
                Ok(unsafe { device.driver().cuMemPoolDestroy(handle_of(pool)) }?)
            });
            log_drop_error(outcome, "a peer's pool");
            IMPORTED.closed(&key);
        });
    }
}
