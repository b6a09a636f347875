//! The host's way to the table that comes with a request.

use super::attachment::SentTable;
use super::request::ServerRequest;
use crate::arrow::OwnedSchema;
use crate::driver::fetch::Stream;
use crate::error::Result;

impl ServerRequest {
    /// The schema of the stream that the client sends, for a host that decides with it. Waits for
    /// it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a client that sends none, or once the host has taken the stream; or
    /// the error that ended the stream.
    pub fn source_schema(&self) -> Result<OwnedSchema> {
        self.attachment.schema()
    }

    /// Takes the stream that the client sends: from now on it sends batches. The host reads the
    /// stream to its end before it answers.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a client that sends none, or for a second call; or the error that
    /// ended the stream.
    pub fn source(&self) -> Result<Stream> {
        self.attachment.client_stream()?.take()
    }

    /// [`source`](Self::source), or what the middleware sends in its place.
    ///
    /// # Errors
    ///
    /// As [`source`](Self::source).
    pub fn table(&self) -> Result<SentTable> {
        self.attachment.take()
    }

    /// Tells the client that the first `batches` of its stream are safe, with bytes for its host.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no stream is taken, or more than
    /// [`MOST_RESULT`](crate::proto::MOST_RESULT) bytes; `Cancelled`, `Disconnected`.
    pub fn say_result(&self, batches: u64, bytes: &[u8]) -> Result<()> {
        self.attachment.send_result(batches, bytes)
    }
}
