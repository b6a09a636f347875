//! Streams on their way out from a client.

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use super::batches::annotated;
use crate::arrow::batches::batch_to_c;
use crate::arrow::columns::ensure_columns;
use crate::client::{self, PutStats};
use crate::error::{Error, Result, Status};
use crate::proto::Headers;

/// A stream that this client sends, batch by batch.
///
/// Dropping it before [`finish`](Self::finish) fails the stream at the server.
pub struct Put {
    pub(super) inner: client::Put,
    pub(super) schema: SchemaRef,
}

impl Put {
    /// Sends a batch. Waits for a slow server. The batch's buffers are shared, not copied, until
    /// the server has them; on shm, buffers of an [`Arena`](crate::Arena) are lent where they lie.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a batch of other columns; or whatever ended the stream: the server's own
    /// error, `Disconnected`, `Timeout`, `Cancelled`.
    pub fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.push_within(batch, None).map_err(|(error, _)| error)
    }

    /// [`push`](Self::push) with custom metadata for the batch: key and value.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push); `InvalidArgument` for metadata of more than a message may have.
    pub fn push_with_metadata<K, V>(
        &mut self,
        batch: RecordBatch,
        metadata: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        ensure_columns(&self.schema, &batch)?;
        let pairs: Vec<_> = metadata.into_iter().collect();
        let pairs: Vec<_> = (pairs.iter())
            .map(|(key, value)| (key.as_ref().as_bytes(), value.as_ref().as_bytes()))
            .collect();
        let array = annotated(batch, &pairs)?;
        let pushed = self.inner.push(array, None, None);
        pushed.map_err(|(error, _)| error)
    }

    /// Sends a batch, and waits at most `timeout`; the batch is given back.
    pub(super) fn push_within(
        &mut self,
        batch: RecordBatch,
        timeout: Option<Duration>,
    ) -> Result<(), (Error, RecordBatch)> {
        if let Err(error) = ensure_columns(&self.schema, &batch) {
            return Err((error, batch));
        }
        // Cheap: the buffers are shared.
        let array = batch_to_c(batch.clone());
        let pushed = self.inner.push(array, None, timeout);
        pushed.map_err(|(error, _)| (error, batch))
    }

    /// Ends the stream, and waits until the server's host has taken everything. Returns how many
    /// batches it has taken.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream. If the connection ends before the server's final answer, the
    /// outcome is unknown, and the text says so.
    pub fn finish(&mut self) -> Result<u64> {
        self.inner.finish(None)
    }

    /// Waits for the next report of the server's host that the first batches are safe. Gives their
    /// number, and bytes of the host's own; `None` after the last report.
    ///
    /// # Errors
    ///
    /// As [`finish`](Self::finish).
    pub fn next_result(&mut self) -> Result<Option<(u64, Vec<u8>)>> {
        let result = self.inner.next_result(None)?;
        Ok(result.map(|result| (result.batches, result.bytes)))
    }

    /// Fails the stream: the server's host gets `text`, and does not take the table as complete.
    pub fn fail(&mut self, text: &str) {
        self.inner.fail(Status::Provider.code(), text);
    }

    /// Headers of the server's answer, so far.
    pub fn headers(&mut self) -> Headers {
        self.inner.headers()
    }

    /// Figures up to now.
    pub fn stats(&self) -> PutStats {
        self.inner.stats()
    }
}
