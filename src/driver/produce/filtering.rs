//! The rows of a stream's arrays that pass a client's filter (rule Q12).

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::arrow::abi::ArrowDeviceArray;
use crate::arrow::{
    EncodeOptions, Encoder, OwnedDeviceArray, OwnedSchema, batch_from_c, batch_to_c,
    clear_null_views, schema_from_c,
};
use crate::device::DeviceKind;
use crate::error::{Error, Result};
use crate::filter::{Check, Filter};

/// The filter of one stream.
#[derive(Debug)]
pub(super) struct RowFilter {
    filter: Filter,
    schema: SchemaRef,
    /// The columns that the client wants, by their positions; `None`: all.
    wanted: Option<Vec<usize>>,
    /// Checks each array before the filter reads the array.
    whole: Encoder,
}

impl RowFilter {
    /// # Errors
    ///
    /// As [`Filter::parse`]; `Unsupported`: the arrays are in a GPU's memory; `InvalidData` for the
    /// schema.
    pub(super) fn new(
        message: &[u8],
        schema: &OwnedSchema,
        device_type: i32,
        wanted: Option<Vec<usize>>,
    ) -> Result<Self> {
        ensure_on_host(device_type)?;
        let whole = Encoder::new(schema, EncodeOptions::default())?;
        let schema = schema_from_c(schema)?;
        Ok(Self {
            filter: Filter::parse(message, &schema)?,
            schema: Arc::new(schema),
            wanted,
            whole,
        })
    }

    /// The rows of an array that pass, with the wanted columns only. If all rows pass, the result
    /// is the array's own memory; some rows are copied. Calls `check` between parts of the work; an
    /// error of `check` ends the work.
    /// # Errors
    ///
    /// Those of [`Filter::apply_to`] and [`Encoder::check`], together with the array. An array of
    /// which whole rows are null is released.
    pub(super) fn apply(
        &mut self,
        array: OwnedDeviceArray,
        check: Check<'_>,
    ) -> Result<OwnedDeviceArray, (Error, OwnedDeviceArray)> {
        if let Err(error) = ensure_on_host(array.raw().device_type) {
            return Err((error, array));
        }
        let array = self.whole.check(array)?;
        // SAFETY: the host promises an array that follows the interface, and its numbers have just
        // been compared with the schema.
        let batch = unsafe { batch_from_c(array, &self.schema) };
        // The kernels also read the views of null rows, which may lead anywhere: they become zeros.
        let batch = match batch.and_then(clear_null_views) {
            Ok(batch) => batch,
            Err(error) => {
                // SAFETY: `empty` is a released struct.
                let released = unsafe { OwnedDeviceArray::from_raw(ArrowDeviceArray::empty()) };
                return Err((error, released));
            }
        };
        match self.filter.apply_to(&batch, self.wanted.as_deref(), check) {
            Ok(passed) => Ok(batch_to_c(passed)),
            Err(error) => Err((error, batch_to_c(batch))),
        }
    }
}

fn ensure_on_host(device_type: i32) -> Result<()> {
    match DeviceKind(device_type) {
        DeviceKind::CPU => Ok(()),
        _ => Err(Error::unsupported(
            "a filter of a table in a GPU's memory: get it whole, or have the server's host bring it \
             to host memory",
        )),
    }
}
