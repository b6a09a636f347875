//! The functions that `adbc_ffi` makes.

use std::sync::LazyLock;

use adbc_ffi::{FFI_AdbcDriver, FFIDriver as _};

use crate::driver::Driver;

/// What `adbc_ffi` makes of the driver.
pub(crate) static MADE: LazyLock<FFI_AdbcDriver> = LazyLock::new(Driver::ffi_driver);
