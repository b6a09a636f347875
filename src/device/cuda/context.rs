//! GPUs and their contexts. A thread needs a current context before the driver accesses memory.

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

use crate::device::cuda::driver::Driver;
use crate::device::cuda::failure::{Failure, code};
use crate::device::cuda::kernels::Kernels;
use crate::device::cuda::recycle::RecycledMemory;
use crate::device::cuda::stream::log_drop_error;
use crate::error::{Error, Result};

/// Bytes of a GPU's UUID.
pub const UUID_BYTES: usize = 16;

/// The GPUs in use. An entry retains the device's primary context for the life of the process.
/// Exported arrays may outlive every stream, server and client, and the release of the last
/// reference to the context would free their memory.
static DEVICES: Mutex<Vec<Arc<Device>>> = Mutex::new(Vec::new());

/// A GPU and its primary context. The CUDA runtime uses the same context, so that pointers of the
/// host program are valid here.
pub struct Device {
    pub(super) driver: &'static Driver,
    ordinal: i32,
    raw: CUdevice,
    uuid: [u8; UUID_BYTES],
    pub(super) context: CUcontext,
    /// The driver's id of the context. A reset of the device keeps `context` and changes the id.
    pub(super) id: u64,
    /// The host program has reset the device: its resources are gone, and no call of the driver may
    /// name them.
    lost: AtomicBool,
    /// True if memory of the device can be exported as file descriptors.
    exports_fds: bool,
    /// The driver compiles the kernels at their first use.
    pub(super) kernels: OnceCell<Kernels>,
    pub(super) kept: Mutex<RecycledMemory>,
}

// SAFETY: the driver's functions take the handle `context` on any thread. The other fields are
// `Send` or handles too.
unsafe impl Send for Device {}
// SAFETY: several threads may call the driver's functions with this handle at once. The other
// fields are `Sync`, locked, or handles too.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.ordinal)
    }
}

impl Device {
    /// The GPU with this number. Its primary context is retained once for each process and device.
    ///
    /// # Errors
    ///
    /// As [`Driver::get`]; `InvalidArgument` if the GPU does not exist.
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

    /// The GPU with this UUID; `None` if this process sees no such GPU.
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
        // SAFETY: `context` is writable, and `device` comes from the driver.
        unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
        let mut id = 0;
        // SAFETY: the context was retained above, and `id` is writable.
        let queried = unsafe { driver.cuCtxGetId(context, &raw mut id) };
        queried.inspect_err(|_| {
            // SAFETY: the context was retained above, and nobody else has it yet.
            let outcome = unsafe { driver.cuDevicePrimaryCtxRelease_v2(device) };
            log_drop_error(outcome, "a CUDA context");
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

    /// The error for the number `id` if the driver sees `count` GPUs.
    pub(crate) fn unknown(id: i64, count: i32) -> Error {
        Error::invalid_argument(format!(
            "there is no GPU {id}: the driver sees {count}, numbered from 0 (`dipc info` lists \
             them)"
        ))
    }

    /// The device number, as in `ArrowDeviceArray.device_id`.
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// The UUID. It identifies the GPU in every process, whatever its number there.
    pub fn uuid(&self) -> &[u8; UUID_BYTES] {
        &self.uuid
    }

    /// True if memory of the device can be exported to other processes as file descriptors.
    pub fn exports_fds(&self) -> bool {
        self.exports_fds
    }

    /// The location of its memory, for the functions of virtual memory management.
    pub(super) fn location(&self) -> CUmemLocation {
        CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: self.ordinal,
        }
    }

    /// True if a reset of the device is known. Does not call the driver.
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// True if the context still exists: the host program has not reset the device.
    ///
    /// # Errors
    ///
    /// Other errors of the driver.
    pub fn is_alive(&self) -> Result<bool> {
        if self.is_lost() {
            return Ok(false);
        }
        let mut id = 0;
        // SAFETY: the context was retained and is never released, so the driver knows it, reset or
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

    /// True if the primary context is active. After a reset it is inactive until its next use, and
    /// until then the driver may report the old id.
    fn is_active(&self) -> Result<bool> {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the device comes from the driver, and both variables are writable.
        unsafe {
            self.driver
                .cuDevicePrimaryCtxGetState(self.raw, &raw mut flags, &raw mut active)
        }?;
        if active == 0 {
            self.lose();
        }
        Ok(active != 0)
    }

    /// Marks the device as lost and drops the recycled memory without a call of the driver.
    fn lose(&self) {
        if !self.lost.swap(true, Ordering::AcqRel) {
            tracing::warn!("GPU {} was reset: its memory is lost", self.ordinal);
            let mut kept = self.kept.lock();
            drop((kept.device.clear(), kept.pinned.clear()));
        }
    }

    /// The error for the use of a lost device.
    fn lost_error(&self) -> Error {
        let failure = Failure {
            call: "cuCtxGetId",
            code: code::CONTEXT_IS_DESTROYED,
        };
        Error::from(failure).context(format_args!(
            "GPU {} was reset (cudaDeviceReset), and its memory is lost: start again",
            self.ordinal
        ))
    }

    /// Fails if the host program has reset the device.
    ///
    /// # Errors
    ///
    /// `InvalidData` after a reset: its resources are gone, and the next [`Device::get`] opens the
    /// device anew. Also other errors of the driver.
    pub fn ensure_alive(&self) -> Result<()> {
        if self.is_alive()? {
            return Ok(());
        }
        Err(self.lost_error())
    }

    /// Makes the device's context current on this thread. The drop of the guard restores the
    /// previous context. Every driver call for the device needs the guard.
    ///
    /// # Errors
    ///
    /// `Forked` in a child process; else as [`ensure_alive`](Self::ensure_alive).
    pub fn enter(&self) -> Result<Current<'_>> {
        // Checked before any call of the driver, which may hang in a child.
        Driver::get()?;
        self.ensure_alive()?;
        // SAFETY: the context was retained and is never released.
        unsafe { self.driver.cuCtxPushCurrent_v2(self.context) }?;
        Ok(Current {
            device: self,
            thread: PhantomData,
        })
    }

    /// [`enter`](Self::enter) for a drop, with a second try. A drop cannot report an error, and
    /// would leak the resource for ever.
    pub(super) fn enter_to_drop(&self) -> Result<Current<'_>> {
        self.enter().or_else(|_| self.enter())
    }

    /// Free and total bytes of the device's memory, counted by the driver for all processes.
    ///
    /// # Errors
    ///
    /// As [`enter`](Self::enter).
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _current = self.enter()?;
        let (mut available, mut total) = (0, 0);
        // SAFETY: both variables are writable, and the device's context is current.
        unsafe {
            self.driver
                .cuMemGetInfo_v2(&raw mut available, &raw mut total)
        }?;
        Ok((available, total))
    }
}

/// A guard: while it lives, the context of a [`Device`] is current on this thread.
#[derive(Debug)]
pub struct Current<'a> {
    device: &'a Device,
    thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut was = std::ptr::null_mut();
        // SAFETY: `was` is writable. The guard does not leave its thread, and inner guards are
        // gone. So the pop removes the context that `enter` pushed.
        let popped = unsafe { self.device.driver.cuCtxPopCurrent_v2(&raw mut was) };
        if let Err(failure) = popped {
            // The pop succeeded: every call can report an error of earlier work.
            let error = Error::from(failure);
            tracing::debug!(error = %error, "leaving a CUDA context");
        }
    }
}

/// The UUIDs of the GPUs that this process sees, in the order of their numbers. Makes no context.
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
    // SAFETY: `uuid` is writable and has the size of the driver's struct, which has only bytes.
    unsafe { driver.cuDeviceGetUuid_v2(&raw mut uuid, device) }?;
    Ok(uuid)
}

/// The description of a GPU for `dipc info`. Makes no context.
#[derive(Debug, Clone)]
pub struct Description {
    /// The device number.
    pub ordinal: i32,
    /// The product name.
    pub name: String,
    /// Bytes of memory.
    pub total_bytes: usize,
    /// Compute capability.
    pub capability: (i32, i32),
    /// True if memory of the device can be exported to other processes as file descriptors.
    pub exports_fds: bool,
    /// The GPUs whose memory this GPU accesses directly.
    pub peers: Vec<i32>,
}

/// The GPUs that this process sees.
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
    // SAFETY: `name` has 256 bytes, and the driver writes a final NUL.
    unsafe { driver.cuDeviceGetName(name.as_mut_ptr(), 256, device) }?;
    // SAFETY: the call succeeded, so `name` holds a C string.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    let mut total_bytes = 0;
    // SAFETY: `total_bytes` is writable.
    unsafe { driver.cuDeviceTotalMem_v2(&raw mut total_bytes, device) }?;
    let mut peers = Vec::new();
    for other in (0..count).filter(|other| *other != ordinal) {
        let (peer, mut can) = (get(other)?, 0);
        // SAFETY: `can` is writable, and both devices come from the driver.
        unsafe { driver.cuDeviceCanAccessPeer(&raw mut can, device, peer) }?;
        if can != 0 {
            peers.push(other);
        }
    }
    let number = |which| attribute(driver, device, which);
    let vmm = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    let fds = Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    Ok(Description {
        ordinal,
        name: name.to_string_lossy().into_owned(),
        total_bytes,
        capability: (
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        exports_fds: number(vmm)? != 0 && number(fds)? != 0,
        peers,
    })
}

fn attribute(driver: &Driver, device: CUdevice, which: CUdevice_attribute) -> Result<c_int> {
    let mut value = 0;
    // SAFETY: `value` is writable, and `device` comes from the driver.
    unsafe { driver.cuDeviceGetAttribute(&raw mut value, which as c_int, device) }?;
    Ok(value)
}
