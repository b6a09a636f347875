//! Why UCX could not be loaded, in words that help.

use std::fmt;
use std::path::PathBuf;

/// Why [`load`](crate::load) failed. The texts name the library, the cause and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// No such library could be opened.
    NotFound {
        /// What was looked for: a file, or a name that the dynamic linker searches.
        library: PathBuf,
        /// The dynamic linker's text.
        cause: String,
    },
    /// The library lacks a function that UCX has.
    NotUcx {
        /// The file, as the dynamic linker knows it.
        library: PathBuf,
        /// The function.
        function: &'static str,
    },
    /// The library is a UCX that this one cannot use.
    Version {
        /// The file, as the dynamic linker knows it.
        library: PathBuf,
        /// Its major, minor and release number.
        version: (u32, u32, u32),
    },
    /// This process has a UCX already, and two in one process break each other.
    AlreadyLoaded {
        /// The library of this process.
        loaded: PathBuf,
        /// The one that was asked for.
        wanted: PathBuf,
    },
}

/// How to get a UCX.
const REMEDY: &str = "install UCX (Debian: apt install libucx0; PyPI: libucx-cu12, and set \
                      DIPC_UCX_LIBRARY to site-packages/libucx/lib/libucp.so.0)";

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { library, cause } => {
                write!(
                    f,
                    "cannot load UCX from {}: {cause}; {REMEDY}",
                    library.display()
                )
            }
            Self::NotUcx { library, function } => write!(
                f,
                "{} is not a UCX library that can be used: it has no {function}; {REMEDY}",
                library.display()
            ),
            Self::Version {
                library,
                version: (major, minor, release),
            } => write!(
                f,
                "{} is UCX {major}.{minor}.{release}, and 1.12 or later, before 2, is needed; \
                 {REMEDY}",
                library.display()
            ),
            Self::AlreadyLoaded { loaded, wanted } => write!(
                f,
                "this process has loaded UCX from {} already, so that {} cannot be loaded beside \
                 it: ask for the former or for none",
                loaded.display(),
                wanted.display()
            ),
        }
    }
}

impl std::error::Error for LoadError {}
