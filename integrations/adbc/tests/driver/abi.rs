//! The driver's C functions, as a host calls them that makes mistakes.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use adbc_core::constants::{
    ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA, ADBC_STATUS_INVALID_ARGUMENT, ADBC_STATUS_INVALID_STATE,
    ADBC_STATUS_OK, ADBC_VERSION_1_1_0,
};
use adbc_core::error::{AdbcStatusCode, Error};
use adbc_ffi::{
    FFI_AdbcConnection, FFI_AdbcDatabase, FFI_AdbcDriver, FFI_AdbcDriverInitFunc, FFI_AdbcError,
    FFI_AdbcStatement,
};
use arrow::array::{Array as _, ArrayRef, Int64Array, StructArray};
use arrow::buffer::NullBuffer;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, to_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use arrow::record_batch::RecordBatchIterator;

use crate::serving::Serving;
use crate::{library, schema, table};

fn driver() -> FFI_AdbcDriver {
    // SAFETY: loading the library runs no code of its own: it has no initializers.
    let library = unsafe { libloading::Library::new(library()) }.unwrap();
    // Its functions are called until the end of the process.
    let library = Box::leak(Box::new(library));
    // SAFETY: the symbol is an initialization function of ADBC, which this type is.
    let init = unsafe { library.get::<FFI_AdbcDriverInitFunc>(b"AdbcDriverInit") }.unwrap();
    let mut driver = FFI_AdbcDriver::default();
    let place = (&raw mut driver).cast::<c_void>();
    // SAFETY: the place has room for a driver of this version; NULL is no error.
    let status = unsafe { init(ADBC_VERSION_1_1_0, place, null_mut()) };
    assert_eq!(status, ADBC_STATUS_OK);
    driver
}

/// Calls a function that must fail: with an error to fill, whose text it gives, and with none.
fn refused(
    expected: AdbcStatusCode,
    mut call: impl FnMut(*mut FFI_AdbcError) -> AdbcStatusCode,
) -> String {
    let mut error = FFI_AdbcError {
        vendor_code: ADBC_ERROR_VENDOR_CODE_PRIVATE_DATA,
        ..Default::default()
    };
    let status = call(&mut error);
    let text = Error::try_from(error).unwrap().message;
    assert_eq!(status, expected, "{text}");
    assert_eq!(call(null_mut()), expected, "{text}");
    text
}

/// Promise of ADBC: what is NULL, not made, or released is an error of the call, and no more.
#[test]
fn objects_that_are_not_there_are_refused() {
    let driver = driver();
    let (make, init) = (driver.DatabaseNew.unwrap(), driver.DatabaseInit.unwrap());
    let release = driver.DatabaseRelease.unwrap();
    let mut database = FFI_AdbcDatabase::default();
    // SAFETY: NULL, and an object that is zero, are what the functions check.
    unsafe {
        let null = null_mut();
        refused(ADBC_STATUS_INVALID_ARGUMENT, |error| make(null, error));
        refused(ADBC_STATUS_INVALID_ARGUMENT, |error| init(null, error));
        refused(ADBC_STATUS_INVALID_ARGUMENT, |error| release(null, error));
        refused(ADBC_STATUS_INVALID_STATE, |error| {
            init(&mut database, error)
        });
        refused(ADBC_STATUS_INVALID_STATE, |error| {
            release(&mut database, error)
        });
    }
    // SAFETY: the database is a place for one.
    unsafe {
        assert_eq!(make(&mut database, null_mut()), ADBC_STATUS_OK);
        let text = refused(ADBC_STATUS_INVALID_ARGUMENT, |error| {
            init(&mut database, error)
        });
        assert!(text.contains("uri"), "{text}");
    }

    let mut connection = FFI_AdbcConnection::default();
    let mut statement = FFI_AdbcStatement::default();
    let connect = driver.ConnectionInit.unwrap();
    // SAFETY: as above.
    unsafe {
        let made = driver.ConnectionNew.unwrap()(&mut connection, null_mut());
        assert_eq!(made, ADBC_STATUS_OK);
        let database = &raw mut database;
        let connection = &raw mut connection;
        refused(ADBC_STATUS_INVALID_STATE, |error| {
            connect(connection, database, error)
        });
        refused(ADBC_STATUS_INVALID_ARGUMENT, |error| {
            connect(connection, null_mut(), error)
        });
        let begin = driver.StatementNew.unwrap();
        refused(ADBC_STATUS_INVALID_STATE, |error| {
            begin(connection, &mut statement, error)
        });
        let run = driver.StatementExecuteQuery.unwrap();
        let rows = null_mut();
        refused(ADBC_STATUS_INVALID_STATE, |error| {
            run(&mut statement, null_mut(), rows, error)
        });
        refused(ADBC_STATUS_INVALID_ARGUMENT, |error| {
            run(null_mut(), null_mut(), rows, error)
        });
        let cancel = driver.StatementCancel.unwrap();
        refused(ADBC_STATUS_INVALID_STATE, |error| {
            cancel(&mut statement, error)
        });
        let end = driver.ConnectionRelease.unwrap();
        assert_eq!(end(connection, null_mut()), ADBC_STATUS_OK);
        refused(ADBC_STATUS_INVALID_STATE, |error| end(connection, error));
        assert_eq!(release(database, null_mut()), ADBC_STATUS_OK);
        refused(ADBC_STATUS_INVALID_STATE, |error| release(database, error));
    }
}

/// Promise of `AdbcErrorFromArrayStream`: a stream that is NULL, released or another's has none.
#[test]
fn streams_of_others_have_no_error() {
    let driver = driver();
    let of = driver.ErrorFromArrayStream.unwrap();
    let batches = table(1).into_iter().map(Ok);
    let reader = Box::new(RecordBatchIterator::new(batches, schema()));
    let mut foreign = FFI_ArrowArrayStream::new(reader);
    let mut released = FFI_ArrowArrayStream::empty();
    for stream in [null_mut(), &raw mut foreign, &raw mut released] {
        let mut status = ADBC_STATUS_OK;
        // SAFETY: the stream is NULL or a stream, and the status a place for one.
        assert!(unsafe { of(stream, &mut status) }.is_null());
    }
}

/// A statement of a server, and what it needs.
struct Asking {
    driver: FFI_AdbcDriver,
    database: FFI_AdbcDatabase,
    connection: FFI_AdbcConnection,
    statement: FFI_AdbcStatement,
}

impl Asking {
    fn new(uri: &str) -> Self {
        let mut asking = Self {
            driver: driver(),
            database: FFI_AdbcDatabase::default(),
            connection: FFI_AdbcConnection::default(),
            statement: FFI_AdbcStatement::default(),
        };
        let Self {
            driver,
            database,
            connection,
            statement,
        } = &mut asking;
        let uri = CString::new(uri).unwrap();
        let error = null_mut();
        // SAFETY: each object is a place for one, or made by an earlier call.
        let all = unsafe {
            [
                driver.DatabaseNew.unwrap()(database, error),
                driver.DatabaseSetOption.unwrap()(database, c"uri".as_ptr(), uri.as_ptr(), error),
                driver.DatabaseInit.unwrap()(database, error),
                driver.ConnectionNew.unwrap()(connection, error),
                driver.ConnectionInit.unwrap()(connection, database, error),
                driver.StatementNew.unwrap()(connection, statement, error),
            ]
        };
        assert_eq!(all, [ADBC_STATUS_OK; 6]);
        asking
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let error = null_mut();
        // SAFETY: `new` has made each object.
        unsafe {
            self.driver.StatementRelease.unwrap()(&mut self.statement, error);
            self.driver.ConnectionRelease.unwrap()(&mut self.connection, error);
            self.driver.DatabaseRelease.unwrap()(&mut self.database, error);
        }
    }
}

/// Promise of `AdbcStatementBind`: an array that is no table is refused, and calls after it work.
#[test]
fn arrays_that_are_no_tables_are_not_bound() {
    let server = Serving::start();
    let mut asking = Asking::new(&server.uri);
    let bind = asking.driver.StatementBind.unwrap();
    let statement = &raw mut asking.statement;
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let columns = StructArray::try_from(vec![("n", numbers.clone())]).unwrap();
    let (fields, arrays, _) = columns.clone().into_parts();
    let nulls = NullBuffer::from(vec![true, false]);
    let gaps = StructArray::new(fields, arrays, Some(nulls));
    for (array, expected) in [
        (gaps.to_data(), "rows of the array to bind are null"),
        (numbers.to_data(), "Int64: bind a struct"),
    ] {
        let text = refused(ADBC_STATUS_INVALID_ARGUMENT, |error| {
            let (mut array, mut schema) = to_ffi(&array).unwrap();
            // SAFETY: the statement is one, and the array is given away.
            let status = unsafe { bind(statement, &mut array, &mut schema, error) };
            assert!(array.is_released());
            status
        });
        assert!(text.contains(expected), "{text}");
    }
    let (mut array, mut schema) = to_ffi(&columns.to_data()).unwrap();
    let mut released = FFI_ArrowArray::empty();
    let mut none = FFI_ArrowSchema::empty();
    for (array, schema) in [
        (null_mut(), &raw mut schema),
        (&raw mut array, null_mut()),
        (&raw mut released, &raw mut schema),
    ] {
        refused(ADBC_STATUS_INVALID_ARGUMENT, |error| {
            // SAFETY: each is NULL or an array or a schema, of which one has no content.
            unsafe { bind(statement, array, schema, error) }
        });
    }
    // SAFETY: as above. This schema is released, and so has no format.
    let status = unsafe { bind(statement, &mut array, &mut none, null_mut()) };
    assert_eq!(status, ADBC_STATUS_INVALID_ARGUMENT);
    let (mut array, mut schema) = to_ffi(&columns.to_data()).unwrap();
    // SAFETY: as above.
    let status = unsafe { bind(statement, &mut array, &mut schema, null_mut()) };
    assert_eq!(status, ADBC_STATUS_OK);
}
