//! Arrays as a source of a stream.

use arrow::datatypes::SchemaRef;

use crate::arrow::batches::schema_to_c;
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::device::DeviceKind;
use crate::error::Result;

/// A source of a stream: its kind of memory, its schema and its arrays.
pub(super) struct Arrays<I>(pub(super) DeviceKind, pub(super) SchemaRef, pub(super) I);

impl<I: Iterator<Item = Result<OwnedDeviceArray>> + Send> ArrayReader for Arrays<I> {
    fn schema(&mut self) -> Result<OwnedSchema> {
        schema_to_c(&self.1)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.2.next().transpose()
    }

    fn device_type(&self) -> i32 {
        self.0.0
    }

    fn keeps_status(&self) -> bool {
        true
    }
}
