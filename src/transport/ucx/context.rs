//! UCX in this process: one context for each set of settings.

use std::collections::HashMap;
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use once_cell::sync::{Lazy, OnceCell};
use parking_lot::Mutex;
use ucx1_sys::{
    Api, UCP_ATTR_FIELD_MEMORY_TYPES, UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
    UCP_FEATURE_AM, UCP_FEATURE_TAG, UCP_FEATURE_WAKEUP, UCP_PARAM_FIELD_FEATURES,
    UCP_PARAM_FIELD_MT_WORKERS_SHARED, UCS_MEMORY_TYPE_CUDA, UCS_OK, ucp_config_t,
    ucp_context_attr_t, ucp_context_h, ucp_err_handling_mode_t, ucp_params_t,
};

use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::transport::Settings;
use crate::transport::patience::{PATIENCE_SETTING, Patience};
use crate::transport::ucx::ending;
use crate::transport::ucx::error::{error, version_text};
use crate::transport::ucx::log::log;
use crate::transport::ucx::resources::Resources;
use crate::transport::ucx::room;

/// The setting that names the library to load.
const LIBRARY: &str = "library";
/// The setting that says whether a dead peer is noticed.
const ERROR_HANDLING: &str = "error_handling";
/// Settings that are not passed on to UCX.
const OURS: [&str; 3] = [LIBRARY, ERROR_HANDLING, PATIENCE_SETTING];

/// Which addresses of a device UCX uses over TCP. By default UCX prefers IPv4 whatever address it
/// connected to. Then it writes the other end's longer IPv6 address past the end of its buffer.
const TCP_FAMILIES: &str = "TCP_AF_PRIO";
/// The oldest UCX that is known to take [`TCP_FAMILIES`] as a setting.
const OBEYS_TCP_FAMILIES: (u32, u32, u32) = (1, 15, 0);
/// How much UCX sends over tcp in one piece, with one system call: 8 KiB by default.
const TCP_SEGMENT: &str = "TCP_TX_SEG_SIZE";
/// Not more than this, because a peer with UCX's own settings receives at most this much in one
/// piece.
const TCP_SEGMENT_BYTES: &str = "64k";
/// How much UCX receives over tcp in one piece. In newer versions tcp does not open if this is less
/// than [`TCP_SEGMENT`]; the default is [`TCP_SEGMENT_BYTES`].
const TCP_RECEIVED_SEGMENT: &str = "TCP_RX_SEG_SIZE";
/// The transports that UCX may use.
const TRANSPORTS: &str = "TLS";
/// All transports but shared memory. UCX may put shared memory into files, and a limit on their
/// size would end the process. On one host the transport shm is available instead.
const BETWEEN_HOSTS: &str = "^shm";
/// Whether a listener may take an address while connections of an earlier listener have not ended.
/// Without it, the port of a server that was killed stays taken for a minute.
const REUSES_ADDRESS: &str = "TCP_CM_REUSEADDR";
/// The oldest UCX that takes the settings of its transports by their whole names. Older versions
/// take them without the name of the transport.
const WHOLE_NAMES: (u32, u32, u32) = (1, 17, 0);
/// The first UCX that carries several large messages over one tcp connection at once. In earlier
/// versions an assertion may end the process (`PUT_TX_WAITING_ACK`).
const CARRIES_SEVERAL: (u32, u32, u32) = (1, 14, 0);

/// A context of UCX. It lives as long as a worker of it does.
#[derive(Debug)]
pub(super) struct Context {
    /// The library.
    pub(super) api: &'static Api,
    /// Valid while `self` lives.
    pub(super) handle: ucp_context_h,
    /// The error mode of endpoints.
    pub(super) error_mode: ucp_err_handling_mode_t,
    /// The transports and devices that UCX uses.
    pub(super) resources: Resources,
    /// Listeners may take addresses that connections of earlier listeners still hold.
    pub(super) reuses_addresses: bool,
    /// Whether UCX sends and receives memory of NVIDIA's GPUs: it was built with CUDA, found the
    /// driver, and no setting prevents it from using them.
    pub(super) knows_cuda: bool,
    generation: Generation,
}

// SAFETY: the context was made with `mt_workers_shared`, with which UCX locks what threads share.
unsafe impl Send for Context {}
// SAFETY: the context was made with `mt_workers_shared`, with which UCX locks what threads share.
unsafe impl Sync for Context {}

/// Our settings, sorted; whether addresses are IPv6; and the features in addition to the usual
/// ones.
type ContextKey = (Vec<(String, String)>, bool, u64);

/// The contexts now in use.
static CONTEXTS: Lazy<Mutex<HashMap<ContextKey, Weak<Context>>>> = Lazy::new(Mutex::default);

/// Whether UCX or this module may know a setting, given without its scheme.
///
/// # Errors
///
/// `InvalidArgument`: a setting of this module does not take the value.
pub(super) fn takes_setting(name: &str, value: &str) -> Result<bool> {
    match name {
        LIBRARY => Ok(true),
        ERROR_HANDLING => error_mode(value).map(|_| true),
        PATIENCE_SETTING => Patience::parse(value, "ucx").map(|_| true),
        _ => {
            let is_key = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            Ok(!name.is_empty() && name.chars().all(is_key))
        }
    }
}

/// Parses a value of [`ERROR_HANDLING`].
fn error_mode(value: &str) -> Result<ucp_err_handling_mode_t> {
    match value {
        "peer" => Ok(UCP_ERR_HANDLING_MODE_PEER),
        "none" => Ok(UCP_ERR_HANDLING_MODE_NONE),
        other => Err(Error::invalid_argument(format!(
            "ucx.error_handling is `{other}`; it is `peer`, the default, or `none`, which does not \
             notice a dead peer and lets UCX use more kinds of shared memory"
        ))),
    }
}

/// Loads UCX, or returns an error that says what is missing.
///
/// # Errors
///
/// `Unsupported`: UCX cannot be loaded; `Forked`: a parent of this process has loaded it.
pub(super) fn load(library: Option<&str>) -> Result<&'static Api> {
    static LOADED_IN: OnceCell<Generation> = OnceCell::new();
    // Done before UCX is loaded, and before a lock is taken that a thread of a parent may have
    // held.
    let generation = LOADED_IN.get_or_init(Generation::now);
    if !generation.is_same_process() {
        return Err(Error::new(
            Status::Forked,
            "UCX was used before this process was forked, and its threads are the parent's: use \
             libdipc over ucx in one of the two, or call exec in the child",
        ));
    }
    static IS_LOADED: AtomicBool = AtomicBool::new(false);
    if !IS_LOADED.load(Ordering::Acquire) {
        room::ensure(room::OF_A_CONTEXT)?;
    }
    let api = ucx1_sys::load(library.map(Path::new))
        .map_err(|error| Error::unsupported(error.to_string()))?;
    IS_LOADED.store(true, Ordering::Release);
    api.set_log_handler(Some(log));
    ending::watch();
    Ok(api)
}

/// Loads the UCX that the settings name.
///
/// # Errors
///
/// As [`load`].
pub(super) fn of_settings(settings: &Settings) -> Result<&'static Api> {
    let mut ours = settings.of("ucx");
    let library = ours.find_map(|(name, value)| (name == LIBRARY).then_some(value));
    load(library)
}

impl Context {
    /// The context for these settings and the family of an address, with the features that kind 0
    /// needs and `extra_features`.
    ///
    /// # Errors
    ///
    /// `Unsupported` without UCX; `InvalidArgument` for a setting that UCX does not take.
    pub(super) fn get(settings: &Settings, ipv6: bool, extra_features: u64) -> Result<Arc<Self>> {
        let ours: Vec<_> = settings
            .of("ucx")
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let value = |wanted: &str| {
            let found = ours.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.as_str())
        };
        let api = of_settings(settings)?;
        let error_mode =
            value(ERROR_HANDLING).map_or(Ok(UCP_ERR_HANDLING_MODE_PEER), error_mode)?;
        if ipv6 && api.version() < OBEYS_TCP_FAMILIES {
            return Err(Error::unsupported(format!(
                "UCX {} cannot be used with IPv6 addresses: give an IPv4 address, or install UCX \
                 1.15 or later",
                version_text(api)
            )));
        }
        let key = (ours.clone(), ipv6, extra_features);
        let mut contexts = CONTEXTS.lock();
        if let Some(context) = contexts.get(&key).and_then(Weak::upgrade) {
            return Ok(context);
        }
        room::ensure(room::OF_A_CONTEXT)?;
        let theirs = ours.iter().filter(|(name, _)| !OURS.contains(&&**name));
        let handle = init(api, &theirs.collect::<Vec<_>>(), ipv6, extra_features)?;
        let context = Arc::new(Self {
            api,
            handle,
            error_mode,
            // SAFETY: it was just made.
            resources: unsafe { Resources::of(api, handle) },
            reuses_addresses: says_yes(value(REUSES_ADDRESS), REUSES_ADDRESS),
            knows_cuda: knows_cuda(api, handle),
            generation: Generation::now(),
        });
        contexts.retain(|_, context| context.strong_count() > 0);
        contexts.insert(key, Arc::downgrade(&context));
        Ok(context)
    }

    /// Whether tcp is the only transport: then no peer reads this process's memory by itself.
    pub(super) fn goes_over_tcp(&self) -> bool {
        self.resources.are_tcp()
    }

    /// Whether large bodies must be received one after the other.
    pub(super) fn receives_by_turns(&self) -> bool {
        self.goes_over_tcp() && self.api.version() < CARRIES_SEVERAL
    }

    /// How many file descriptors a worker and its endpoint may take.
    pub(super) fn worker_descriptors(&self) -> u64 {
        room::of_a_worker(self.resources.0.len())
    }
}

fn is_in_environment(name: &str) -> bool {
    std::env::var_os(format!("UCX_{name}")).is_some()
}

/// The value of a setting that is yes by default: the given value, or else the environment's.
fn says_yes(value: Option<&str>, name: &str) -> bool {
    let value = value.map(str::to_owned);
    let said = value.or_else(|| std::env::var(format!("UCX_{name}")).ok());
    said.is_none_or(|said| matches!(&*said.to_lowercase(), "y" | "yes" | "1" | "on"))
}

fn init(
    api: &'static Api,
    given: &[&(String, String)],
    ipv6: bool,
    extra_features: u64,
) -> Result<ucp_context_h> {
    let mut config = Config::read(api)?;
    // Defaults of this module, unless the environment or the given settings say otherwise.
    let is_set = |key| is_in_environment(key) || given.iter().any(|(name, _)| name == key);
    // If UCX was built without tcp, there are no such settings.
    if !is_set(TCP_SEGMENT) && !is_set(TCP_RECEIVED_SEGMENT) {
        let _ = config.set(TCP_SEGMENT, TCP_SEGMENT_BYTES);
    }
    if !is_set(TRANSPORTS) {
        config.set(TRANSPORTS, BETWEEN_HOSTS)?;
    }
    if !is_set(REUSES_ADDRESS) {
        let _ = config.set(REUSES_ADDRESS, "y");
    }
    if ipv6 {
        config.set(TCP_FAMILIES, "inet6,inet")?;
    }
    for (name, value) in given {
        config.set(name, value)?;
    }
    let params = ucp_params_t {
        field_mask: u64::from(UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED),
        features: u64::from(UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP) | extra_features,
        mt_workers_shared: 1,
        ..ucp_params_t::default()
    };
    let mut handle = std::ptr::null_mut();
    // SAFETY: both structs are readable, what the mask names is set; `handle` is writable.
    match unsafe { api.ucp_init(&raw const params, config.handle, &raw mut handle) } {
        UCS_OK => Ok(handle),
        status if given.is_empty() => Err(error(api, "cannot initialise UCX", status)),
        status => {
            let given = given
                .iter()
                .map(|(name, value)| format!("ucx.{name}={value}"));
            let given = given.collect::<Vec<_>>().join(", ");
            let doing = format!("cannot initialise UCX with {given} (its log may say more)");
            Err(Error::invalid_argument(error(api, doing, status).text()))
        }
    }
}

/// A configuration of UCX, released on drop.
struct Config {
    api: &'static Api,
    handle: *mut ucp_config_t,
}

impl Config {
    /// The configuration from UCX's defaults and the environment.
    fn read(api: &'static Api) -> Result<Self> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: no prefix and no file is what NULL means; `handle` is writable.
        match unsafe { api.ucp_config_read(std::ptr::null(), std::ptr::null(), &raw mut handle) } {
            UCS_OK => Ok(Self { api, handle }),
            status => Err(error(api, "cannot read UCX's configuration", status)),
        }
    }

    /// Sets `name`, which is the name in the environment without `UCX_`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: UCX knows no such setting, or the setting does not take the value. Older
    /// versions, and settings of transports, report this only later, in UCX's log.
    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let short = name.strip_prefix("TCP_");
        let short = short.filter(|_| self.api.version() < WHOLE_NAMES);
        let no_zero = |_| Error::invalid_argument("a setting of UCX has a zero byte in it");
        let key = CString::new(short.unwrap_or(name)).map_err(no_zero)?;
        let text = CString::new(value).map_err(no_zero)?;
        // SAFETY: the configuration was read and not released; both strings end with a zero and are
        // copied.
        match unsafe { (self.api).ucp_config_modify(self.handle, key.as_ptr(), text.as_ptr()) } {
            UCS_OK => Ok(()),
            status => Err(Error::invalid_argument(format!(
                "UCX {} does not take ucx.{name}={value}: it says \"{}\"",
                version_text(self.api),
                self.api.status_text(status)
            ))),
        }
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: read in `read` and released only here.
        unsafe { self.api.ucp_config_release(self.handle) };
    }
}

/// Whether a context accepts pointers to memory of a GPU, and certainly recognises them.
fn knows_cuda(api: &Api, handle: ucp_context_h) -> bool {
    let mut attributes = ucp_context_attr_t {
        field_mask: u64::from(UCP_ATTR_FIELD_MEMORY_TYPES),
        ..ucp_context_attr_t::default()
    };
    // SAFETY: the context lives; the struct is writable, and only the masked field is written.
    let status = unsafe { api.ucp_context_query(handle, &raw mut attributes) };
    let takes_gpus = status == UCS_OK && attributes.memory_types & (1 << UCS_MEMORY_TYPE_CUDA) != 0;
    takes_gpus && api.turn_memory_type_cache_off()
}

impl Drop for Context {
    fn drop(&mut self) {
        // A forked child has none of UCX's threads, so the memory stays.
        if self.generation.is_same_process()
            && let Some(_held_off) = ending::hold_off()
        {
            // SAFETY: made in `get`; every worker of it held an `Arc` of this and is destroyed.
            unsafe { self.api.ucp_cleanup(self.handle) };
        }
    }
}
