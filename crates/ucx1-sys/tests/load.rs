//! Loading UCX, once with each UCX that is on the machine.
//!
//! A process has at most one UCX, so each case runs in a process of its own: this program again,
//! which then runs [`child`] alone. It tells which case by an environment variable.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use ucx1_sys::{
    Api, LIBRARY_VARIABLE, LoadError, UCP_FEATURE_AM, UCP_FEATURE_TAG, UCP_FEATURE_WAKEUP,
    UCP_PARAM_FIELD_FEATURES, UCS_ERR_CANCELED, UCS_LOG_LEVEL_WARN, UCS_OK, load, ucp_config_t,
    ucp_context_h, ucp_feature, ucp_params_t, ucp_worker_h, ucp_worker_params_t, ucs_log_level_t,
    ucs_status_t,
};

/// Which of [`CASES`] the child runs.
const CASE: &str = "UCX1_SYS_TEST_CASE";
/// The library that the case is about.
const LIBRARY: &str = "UCX1_SYS_TEST_LIBRARY";
/// A variable that looks like UCX's, of which UCX warns.
const UNKNOWN: &str = "UCX_DIPC_KNOWS_NO_SUCH_VARIABLE";

type Case = (&'static str, fn(&Path));
const CASES: [Case; 8] = [
    ("host", host_stays_as_it_was),
    ("log", log_comes_to_the_handler),
    ("variable", variable_names_the_library),
    ("twice", second_library_is_refused),
    ("shared", library_of_the_process_is_used),
    ("calls", calls_reach_the_library),
    ("retry", failure_is_not_kept),
    ("version", version_is_refused),
];

/// Where UCX is: Debian's, which the linker finds, and PyPI's, if `tools/setup.sh test` installed
/// it. `UCX1_SYS_TEST_LIBRARIES` (separated by `:`) names others.
fn libraries() -> Vec<PathBuf> {
    let mut libraries = Vec::new();
    // SAFETY: libucp's constructors touch nothing of this program but signal handlers.
    let handle = unsafe { libc::dlopen(c"libucp.so.0".as_ptr(), libc::RTLD_LAZY) };
    if handle.is_null() {
        eprintln!("skipped for Debian's UCX: libucp.so.0 is not installed (apt install libucx0)");
    } else {
        libraries.push(PathBuf::from("libucp.so.0"));
    }
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/venv/lib");
    let wheel = std::fs::read_dir(venv)
        .into_iter()
        .flatten()
        .flatten()
        .map(|python| python.path().join("site-packages/libucx/lib/libucp.so.0"))
        .find(|library| library.exists());
    match wheel {
        Some(wheel) => libraries.push(wheel),
        None => eprintln!("skipped for PyPI's UCX: libucx-cu12 is not in .tools (tools/setup.sh)"),
    }
    if let Some(named) = std::env::var_os("UCX1_SYS_TEST_LIBRARIES") {
        libraries.extend(std::env::split_paths(&named));
    }
    libraries
}

/// Runs a case with each library. `prepare` may set the child's environment.
fn run(case: &str, prepare: impl Fn(&mut Command, &Path)) {
    for library in libraries() {
        run_with(case, &library, &prepare);
    }
}

/// Runs a case in a process of its own, and asserts that it succeeds and that UCX prints nothing.
fn run_with(case: &str, library: &Path, prepare: &impl Fn(&mut Command, &Path)) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "child", "--ignored", "--nocapture"])
        .env(CASE, case)
        .env(LIBRARY, library)
        .env_remove(LIBRARY_VARIABLE);
    prepare(&mut command, library);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(
        output.status.success(),
        "{case} with {}: {text}",
        library.display()
    );
    assert!(
        text.contains("test result: ok. 1 passed"),
        "no case ran: {text}"
    );
    assert!(!text.contains("UCX  "), "UCX printed: {text}");
}

/// What the tests below run in processes of their own.
#[test]
#[ignore = "run by the other tests, with the variables that it needs"]
fn child() {
    let (Some(wanted), Some(library)) = (std::env::var_os(CASE), std::env::var_os(LIBRARY)) else {
        eprintln!("skipped: this is for the other tests, which set {CASE} and {LIBRARY}");
        return;
    };
    let (_, case) = CASES
        .iter()
        .find(|(name, _)| wanted == **name)
        .expect("a case of this name");
    case(Path::new(&library));
}

#[test]
fn loading_leaves_the_host_as_it_was() {
    run("host", |_, _| {});
}

fn host_stays_as_it_was(library: &Path) {
    let before = Host::now();
    let api = load(Some(library)).unwrap();
    assert_eq!(before.differences(), Vec::<String>::new());
    assert!(
        (1, 12, 0) <= api.version() && api.version() < (2, 0, 0),
        "{:?}",
        api.version()
    );
    // What a transport does next changes nothing either.
    Ucx::new(api);
    assert_eq!(before.differences(), Vec::<String>::new());
}

#[test]
fn log_goes_to_the_handler_and_is_not_printed() {
    run("log", |command, _| {
        command.env(UNKNOWN, "1");
    });
}

fn log_comes_to_the_handler(library: &Path) {
    static MESSAGES: Mutex<Vec<(ucs_log_level_t, String, u32, String)>> = Mutex::new(Vec::new());
    let api = load(Some(library)).unwrap();
    api.set_log_handler(Some(|level, file, line, text| {
        MESSAGES
            .lock()
            .unwrap()
            .push((level, file.into(), line, text.into()));
        // It may not cross into C, where unwinding would end the process. Without the hook, which
        // would print.
        std::panic::resume_unwind(Box::new("the handler's own mistake"));
    }));
    drop(Ucx::new(api));
    let messages = MESSAGES.lock().unwrap();
    let found = messages.iter().find(|(.., text)| text.contains(UNKNOWN));
    let (level, file, line, _) = found.unwrap_or_else(|| panic!("{messages:?}"));
    assert_eq!(*level, UCS_LOG_LEVEL_WARN);
    assert!(file.ends_with("parser.c") && *line > 0, "{file}:{line}");
}

#[test]
fn the_environment_names_the_library() {
    run("variable", |command, library| {
        command.env(LIBRARY_VARIABLE, library);
    });
}

fn variable_names_the_library(library: &Path) {
    let api = load(None).unwrap();
    if library.is_absolute() {
        assert_eq!(api.path(), library);
    }
    // A default does not compete with what is loaded, and a name that is the same library is no
    // other.
    assert!(std::ptr::eq(load(None).unwrap(), api));
    assert!(std::ptr::eq(load(Some(library)).unwrap(), api));
    assert!(std::ptr::eq(load(Some(api.path())).unwrap(), api));
}

#[test]
fn a_second_library_is_refused_by_name() {
    run("twice", |_, _| {});
}

fn second_library_is_refused(library: &Path) {
    let api = load(Some(library)).unwrap();
    let other = Path::new("/nowhere/libucp.so.0");
    let error = load(Some(other)).unwrap_err();
    let loaded = api.path().to_owned();
    assert_eq!(
        error,
        LoadError::AlreadyLoaded {
            loaded,
            wanted: other.to_owned()
        }
    );
    let text = error.to_string();
    assert!(text.contains("/nowhere/libucp.so.0"), "{text}");
    assert!(text.contains(api.path().to_str().unwrap()), "{text}");
}

#[test]
fn a_library_that_the_process_has_is_used() {
    run("shared", |command, _| {
        command.env(LIBRARY_VARIABLE, "/nowhere/libucp.so.0");
    });
}

fn library_of_the_process_is_used(library: &Path) {
    let name = CString::new(library.as_os_str().as_bytes()).unwrap();
    // SAFETY: as another package of the host would; the name ends with a zero.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null());
    let api = load(None).unwrap();
    // SAFETY: the handle is open, and the name ends with a zero.
    let theirs = unsafe { libc::dlsym(handle, c"ucp_get_version_string".as_ptr()) };
    assert!(!theirs.is_null());
    assert_eq!(file_of(theirs), api.path());
}

#[test]
fn functions_and_structs_are_the_librarys() {
    run("calls", |_, _| {});
}

/// Structs go in and come out, and statuses have their texts.
fn calls_reach_the_library(library: &Path) {
    let api = load(Some(library)).unwrap();
    // SAFETY: asks for nothing.
    let version = unsafe { api.ucp_get_version_string() };
    // SAFETY: a constant string of UCX's.
    let version = unsafe { CStr::from_ptr(version) }.to_str().unwrap();
    let (major, minor, _) = api.version();
    assert!(
        version.starts_with(&format!("{major}.{minor}.")),
        "{version}"
    );
    assert_eq!(api.status_text(UCS_ERR_CANCELED), "Request canceled");

    let mut attributes = ucx1_sys::ucp_lib_attr_t {
        field_mask: u64::from(ucx1_sys::UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL),
        ..Default::default()
    };
    // SAFETY: a struct of the library's, whose mask names the field to write.
    check(api, unsafe { api.ucp_lib_query(&raw mut attributes) });
    assert!(attributes.max_thread_level <= ucx1_sys::UCS_THREAD_MODE_MULTI);

    let ucx = Ucx::new(api);
    let mut attributes = ucx1_sys::ucp_worker_attr_t {
        field_mask: u64::from(ucx1_sys::UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER),
        ..Default::default()
    };
    // SAFETY: a live worker, and a struct whose mask names the field to write.
    check(api, unsafe {
        api.ucp_worker_query(ucx.worker, &raw mut attributes)
    });
    assert!(
        attributes.max_am_header >= 5,
        "{}",
        attributes.max_am_header
    );
    let mut event = -1;
    // SAFETY: a live worker of a context with WAKEUP, and a number to write.
    check(api, unsafe {
        api.ucp_worker_get_efd(ucx.worker, &raw mut event)
    });
    assert!(event >= 0);
}

#[test]
fn a_failure_is_not_kept() {
    run("retry", |_, _| {});
}

fn failure_is_not_kept(library: &Path) {
    let missing = Path::new("/nowhere/libucp.so.0");
    let text = load(Some(missing)).unwrap_err().to_string();
    for part in [
        "/nowhere/libucp.so.0: cannot open",
        "apt install libucx0",
        "libucx-cu12",
        LIBRARY_VARIABLE,
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let error = load(Some(Path::new("libm.so.6"))).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::NotUcx {
                function: "ucp_get_version",
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("libm.so.6"), "{error}");
    assert!(load(Some(library)).is_ok());
}

/// Before 1.12 structs differ, and 2 may change anything.
#[test]
fn other_versions_are_refused() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (major, minor) in [(1, 11), (2, 0), (0, 12)] {
        let source = folder.join(format!("ucx-{major}-{minor}.c"));
        let library = source.with_extension("so");
        let text = format!(
            "void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release) {{\n  \
             *major = {major};\n  *minor = {minor};\n  *release = 7;\n}}\n"
        );
        std::fs::write(&source, text).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .status()
            .unwrap();
        assert!(built.success());
        run_with("version", &library, &|_, _| {});
    }
}

fn version_is_refused(library: &Path) {
    let error = load(Some(library)).unwrap_err();
    let text = error.to_string();
    let LoadError::Version {
        library: refused,
        version: (major, minor, 7),
    } = error
    else {
        panic!("{text}");
    };
    assert_eq!(refused, library);
    assert!(text.contains(&format!("UCX {major}.{minor}.7")), "{text}");
    assert!(text.contains("1.12 or later"), "{text}");
}

/// A context and a worker, gone when dropped.
struct Ucx {
    api: &'static Api,
    context: ucp_context_h,
    worker: ucp_worker_h,
}

impl Ucx {
    fn new(api: &'static Api) -> Self {
        let features: ucp_feature = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
        let parameters = ucp_params_t {
            field_mask: u64::from(UCP_PARAM_FIELD_FEATURES),
            features: u64::from(features),
            ..Default::default()
        };
        let mut config: *mut ucp_config_t = std::ptr::null_mut();
        // SAFETY: NULL names the default prefix and file, and the third is a place to write to.
        check(api, unsafe {
            api.ucp_config_read(std::ptr::null(), std::ptr::null(), &raw mut config)
        });
        let mut context = std::ptr::null_mut();
        // SAFETY: parameters with the fields of their mask, that configuration, a place to write
        // to.
        check(api, unsafe {
            api.ucp_init(&raw const parameters, config, &raw mut context)
        });
        // SAFETY: the configuration, which UCX copied.
        unsafe { api.ucp_config_release(config) };
        let parameters = ucp_worker_params_t::default();
        let mut worker = std::ptr::null_mut();
        // SAFETY: a live context, parameters with no field, a place to write to.
        check(api, unsafe {
            api.ucp_worker_create(context, &raw const parameters, &raw mut worker)
        });
        Self {
            api,
            context,
            worker,
        }
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        // SAFETY: a live worker without endpoints.
        unsafe { self.api.ucp_worker_destroy(self.worker) };
        // SAFETY: a live context without workers.
        unsafe { self.api.ucp_cleanup(self.context) };
    }
}

fn check(api: &Api, status: ucs_status_t) {
    assert_eq!(status, UCS_OK, "{}", api.status_text(status));
}

/// The file in which an address lies.
fn file_of(address: *mut c_void) -> PathBuf {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: a place to write to.
    assert_ne!(unsafe { libc::dladdr(address, info.as_mut_ptr()) }, 0);
    // SAFETY: the call succeeded, so it wrote.
    let info = unsafe { info.assume_init() };
    // SAFETY: the linker's name of an open library.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    PathBuf::from(name.to_str().unwrap())
}

/// What of a process UCX could change when loaded.
struct Host {
    /// Per signal: handler and flags.
    signals: Vec<Option<(usize, i32)>>,
    environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    /// Where this thread runs handlers, and whether it does.
    stack: (usize, i32),
}

impl Host {
    fn now() -> Self {
        Self {
            signals: (1..=64).map(signal).collect(),
            environment: env(),
            stack: stack(),
        }
    }

    fn differences(&self) -> Vec<String> {
        let now = Self::now();
        let mut found = Vec::new();
        for (number, (before, after)) in (1..).zip(self.signals.iter().zip(&now.signals)) {
            if before != after {
                found.push(format!("signal {number}: {before:x?} -> {after:x?}"));
            }
        }
        if self.environment != now.environment {
            found.push(format!(
                "environment: {:?} -> {:?}",
                self.environment, now.environment
            ));
        }
        if self.stack != now.stack {
            found.push(format!(
                "signal stack: {:x?} -> {:x?}",
                self.stack, now.stack
            ));
        }
        found
    }
}

fn env() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    std::env::vars_os().collect()
}

fn signal(number: i32) -> Option<(usize, i32)> {
    const SA_RESTORER: i32 = 0x0400_0000; // the C library's own
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads, into a place of the right type.
    let result = unsafe { libc::sigaction(number, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeros are valid for all its fields.
    let action = unsafe { action.assume_init() };
    (result == 0).then_some((action.sa_sigaction, action.sa_flags & !SA_RESTORER))
}

fn stack() -> (usize, i32) {
    let mut stack = std::mem::MaybeUninit::<libc::stack_t>::zeroed();
    // SAFETY: only reads, into a place of the right type.
    let result = unsafe { libc::sigaltstack(std::ptr::null(), stack.as_mut_ptr()) };
    assert_eq!(result, 0);
    // SAFETY: the call succeeded, so it wrote.
    let stack = unsafe { stack.assume_init() };
    (stack.ss_sp.addr(), stack.ss_flags)
}
