//! Streams for threads that wait.

use std::future::poll_fn;
use std::pin::Pin;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use futures_core::Stream;

/// A stream as an iterator, whose thread waits for each item.
pub(super) struct Blocking<S> {
    stream: Pin<Box<S>>,
    /// The runtime that the stream may need.
    #[cfg(feature = "tokio")]
    runtime: Option<tokio::runtime::Handle>,
}

impl<S> Blocking<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream: Box::pin(stream),
            #[cfg(feature = "tokio")]
            runtime: tokio::runtime::Handle::try_current().ok(),
        }
    }
}

impl<S, E> Iterator for Blocking<S>
where
    S: Stream<Item = Result<RecordBatch, E>>,
    E: Into<ArrowError>,
{
    type Item = Result<RecordBatch, E>;

    fn next(&mut self) -> Option<Self::Item> {
        #[cfg(feature = "tokio")]
        let _entered = self.runtime.as_ref().map(tokio::runtime::Handle::enter);
        let stream = &mut self.stream;
        pollster::block_on(poll_fn(|context| stream.as_mut().poll_next(context)))
    }
}
