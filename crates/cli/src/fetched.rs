//! What is fetched, from servers of libdipc and of Flight: a stream that counts its cost, and the
//! request for a part of a table.

use arrow::datatypes::SchemaRef;
use dipc::{DeviceArray, Reader, Result, Selection, Status, StreamStats};

use crate::report::Taken;

/// A stream that counts its cost.
pub trait Counted: Send {
    /// The columns.
    fn schema(&self) -> SchemaRef;

    /// The next batch, where it lies; `None` at the end.
    ///
    /// # Errors
    ///
    /// Those of the stream, which has then ended.
    fn next(&mut self) -> Result<Option<DeviceArray>>;

    /// Figures up to now.
    fn stats(&self) -> StreamStats;

    /// How many rows the table has, if the server said so in answer to the request for the table.
    fn total_rows(&self) -> Option<u64> {
        None
    }

    /// How each endpoint was fetched, if a Flight server gave a choice.
    fn taken(&self) -> Vec<Taken> {
        Vec::new()
    }
}

impl Counted for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema()
    }

    fn next(&mut self) -> Result<Option<DeviceArray>> {
        self.next_array()
    }

    fn stats(&self) -> StreamStats {
        self.stats()
    }

    fn total_rows(&self) -> Option<u64> {
        self.total_rows()
    }
}

/// Asks for `selection`. If the server cannot select the columns, asks for all of them: the work on
/// the rows then leaves out the others, or reports which columns there are.
pub fn ask_selected<T>(selection: &Selection, ask: impl Fn(Selection) -> Result<T>) -> Result<T> {
    match ask(selection.clone()) {
        Err(error)
            if selection.columns().is_some()
                && matches!(
                    error.status(),
                    Status::Unsupported | Status::InvalidArgument
                ) =>
        {
            let mut rows = Selection::new();
            if let Some(filter) = selection.filter() {
                rows.set_filter(filter)?;
            }
            rows.set_rows(selection.first_row(), selection.rows());
            ask(rows)
        }
        asked => asked,
    }
}
