//! The version of the library.

use std::ffi::c_char;

use crate::ffi::caught::guard_value;

/// Major version of the header; see dipc_version().
pub const DIPC_VERSION_MAJOR: u32 = 0;
/// Minor version of the header. Before 1.0 each minor version may break the ABI.
pub const DIPC_VERSION_MINOR: u32 = 1;
/// Patch version of the header.
pub const DIPC_VERSION_PATCH: u32 = 0;

/// Gives the version of the loaded library, to compare it with the header's.
///
/// @return DIPC_VERSION_MAJOR * 1000000 + DIPC_VERSION_MINOR * 1000 + DIPC_VERSION_PATCH.
#[unsafe(no_mangle)]
pub extern "C" fn dipc_version() -> u32 {
    guard_value(0, || {
        DIPC_VERSION_MAJOR * 1_000_000 + DIPC_VERSION_MINOR * 1_000 + DIPC_VERSION_PATCH
    })
}

/// Gives the version of the loaded library as text: "0.1.0".
///
/// @return A static string, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn dipc_version_string() -> *const c_char {
    guard_value(c"".as_ptr(), || {
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    /// Promise: `dipc_version()`, the header's macros and the package agree.
    #[test]
    fn versions_agree() {
        let text = format!("{DIPC_VERSION_MAJOR}.{DIPC_VERSION_MINOR}.{DIPC_VERSION_PATCH}");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
        // SAFETY: it is a static string.
        let told = unsafe { CStr::from_ptr(dipc_version_string()) };
        assert_eq!(told.to_str(), Ok(text.as_str()));
        assert_eq!(dipc_version(), 1_000);
    }
}
