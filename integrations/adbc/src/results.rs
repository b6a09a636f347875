//! Result sets.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatchIterator, RecordBatchReader};
use dipc::{Cancel, Reader};

use crate::error::{from_arrow, guarded};
use crate::last_error;

/// What ADBC calls a result set.
pub(crate) type ResultSet = Box<dyn RecordBatchReader + Send + 'static>;

/// A result set that can be cancelled, until it is dropped.
struct Cancellable<R> {
    results: R,
    _token: Arc<Cancel>,
}

impl<R: Iterator> Iterator for Cancellable<R> {
    type Item = R::Item;

    fn next(&mut self) -> Option<R::Item> {
        self.results.next()
    }
}

impl<R> RecordBatchReader for Cancellable<R>
where
    R: RecordBatchReader,
{
    fn schema(&self) -> SchemaRef {
        self.results.schema()
    }
}

/// The result set with the token that ends it.
pub(crate) fn until(
    results: impl RecordBatchReader + Send + 'static,
    token: Arc<Cancel>,
) -> ResultSet {
    Box::new(Cancellable {
        results,
        _token: token,
    })
}

/// The record batches of a server, where they lie.
struct Results(Reader);

/// The result set that `reader` reads, with the token that ends it.
pub(crate) fn of(reader: Reader, token: Arc<Cancel>) -> ResultSet {
    until(Results(reader), token)
}

/// Some columns of a result set.
struct Columns {
    results: Results,
    places: Vec<usize>,
    schema: SchemaRef,
}

/// As [`of`], with only the columns at these places.
pub(crate) fn columns_of(
    reader: Reader,
    places: Vec<usize>,
    token: Arc<Cancel>,
) -> adbc_core::error::Result<ResultSet> {
    let schema = Arc::new(reader.schema().project(&places).map_err(from_arrow)?);
    let results = Results(reader);
    Ok(until(
        Columns {
            results,
            places,
            schema,
        },
        token,
    ))
}

impl Iterator for Columns {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.results.next()?;
        Some(next.and_then(|batch| batch.project(&self.places)))
    }
}

impl RecordBatchReader for Columns {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Iterator for Results {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The caller is a callback of C, in which a panic would end the process.
        let next = guarded(|| self.0.next_batch());
        next.inspect_err(last_error::note)
            .map_err(ArrowError::from)
            .transpose()
    }
}

impl RecordBatchReader for Results {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
}

/// A result set of one batch.
pub(crate) fn one(batch: RecordBatch) -> ResultSet {
    let schema = batch.schema();
    Box::new(RecordBatchIterator::new([Ok(batch)], schema))
}

/// The result set of a statement that gives none.
pub(crate) fn none() -> ResultSet {
    Box::new(RecordBatchIterator::new([], Arc::new(Schema::empty())))
}
