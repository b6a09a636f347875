//! GPUs, and the context that a thread must have current before the driver looks at their memory.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUmemLocation, CUmemLocationType,
};
use once_cell::sync::OnceCell;
use parking_lot::Mutex;

use crate::device::cuda::driver::{Driver, Failure, code};
use crate::device::cuda::kernels::Kernels;
use crate::device::cuda::memory::POSIX_FD;
use crate::device::cuda::recycle::RecycledMemory;
use crate::device::cuda::stream::left;
use crate::error::{Error, Result};

/// Bytes of a GPU's UUID.
pub const UUID_BYTES: usize = 16;

/// The GPUs used so far. An entry holds the device's primary context for the life of the process:
/// arrays that were handed out may outlive every stream, server and client, and the context goes
/// with the last who holds it, its memory with it.
static DEVICES: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());

/// A GPU and its primary context, which is the one that the CUDA runtime uses too, so that the
/// host's pointers are ours.
pub struct Device {
    driver: &'static Driver,
    ordinal: i32,
    raw: CUdevice,
    uuid: [u8; UUID_BYTES],
    context: CUcontext,
    /// What the driver calls the context. A reset leaves `context` as it is, and ends this.
    id: u64,
    /// The host has reset the device: what belonged to it is gone, and must not be named to the
    /// driver.
    lost: AtomicBool,
    /// What one can have as file descriptors.
    exports_fds: bool,
    /// Compiled by the driver when they are first asked for.
    pub(super) kernels: OnceCell<Kernels>,
    pub(super) kept: Mutex<RecycledMemory>,
}

// SAFETY: `context` is a handle that the driver's functions take on any thread; the other fields
// are `Send` or handles too.
unsafe impl Send for Device {}
// SAFETY: as above; the driver's functions may be called by several threads at once.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.ordinal)
    }
}

impl Device {
    /// The GPU with this number, its primary context retained: once for each process and device.
    ///
    /// # Errors
    ///
    /// As [`Driver::get`]; `InvalidArgument` where there is no such GPU.
    pub fn get(id: i64) -> Result<Arc<Self>> {
        let driver = Driver::get()?;
        let mut devices = DEVICES.lock();
        let known = (devices.iter()).position(|device| i64::from(device.ordinal) == id);
        if let Some(index) = known {
            let device = &devices[index];
            if device.is_alive()? && device.is_active()? {
                return Ok(Arc::clone(device));
            }
            devices.swap_remove(index);
        }
        let device = Arc::new(Self::open(driver, id)?);
        devices.push(Arc::clone(&device));
        Ok(device)
    }

    /// The GPU with this UUID, `None` where this process sees none.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn by_uuid(uuid: &[u8; UUID_BYTES]) -> Result<Option<Arc<Self>>> {
        let ordinal = uuids()?.iter().position(|known| known == uuid);
        let id = ordinal.and_then(|ordinal| i64::try_from(ordinal).ok());
        id.map(Self::get).transpose()
    }

    fn open(driver: &'static Driver, id: i64) -> Result<Self> {
        let count = driver.device_count()?;
        let ordinal = i32::try_from(id)
            .ok()
            .filter(|ordinal| (0..count).contains(ordinal))
            .ok_or_else(|| Self::unknown(id, count))?;
        let mut device = 0;
        // SAFETY: `device` is writable.
        unsafe { driver.cuDeviceGet(&raw mut device, ordinal) }?;
        let uuid = uuid(driver, device)?;
        let attribute = |which| attribute(driver, device, which);
        let exports_fds = attribute(
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        )? != 0
            && attribute(
                CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
            )? != 0;
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` is writable and `device` the driver's.
        unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
        let mut id = 0;
        // SAFETY: the context was retained above, and `id` is writable.
        let told = unsafe { driver.cuCtxGetId(context, &raw mut id) };
        told.inspect_err(|_| {
            // SAFETY: retained above, and nobody has it yet.
            let gone = unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) };
            left(gone.map_err(Error::from), "a CUDA context");
        })?;
        Ok(Self {
            driver,
            ordinal,
            raw: device,
            uuid,
            context,
            id,
            lost: AtomicBool::new(false),
            exports_fds,
            kernels: OnceCell::new(),
            kept: Mutex::default(),
        })
    }

    /// What is wrong with the number `id` where the driver sees `count` GPUs.
    pub(crate) fn unknown(id: i64, count: i32) -> Error {
        Error::invalid_argument(format!(
            "there is no GPU {id}: the driver sees {count}, numbered from 0 (`dipc info` lists \
             them)"
        ))
    }

    /// Its number, as `ArrowDeviceArray.device_id` has it.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// What names it in every process, whatever its number is there.
    pub fn uuid(&self) -> &[u8; UUID_BYTES] {
        &self.uuid
    }

    /// Whether memory of it can be allocated that goes to other processes as a file descriptor.
    pub fn exports_fds(&self) -> bool {
        self.exports_fds
    }

    /// The driver.
    pub(super) fn driver(&self) -> &'static Driver {
        self.driver
    }

    pub(super) fn context(&self) -> CUcontext {
        self.context
    }

    /// Where its memory is, for the functions of virtual memory management.
    pub(super) fn location(&self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.ordinal,
        }
    }

    /// What the driver calls its context: another one after a reset.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Whether it is known that the host has reset the device; the driver is not asked.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Whether everything made in its context is still there: the host has not reset the device.
    ///
    /// # Errors
    ///
    /// What else the driver says.
    pub fn is_alive(&self) -> Result<bool> {
        if self.is_lost() {
            return Ok(false);
        }
        let mut id = 0;
        // SAFETY: the context was retained, and is never released; the driver knows it, reset or
        // not. `id` is writable.
        match unsafe { self.driver.cuCtxGetId(self.context, &raw mut id) } {
            Ok(()) if id == self.id => Ok(true),
            Ok(())
            | Err(Failure {
                code: code::CONTEXT_IS_DESTROYED | code::INVALID_CONTEXT,
                ..
            }) => {
                self.lose();
                Ok(false)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Whether its context was not reset, or has been used since: until then the driver may not
    /// tell it from the one before.
    fn is_active(&self) -> Result<bool> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the device is the driver's, and both are writable.
        unsafe {
            self.driver
                .cuDevicePrimaryCtxGetState(self.raw, &raw mut flags, &raw mut active)
        }?;
        if active == 0 {
            self.lose();
        }
        Ok(active != 0)
    }

    /// Everything of it is gone with its context, and is let go of without a call.
    fn lose(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            tracing::warn!("GPU {} was reset: what lay there is gone", self.ordinal);
            let mut kept = self.kept.lock();
            drop((kept.device.clear(), kept.pinned.clear()));
        }
    }

    /// What is told to whoever uses what is gone.
    fn lost_error(&self) -> Error {
        let failure = Failure {
            call: "cuCtxGetId",
            code: code::CONTEXT_IS_DESTROYED,
        };
        Error::from(failure).context(format_args!(
            "GPU {} was reset (cudaDeviceReset), and what lay there is gone: begin again",
            self.ordinal
        ))
    }

    /// Fails where the host has reset the device.
    ///
    /// # Errors
    ///
    /// `InvalidData`: what lay there is gone, and the next [`Device::get`] begins anew. What else
    /// the driver says.
    pub fn ensure_alive(&self) -> Result<()> {
        if self.is_alive()? {
            return Ok(());
        }
        Err(self.lost_error())
    }

    /// Makes the device's context current on this thread until the guard is dropped, when what
    /// was current before is again. Every call of the driver that concerns the device is made
    /// under one.
    ///
    /// # Errors
    ///
    /// `Forked` in a child process; as [`ensure_alive`](Self::ensure_alive).
    pub fn enter(&self) -> Result<Current<'_>> {
        // Before the driver is called: in a child it may hang.
        Driver::get()?;
        self.ensure_alive()?;
        // SAFETY: the context was retained, and is never released.
        unsafe { self.driver.cuCtxPushCurrent_v2(self.context) }?;
        Ok(Current {
            device: self,
            thread: PhantomData,
        })
    }

    /// [`enter`](Self::enter) for a drop, which has nobody to tell that it failed, and would leave
    /// for ever what it is to give back: one more try.
    pub(super) fn enter_to_drop(&self) -> Result<Current<'_>> {
        self.enter().or_else(|_| self.enter())
    }

    /// Lets kernels on this device reach the memory of `peer`; copies need no permission.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the two have no way to each other.
    pub fn enable_peer(&self, peer: &Self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the context of `peer` is retained, and never released; this device's is current.
        let outcome = unsafe { self.driver.cuCtxEnablePeerAccess(peer.context, 0) };
        match outcome {
            Err(Failure {
                code: code::PEER_ACCESS_ALREADY_ENABLED,
                ..
            }) => Ok(()),
            other => Ok(other?),
        }
    }

    /// Free and total bytes of its memory, as the driver counts them for all processes.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _current = self.enter()?;
        let (mut available, mut total) = (0, 0);
        // SAFETY: both are writable, and the device's context is current.
        unsafe {
            self.driver
                .cuMemGetInfo_v2(&raw mut available, &raw mut total)
        }?;
        Ok((available, total))
    }
}

/// The context of a [`Device`] is current on this thread, and only here.
#[derive(Debug)]
pub struct Current<'a> {
    device: &'a Device,
    thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut was = std::ptr::null_mut();
        // SAFETY: `was` is writable. The guard does not leave its thread, so that what is taken off
        // the thread's stack is what was put there; guards inside this one are gone by now.
        let popped = unsafe { self.device.driver.cuCtxPopCurrent_v2(&raw mut was) };
        if let Err(failure) = popped {
            // The errors of earlier work come out of any call; the context is off the stack.
            let error = Error::from(failure);
            tracing::debug!(error = %error, "leaving a CUDA context");
        }
    }
}

/// The UUIDs of the GPUs that this process sees, by their numbers. Asking makes no context.
///
/// # Errors
///
/// As [`Driver::get`].
pub fn uuids() -> Result<Vec<[u8; UUID_BYTES]>> {
    let driver = Driver::get()?;
    (0..driver.device_count()?)
        .map(|ordinal| {
            let mut device = 0;
            // SAFETY: `device` is writable.
            unsafe { driver.cuDeviceGet(&raw mut device, ordinal) }?;
            uuid(driver, device)
        })
        .collect()
}

fn uuid(driver: &Driver, device: CUdevice) -> Result<[u8; UUID_BYTES]> {
    let mut uuid = [0; UUID_BYTES];
    // SAFETY: `uuid` is writable, and as long as the driver's struct, which is bytes alone.
    unsafe { driver.cuDeviceGetUuid_v2(&raw mut uuid, device) }?;
    Ok(uuid)
}

/// What `dipc info` says of a GPU. Asking makes no context.
#[derive(Debug, Clone)]
pub struct Description {
    /// Its number.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// Bytes of its memory.
    pub total_bytes: usize,
    /// Compute capability.
    pub capability: (i32, i32),
    /// Whether memory of it can be allocated that goes to other processes as a file descriptor.
    pub exports_fds: bool,
    /// Whether pools of its memory can be made that go to other processes so.
    pub exports_pools: bool,
    /// The GPUs whose memory it reaches directly.
    pub peers: Vec<i32>,
}

/// The GPUs of this machine.
///
/// # Errors
///
/// As [`Driver::get`].
pub fn describe_all() -> Result<Vec<Description>> {
    let driver = Driver::get()?;
    let count = driver.device_count()?;
    (0..count)
        .map(|ordinal| describe(driver, ordinal, count))
        .collect()
}

fn describe(driver: &Driver, ordinal: i32, count: i32) -> Result<Description> {
    use CUdevice_attribute as Attribute;
    let get = |ordinal| -> Result<CUdevice> {
        let mut device = 0;
        // SAFETY: `device` is writable.
        unsafe { driver.cuDeviceGet(&raw mut device, ordinal) }?;
        Ok(device)
    };
    let device = get(ordinal)?;
    let mut name = [0 as c_char; 256];
    // SAFETY: `name` has 256 bytes, which the driver ends with a NUL.
    unsafe { driver.cuDeviceGetName(name.as_mut_ptr(), 256, device) }?;
    // SAFETY: the call succeeded, so `name` holds a C string.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let mut total_bytes = 0;
    // SAFETY: `total_bytes` is writable.
    unsafe { driver.cuDeviceTotalMem_v2(&raw mut total_bytes, device) }?;
    let mut peers = Vec::new();
    for other in (0..count).filter(|other| *other != ordinal) {
        let (peer, mut can) = (get(other)?, 0);
        // SAFETY: `can` is writable, and both devices are the driver's.
        unsafe { driver.cuDeviceCanAccessPeer(&raw mut can, device, peer) }?;
        if can != 0 {
            peers.push(other);
        }
    }
    let number = |which| attribute(driver, device, which);
    let vmm = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    let fds = Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    let pools = Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    let pool_handles = Attribute::CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
    Ok(Description {
        ordinal,
        name: name.to_string_lossy().into_owned(),
        total_bytes,
        capability: (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        exports_fds: number(vmm)? != 0 && number(fds)? != 0,
        exports_pools: number(pools)? != 0 && number(pool_handles)? & POSIX_FD.cast_signed() != 0,
        peers,
    })
}

fn attribute(driver: &Driver, device: CUdevice, which: CUdevice_attribute) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: `value` is writable, and `device` the driver's.
    unsafe { driver.cuDeviceGetAttribute(&raw mut value, which as c_int, device) }?;
    Ok(value)
}
