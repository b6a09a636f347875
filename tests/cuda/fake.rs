//! The fake driver (`tests/fake_cuda`): building it, asking it, and playing the producer with it.

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use dipc::device::cuda::later;

use crate::places;

/// Builds the fake driver, once for each set of flags and process, and gives its folder. With the
/// system's driver nothing is built: tests that need the fake are skipped.
pub fn build(name: &str, flags: &[&str]) -> PathBuf {
    let folder = places::scratch(name);
    if crate::has_the_systems_driver() {
        return folder;
    }
    let script = places::in_checkout("tests/fake_cuda/build.sh");
    let output = Command::new(&script)
        .arg(&folder)
        .args(flags)
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    folder
}

/// The folder of the usual fake driver; for the system's driver, the search path.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| match crate::has_the_systems_driver() {
        true => std::env::var_os("LD_LIBRARY_PATH")
            .unwrap_or_default()
            .into(),
        false => build("fake_cuda", &[]),
    })
}

/// A function of the fake, by its name. `F` is its type.
fn find<F: Copy>(name: &CStr) -> F {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    // SAFETY: a C string; the library is loaded already, or its constructor only reads the
    // environment.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    assert!(!library.is_null(), "the fake driver is not there");
    // SAFETY: the library stays loaded, and `name` is a C string.
    let function = unsafe { libc::dlsym(library, name.as_ptr()) };
    if function.is_null() && crate::has_the_systems_driver() {
        std::process::exit(crate::NEEDS_THE_FAKE);
    }
    assert!(!function.is_null(), "the fake driver has no {name:?}");
    // SAFETY: F is a pointer to a function of the name's type, as all calls below show.
    unsafe { std::mem::transmute_copy(&function) }
}

/// Defines Rust functions that call the fake's functions of the same name.
macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident as $symbol:literal($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name($($argument: $type),*) -> $result {
                let function: unsafe extern "C" fn($($type),*) -> $result = find($symbol);
                // SAFETY: the fake checks handles and addresses; pointers come from the tests' own
                // variables.
                unsafe { function($($argument),*) }
            }
        )*
    };
}

calls! {
    fail as c"fakeCudaFail"(function: *const c_char, nth: c_long, code: c_int) -> ();
    calls_of as c"fakeCudaCalls"(function: *const c_char) -> c_long;
    function as c"fakeCudaFunction"(index: c_int) -> *const c_char;
    live as c"fakeCudaLive"(kind: c_int) -> c_long;
    used as c"fakeCudaUsed"(device: c_int) -> usize;
    delay as c"fakeCudaStreamDelay"(stream: *mut c_void, microseconds: c_int) -> ();
    frees_wait as c"fakeCudaFreesWait"(waits: c_int) -> ();
    hold as c"fakeCudaHold"(stream: *mut c_void, held: c_int) -> ();
    context_create as c"cuCtxCreate_v2"(context: *mut *mut c_void, flags: u32, device: c_int) -> c_int;
    context_pop as c"cuCtxPopCurrent_v2"(context: *mut *mut c_void) -> c_int;
    context_destroy as c"cuCtxDestroy_v2"(context: *mut c_void) -> c_int;
    context_current as c"cuCtxGetCurrent"(context: *mut *mut c_void) -> c_int;
    primary_retain as c"cuDevicePrimaryCtxRetain"(context: *mut *mut c_void, device: c_int) -> c_int;
    primary_reset as c"cuDevicePrimaryCtxReset_v2"(device: c_int) -> c_int;
    event_create as c"cuEventCreate"(event: *mut *mut c_void, flags: u32) -> c_int;
    memory_alloc as c"cuMemAlloc_v2"(address: *mut u64, len: usize) -> c_int;
    pool_default as c"cuDeviceGetDefaultMemPool"(pool: *mut *mut c_void, device: c_int) -> c_int;
    pool_alloc as c"cuMemAllocFromPoolAsync"(address: *mut u64, len: usize, pool: *mut c_void, stream: *mut c_void) -> c_int;
    memory_managed as c"cuMemAllocManaged"(address: *mut u64, len: usize, flags: u32) -> c_int;
    memory_free as c"cuMemFree_v2"(address: u64) -> c_int;
    memory_copy as c"cuMemcpy"(target: u64, source: u64, len: usize) -> c_int;
}

/// Memory of the default pool of GPU 0, which cannot be exported.
pub fn alloc_async(len: usize) -> u64 {
    let mut pool = std::ptr::null_mut();
    with_context(0, || assert_eq!(pool_default(&raw mut pool, 0), 0));
    alloc_from(0, pool, len)
}

fn alloc_from(gpu: i32, pool: *mut c_void, len: usize) -> u64 {
    let device = dipc::device::cuda::Device::get(i64::from(gpu)).unwrap();
    let stream = dipc::device::cuda::Stream::new(&device).unwrap();
    let mut address = 0;
    with_context(gpu, || {
        assert_eq!(
            pool_alloc(&raw mut address, len, pool, stream.raw().cast()),
            0
        )
    });
    stream.synchronize().unwrap();
    address
}

/// Frees memory of GPU 0.
pub fn free(address: u64) {
    free_on(0, address);
}

/// Frees memory of a GPU.
pub fn free_on(gpu: i32, address: u64) {
    with_context(gpu, || assert_eq!(memory_free(address), 0));
}

/// The nth call of `function` from now on returns `code`; 0 for never.
pub fn fail_call(function: &str, nth: i64, code: i32) {
    let name = CString::new(function).unwrap();
    fail(name.as_ptr(), nth, code);
}

/// How often `name` was called.
pub fn count(name: &str) -> i64 {
    let name = CString::new(name).unwrap();
    calls_of(name.as_ptr())
}

/// Every function called so far, with how often.
pub fn counts() -> Vec<(String, i64)> {
    (0..)
        .map(function)
        .take_while(|name| !name.is_null())
        .map(|name| {
            // SAFETY: the fake's names stay.
            let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned();
            let calls = count(&name);
            (name, calls)
        })
        .collect()
}

/// The live objects of the fake driver. For another driver they are unknown: then all values are
/// equal, and access to the numbers ends the case ([`crate::NEEDS_THE_FAKE`]).
#[derive(Debug, Clone)]
pub struct Live(Option<Counts>);

impl PartialEq for Live {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl std::ops::Deref for Live {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        let nothing_known = || std::process::exit(crate::NEEDS_THE_FAKE);
        self.0.as_ref().unwrap_or_else(nothing_known)
    }
}

/// The numbers of live objects, by kind, and the bytes in use on the first two devices.
#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Counts {
    pub contexts: i64,
    pub streams: i64,
    pub events: i64,
    pub allocations: i64,
    pub mappings: i64,
    pub opened: i64,
    pub pinned: i64,
    pub modules: i64,
    pub reservations: i64,
    pub used: [usize; 2],
}

impl Live {
    /// The same with another number of modules.
    pub fn with_modules(self, modules: i64) -> Self {
        Self(self.0.map(|counts| Counts { modules, ..counts }))
    }

    /// The current numbers, after all pending frees.
    pub fn now() -> Self {
        later::wait(Duration::from_secs(1));
        if crate::has_the_systems_driver() {
            return Self(None);
        }
        Self(Some(Counts {
            contexts: live(0),
            streams: live(1),
            events: live(2),
            allocations: live(3),
            mappings: live(4),
            opened: live(5),
            pinned: live(6),
            modules: live(7),
            reservations: live(8),
            used: [used(0), used(1)],
        }))
    }
}

/// Reads memory of GPU 0 at once, like a host with its own context.
pub fn read(address: u64, len: usize) -> Vec<u8> {
    read_on(0, address, len)
}

/// [`read`], of any GPU.
pub fn read_on(gpu: i32, address: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    with_context(gpu, || {
        assert_eq!(memory_copy(bytes.as_mut_ptr() as u64, address, len), 0)
    });
    bytes
}

/// Writes memory of GPU 0, as [`read`].
pub fn write(address: u64, bytes: &[u8]) {
    write_on(0, address, bytes);
}

/// [`write`], of any GPU.
pub fn write_on(gpu: i32, address: u64, bytes: &[u8]) {
    with_context(gpu, || {
        assert_eq!(memory_copy(address, bytes.as_ptr() as u64, bytes.len()), 0)
    });
}

fn with_context(gpu: i32, work: impl FnOnce()) {
    let device = dipc::device::cuda::Device::get(i64::from(gpu)).unwrap();
    let _current = device.enter().unwrap();
    work();
}

/// The current context of this thread.
pub fn current() -> *mut c_void {
    let mut context = std::ptr::null_mut();
    assert_eq!(context_current(&raw mut context), 0);
    context
}
