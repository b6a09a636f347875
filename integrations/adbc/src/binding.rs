//! Binding an array of the C data interface.

use std::panic::{AssertUnwindSafe, catch_unwind};

use adbc_core::constants::ADBC_STATUS_NOT_IMPLEMENTED;
use adbc_core::error::{AdbcStatusCode, Result};
use adbc_ffi::{FFI_AdbcError, FFI_AdbcStatement};
use arrow::array::{RecordBatch, StructArray};
use arrow::datatypes::DataType;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use arrow::record_batch::RecordBatchIterator;

use crate::error::invalid;
use crate::made::MADE;

/// ADBC's `StatementBind`. The one of `adbc_ffi` panics if a row is null, and then refuses every
/// further call of the process. So the array is bound as a stream here.
///
/// # Safety
///
/// `statement` is NULL or a statement; `values` and `schema` are NULL or an array and its schema as
/// the C data interface has them, of which the array is the driver's from now on; `error` is NULL
/// or an error that is initialized.
pub(crate) unsafe extern "C" fn bind(
    statement: *mut FFI_AdbcStatement,
    values: *mut FFI_ArrowArray,
    schema: *mut FFI_ArrowSchema,
    error: *mut FFI_AdbcError,
) -> AdbcStatusCode {
    let Some(bind_stream) = MADE.StatementBindStream else {
        return ADBC_STATUS_NOT_IMPLEMENTED;
    };
    // A panic because of an invalid array must not leave a function that C calls. SAFETY: the
    // caller promises that `values` and `schema` are NULL, or an array that is the driver's from
    // now on and its schema.
    let batch = catch_unwind(AssertUnwindSafe(|| unsafe { taken(values, schema) }));
    let batch = batch.unwrap_or_else(|_| Err(invalid("what is bound is no array of Arrow")));
    match batch {
        Ok(batch) => {
            let schema = batch.schema();
            let reader = RecordBatchIterator::new([Ok(batch)], schema);
            let mut stream = FFI_ArrowArrayStream::new(Box::new(reader));
            // SAFETY: the stream is one, which the callee takes or which is dropped here; the
            // caller promises a statement and an initialized error, or NULL.
            unsafe { bind_stream(statement, &mut stream, error) }
        }
        Err(refusal) => {
            let status = refusal.status.into();
            // SAFETY: the caller promises that `error` is NULL or an error.
            unsafe { adbc_ffi::export_error(error, refusal) };
            status
        }
    }
}

/// The array as a record batch.
///
/// # Safety
///
/// As [`bind`].
unsafe fn taken(values: *mut FFI_ArrowArray, schema: *mut FFI_ArrowSchema) -> Result<RecordBatch> {
    // SAFETY: the caller promises that it is NULL or a schema.
    let schema = unsafe { schema.as_ref() }.ok_or_else(|| invalid("the schema to bind is NULL"))?;
    if values.is_null() {
        return Err(invalid("the array to bind is NULL"));
    }
    // SAFETY: the caller promises an array, and gives it away.
    let array = unsafe { FFI_ArrowArray::from_raw(values) };
    if array.is_released() {
        return Err(invalid("the array to bind is released"));
    }
    // SAFETY: the caller promises that the schema is the array's.
    let data = unsafe { from_ffi(array, schema) };
    let data = data.map_err(|error| invalid(format!("the array to bind: {error}")))?;
    match data.data_type() {
        DataType::Struct(_) if data.null_count() == 0 => Ok(StructArray::from(data).into()),
        DataType::Struct(_) => Err(invalid(
            "rows of the array to bind are null: a record batch has nulls in its columns alone",
        )),
        other => Err(invalid(format!(
            "the array to bind is of the type {other}: bind a struct, whose fields are the columns"
        ))),
    }
}
