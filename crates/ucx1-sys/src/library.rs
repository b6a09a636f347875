//! An open shared library, and those that the process has already.

use std::ffi::{CStr, CString, OsStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::LoadError;

/// What `ucp` is called on Linux: the number is UCX's promise about the ABI.
pub(crate) const UCP: &str = "libucp.so.0";

/// How a library is opened.
///
/// NOW, so that a library with something missing fails here and not in the middle of a call. LOCAL,
/// so that its symbols stay out of the way of whatever else the process loads, a second UCX inside
/// another package, say: UCX's plug-ins name the libraries that they need themselves. NODELETE,
/// because UCX has threads, handlers at exit and hooks in the C library, so it must never be
/// unloaded. For the same reason nothing here calls `dlclose`.
const FLAGS: c_int = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;

/// A library that stays open until the process ends.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
    path: PathBuf,
}

// SAFETY: the handle is a token for the dynamic linker's functions, which any thread may call.
unsafe impl Send for Library {}
// SAFETY: as above; those functions take the linker's lock.
unsafe impl Sync for Library {}

impl Library {
    /// Opens `name`: with a slash a file, otherwise what the dynamic linker's search finds.
    pub(crate) fn open(name: &Path) -> Result<Self, LoadError> {
        let handle = open(name, FLAGS).map_err(|cause| LoadError::NotFound {
            library: name.to_owned(),
            cause,
        })?;
        Ok(Self {
            handle,
            path: path_of(handle).unwrap_or_else(|| name.to_owned()),
        })
    }

    /// The UCX that the process has loaded already, if any: under its own name, or under one with a
    /// version, or with the hash that tools which pack wheels put in (`libucp-0a1b2c3d.so.0.0.0`).
    pub(crate) fn already_loaded() -> Option<Self> {
        std::iter::once(PathBuf::from(UCP))
            .chain(loaded_files().into_iter().filter(|path| is_ucp(path)))
            .find_map(|name| Self::open_loaded(&name))
    }

    /// `name`, if the process has loaded it already.
    pub(crate) fn open_loaded(name: &Path) -> Option<Self> {
        let handle = open(name, FLAGS | libc::RTLD_NOLOAD).ok()?;
        Some(Self {
            handle,
            path: path_of(handle).unwrap_or_else(|| name.to_owned()),
        })
    }

    /// Whether both are one library: the linker gives one handle for each, whatever its names.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.handle == other.handle
    }

    /// The file, as the dynamic linker knows it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The address of `function`, in the library or in one that it is linked with: so libucp's
    /// handle gives the functions of exactly the libucs that it uses.
    pub(crate) fn symbol(&self, function: &'static str) -> Result<*mut c_void, LoadError> {
        let missing = || LoadError::NotUcx {
            library: self.path.clone(),
            function,
        };
        let name = CString::new(function).map_err(|_| missing())?;
        // SAFETY: the handle is open for ever, and the name ends with a zero.
        let symbol = unsafe { libc::dlsym(self.handle, name.as_ptr()) };
        if symbol.is_null() {
            Err(missing())
        } else {
            Ok(symbol)
        }
    }
}

/// A handle on `name`, or the linker's reason why there is none.
fn open(name: &Path, flags: c_int) -> Result<*mut c_void, String> {
    let name = CString::new(name.as_os_str().as_bytes())
        .map_err(|_| "the name has a zero byte in it".to_owned())?;
    // SAFETY: the name ends with a zero. Constructors of the library run: that is what loading is.
    let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: dlerror gives NULL or a string that lives until this thread's next call of its
    // family.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return Err("the dynamic linker gives no reason".to_owned());
    }
    // SAFETY: not NULL, hence such a string, and it is copied before any other call.
    Err(unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned())
}

unsafe extern "C" {
    // glibc and musl have it; the crate libc knows glibc's alone.
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
}

/// Asks for the link map, in glibc and musl.
const RTLD_DI_LINKMAP: c_int = 2;

/// The file behind a handle.
fn path_of(handle: *mut c_void) -> Option<PathBuf> {
    // The head of `struct link_map`, the part that <link.h> makes public.
    #[repr(C)]
    struct LinkMap {
        address: usize,
        name: *const std::ffi::c_char,
    }
    let mut map = MaybeUninit::<*const LinkMap>::uninit();
    // SAFETY: the handle is open, and this request writes one pointer to where `info` points.
    if unsafe { dlinfo(handle, RTLD_DI_LINKMAP, map.as_mut_ptr().cast()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it wrote.
    let map = unsafe { map.assume_init() };
    // SAFETY: the map of an open library, which begins with these fields, lives as long as it does.
    let name = unsafe { (*map).name };
    // SAFETY: the linker's own copy of the path, never NULL, and never freed while the library is
    // open.
    let name = unsafe { CStr::from_ptr(name) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The files of all libraries of the process.
fn loaded_files() -> Vec<PathBuf> {
    unsafe extern "C" fn collect(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        files: *mut c_void,
    ) -> c_int {
        // SAFETY: `files` is the vector below, which nobody else uses during the iteration.
        let files = unsafe { &mut *files.cast::<Vec<PathBuf>>() };
        // SAFETY: the C library passes a valid description to each call.
        let name = unsafe { (*info).dlpi_name };
        if !name.is_null() {
            // SAFETY: a string that lives as long as the iteration holds the linker's lock.
            let name = unsafe { CStr::from_ptr(name) };
            files.push(PathBuf::from(OsStr::from_bytes(name.to_bytes())));
        }
        0
    }
    let mut files = Vec::<PathBuf>::new();
    // SAFETY: `collect` takes the vector as which `data` is passed, and keeps no pointer to it.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut files).cast()) };
    files
}

/// Whether this file is called as UCX's library is.
fn is_ucp(path: &Path) -> bool {
    let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
    name.strip_prefix(b"libucp")
        .is_some_and(|rest| rest.starts_with(b".so") || rest.starts_with(b"-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A UCX is recognised by its name, with any version or hash in it, and no other library is.
    #[test]
    fn names_of_ucp() {
        for name in [
            "/usr/lib/libucp.so.0",
            "/x/libucp.so.0.0.0",
            "/w/libucp-25c1d8b5.so.0.0.0",
            "libucp.so",
        ] {
            assert!(is_ucp(Path::new(name)), "{name}");
        }
        for name in [
            "",
            "/",
            "/usr/lib/libucs.so.0",
            "/usr/lib/libucpp.so",
            "/libucp.so/libc.so.6",
        ] {
            assert!(!is_ucp(Path::new(name)), "{name}");
        }
    }

    /// Libraries of the process are seen, with names under which they are found again.
    #[test]
    fn libraries_of_the_process_are_found_again() {
        let libc = loaded_files()
            .into_iter()
            .find(|path| path.file_name().is_some_and(|name| name == "libc.so.6"))
            .expect("every test program has a C library");
        let found = Library::open_loaded(&libc).expect("it is loaded");
        assert_eq!(found.path(), libc);
        assert!(found.is(&Library::open_loaded(Path::new("libc.so.6")).unwrap()));
        assert!(found.symbol("dlopen").is_ok());
        assert!(Library::open_loaded(Path::new("libucx1-sys-nothing.so")).is_none());
    }
}
