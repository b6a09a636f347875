//! The CUDA driver: its library, its version, and the conversion of its errors.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Deref;

use cudarc::driver::sys;
use once_cell::sync::OnceCell;

use crate::device::cuda::functions::{self, Functions};
use crate::error::{Error, Result, Status};
use crate::fork::Generation;

/// The oldest supported driver, in the numbers of `cuDriverGetVersion`. cudarc's structs are those
/// of this version.
const OLDEST: i32 = 12_000;

/// Codes of the driver that this crate depends on. [`Failure`] holds a number, since a newer driver
/// may have other codes.
pub mod code {
    /// `CUDA_ERROR_INVALID_VALUE`
    pub const INVALID_VALUE: i32 = 1;
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    pub const OUT_OF_MEMORY: i32 = 2;
    /// `CUDA_ERROR_INVALID_CONTEXT`
    pub const INVALID_CONTEXT: i32 = 201;
    /// `CUDA_ERROR_MAP_FAILED`
    pub const MAP_FAILED: i32 = 205;
    /// `CUDA_ERROR_OPERATING_SYSTEM`
    pub const OPERATING_SYSTEM: i32 = 304;
    /// `CUDA_ERROR_INVALID_HANDLE`
    pub const INVALID_HANDLE: i32 = 400;
    /// `CUDA_ERROR_NOT_READY`
    pub const NOT_READY: i32 = 600;
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`
    pub const CONTEXT_IS_DESTROYED: i32 = 709;
    /// `CUDA_ERROR_NOT_SUPPORTED`
    pub const NOT_SUPPORTED: i32 = 801;
    /// `CUDA_ERROR_UNKNOWN`
    pub const UNKNOWN: i32 = 999;
}

/// A failed call of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The name of the function.
    pub call: &'static str,
    /// The result, which is not 0.
    pub code: i32,
}

impl Failure {
    pub(super) fn check(call: &'static str, code: i32) -> Result<(), Self> {
        if code == 0 {
            Ok(())
        } else {
            Err(Self { call, code })
        }
    }

    /// True if the call failed because of its handle or descriptor. Drivers disagree on the code
    /// for a handle of another driver.
    pub(super) fn is_of_a_handle(self) -> bool {
        matches!(
            self.code,
            code::INVALID_VALUE
                | code::INVALID_CONTEXT
                | code::MAP_FAILED
                | code::OPERATING_SYSTEM
                | code::INVALID_HANDLE
                | code::UNKNOWN
        )
    }

    /// The error for a handle of `what` on GPU `ordinal` that a peer sent and that does not open.
    pub(super) fn to_open(self, what: &str, ordinal: i32) -> Error {
        let refused = self.is_of_a_handle();
        let error = Error::from(self);
        if !refused {
            return error;
        }
        let text = format!("the peer's handle does not open as {what} of GPU {ordinal}: {error}");
        Error::new(Status::InvalidData, text)
    }

    /// The status of the failure, and the remedy.
    fn meaning(self) -> (Status, &'static str) {
        let unusable = "the GPU can no longer be used by this process: restart it";
        match self.code {
            code::OUT_OF_MEMORY => (
                Status::OutOfMemory,
                "free memory of the GPU, or ask for less at a time",
            ),
            3 => (
                Status::Unsupported,
                "CUDA does not survive a fork: use it in the process that first used it, or call \
                 exec",
            ),
            4 => (Status::Stopped, "the process is ending"),
            34 => (
                Status::Unsupported,
                "the libcuda.so.1 that was found is the CUDA toolkit's stub: let the driver's be \
                 found first",
            ),
            46 => (
                Status::Busy,
                "another process uses the GPU alone (its compute mode is exclusive)",
            ),
            100 => (
                Status::Unsupported,
                "the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES, and in a \
                 container give it the GPU (--gpus all)",
            ),
            101 => (
                Status::InvalidArgument,
                "`dipc info` lists the GPUs that there are",
            ),
            code::INVALID_CONTEXT | code::CONTEXT_IS_DESTROYED | code::INVALID_HANDLE => (
                Status::InvalidData,
                "the context that the memory, the stream or the event belonged to is gone: it must \
                 live until every array made in it is released",
            ),
            code::INVALID_VALUE => (
                Status::InvalidData,
                "the driver does not know the address or the length",
            ),
            // Faults of kernels and copies, and hardware errors.
            214 | 220 | 226 | 700 | 702 | 710 | 714..=719 => (Status::Io, unusable),
            200 | 209 | 218 | 221..=223 => (
                Status::Unsupported,
                "the driver cannot compile the kernels of libdipc for this GPU: install a newer \
                 one",
            ),
            217 | 705 | code::NOT_SUPPORTED => (
                Status::Unsupported,
                "this GPU or machine does not support the operation",
            ),
            800 => (
                Status::Permission,
                "the system denies this user the operation on the GPU",
            ),
            802..=804 => (
                Status::Unsupported,
                "the driver's library does not fit its kernel module or the GPU: restart the \
                 machine after an update, or install matching versions",
            ),
            _ => (Status::Io, "the system's log may say more (dmesg)"),
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let Failure { call, code } = failure;
        let (status, remedy) = failure.meaning();
        let what = match DRIVER.get() {
            Some(driver) => driver.describe(code),
            None => format!("CUDA error {code}"),
        };
        Self::new(status, format!("{call} failed: {what}; {remedy}"))
    }
}

static DRIVER: OnceCell<Driver> = OnceCell::new();

/// The driver of this process, with its functions.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
    version: i32,
    generation: Generation,
}

impl Deref for Driver {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

impl Driver {
    /// The driver. The first call loads and initialises it; after a failure the next call tries
    /// again.
    ///
    /// # Errors
    ///
    /// `Unsupported` if there is no driver, or it is older than CUDA 12.0, or sees no GPU; `Forked`
    /// in a child of the process that loaded it.
    pub fn get() -> Result<&'static Self> {
        let driver = match DRIVER.get() {
            Some(driver) => driver,
            None => DRIVER.get_or_try_init(Self::load)?,
        };
        driver.generation.ensure_same_process()?;
        Ok(driver)
    }

    fn load() -> Result<Self> {
        let generation = Generation::now();
        let version = version()?;
        if version < OLDEST {
            return Err(Error::unsupported(format!(
                "the CUDA driver is for CUDA {}, which is too old: install one for CUDA {} or \
                 newer",
                dotted(version),
                dotted(OLDEST)
            )));
        }
        // SAFETY: `version` found the library.
        let functions = unsafe { Functions::find_all() }?;
        let driver = Self {
            functions,
            version,
            generation,
        };
        // SAFETY: 0 is the only permitted value.
        let outcome = unsafe { driver.cuInit(0) };
        outcome.map_err(|failure| {
            let (status, remedy) = failure.meaning();
            let what = driver.describe(failure.code);
            Error::new(status, format!("cuInit failed: {what}; {remedy}"))
        })?;
        Ok(driver)
    }

    /// The newest CUDA version that the driver supports, for example "12.2".
    pub fn version(&self) -> String {
        dotted(self.version)
    }

    /// The number of GPUs.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        // SAFETY: `count` is writable.
        unsafe { self.cuDeviceGetCount(&raw mut count) }?;
        Ok(count)
    }

    /// The driver's text for a code.
    fn describe(&self, code: i32) -> String {
        let text = |outcome: Result<(), Failure>, text: *const c_char| -> Option<String> {
            if outcome.is_err() || text.is_null() {
                return None;
            }
            // SAFETY: the call succeeded, so `text` is a string of the driver, which never frees
            // it.
            let text = unsafe { CStr::from_ptr(text) };
            Some(text.to_string_lossy().into_owned())
        };
        let (mut name, mut long) = (std::ptr::null(), std::ptr::null());
        // SAFETY: `name` is writable; the driver accepts any code.
        let named = unsafe { self.cuGetErrorName(code, &raw mut name) };
        // SAFETY: `long` is writable; the driver accepts any code.
        let explained = unsafe { self.cuGetErrorString(code, &raw mut long) };
        match (text(named, name), text(explained, long)) {
            (Some(name), Some(long)) => format!("{long} ({name})"),
            (Some(name), None) => name,
            _ => format!("CUDA error {code}, which this driver does not know"),
        }
    }
}

/// The version of the installed driver, supported or not.
///
/// # Errors
///
/// `Unsupported` without a driver.
fn version() -> Result<i32> {
    // SAFETY: the check loads and unloads the library. Its initialisers run in every CUDA program.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::unsupported(format!(
            "there is no CUDA driver ({}): install NVIDIA's driver, and in a container give it the \
             GPU (--gpus all)",
            why_not()
        )));
    }
    type Version = unsafe extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: the function has this type, and the library is present.
    let get = unsafe { functions::find::<Version>("cuDriverGetVersion") }?;
    let mut version = 0;
    // SAFETY: `version` is writable; the function may be called before cuInit.
    let code = unsafe { get(&raw mut version) };
    Failure::check("cuDriverGetVersion", code)?;
    Ok(version)
}

/// The loader's reason for not loading the driver. Mostly the file does not exist.
fn why_not() -> String {
    let name = c"libcuda.so.1";
    // SAFETY: `name` is a C string. If the library loads after all, its initialisers are those that
    // every CUDA program runs.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
    if !library.is_null() {
        return "the library has just appeared: try again".to_owned();
    }
    // SAFETY: `dlerror` takes no argument, and returns NULL or a string of this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "libcuda.so.1 cannot be loaded".to_owned();
    }
    // SAFETY: `text` is not NULL, and stays a C string until this thread's next `dlerror`.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
