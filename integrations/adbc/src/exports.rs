//! The entry points, and streams that tell their errors.
//!
//! `adbc_ffi` makes the functions of a driver. Its streams reduce every error to one of four
//! `errno` values and a text. But ADBC demands `ECANCELED` from a cancelled stream, and lets a
//! driver report status and details. So each stream is handed out inside another, which remembers
//! libdipc's own error.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use adbc_core::constants::{
    ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA, ADBC_STATUS_NOT_IMPLEMENTED, ADBC_STATUS_OK,
};
use adbc_core::error::{AdbcStatusCode, Result};
use adbc_core::options::AdbcVersion;
use adbc_ffi::{FFI_AdbcConnection, FFI_AdbcDriver, FFI_AdbcError, FFI_AdbcStatement, FFIDriver};
use arrow::ffi_stream::FFI_ArrowArrayStream;

use crate::Driver;
use crate::binding::bind;
use crate::error::{from_dipc, invalid, not_implemented};
use crate::last_error;
use crate::made::MADE;

/// The entry point whose name follows from that of the library.
///
/// # Safety
///
/// As ADBC says of initialization functions: `driver` is NULL or points to a driver of `version`,
/// and `error` is NULL or points to an error that is initialized.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "a name of ADBC's")]
unsafe extern "C" fn AdbcDriverDipcInit(
    version: c_int,
    driver: *mut c_void,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    if let Err(refusal) = ensure(version, driver) {
        let status = refusal.status.into();
        // SAFETY: the caller promises that `error` is NULL or an error.
        unsafe { adbc_ffi::export_error(error, refusal) };
        return status;
    }
    let mut own = Driver::ffi_driver();
    own.ConnectionGetInfo = Some(get_info);
    own.ConnectionGetObjects = Some(get_objects);
    own.ConnectionGetStatistics = Some(get_statistics);
    own.ConnectionGetStatisticNames = Some(get_statistic_names);
    own.ConnectionGetTableTypes = Some(get_table_types);
    own.ConnectionReadPartition = Some(read_partition);
    own.StatementBind = Some(bind);
    own.StatementExecuteQuery = Some(execute_query);
    own.ErrorFromArrayStream = Some(error_from_array_stream);
    // SAFETY: the caller promises room for a driver of version 1.1.0, which `ensure` has compared.
    unsafe { ptr::write_unaligned(driver.cast::<FFI_AdbcDriver>(), own) };
    ADBC_STATUS_OK
}

/// The entry point for driver managers that look for no other name.
///
/// # Safety
///
/// As [`AdbcDriverDipcInit`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "a name of ADBC's")]
unsafe extern "C" fn AdbcDriverInit(
    version: c_int,
    driver: *mut c_void,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    // SAFETY: the caller promises that `driver` is NULL or a driver of `version`, and `error` is
    // NULL or an initialized error.
    unsafe { AdbcDriverDipcInit(version, driver, error) }
}

fn ensure(version: c_int, driver: *mut c_void) -> Result<()> {
    if AdbcVersion::try_from(version)? != AdbcVersion::V110 {
        return Err(not_implemented(
            "this driver is one of ADBC 1.1.0; ask for that version",
        ));
    }
    match driver.is_null() {
        true => Err(invalid("the driver to initialize is NULL")),
        false => Ok(()),
    }
}

/// Functions of ADBC whose stream `out` tells its errors.
macro_rules! telling {
    ($($name:ident: $made:ident($($argument:ident: $type:ty),*) -> $out:ident;)*) => {$(
        unsafe extern "C" fn $name($($argument: $type),*) -> AdbcStatusCode {
            let Some(made) = MADE.$made else {
                return ADBC_STATUS_NOT_IMPLEMENTED;
            };
            // SAFETY: the caller, by ADBC's rules, passes initialized objects, readable arguments,
            // writable outputs and an initialized error, or NULL.
            let status = unsafe { made($($argument),*) };
            if status == ADBC_STATUS_OK && !$out.is_null() {
                // SAFETY: it is not NULL, and by the rules of ADBC the function, which has
                // succeeded, wrote a stream there that is not released and has no other copy.
                unsafe { Telling::wrap($out.cast()) };
            }
            status
        }
    )*};
}

telling! {
    execute_query: StatementExecuteQuery(
        statement: *mut FFI_AdbcStatement,
        out: *mut FFI_ArrowArrayStream,
        rows: *mut i64,
        error: *mut FFI_AdbcError
    ) -> out;
    read_partition: ConnectionReadPartition(
        connection: *mut FFI_AdbcConnection,
        partition: *const u8,
        length: usize,
        out: *mut FFI_ArrowArrayStream,
        error: *mut FFI_AdbcError
    ) -> out;
    get_info: ConnectionGetInfo(
        connection: *mut FFI_AdbcConnection,
        codes: *const u32,
        length: usize,
        out: *mut FFI_ArrowArrayStream,
        error: *mut FFI_AdbcError
    ) -> out;
    get_objects: ConnectionGetObjects(
        connection: *mut FFI_AdbcConnection,
        depth: c_int,
        catalog: *const c_char,
        db_schema: *const c_char,
        table_name: *const c_char,
        table_type: *const *const c_char,
        column_name: *const c_char,
        out: *mut FFI_ArrowArrayStream,
        error: *mut FFI_AdbcError
    ) -> out;
    get_table_types: ConnectionGetTableTypes(
        connection: *mut FFI_AdbcConnection,
        out: *mut FFI_ArrowArrayStream,
        error: *mut FFI_AdbcError
    ) -> out;
    get_statistics: ConnectionGetStatistics(
        connection: *mut FFI_AdbcConnection,
        catalog: *const c_char,
        db_schema: *const c_char,
        table_name: *const c_char,
        approximate: c_char,
        out: *mut FFI_ArrowArrayStream,
        error: *mut FFI_AdbcError
    ) -> out;
    get_statistic_names: ConnectionGetStatisticNames(
        connection: *mut FFI_AdbcConnection,
        out: *mut FFI_ArrowArrayStream,
        error: *mut FFI_AdbcError
    ) -> out;
}

/// A stream of Arrow's C stream interface. The fields of arrow's own struct are private.
#[repr(C)]
struct Stream {
    get_schema: Option<unsafe extern "C" fn(*mut Self, *mut c_void) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut Self, *mut c_void) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut Self) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut Self)>,
    private_data: *mut c_void,
}

const _: () = assert!(size_of::<Stream>() == size_of::<FFI_ArrowArrayStream>());
const _: () = assert!(align_of::<Stream>() == align_of::<FFI_ArrowArrayStream>());

/// The private data of a stream that tells its errors.
struct Telling {
    /// The stream that `adbc_ffi` has made. It is released with this value.
    inner: Stream,
    /// The last error, if it is libdipc's.
    error: Option<(AdbcStatusCode, FFI_AdbcError)>,
}

impl Telling {
    /// Replaces the stream at `stream` by a new one, which owns the old one from now on.
    ///
    /// # Safety
    ///
    /// `stream` points to a stream that is not released, of which there is no other copy.
    unsafe fn wrap(stream: *mut Stream) {
        // SAFETY: the caller promises a stream. The write below makes this its only copy.
        let inner = unsafe { ptr::read_unaligned(stream) };
        let telling = Box::new(Self { inner, error: None });
        let outer = Stream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release),
            private_data: Box::into_raw(telling).cast(),
        };
        // SAFETY: the caller promises a stream there, so that another one may be written in its
        // place.
        unsafe { ptr::write_unaligned(stream, outer) };
    }

    /// # Safety
    ///
    /// `stream` is one that [`wrap`](Self::wrap) has made and that is not released, and nothing
    /// else uses it while the reference lives.
    unsafe fn of<'a>(stream: *mut Stream) -> &'a mut Self {
        // SAFETY: the caller promises a stream of `wrap` that is not released.
        let private_data = unsafe { (*stream).private_data };
        // SAFETY: `wrap` has made it of a box, which only `release` frees; the caller promises that
        // nothing else uses it while the reference lives.
        unsafe { &mut *private_data.cast::<Self>() }
    }

    /// Keeps libdipc's error of the call that has failed with `code`; gives the `errno` to return.
    fn keep(&mut self, code: c_int) -> c_int {
        let Some(error) = last_error::take().filter(|_| code != 0) else {
            return code;
        };
        let errno = error.status().errno();
        let adbc = from_dipc(&error);
        let status = adbc.status.into();
        if let Ok(mut told) = FFI_AdbcError::try_from(adbc) {
            told.vendor_code = ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA;
            self.error = Some((status, told));
        }
        errno
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(release) = self.inner.release {
            // SAFETY: the stream is not released, and this value is its owner.
            unsafe { release(&mut self.inner) };
        }
    }
}

unsafe extern "C" fn get_schema(stream: *mut Stream, out: *mut c_void) -> c_int {
    // SAFETY: the callback belongs to a stream of `wrap`; by the C stream interface its caller has
    // not released it, and makes one call at a time.
    let telling = unsafe { Telling::of(stream) };
    match telling.inner.get_schema {
        // SAFETY: the inner stream is not released, and the caller promises room for a schema.
        Some(get_schema) => unsafe { get_schema(&mut telling.inner, out) },
        None => dipc::Status::Unsupported.errno(),
    }
}

unsafe extern "C" fn get_next(stream: *mut Stream, out: *mut c_void) -> c_int {
    // SAFETY: the callback belongs to a stream of `wrap`; by the C stream interface its caller has
    // not released it, and makes one call at a time.
    let telling = unsafe { Telling::of(stream) };
    telling.error = None;
    last_error::take();
    let code = match telling.inner.get_next {
        // SAFETY: the inner stream is not released, and the caller promises room for an array.
        Some(get_next) => unsafe { get_next(&mut telling.inner, out) },
        None => dipc::Status::Unsupported.errno(),
    };
    telling.keep(code)
}

unsafe extern "C" fn get_last_error(stream: *mut Stream) -> *const c_char {
    // SAFETY: the callback belongs to a stream of `wrap`; by the C stream interface its caller has
    // not released it, and makes one call at a time.
    let telling = unsafe { Telling::of(stream) };
    match (&telling.error, telling.inner.get_last_error) {
        (Some((_, error)), _) => error.message,
        // SAFETY: the inner stream is not released.
        (None, Some(get_last_error)) => unsafe { get_last_error(&mut telling.inner) },
        (None, None) => ptr::null(),
    }
}

unsafe extern "C" fn release(stream: *mut Stream) {
    // SAFETY: the caller promises a stream that is not released.
    let stream = unsafe { &mut *stream };
    // SAFETY: `wrap` has made it of a box; `release` is None below, so nobody frees it again.
    drop(unsafe { Box::from_raw(stream.private_data.cast::<Telling>()) });
    stream.private_data = ptr::null_mut();
    stream.release = None;
}

/// ADBC's `ErrorFromArrayStream`: status and details of the last error.
///
/// # Safety
///
/// `stream` is NULL or a stream, which nothing else uses during the call; `status` is NULL or
/// writable.
unsafe extern "C" fn error_from_array_stream(
    stream: *mut FFI_ArrowArrayStream,
    status: *mut AdbcStatusCode,
) -> *const FFI_AdbcError {
    // SAFETY: the caller promises that it is NULL or a stream.
    let of = unsafe { stream.cast::<Stream>().as_ref() }.and_then(|stream| stream.release);
    // A released stream, or the stream of another driver, has no error here.
    if !of.is_some_and(|of| ptr::fn_addr_eq(of, release as unsafe extern "C" fn(*mut Stream))) {
        return ptr::null();
    }
    // SAFETY: a stream with this callback is one of `wrap`, and not released; the caller promises
    // that nothing else uses it during the call.
    let telling = unsafe { Telling::of(stream.cast()) };
    let Some((code, error)) = &mut telling.error else {
        return ptr::null();
    };
    if !status.is_null() {
        // SAFETY: the caller promises that it is writable.
        unsafe { status.write(*code) };
    }
    // The driver manager writes into this field which driver has made the error.
    ptr::from_mut(error).cast_const()
}
