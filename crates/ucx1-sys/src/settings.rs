//! Which settings the library and its modules have: `ucp.h` takes them and does not tell, libucs
//! does (`ucs/config/parser.h`).

use std::ffi::{CStr, c_char, c_uint, c_void};

use libc::FILE;

use crate::library::Library;
use crate::table::Api;

/// `ucs_config_parser_print_all_opts` before 1.19: stream, prefix, flags, list of tables.
type Print = unsafe extern "C" fn(*mut FILE, *const c_char, c_uint, *mut c_void);
/// The same since: a filter more, NULL for none.
type PrintFiltered =
    unsafe extern "C" fn(*mut FILE, *const c_char, c_uint, *mut c_void, *const c_char);

/// The oldest UCX with [`PrintFiltered`].
const FILTERS: (u32, u32, u32) = (1, 19, 0);

/// `UCS_CONFIG_PRINT_CONFIG`: the settings.
const SETTINGS: c_uint = 1;
/// `UCS_CONFIG_PRINT_HEADER`: the titles of their tables.
const TITLES: c_uint = 2;
/// `UCS_CONFIG_PRINT_HIDDEN`: other names of theirs, and those that have no effect any more.
const HIDDEN: c_uint = 8;

impl Api {
    /// Prints every setting as `PREFIX_NAME=value`, those of each table behind a line `# TABLE
    /// configuration`. The tables are those of the modules that are loaded: of the transports from
    /// the first context on. Returns whether the library can.
    ///
    /// # Safety
    ///
    /// `stream` is open for writing, and no module is being loaded meanwhile.
    pub unsafe fn print_settings(&self, prefix: &CStr, stream: *mut FILE) -> bool {
        let library: &Library = self.library();
        let symbols = (
            library.symbol("ucs_config_parser_print_all_opts"),
            library.symbol("ucs_config_global_list"),
        );
        let (Ok(print), Ok(tables)) = symbols else {
            return false;
        };
        let flags = SETTINGS | TITLES | HIDDEN;
        if self.version() < FILTERS {
            // SAFETY: a pointer to code, and these versions have it with this signature.
            let print = unsafe { std::mem::transmute::<*mut c_void, Print>(print) };
            // SAFETY: the caller promises the stream; the list is the library's own.
            unsafe { print(stream, prefix.as_ptr(), flags, tables) };
        } else {
            // SAFETY: as above.
            let print = unsafe { std::mem::transmute::<*mut c_void, PrintFiltered>(print) };
            // SAFETY: as above; NULL filters nothing.
            unsafe { print(stream, prefix.as_ptr(), flags, tables, std::ptr::null()) };
        }
        true
    }
}
