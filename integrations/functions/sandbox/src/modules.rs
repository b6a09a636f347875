use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use std::{fs, io};

use crate::module::hash;
use crate::{Bound, Error, Module, Result, Sandbox};

/// How [`Modules`] are kept.
#[derive(Clone, Debug)]
pub struct ModulesOptions {
    /// Compiled modules in memory. Default: 64.
    pub count: usize,
    /// Bytes of compiled modules in memory ([`Module::size_bytes`]). Default: 256 MiB.
    pub bytes: usize,
    /// A folder for the modules' bytes, made if it is missing, so that they outlive this process.
    /// Its files are checked when they are read. Default: `None`.
    pub folder: Option<PathBuf>,
    /// Bytes of all modules in the folder. Default: 1 GiB.
    pub folder_bytes: u64,
}

impl Default for ModulesOptions {
    fn default() -> Self {
        Self {
            count: 64,
            bytes: 256 << 20,
            folder: None,
            folder_bytes: 1 << 30,
        }
    }
}

/// Modules by the SHA-256 of their bytes. Those that were not used for longest go first; a call
/// that runs keeps its own.
#[derive(Debug)]
pub struct Modules {
    sandbox: Sandbox,
    options: ModulesOptions,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Modules, each with the time of its last use.
    modules: HashMap<[u8; 32], (u64, Module)>,
    bytes: usize,
    uses: u64,
}

impl Modules {
    /// Makes an empty cache, or one of a folder that was filled before.
    ///
    /// # Errors
    ///
    /// [`Error::Folder`] if the folder cannot be made.
    pub fn new(sandbox: Sandbox, options: ModulesOptions) -> Result<Self> {
        if let Some(folder) = &options.folder {
            fs::create_dir_all(folder).map_err(at(folder))?;
        }
        Ok(Self {
            sandbox,
            options,
            kept: Mutex::default(),
        })
    }

    /// The module with a hash, from memory or from the folder; `None` if it is in neither.
    ///
    /// # Errors
    ///
    /// As those of [`Sandbox::compile`], if a module of the folder is compiled anew.
    pub fn get(&self, hash: &[u8; 32]) -> Result<Option<Module>> {
        if let Some(module) = self.lock().get(hash) {
            return Ok(Some(module));
        }
        match self.read(hash) {
            Some(wasm) => self.keep(self.sandbox.compile(&wasm)?).map(Some),
            None => Ok(None),
        }
    }

    /// Compiles a module and keeps it, or returns the one that is kept already.
    ///
    /// # Errors
    ///
    /// As those of [`Sandbox::compile`]; [`Error::Folder`] if the folder cannot be written;
    /// [`Error::Limit`] if there is no folder and the compiled module is larger than all that may be
    /// kept.
    pub fn insert(&self, wasm: &[u8]) -> Result<Module> {
        if let Some(module) = self.lock().get(&hash(wasm)) {
            return Ok(module);
        }
        let module = self.sandbox.compile(wasm)?;
        let ModulesOptions {
            count,
            bytes,
            folder,
            ..
        } = &self.options;
        let reached = match folder {
            None if *count == 0 => Some((Bound::KeptModules, *count)),
            None if module.size_bytes() > *bytes => Some((Bound::KeptBytes, *bytes)),
            _ => None,
        };
        if let Some((bound, value)) = reached {
            let value = value as u64;
            return Err(Error::Limit { bound, value });
        }
        self.write(&module.hash(), wasm)?;
        self.keep(module)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, module: Module) -> Result<Module> {
        let mut kept = self.lock();
        // Another thread may have been faster.
        if let Some(module) = kept.get(&module.hash()) {
            return Ok(module);
        }
        kept.insert(module.clone());
        while kept.modules.len() > self.options.count || kept.bytes > self.options.bytes {
            kept.forget_oldest();
        }
        Ok(module)
    }

    /// The bytes of a module in the folder. A file that is damaged is as good as none.
    fn read(&self, hash: &[u8; 32]) -> Option<Vec<u8>> {
        let path = self.options.folder.as_ref()?.join(file_name(hash));
        let most = self.sandbox.0.module_bytes as u64;
        if fs::metadata(&path).ok()?.len() > most {
            return None;
        }
        let wasm = fs::read(&path).ok()?;
        if crate::module::hash(&wasm) != *hash {
            return None;
        }
        // The time tells which file goes first; without it, another one does.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(wasm)
    }

    fn write(&self, hash: &[u8; 32], wasm: &[u8]) -> Result<()> {
        let Some(folder) = &self.options.folder else {
            return Ok(());
        };
        let path = folder.join(file_name(hash));
        // Nobody sees half a file, and whoever writes the same module writes the same bytes.
        let part = tempfile::Builder::new().suffix(".part").tempfile_in(folder);
        let mut part = part.map_err(at(folder))?;
        part.write_all(wasm).map_err(at(folder))?;
        part.persist(&path)
            .map_err(|error| at(&path)(error.error))?;
        self.sweep(folder).map_err(at(folder))
    }

    /// Removes the oldest files until the rest is within the bound.
    fn sweep(&self, folder: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            // Another process may have removed it.
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if path
                .extension()
                .is_some_and(|extension| extension == "wasm")
            {
                files.push((metadata.modified()?, metadata.len(), path));
            }
        }
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if bytes <= self.options.folder_bytes {
                break;
            }
            let _ = fs::remove_file(path);
            bytes -= length;
        }
        Ok(())
    }
}

impl Kept {
    fn get(&mut self, hash: &[u8; 32]) -> Option<Module> {
        self.uses += 1;
        let (used, module) = self.modules.get_mut(hash)?;
        *used = self.uses;
        Some(module.clone())
    }

    fn insert(&mut self, module: Module) {
        self.bytes += module.size_bytes();
        self.modules.insert(module.hash(), (self.uses, module));
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .modules
            .iter()
            .min_by_key(|(_, (used, _))| *used)
            .map(|(hash, _)| *hash);
        if let Some((_, module)) = oldest.and_then(|hash| self.modules.remove(&hash)) {
            self.bytes -= module.size_bytes();
        }
    }
}

fn file_name(hash: &[u8; 32]) -> String {
    let mut name = String::new();
    for byte in hash {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name + ".wasm"
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Folder { path, source }
}
