//! Streams on the thread that calls the handlers of a client.

use std::sync::Arc;
use std::task::Waker;

use super::demand::Demand;
use crate::arrow::OwnedDeviceArray;
use crate::arrow::async_stream::{AsyncHandler, Refused};
use crate::arrow::format::write_metadata;
use crate::arrow::stream::ArrayReader as _;
use crate::client::{NextBatch, Stream};
use crate::driver::stream_loop::{LoopStream, Next, Watcher};
use crate::error::{Error, Result};

/// The most arrays that a stream gives before the next stream may give some.
const AT_ONCE: usize = 16;

/// A stream and its handler. Their drops run in this order: the stream ends before the release.
pub(super) struct Giving {
    /// An array that the consumer does not want yet, with its metadata. One array is read ahead, so
    /// that a consumer that wants none learns of the end.
    ahead: Option<(OwnedDeviceArray, Option<Vec<u8>>)>,
    stream: Option<Stream>,
    /// The answer of the server, until the consumer knows it.
    answer: Option<Result<Stream>>,
    told_by: ToldBy,
    demand: Arc<Demand>,
    /// Makes the thread go on with the stream.
    waker: Waker,
    handler: AsyncHandler,
}

/// What wakes the thread when more of the stream has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToldBy {
    /// The stream does not wait for more.
    Nothing,
    /// The stream's bell, on a connection that streams share.
    Bell,
    Descriptor,
}

impl Giving {
    pub(super) fn new(demand: Arc<Demand>, waker: Waker, handler: AsyncHandler) -> Self {
        Self {
            ahead: None,
            stream: None,
            answer: None,
            told_by: ToldBy::Nothing,
            demand,
            waker,
            handler,
        }
    }

    /// Tells the consumer of the stream.
    fn begin(&mut self, stream: Stream) -> Result<Refused> {
        let stream = self.stream.insert(stream);
        let schema = stream.schema()?;
        let headers = stream.headers();
        let metadata = encoded(&headers.iter().collect::<Vec<_>>())?;
        let device_type = stream.device_type();
        Ok(self.handler.on_schema(schema, device_type, metadata))
    }
}

impl LoopStream for Giving {
    /// The answer of the server.
    type Word = Box<Result<Stream>>;

    fn hear(&mut self, answer: Self::Word) {
        self.answer = Some(*answer);
    }

    /// Gives what is there and wanted.
    fn advance(&mut self) -> Result<Next> {
        for _ in 0..AT_ONCE {
            if self.demand.has_cancelled() {
                return Ok(Next::Over);
            }
            if self.demand.is_wrong() {
                let text = "the consumer has asked for fewer than one array";
                return Err(Error::invalid_argument(text));
            }
            if let Some(answer) = self.answer.take()
                && self.begin(answer?)?.is_err()
            {
                return Ok(Next::Over);
            }
            let Some(stream) = &mut self.stream else {
                return Ok(Next::Idle);
            };
            if self.ahead.is_none() {
                // Set before the look: the look finds what has come until now, and the bell rings
                // for the rest.
                if self.told_by != ToldBy::Descriptor && stream.wake(&self.waker) {
                    self.told_by = ToldBy::Bell;
                }
                match stream.try_next()? {
                    NextBatch::Batch(array) => {
                        let metadata = encoded(stream.custom_metadata())?;
                        self.ahead = Some((array, metadata));
                    }
                    NextBatch::NotYet => return Ok(Next::Sleep),
                    NextBatch::End => {
                        self.handler.on_end();
                        return Ok(Next::Over);
                    }
                }
            }
            if !self.demand.take_one() {
                return Ok(Next::Idle);
            }
            if let Some((array, metadata)) = self.ahead.take()
                && self.handler.on_array(array, metadata.as_ref()).is_err()
            {
                return Ok(Next::Over);
            }
        }
        Ok(Next::More)
    }

    /// Tells the consumer of a failure, unless it has cancelled. The metadata has the number of the
    /// status, and then the headers of the answer.
    fn fail(&mut self, error: &Error) {
        if self.demand.has_cancelled() {
            return;
        }
        let status = error.status().code().to_string();
        let headers = self.stream.as_ref().map(Stream::headers);
        let headers = headers.unwrap_or_default();
        let mut pairs = vec![("dipc_status", status.as_bytes())];
        pairs.extend(headers.iter());
        self.handler
            .on_error(error, write_metadata(&pairs).as_ref());
    }

    fn watch(&mut self, next: Next, watcher: Watcher<'_>) -> Result<()> {
        if next == Next::Idle {
            // The descriptor stays readable while nobody reads the stream.
            self.unwatch(watcher);
        } else if let (Some(stream), ToldBy::Nothing) = (&mut self.stream, self.told_by) {
            // For the first sleep the descriptor is made; it is readable at first.
            watcher.add_fd(stream.fd()?)?;
            self.told_by = ToldBy::Descriptor;
        }
        Ok(())
    }

    fn unwatch(&mut self, watcher: Watcher<'_>) {
        if std::mem::replace(&mut self.told_by, ToldBy::Nothing) == ToldBy::Descriptor
            && let Some(stream) = &mut self.stream
            && let Ok(fd) = stream.fd()
        {
            watcher.remove_fd(fd);
        }
    }
}

/// Encodes metadata as in `ArrowSchema.metadata`; `None` if there is no metadata.
fn encoded(pairs: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)]) -> Result<Option<Vec<u8>>> {
    if pairs.is_empty() {
        return Ok(None);
    }
    let text = "metadata larger than Arrow's C interface can say";
    let bytes = write_metadata(pairs).ok_or_else(|| Error::unsupported(text))?;
    Ok(Some(bytes))
}
