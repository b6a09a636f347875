use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::HostFiles;

/// What one call of a function may use, from its start to its end.
#[derive(Clone, Debug)]
pub struct Limits {
    /// About one unit for each instruction of the module. Default: 2^40, some ten minutes.
    pub fuel: u64,
    /// Time inside the module, and in the host's functions that the module calls. The time
    /// between two batches does not count. Default: 60 s. A call ends a few milliseconds late.
    pub time: Duration,
    /// The module's linear memory, in bytes. Default: 256 MiB.
    pub memory_bytes: u64,
    /// Rows of all output. Default: 2^32.
    pub output_rows: u64,
    /// Bytes of all output, as they lie in the host's memory. Default: 64 GiB.
    pub output_bytes: u64,
    /// Bytes that one step (a batch of the input, or its end) may put out. The host holds them
    /// until the step has ended. Default: 256 MiB.
    pub step_bytes: u64,
    /// How often the call may go on at another server ([`Forward`](crate::Forward)), counted from
    /// its first server. 0 for a host that does not follow. Default: 64.
    pub hops: u32,
    /// How long a server where the call goes on may send nothing while this one waits for it. It
    /// sends nothing while a step runs there, nor while it waits for a further server itself.
    /// Default: ten minutes.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            fuel: 1 << 40,
            time: Duration::from_secs(60),
            memory_bytes: 256 << 20,
            output_rows: 1 << 32,
            output_bytes: 64 << 30,
            step_bytes: 256 << 20,
            hops: 64,
            stall: Duration::from_secs(600),
        }
    }
}

/// How a [`Sandbox`](crate::Sandbox) is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The greatest module, in bytes. Compilation has no other bound. Default: 16 MiB.
    pub module_bytes: usize,
    /// A folder for compiled code, made if it is missing. Code from there runs unchecked: nobody
    /// but this host may write there. `None` (default): each process compiles for itself.
    pub code_folder: Option<PathBuf>,
    /// Finds the files behind input, of which large buffers are then mapped and not copied. `None`
    /// (default): all input is copied.
    pub files: Option<Arc<dyn HostFiles>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            module_bytes: 16 << 20,
            code_folder: None,
            files: None,
        }
    }
}
