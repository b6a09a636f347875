//! A fetched table with some of its columns: endpoints of one table must have the same ones, whether
//! their servers have left out the others or not.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use dipc::arrow::stream::ArrayReader;
use dipc::arrow::{
    OwnedDeviceArray, OwnedSchema, batch_from_c, batch_to_c, schema_from_c, schema_to_c,
};
use dipc::{Error, Result, StreamStats};

use crate::columns::Columns;
use crate::fetched::Counted;
use crate::output::whole;

/// The columns of a stream that `names` names, with commas between them.
///
/// # Errors
///
/// `InvalidArgument`: there is no column of such a name.
pub fn narrow(mut stream: Box<dyn Counted>, names: Option<&str>) -> Result<Box<dyn Counted>> {
    let Some(names) = names else {
        return Ok(stream);
    };
    let schema = Arc::new(schema_from_c(&stream.schema()?)?);
    let columns = Columns::find(names, &schema);
    let columns = columns.map_err(|error| Error::invalid_argument(whole(&error)))?;
    if columns.are_all_of(&schema) {
        return Ok(stream);
    }
    Ok(Box::new(Narrowed {
        stream,
        schema,
        columns,
    }))
}

struct Narrowed {
    stream: Box<dyn Counted>,
    /// All columns of the stream.
    schema: SchemaRef,
    columns: Columns,
}

impl ArrayReader for Narrowed {
    fn schema(&mut self) -> Result<OwnedSchema> {
        let narrowed = self.columns.of_schema(&self.schema);
        schema_to_c(&*narrowed.map_err(|error| Error::invalid_data(error.to_string()))?)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let Some(array) = self.stream.next()? else {
            return Ok(None);
        };
        // SAFETY: the stream is one of libdipc's own or of its decoder, which hand out only arrays
        // that they have checked against the stream's schema (rule A8), which is `schema`.
        let batch = unsafe { batch_from_c(array, &self.schema) }?;
        let narrowed = self.columns.of_batch(&batch);
        let narrowed = narrowed.map_err(|error| Error::invalid_data(error.to_string()))?;
        Ok(Some(batch_to_c(narrowed)))
    }

    fn device_type(&self) -> i32 {
        self.stream.device_type()
    }
}

impl Counted for Narrowed {
    fn stats(&self) -> StreamStats {
        self.stream.stats()
    }

    fn total_rows(&self) -> Option<u64> {
        self.stream.total_rows()
    }
}
