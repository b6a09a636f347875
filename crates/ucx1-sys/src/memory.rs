//! How UCX finds out what memory a pointer leads to.

use std::ffi::{c_char, c_void};

use crate::Api;
use crate::bindings::{UCS_OK, ucs_status_t};

/// `ucs_global_opts_set_value` of `ucs/config/global_opts.h`: the name and the value of an option.
type SetValue = unsafe extern "C" fn(*const c_char, *const c_char) -> ucs_status_t;

impl Api {
    /// Turns UCX's cache of memory types off (`MEMTYPE_CACHE`), so that UCX asks the driver about
    /// each pointer, unless the caller says that it is the host's. Returns whether that succeeded.
    ///
    /// The cache takes an address that it does not know for the host's. It knows only what was
    /// allocated after UCX was loaded, by functions of the driver that UCX could replace; and the
    /// type that a caller gives for memory of a GPU is not looked at (1.22). The option belongs to
    /// the process: other users of the same UCX have slower look-ups, and the same results.
    pub fn turn_memory_type_cache_off(&self) -> bool {
        let Ok(symbol) = self.library().symbol("ucs_global_opts_set_value") else {
            return false;
        };
        // SAFETY: every libucs from 1.12 on has this name with this signature.
        let set_value = unsafe { std::mem::transmute::<*mut c_void, SetValue>(symbol) };
        // SAFETY: both are strings that end with a zero; UCX copies what it needs.
        unsafe { set_value(c"MEMTYPE_CACHE".as_ptr(), c"n".as_ptr()) == UCS_OK }
    }
}
