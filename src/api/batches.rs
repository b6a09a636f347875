//! Record batches that a server or a put sends.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatchIterator, RecordBatchReader};

use crate::arrow::OwnedDeviceStream;
use crate::arrow::batches::export_batches;
use crate::error::Error;

/// Record batches on their way out, of one schema. They are made when the other side wants them.
pub struct Batches(Box<dyn RecordBatchReader + Send>);

impl Batches {
    /// The batches of an iterator.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use dipc::Batches;
    /// use arrow::array::{Int64Array, RecordBatch};
    /// # use arrow::datatypes::{DataType, Field, Schema};
    ///
    /// let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
    /// let batches = (0..3).map({
    ///     let schema = Arc::clone(&schema);
    ///     move |n| {
    ///         let column = Arc::new(Int64Array::from(vec![n; 10]));
    ///         RecordBatch::try_new(Arc::clone(&schema), vec![column])
    ///     }
    /// });
    /// let table = Batches::new(schema, batches);
    /// # let _ = table;
    /// ```
    pub fn new<I, E>(schema: SchemaRef, batches: I) -> Self
    where
        I: IntoIterator<Item = Result<RecordBatch, E>>,
        I::IntoIter: Send + 'static,
        E: Into<ArrowError> + 'static,
    {
        let batches = batches.into_iter().map(|batch| batch.map_err(Into::into));
        Self(Box::new(RecordBatchIterator::new(batches, schema)))
    }

    /// Batches that are there already.
    pub fn of<I>(schema: SchemaRef, batches: I) -> Self
    where
        I: IntoIterator<Item = RecordBatch>,
        I::IntoIter: Send + 'static,
    {
        Self::new(schema, batches.into_iter().map(Ok::<_, ArrowError>))
    }

    /// The batches of a reader: of a file, or of another server.
    pub fn from_reader(reader: impl RecordBatchReader + Send + 'static) -> Self {
        Self(Box::new(reader))
    }

    /// The batches of a [`Stream`](futures_core::Stream). The thread that sends them waits for
    /// each. The stream may need a runtime of `tokio` if this call is made inside that runtime.
    #[cfg(any(feature = "tokio", feature = "async-io"))]
    pub fn from_stream<S, E>(schema: SchemaRef, stream: S) -> Self
    where
        S: futures_core::Stream<Item = Result<RecordBatch, E>> + Send + 'static,
        E: Into<ArrowError> + 'static,
    {
        Self::new(schema, super::nonblocking::Blocking::new(stream))
    }

    /// As the core of the server takes them.
    pub(super) fn export(self) -> OwnedDeviceStream {
        export_batches(self.0)
    }
}

impl<R: RecordBatchReader + Send + 'static> From<R> for Batches {
    fn from(reader: R) -> Self {
        Self::from_reader(reader)
    }
}

/// An error of this crate keeps its status on the way through a reader.
impl From<Error> for ArrowError {
    fn from(error: Error) -> Self {
        Self::ExternalError(Box::new(error))
    }
}
