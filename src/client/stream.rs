//! A stream, for its consumer.

use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use super::asking::{self, ClientCore, ConnectionKey};
use super::fallback::Fallback;
use crate::arrow::decode::{DecodeOptions, DecodedBatch, Decoder};
use crate::arrow::stream::ArrayReader;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::driver::fetch::{Fetch, NextBatch, StreamStats};
use crate::driver::polling::Poller;
use crate::driver::telling::Account;
use crate::error::{Error, Result, Status};
use crate::fork::Generation;
use crate::proto::{Header, Headers};

/// A stream of record batches. Dropping it before its end cancels it.
pub struct Stream {
    /// `None` once it has ended.
    pub(super) fetch: Option<Box<Fetch>>,
    generation: Generation,
    client: Weak<ClientCore>,
    pub(super) key: Option<ConnectionKey>,
    pub(super) schema: Option<Arc<Header>>,
    decode: DecodeOptions,
    device_type: i32,
    pub(super) cancel: Option<Cancel>,
    custom_metadata: Vec<(String, String)>,
    /// Of the answer, once the stream is over.
    headers: Headers,
    pub(super) stats: StreamStats,
    error: Option<Error>,
    /// The second request, until the consumer has an array.
    pub(super) fallback: Option<Box<Fallback>>,
    /// For the log, until the stream's end is logged.
    pub(super) account: Option<Box<Account>>,
    /// For a consumer with an event loop.
    poller: Option<Box<Poller>>,
}

impl Stream {
    /// Makes a stream whose schema has arrived.
    pub(super) fn new(
        client: Weak<ClientCore>,
        generation: Generation,
        fetch: Box<Fetch>,
        key: Option<ConnectionKey>,
        decode: DecodeOptions,
        cancel: Option<&Cancel>,
    ) -> Self {
        Self {
            device_type: fetch.target().device_type(),
            schema: fetch.schema(),
            fetch: Some(fetch),
            generation,
            client,
            key,
            decode,
            cancel: cancel.cloned(),
            custom_metadata: Vec::new(),
            headers: Headers::new(),
            stats: StreamStats::default(),
            error: None,
            fallback: None,
            account: None,
            poller: None,
        }
    }

    /// A description of the server, until the stream has ended.
    pub(super) fn peer(&self) -> &str {
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
            Some(fetch) => fetch.answer_headers(),
            None => self.headers.clone(),
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

    /// [`ArrayReader::next`] without a wait. Where nothing has come, [`fd`](Self::fd) tells when to
    /// call again.
    ///
    /// # Errors
    ///
    /// Whatever ended the stream.
    pub fn try_next(&mut self) -> Result<NextBatch<OwnedDeviceArray>> {
        self.next_by(Fetch::try_next)
    }

    /// A descriptor that is readable when [`try_next`](Self::try_next) may find something, for an
    /// event loop; not to be read. It is readable at first, and for good behind the end.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.generation.ensure_same_process()?;
        let poller = match self.poller.take() {
            Some(poller) => poller,
            None => {
                let token = self.cancel.clone().map(|token| Arc::new(token) as _);
                Box::new(Poller::new(token)?)
            }
        };
        Ok(self.poller.insert(poller).fd())
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
        self.stats = fetch.stats();
        if let Err(error) = &outcome
            && let Some(fallback) = self.fallback.take()
            && error.status() != Status::Disconnected
            && fetch.misses_gpus()
        {
            let error = error.clone();
            let batch = self.retry_without_gpus(*fallback, &error);
            outcome = batch.map(|batch| batch.map_or(NextBatch::End, NextBatch::Batch));
        }
        match outcome {
            Ok(NextBatch::Batch(batch)) => {
                self.fallback = None;
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
    pub(super) fn end(&mut self, is_whole: bool) {
        let Some(fetch) = self.fetch.take() else {
            return;
        };
        self.headers = fetch.answer_headers();
        if let Some(poller) = &mut self.poller {
            poller.end();
        }
        if self.generation.ensure_same_process().is_err() {
            // A forked child sends nothing, and locks may be held for ever: the copy is leaked.
            let _left = ManuallyDrop::new(fetch);
            return;
        }
        self.log_end(is_whole);
        asking::end(Weak::clone(&self.client), fetch, self.key.take());
    }
}

impl ArrayReader for Stream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        if let Some(decoder) = self.fetch.as_deref().and_then(Fetch::decoder) {
            return Ok(decoder.schema());
        }
        let header = self
            .schema
            .as_ref()
            // Rule M4.
            .ok_or_else(|| Error::protocol("the stream has no schema"))?;
        Ok(Decoder::new(header, self.decode)?.schema())
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let next = |fetch: &mut Fetch, cancel: Option<&Cancel>, _: Option<&mut Poller>| {
            let batch = fetch.next(cancel)?;
            Ok(batch.map_or(NextBatch::End, NextBatch::Batch))
        };
        match self.next_by(next)? {
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
