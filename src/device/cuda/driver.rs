//! The CUDA driver: its library, its version, and the conversion of its errors.

use std::ffi::{CStr, c_char, c_int};
use std::ops::Deref;

use cudarc::driver::sys;
use once_cell::sync::OnceCell;

use crate::device::cuda::failure::Failure;
use crate::device::cuda::functions::{self, Functions};
use crate::error::{Error, Result};
use crate::fork::Generation;

/// The oldest supported driver, in the numbers of `cuDriverGetVersion`. cudarc's structs are those
/// of this version.
const OLDEST: i32 = 12_000;

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
