//! What is fetched, from servers of libdipc and of Flight: a stream that counts its cost, and the
//! request for a part of a table.

use dipc::arrow::stream::ArrayReader;
use dipc::client::{GetOptions, Parts, Stream};
use dipc::{Selection, Status, StreamStats};

use crate::report::Taken;

/// A stream that counts its cost.
pub trait Counted: ArrayReader {
    /// Figures up to now.
    fn stats(&self) -> StreamStats;

    /// How many rows the table has, if the server said so when it was asked for the table.
    fn total_rows(&self) -> Option<u64> {
        None
    }

    /// How each endpoint was fetched, if a Flight server gave a choice.
    fn taken(&self) -> Vec<Taken> {
        Vec::new()
    }
}

impl Counted for Stream {
    fn stats(&self) -> StreamStats {
        self.stats()
    }
}

impl Counted for Parts {
    fn stats(&self) -> StreamStats {
        self.stats()
    }

    fn total_rows(&self) -> Option<u64> {
        self.total_rows()
    }
}

/// Asks for the selection of `options`. Where the server cannot select the columns, asks for all of
/// them: the work on the rows leaves out the others, or says which there are.
pub fn ask_selected<T>(
    options: &GetOptions,
    ask: impl Fn(&GetOptions) -> dipc::Result<T>,
) -> dipc::Result<T> {
    let selection = &options.selection;
    match ask(options) {
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
            ask(&GetOptions {
                selection: rows,
                ..options.clone()
            })
        }
        asked => asked,
    }
}
