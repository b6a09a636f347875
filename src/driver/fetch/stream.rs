//! A stream, for its consumer.

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::task::Waker;

use super::{Fetch, NextBatch, StreamStats};
use crate::arrow::decode::{DecodeOptions, DecodedBatch, Decoder};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::device::Target;
use crate::driver::bell::Bell;
use crate::driver::figures::Record;
use crate::driver::polling::Poller;
use crate::driver::telling::Account;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{Header, Headers};

/// What to do with a stream that has ended for its consumer.
pub type Ending = Box<dyn FnOnce(Box<Fetch>) + Send>;

/// Asks for a stream once more, after an error of the first stream and before the consumer has an
/// array; the arrays are to be on the given target. Fails as the first request may.
pub type Retry = Box<dyn FnOnce(Option<Target>, &Error, Option<&Cancel>) -> Result<Stream> + Send>;

/// A stream of record batches. Dropping it before its end cancels it.
pub struct Stream {
    /// `None` once it has ended.
    fetch: Option<Box<Fetch>>,
    generation: Generation,
    ending: Option<Ending>,
    schema: Option<Arc<Header>>,
    decode: DecodeOptions,
    device_type: i32,
    cancel: Option<Cancel>,
    custom_metadata: Vec<(String, String)>,
    /// Headers of the answer, once the stream is over.
    headers: Headers,
    stats: StreamStats,
    error: Option<Error>,
    /// Asks once more if the peer's memory on a GPU cannot be opened here; `Some` until the
    /// consumer has an array.
    pub(crate) retry: Option<Retry>,
    /// For the log, until the stream's end is logged.
    pub(crate) account: Option<Box<Account>>,
    /// The request of the client that sends the stream. What comes is counted with it.
    pub(crate) record: Option<Arc<Record>>,
    /// The poller of a consumer with an event loop.
    poller: Option<Box<Poller>>,
    /// A cancel of the token wakes the consumer's task.
    is_told: bool,
}

impl Stream {
    /// Makes a stream whose schema has arrived.
    pub fn new(
        fetch: Box<Fetch>,
        decode: DecodeOptions,
        cancel: Option<&Cancel>,
        ending: Ending,
    ) -> Self {
        Self {
            device_type: fetch.target().device_type(),
            schema: fetch.schema(),
            fetch: Some(fetch),
            generation: Generation::now(),
            ending: Some(ending),
            decode,
            cancel: cancel.cloned(),
            custom_metadata: Vec::new(),
            headers: Headers::new(),
            stats: StreamStats::default(),
            error: None,
            retry: None,
            account: None,
            record: None,
            poller: None,
            is_told: false,
        }
    }

    /// Hands the stream from the request to the host, with the token for later calls.
    pub fn hand_over(&mut self, cancel: Option<&Cancel>) {
        self.cancel = cancel.cloned();
        self.is_told = false;
        match (&mut self.poller, &mut self.fetch) {
            (Some(poller), _) => poller.follow(cancel),
            (None, Some(fetch)) => fetch.forget_bell(),
            (None, None) => {}
        }
    }

    /// A description of the peer, until the stream has ended.
    pub fn peer(&self) -> &str {
        self.fetch.as_deref().map_or("", Fetch::peer)
    }

    /// Custom metadata of the batch that [`ArrayReader::next`] gave last.
    pub fn custom_metadata(&self) -> &[(String, String)] {
        &self.custom_metadata
    }

    /// The error that ended the stream.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    /// Headers of the server's answer, so far.
    pub fn headers(&self) -> Headers {
        match &self.fetch {
            // In a forked child the lock may be held for ever.
            Some(fetch) if self.generation.is_same_process() => fetch.answer_headers(),
            _ => self.headers.clone(),
        }
    }

    /// Figures up to now.
    pub fn stats(&self) -> StreamStats {
        self.stats
    }

    /// How many batches [`ArrayReader::next`] can give without waiting for the server. If there are
    /// none, this call first reads the connection.
    pub fn batches_here(&mut self) -> usize {
        if self.generation.ensure_same_process().is_err() {
            return 0;
        }
        self.fetch.as_deref_mut().map_or(0, Fetch::batches_here)
    }

    /// [`ArrayReader::next`] without a wait. If nothing has come, [`fd`](Self::fd) announces when
    /// to call again.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream.
    pub fn try_next(&mut self) -> Result<NextBatch<OwnedDeviceArray>> {
        self.next_by(Fetch::try_next)
    }

    /// A descriptor for an event loop, not to be read. It is readable when
    /// [`try_next`](Self::try_next) may find something. It is readable at first, and always after
    /// the end.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.generation.ensure_same_process()?;
        let poller = match self.poller.take() {
            Some(poller) => poller,
            None => {
                let bell = self.fetch.as_deref().and_then(Fetch::bell);
                let mut poller = Box::new(Poller::new(bell)?);
                poller.follow(self.cancel.as_ref());
                if let Some(fetch) = &mut self.fetch {
                    fetch.ring_by(&poller);
                }
                poller
            }
        };
        Ok(self.poller.insert(poller).fd())
    }

    /// Has the task of `waker` woken once when [`try_next`](Self::try_next) may find something new.
    /// Must be called before that call. Returns false if only [`fd`](Self::fd) announces news.
    pub fn wake(&mut self, waker: &Waker) -> bool {
        let Some(fetch) = &mut self.fetch else {
            // The end has come.
            return true;
        };
        if !self.generation.is_same_process() {
            return true;
        }
        let Some(bell) = fetch.wake(waker) else {
            return false;
        };
        if let Some(cancel) = &self.cancel
            && !std::mem::replace(&mut self.is_told, true)
        {
            cancel.tell(Arc::downgrade(bell) as Weak<Bell>);
        }
        true
    }

    /// Takes over the poller that announced the schema, for all that follows.
    pub fn adopt(&mut self, poller: Box<Poller>) {
        self.poller = Some(poller);
    }

    /// What `next` finds. An end, good or not, ends the stream.
    fn next_by(
        &mut self,
        next: impl FnOnce(
            &mut Fetch,
            Option<&Cancel>,
            Option<&mut Poller>,
        ) -> Result<NextBatch<DecodedBatch>>,
    ) -> Result<NextBatch<OwnedDeviceArray>> {
        self.generation.ensure_same_process()?;
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let Some(fetch) = &mut self.fetch else {
            return Ok(NextBatch::End);
        };
        let mut outcome = next(fetch, self.cancel.as_ref(), self.poller.as_deref_mut());
        let stats = fetch.stats();
        if let Some(record) = &self.record {
            record.received(&self.stats, &stats);
        }
        self.stats = stats;
        if let Err(error) = &outcome
            && let Some(retry) = self.retry.take()
            && error.status() != Status::Disconnected
            && fetch.misses_gpus()
        {
            let error = error.clone();
            outcome = self.ask_again(retry, &error);
        }
        match outcome {
            Ok(NextBatch::Batch(batch)) => {
                self.retry = None;
                self.custom_metadata = batch.custom_metadata;
                Ok(NextBatch::Batch(batch.array))
            }
            Ok(NextBatch::NotYet) => Ok(NextBatch::NotYet),
            Ok(NextBatch::End) => {
                self.end(true);
                Ok(NextBatch::End)
            }
            Err(error) => {
                self.error = Some(error.clone());
                self.end(false);
                Err(error)
            }
        }
    }

    /// Asks again for the same arrays in the same place, and gives the first array.
    fn ask_again(&mut self, retry: Retry, error: &Error) -> Result<NextBatch<DecodedBatch>> {
        // The consumer already knows the place of the arrays.
        let target = self.fetch.as_deref().map(Fetch::target);
        // The connection serves the next stream after this one ends. The log shows both requests as
        // one stream, so the account is kept.
        let account = self.account.take();
        self.end(false);
        self.account = account;
        let mut fresh = retry(target, error, self.cancel.as_ref())?;
        let bytes = |stream: &Self| stream.schema.as_ref().map(|schema| schema.bytes().to_vec());
        if bytes(&fresh) != bytes(self) {
            return Err(Error::invalid_data(format!(
                "the server's memory on a GPU cannot be opened here ({error}), and when it was \
                 asked for arrays elsewhere, it gave another schema"
            )));
        }
        self.ending = fresh.ending.take();
        let fetch = self.fetch.insert(match fresh.fetch.take() {
            Some(fetch) => fetch,
            None => return Ok(NextBatch::End),
        });
        let outcome = fetch.next(self.cancel.as_ref());
        self.stats = fetch.stats();
        outcome
    }

    /// Logs the end of the stream.
    fn log_end(&mut self, is_whole: bool) {
        let Some(mut account) = self.account.take() else {
            return;
        };
        let stats = self.stats;
        (account.batches, account.rows) = (stats.batches, stats.rows);
        account.bytes = stats.bytes_lent + stats.bytes_received;
        match &self.error {
            Some(error) => account.fail(error.status().code(), error.text()),
            None if is_whole => account.end(),
            None => account.fail(Status::Cancelled.code(), "its consumer has left it"),
        }
    }

    /// `is_whole`: the consumer has all batches.
    fn end(&mut self, is_whole: bool) {
        let Some(fetch) = self.fetch.take() else {
            return;
        };
        if !self.generation.is_same_process() {
            // A forked child sends nothing, and locks may be held for ever there: the copy is
            // leaked.
            let _left = ManuallyDrop::new(fetch);
            return;
        }
        self.headers = fetch.answer_headers();
        // The schema of an exchange is kept from here on, because it may be asked for after the
        // end.
        self.schema = self.schema.take().or_else(|| fetch.schema());
        if let Some(poller) = &mut self.poller {
            poller.end();
        }
        self.log_end(is_whole);
        if let Some(ending) = self.ending.take() {
            ending(fetch);
        }
    }
}

impl ArrayReader for Stream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        if let Some(decoder) = self.fetch.as_deref().and_then(Fetch::decoder) {
            return Ok(decoder.schema());
        }
        // In an exchange the schema may not have come.
        if self.schema.is_none()
            && let Some(fetch) = &mut self.fetch
        {
            fetch.wait_for_schema(self.cancel.as_ref())?;
            self.schema = fetch.schema();
        }
        let header = match (&self.schema, &self.error) {
            (Some(header), _) => header,
            (None, Some(error)) => return Err(error.clone()),
            // Rule M4.
            (None, None) => return Err(Error::protocol("the stream has no schema")),
        };
        Ok(Decoder::new(header, self.decode)?.schema())
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        match self.next_by(|fetch, cancel, _| fetch.next(cancel))? {
            NextBatch::Batch(array) => Ok(Some(array)),
            NextBatch::End | NextBatch::NotYet => Ok(None),
        }
    }

    fn device_type(&self) -> i32 {
        self.device_type
    }

    fn as_any(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end(false);
    }
}
