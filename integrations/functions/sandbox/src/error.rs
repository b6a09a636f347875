use std::fmt;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a module was refused, or why one call of it ended. An error ends that call alone: the
/// sandbox and the module take further calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes are not a module that a sandbox takes. The text names the import or the export.
    #[error("the module is refused: {0}")]
    Module(String),
    /// The function failed. The text is its own, with control characters replaced.
    #[error("the function failed: {0}")]
    Function(String),
    /// The module's code did what WebAssembly forbids: it divided by zero, left its memory, ran
    /// out of stack, and so on.
    #[error("the function was stopped by a trap: {0}")]
    Trap(String),
    /// The call reached a bound.
    #[error("the function reached the bound of {bound}: {value}")]
    Limit {
        /// The bound.
        bound: Bound,
        /// Its value, in the unit of its field in [`Limits`](crate::Limits) or
        /// [`Options`](crate::Options); `time` in milliseconds.
        value: u64,
    },
    /// The module gave something that is no Arrow data, or not the data of its schema.
    #[error("the function's output is wrong: {0}")]
    Data(String),
    /// The caller's table or arguments cannot be given to a module.
    #[error("the function's input is not supported: {0}")]
    Input(String),
    /// A batch of the caller's table is no Arrow data.
    #[error("the function's input is wrong: {0}")]
    Batch(String),
    /// The function asks to go on elsewhere, which this host does not allow
    /// ([`Policy::allow_peer`](crate::service::Policy::allow_peer)).
    #[error("the function asks for another server, and this one's policy lists none (allow_peer)")]
    NoPeers,
    /// The call was cancelled by its [`Canceller`](crate::Canceller).
    #[error("the call was cancelled")]
    Cancelled,
    /// The call has ended before: it failed, or its input has ended.
    #[error("the call is over")]
    Over,
    /// This host cannot run a sandbox, or no further instance.
    #[error("the host runs no module: {0}")]
    Host(String),
    /// A folder of a cache, or a file there, could not be used.
    #[error("{path}: {source}")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A bound of a call or of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Bound {
    /// [`Limits::fuel`](crate::Limits::fuel)
    Fuel,
    /// [`Limits::time`](crate::Limits::time)
    Time,
    /// [`Limits::memory_bytes`](crate::Limits::memory_bytes)
    Memory,
    /// [`Limits::output_rows`](crate::Limits::output_rows)
    OutputRows,
    /// [`Limits::output_bytes`](crate::Limits::output_bytes)
    OutputBytes,
    /// [`Limits::step_bytes`](crate::Limits::step_bytes)
    StepBytes,
    /// [`Options::module_bytes`](crate::Options::module_bytes)
    ModuleBytes,
    /// [`ModulesOptions::bytes`](crate::ModulesOptions::bytes), with room for a module at all
    KeptBytes,
    /// [`ModulesOptions::count`](crate::ModulesOptions::count), which is 0
    KeptModules,
    /// [`Limits::hops`](crate::Limits::hops): the value is this host's own, and a host where the
    /// call was before may have a lower one.
    Hops,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fuel => "fuel",
            Self::Time => "time in milliseconds",
            Self::Memory => "memory in bytes",
            Self::OutputRows => "output rows",
            Self::OutputBytes => "output bytes",
            Self::StepBytes => "output bytes of one step",
            Self::ModuleBytes => "the module's bytes",
            Self::KeptBytes => "bytes of kept modules",
            Self::KeptModules => "kept modules",
            Self::Hops => "hops to other servers",
        })
    }
}
