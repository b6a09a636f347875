//! The functions of the loaded library, as methods.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::path::Path;

use libc::FILE;

use crate::bindings::*;
use crate::error::LoadError;
use crate::library::Library;

/// The API version that is asked of `ucp_init_version`: the oldest that is loaded.
const API: (u32, u32) = (1, 12);

/// UCX, loaded: one method for each function of `ucp.h` (see there what they promise and ask).
///
/// There is one in a process ([`load`](crate::load)), and it stays until the process ends. Every
/// method is unsafe, for each takes pointers and handles whose validity only the caller knows.
pub struct Api {
    functions: Functions,
    library: Library,
    version: (u32, u32, u32),
}

impl Api {
    /// Fills the table from an open library.
    pub(crate) fn new(library: Library, version: (u32, u32, u32)) -> Result<Self, LoadError> {
        Ok(Self {
            functions: Functions::find(&library)?,
            library,
            version,
        })
    }

    /// The library, which stays open as long as this.
    pub(crate) fn library(&self) -> &Library {
        &self.library
    }

    /// The file of the library, as the dynamic linker knows it.
    pub fn path(&self) -> &Path {
        self.library.path()
    }

    /// Major, minor and release number of the library, not of the headers.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// What a status means, in UCX's words: `ucs_status_string`.
    pub fn status_text(&self, status: ucs_status_t) -> String {
        // SAFETY: takes any number.
        let text = unsafe { self.ucs_status_string(status) };
        // SAFETY: a string that lives as long as the library, one of its constants; for a number
        // that it does not know, a buffer of its own, which always holds a zero.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// `ucp_init` of `ucp.h`, which is `ucp_init_version` with the version that the caller was made
    /// for.
    ///
    /// # Safety
    ///
    /// As for `ucp_init_version`: `params` is readable, `config` is NULL or from `ucp_config_read`
    /// and not released, `context` is writable.
    pub unsafe fn ucp_init(
        &self,
        params: *const ucp_params_t,
        config: *const ucp_config_t,
        context: *mut ucp_context_h,
    ) -> ucs_status_t {
        // SAFETY: the caller promises the same.
        unsafe { self.ucp_init_version(API.0, API.1, params, config, context) }
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("path", &self.path())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// Declares [`Functions`] and the methods from what would be a block of external functions.
macro_rules! functions {
    ($(pub fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// Every function that all libraries from 1.12 on have.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(library: &Library) -> Result<Self, LoadError> {
                Ok(Self {
                    $($name: {
                        let symbol = library.symbol(stringify!($name))?;
                        // SAFETY: the library passed the version check, and all versions admitted
                        // have this function with this signature. Both are pointers to code.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) $(-> $result)?,
                            >(symbol)
                        }
                    },)*
                })
            }
        }

        #[allow(clippy::too_many_arguments, reason = "as UCX declares them")]
        impl Api {
            $(
                #[doc = concat!("`", stringify!($name), "` of UCX's headers.")]
                ///
                /// # Safety
                ///
                /// What UCX's documentation asks of the caller.
                #[inline]
                pub unsafe fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    // SAFETY: the caller keeps what UCX asks; the library stays loaded.
                    unsafe { (self.functions.$name)($($argument),*) }
                }
            )*
        }
    };
}

include!("functions.rs");
