//! A fetched table with some of its columns: endpoints of one table must have the same ones, whether
//! their servers have left out the others or not.

use arrow::datatypes::SchemaRef;
use dipc::{DeviceArray, Error, Result, StreamStats};

use crate::columns::Columns;
use crate::fetched::Counted;
use crate::output::whole;

/// The columns of a stream that `names` names, with commas between them.
///
/// # Errors
///
/// `InvalidArgument`: there is no column of such a name.
pub fn narrow(stream: Box<dyn Counted>, names: Option<&str>) -> Result<Box<dyn Counted>> {
    let Some(names) = names else {
        return Ok(stream);
    };
    let all = stream.schema();
    let columns = Columns::find(names, &all);
    let columns = columns.map_err(|error| Error::invalid_argument(whole(&error)))?;
    if columns.are_all_of(&all) {
        return Ok(stream);
    }
    let schema = columns.of_schema(&all);
    Ok(Box::new(Narrowed {
        stream,
        schema: schema.map_err(|error| Error::invalid_data(error.to_string()))?,
        columns,
    }))
}

struct Narrowed {
    stream: Box<dyn Counted>,
    schema: SchemaRef,
    columns: Columns,
}

impl Counted for Narrowed {
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }

    fn next(&mut self) -> Result<Option<DeviceArray>> {
        let Some(array) = self.stream.next()? else {
            return Ok(None);
        };
        let narrowed = self.columns.of_batch(&array.into_batch()?);
        let narrowed = narrowed.map_err(|error| Error::invalid_data(error.to_string()))?;
        Ok(Some(narrowed.into()))
    }

    fn stats(&self) -> StreamStats {
        self.stream.stats()
    }

    fn total_rows(&self) -> Option<u64> {
        self.stream.total_rows()
    }
}
