use std::sync::Arc;

use wasmtime::{Cache, CacheConfig, Config, Engine, InstanceAllocationStrategy, Linker};

use crate::host::{self, State};
use crate::memory::HostFiles;
use crate::ticker::Ticker;
use crate::{Error, Module, Options, Result};

/// A place where modules are compiled and run. A clone is the same place.
///
/// It has one thread of its own, which sleeps while no module runs. The thread ends with the last
/// clone, [`Module`] and [`Running`](crate::Running) of the sandbox. A child that was forked has no
/// such thread, so it must make a sandbox of its own. Compilation uses rayon's threads, which the
/// process shares; a folder for code has one more thread.
///
/// The first sandbox of a process handles the signals of faults (SIGSEGV and its like), by which a
/// module that leaves its memory is stopped. Faults of other code go to the handlers from before.
#[derive(Clone)]
pub struct Sandbox(pub(crate) Arc<Inner>);

/// What all clones and modules of a sandbox share.
pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<State>,
    pub(crate) ticker: Ticker,
    pub(crate) module_bytes: usize,
    pub(crate) files: Option<Arc<dyn HostFiles>>,
}

impl Sandbox {
    /// Makes a sandbox.
    ///
    /// # Errors
    ///
    /// [`Error::Host`] if the processor or the system has no way to run one, or the folder for
    /// code cannot be used.
    pub fn new(options: Options) -> Result<Self> {
        let engine = Engine::new(&config(&options)?).map_err(unable)?;
        let mut linker = Linker::new(&engine);
        host::define(&mut linker).map_err(unable)?;
        let ticker = Ticker::new(&engine)?;
        let Options {
            module_bytes,
            files,
            ..
        } = options;
        Ok(Self(Arc::new(Inner {
            engine,
            linker,
            ticker,
            module_bytes,
            files,
        })))
    }

    /// Compiles a module: WebAssembly's bytes, not its text. This takes from milliseconds to
    /// seconds, on all processors.
    ///
    /// # Errors
    ///
    /// [`Error::Module`] if the bytes are no module, or it lacks an export or has another import
    /// than the crate's page tells. [`Error::Limit`] if it is too large.
    pub fn compile(&self, wasm: &[u8]) -> Result<Module> {
        Module::new(Arc::clone(&self.0), wasm)
    }
}

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox").finish_non_exhaustive()
    }
}

fn config(options: &Options) -> Result<Config> {
    let mut config = Config::new();
    config
        .consume_fuel(true)
        .epoch_interruption(true)
        .wasm_simd(true)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        // `memory` replaces pages.
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_may_move(false)
        // Nobody is shown where in the module a trap was.
        .wasm_backtrace_max_frames(None);
    if let Some(folder) = &options.code_folder {
        let mut cache = CacheConfig::new();
        cache.with_directory(folder);
        config.cache(Some(Cache::new(cache).map_err(unable)?));
    }
    Ok(config)
}

fn unable(error: wasmtime::Error) -> Error {
    Error::Host(format!("{error:#}"))
}
