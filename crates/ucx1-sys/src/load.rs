//! Finding UCX, once for the whole process.

use std::ffi::{c_uint, c_void};
use std::path::{Path, PathBuf};

use once_cell::sync::OnceCell;

use crate::error::LoadError;
use crate::library::{Library, UCP};
use crate::signals::keep_signal_handlers;
use crate::table::Api;

/// The environment variable that names the library to load, if the caller names none.
pub const LIBRARY_VARIABLE: &str = "DIPC_UCX_LIBRARY";

/// UCX, loaded on the first call and the same ever after.
///
/// A UCX that the process has already, loaded by some other package of the host, is used: two in
/// one process break each other. Otherwise `path` is loaded, or what the environment variable
/// `DIPC_UCX_LIBRARY` names, or `libucp.so.0` where the dynamic linker looks. A name with a slash
/// is a file; libucs is the one that it is linked with. A failure is not kept: the next call tries
/// again.
///
/// The host's signal handlers stay as they were (see [`keep_signal_handlers`]).
///
/// # Errors
///
/// [`LoadError`]: no such library, not UCX or not 1.12 ≤ version < 2; or `path` names another library
/// than the one that the process has. The environment variable is a default only, and is not
/// compared.
pub fn load(path: Option<&Path>) -> Result<&'static Api, LoadError> {
    static LOADED: OnceCell<Api> = OnceCell::new();
    let api = LOADED.get_or_try_init(|| {
        let library = match Library::already_loaded() {
            Some(library) => library,
            None => keep_signal_handlers(|| Library::open(&wanted(path)))?,
        };
        let version = checked_version(&library)?;
        Api::new(library, version)
    })?;
    match path {
        Some(path) if !Library::open_loaded(path).is_some_and(|asked| asked.is(api.library())) => {
            Err(LoadError::AlreadyLoaded {
                loaded: api.path().to_owned(),
                wanted: path.to_owned(),
            })
        }
        _ => Ok(api),
    }
}

/// The library to load, if the process has none.
fn wanted(path: Option<&Path>) -> PathBuf {
    path.map(Path::to_owned)
        .or_else(|| {
            let named = std::env::var_os(LIBRARY_VARIABLE)?;
            (!named.is_empty()).then(|| PathBuf::from(named))
        })
        .unwrap_or_else(|| PathBuf::from(UCP))
}

/// The library's version, if it is one that these bindings describe.
fn checked_version(library: &Library) -> Result<(u32, u32, u32), LoadError> {
    type GetVersion = unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint);
    let symbol = library.symbol("ucp_get_version")?;
    // SAFETY: both are pointers to code, and every UCX has this function with this signature, from
    // before 1.0 on.
    let get_version = unsafe { std::mem::transmute::<*mut c_void, GetVersion>(symbol) };
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: three places to write to, and nothing else is asked for.
    unsafe { get_version(&raw mut major, &raw mut minor, &raw mut release) };
    let version = (major, minor, release);
    if major == 1 && minor >= 12 {
        Ok(version)
    } else {
        Err(LoadError::Version {
            library: library.path().to_owned(),
            version,
        })
    }
}
