use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use sha2::{Digest, Sha256};
use wasmtime::{ExternType, InstancePre, ValType};

use crate::host::{self, State};
use crate::sandbox::Inner;
use crate::{Bound, Canceller, Error, Limits, Result, Running};

/// Functions that a module must export, with the numbers of their parameters and results, all of
/// type i32.
const EXPORTS: [(&str, usize, usize); 6] = [
    ("dipc_abi_version", 0, 1),
    ("dipc_alloc", 2, 1),
    ("dipc_free", 3, 0),
    ("dipc_init", 6, 1),
    ("dipc_process", 1, 1),
    ("dipc_finish", 0, 1),
];

/// A compiled module. A clone is the same module.
#[derive(Clone)]
pub struct Module(Arc<Compiled>);

struct Compiled {
    sandbox: Arc<Inner>,
    code: InstancePre<State>,
    wasm: Arc<[u8]>,
    hash: [u8; 32],
    size: usize,
}

impl Module {
    pub(crate) fn new(sandbox: Arc<Inner>, wasm: &[u8]) -> Result<Self> {
        if wasm.len() > sandbox.module_bytes {
            let value = sandbox.module_bytes as u64;
            return Err(Error::Limit {
                bound: Bound::ModuleBytes,
                value,
            });
        }
        let module = wasmtime::Module::from_binary(&sandbox.engine, wasm).map_err(refused)?;
        check_imports(&module)?;
        check_exports(&module)?;
        let image = module.image_range();
        let code = sandbox.linker.instantiate_pre(&module).map_err(refused)?;
        // The bytes of the code, and those that it was made of.
        let size = (image.end as usize - image.start as usize) + wasm.len();
        Ok(Self(Arc::new(Compiled {
            sandbox,
            code,
            wasm: wasm.into(),
            hash: hash(wasm),
            size,
        })))
    }

    /// The module's bytes, as they came. Shared with the module.
    pub fn wasm(&self) -> Arc<[u8]> {
        Arc::clone(&self.0.wasm)
    }

    /// SHA-256 of the module's bytes.
    pub fn hash(&self) -> [u8; 32] {
        self.0.hash
    }

    /// Bytes of memory that the compiled module takes, about.
    pub fn size_bytes(&self) -> usize {
        self.0.size
    }

    /// Starts a function of this module, in an instance of its own.
    ///
    /// `arguments` are the function's own affair. `input` is the schema of the table that it is
    /// going to get; `None` for a call without a table, which has [`Running::finish`] alone.
    ///
    /// # Errors
    ///
    /// [`Error::Function`] if the module has no such function or refuses the arguments;
    /// [`Error::Input`] if the schema cannot be given to a module; [`Error::Module`] if the
    /// module is for another version of this interface; others as [`Error`] tells.
    pub fn start(
        &self,
        function: &str,
        arguments: &[u8],
        input: Option<&SchemaRef>,
        limits: &Limits,
    ) -> Result<Running> {
        self.start_with(function, arguments, input, limits, &Canceller::new())
    }

    /// [`start`](Self::start), which `canceller` can stop already while the function begins.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start); [`Error::Cancelled`].
    pub fn start_with(
        &self,
        function: &str,
        arguments: &[u8],
        input: Option<&SchemaRef>,
        limits: &Limits,
        canceller: &Canceller,
    ) -> Result<Running> {
        let Compiled { sandbox, code, .. } = &*self.0;
        Running::start(
            Arc::clone(sandbox),
            code,
            (function, arguments),
            input,
            limits,
            canceller,
        )
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("size_bytes", &self.0.size)
            .finish_non_exhaustive()
    }
}

/// SHA-256.
pub(crate) fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn check_imports(module: &wasmtime::Module) -> Result<()> {
    for import in module.imports() {
        let known = (import.module() == host::MODULE)
            .then(|| {
                host::IMPORTS
                    .iter()
                    .find(|(name, _, _)| *name == import.name())
            })
            .flatten();
        let fits = known.is_some_and(|(_, parameters, results)| {
            is_function(&import.ty(), *parameters, *results)
        });
        if !fits {
            let (module, name) = (import.module(), import.name());
            return Err(Error::Module(format!(
                "import {module}.{name} of such a type is unknown"
            )));
        }
    }
    Ok(())
}

fn check_exports(module: &wasmtime::Module) -> Result<()> {
    match module.get_export("memory") {
        Some(ExternType::Memory(memory)) if !memory.is_64() && !memory.is_shared() => {}
        _ => {
            return Err(Error::Module(
                "export memory is missing, or no 32-bit memory".into(),
            ));
        }
    }
    for (name, parameters, results) in EXPORTS {
        let export = module.get_export(name);
        if !export.is_some_and(|export| is_function(&export, parameters, results)) {
            return Err(Error::Module(format!(
                "export {name} is missing, or of another type"
            )));
        }
    }
    Ok(())
}

fn is_function(extern_type: &ExternType, parameters: usize, results: usize) -> bool {
    let ExternType::Func(function) = extern_type else {
        return false;
    };
    function.params().len() == parameters
        && function.results().len() == results
        && function
            .params()
            .chain(function.results())
            .all(|t| matches!(t, ValType::I32))
}

fn refused(error: wasmtime::Error) -> Error {
    Error::Module(format!("{error:#}"))
}
