//! A stream that this client sends (rule Q3).

mod start;

pub(super) use start::{AskedPut, WantedPut};

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::ClientCore;
use super::pool::ConnectionKey;
use crate::arrow::stream::{ArrayReader as _, DeviceStreamReader};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::driver::end::StreamLink;
use crate::driver::figures::Counters;
use crate::driver::polling::Poller;
use crate::driver::produce::Production;
use crate::error::{Error, Result, Status};
use crate::proto::{Headers, HostResult, PutProgress, Timestamp};

/// A stream of record batches that a client sends. Dropping it unfinished fails the stream.
pub struct Put {
    production: Production,
    link: StreamLink,
    client: Arc<ClientCore>,
    key: ConnectionKey,
    counters: Arc<Counters>,
    /// Pulled while the host waits.
    source: Option<DeviceStreamReader>,
    stall_timeout: Option<Duration>,
    /// The server sends a table too.
    is_exchange: bool,
    /// When the whole has to be over.
    due: Option<Timestamp>,
    /// The deadline that the program gave, for texts.
    deadline: Option<Duration>,
    /// Since when the host has waited for the server without an answer.
    waits_since: Option<Timestamp>,
    /// All batches have been sent.
    is_sent: bool,
    outcome: Option<Result<u64>>,
    headers: Headers,
    /// Results that nobody had asked for when the stream ended.
    results: VecDeque<HostResult>,
    /// The connection is back with the client.
    is_released: bool,
    /// The schema and the device of the arrays, until a server at a bare address has shown that it
    /// is libdipc's.
    unsent: Option<(OwnedSchema, i32)>,
}

/// What a put has sent so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PutStats {
    /// Record batches sent.
    pub batches: u64,
    /// Body bytes lent where they lay.
    pub bytes_lent: u64,
    /// Body bytes copied on the host, to be lent from there or sent.
    pub bytes_copied: u64,
    /// Body bytes sent through the connection.
    pub bytes_sent: u64,
    /// Buffers that were lent to the server over this connection and have not come back.
    pub lent_outstanding: u64,
}

/// A message of the server that a host waits for.
enum Word {
    Result(HostResult),
    Outcome(Result<u64>),
}

impl Put {
    /// Sends the batches of `source` while the host waits for results or for the end.
    pub(super) fn set_source(&mut self, source: DeviceStreamReader) {
        self.source = Some(source);
    }

    /// The token of later calls, in place of the request's.
    pub(super) fn set_cancel(&mut self, cancel: Option<&Cancel>) {
        self.production.set_cancel(cancel);
    }

    /// Sends a batch. Waits at most `timeout` for a slow server.
    ///
    /// # Errors
    ///
    /// The array is given back with `Timeout`, or with whatever ended the stream.
    pub fn push(
        &mut self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        timeout: Option<Duration>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        if let Err(error) = self.ensure_open() {
            return Err((error, array));
        }
        let deadline = self.wait_limit(timeout);
        let pushed = self.production.push(array, custom_metadata, deadline);
        match pushed {
            Ok(()) => {
                self.waits_since = None;
                Ok(())
            }
            Err((error, array)) => Err((self.explain(error), array)),
        }
    }

    /// The next report of the server's host that a part of the stream is safe. While it waits, it
    /// sends the batches of the put's source, if there is one. Waits at most `timeout`; `None`
    /// after the last result. Once the stream is over, gives the results that came before its end.
    ///
    /// # Errors
    ///
    /// `Timeout` (call again), or whatever ended the stream.
    pub fn next_result(&mut self, timeout: Option<Duration>) -> Result<Option<HostResult>> {
        if let Some(result) = self.results.pop_front() {
            return Ok(Some(result));
        }
        if let Some(outcome) = &self.outcome {
            return outcome.clone().map(|_| None);
        }
        match self.wait_for(timeout, word_of)? {
            Word::Result(result) => Ok(Some(result)),
            Word::Outcome(outcome) => self.end(outcome).map(|_| None),
        }
    }

    /// Ends the stream, and waits at most `timeout` until the server's host has taken everything.
    /// Sends the rest of a source first. Returns how many batches the host has taken.
    ///
    /// # Errors
    ///
    /// `Timeout` (call again), or whatever ended the stream. If the connection ends before the
    /// server's final answer, the outcome is unknown, and the text says so.
    pub fn finish(&mut self, timeout: Option<Duration>) -> Result<u64> {
        if let Some(outcome) = &self.outcome {
            return outcome.clone();
        }
        if self.source.is_none() {
            self.send_end(timeout)?;
        }
        let outcome = self.wait_for(timeout, |answers| answers.outcome.clone())?;
        self.end(outcome)
    }

    /// Fails the stream with a reason for the server's host.
    pub fn fail(&mut self, code: i32, text: &str) {
        if self.outcome.is_none() {
            let status = Status::from_code(code).unwrap_or(Status::Provider);
            self.fail_production(code, text);
            self.outcome = Some(Err(Error::new(status, text)));
        }
        self.release();
    }

    /// Headers of the server's answers, so far.
    pub fn headers(&mut self) -> Headers {
        self.take_headers();
        self.headers.clone()
    }

    /// A descriptor for an event loop; not to be read. After a call without time to wait has
    /// returned `Timeout`, it becomes readable when it is useful to call again.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        self.production.fd()
    }

    /// Makes the descriptor of `poller` the [descriptor](Self::fd) of this put.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the system watches no more descriptors.
    pub(super) fn adopt(&mut self, poller: Box<Poller>) -> Result<()> {
        self.production.adopt(poller)
    }

    /// Whether the stream is over: finished, failed, cancelled or too late. If it is, a `Timeout`
    /// is final.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    /// Figures up to now.
    pub fn stats(&self) -> PutStats {
        let counters = &self.counters;
        PutStats {
            batches: counters.batches.load(Ordering::Relaxed),
            bytes_lent: counters.bytes_lent.load(Ordering::Relaxed),
            bytes_copied: counters.bytes_copied.load(Ordering::Relaxed),
            bytes_sent: counters.bytes_sent.load(Ordering::Relaxed),
            lent_outstanding: self.link.lent_outstanding(),
        }
    }

    /// Waits for what `find` looks for in the server's answers, and sends the batches of a source
    /// meanwhile.
    fn wait_for<R>(
        &mut self,
        timeout: Option<Duration>,
        find: impl Fn(&mut PutProgress) -> Option<R>,
    ) -> Result<R> {
        loop {
            let deadline = self.wait_limit(timeout);
            let found = match &self.source {
                Some(_) => self.production.wait_for_room_or(deadline, &find),
                None => self.production.wait_for_answer(deadline, &find).map(Some),
            };
            let found = found.map_err(|error| self.explain(error))?;
            self.waits_since = None;
            match found {
                Some(found) => return Ok(found),
                None => self.send_next(timeout)?,
            }
        }
    }

    /// Sends the next batch of the source, or the end.
    fn send_next(&mut self, timeout: Option<Duration>) -> Result<()> {
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        match source.next() {
            Ok(Some(batch)) => {
                let pushed = self.production.push(batch, None, None);
                pushed.map_err(|(error, _)| self.give_up(error))
            }
            Ok(None) => {
                self.source = None;
                self.send_end(timeout)
            }
            Err(error) => {
                self.fail(error.status().code(), error.text());
                Err(error)
            }
        }
    }

    fn send_end(&mut self, timeout: Option<Duration>) -> Result<()> {
        if !self.is_sent {
            let deadline = self.wait_limit(timeout);
            let finished = self.production.finish(deadline);
            finished.map_err(|error| self.explain(error))?;
            self.waits_since = None;
            self.is_sent = true;
        }
        Ok(())
    }

    fn ensure_open(&self) -> Result<()> {
        match &self.outcome {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(_)) => Err(Error::invalid_argument(
                "the stream has been finished already",
            )),
            None if self.source.is_some() => Err(Error::invalid_argument(
                "the stream has a source, whose batches it sends",
            )),
            None => Ok(()),
        }
    }

    /// Until when to wait: the least of the host's own time, the stall timeout and the deadline.
    /// The descriptor also becomes readable at the last two.
    fn wait_limit(&mut self, timeout: Option<Duration>) -> Option<Timestamp> {
        let begun = *self.waits_since.get_or_insert_with(clock::now);
        let stalled = (self.stall_timeout).map(|stall| begun.saturating_add(stall));
        let end = stalled.into_iter().chain(self.due).min();
        self.production.set_alarm(end);
        end.into_iter().chain(timeout.map(clock::after)).min()
    }

    /// The error for the host. It ends the stream, unless only the host's own time is over.
    fn explain(&mut self, error: Error) -> Error {
        // The server's refusal explains more than the failure that it caused.
        let is_refused = |put: &mut PutProgress| matches!(put.outcome, Some(Err(_))).then_some(());
        if self.production.progress(is_refused).is_some() {
            return self.give_up(error);
        }
        if error.status() != Status::Timeout {
            return match error.status() {
                Status::InvalidArgument | Status::InvalidData => {
                    self.waits_since = None;
                    error
                }
                _ => self.give_up(error),
            };
        }
        if self.is_due() {
            let time = self.deadline.unwrap_or_default();
            return self.give_up(Error::timeout(format!(
                "the stream has not ended within its deadline of {time:?}"
            )));
        }
        let begun = self.waits_since.unwrap_or_else(clock::now);
        match self.stall_timeout {
            Some(stall) if clock::now() >= begun.saturating_add(stall) => {
                let remedy = match self.is_exchange {
                    true => {
                        "both sides wait if neither reads: read the server's table meanwhile, or \
                         raise the stall timeout"
                    }
                    false => "raise the stall timeout if its host needs longer",
                };
                self.give_up(Error::timeout(format!(
                    "the server has taken nothing and said nothing for {stall:?}: {remedy}"
                )))
            }
            _ => error,
        }
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| clock::now() >= due)
    }

    /// The stream is over for this reason, if it has no outcome.
    fn give_up(&mut self, error: Error) -> Error {
        if let Some(Err(before)) = &self.outcome {
            return before.clone();
        }
        let said = self.production.progress(|answers| answers.outcome.clone());
        let error = match said {
            Some(Err(refusal)) => refusal,
            _ if self.is_sent && error.status() == Status::Disconnected => {
                error.context("whether the server's host took the table is unknown")
            }
            _ => error,
        };
        self.fail_production(Status::Cancelled.code(), error.text());
        // The host has the error.
        let _ = self.end(Err(error.clone()));
        error
    }

    fn fail_production(&mut self, code: i32, text: &str) {
        if self.unsent.take().is_some() {
            // ABORT could end a server of another make.
            let error = Error::disconnected("the server has not answered the request");
            self.link
                .interfere(|end, effects| end.close(error, effects));
        }
        self.production.fail(code, text);
    }

    fn end(&mut self, outcome: Result<u64>) -> Result<u64> {
        self.outcome = Some(outcome.clone());
        self.source = None;
        self.release();
        outcome
    }

    fn take_headers(&mut self) {
        let headers = self.production.progress(|put| Some(put.headers.clone()));
        self.headers = headers.unwrap_or_else(|| std::mem::take(&mut self.headers));
    }

    /// Gives the connection back, for the next stream or for the memory that the server still has.
    fn release(&mut self) {
        if std::mem::replace(&mut self.is_released, true) {
            return;
        }
        self.take_headers();
        let results = (self.production).progress(|put| Some(std::mem::take(&mut put.results)));
        self.results = results.unwrap_or_default();
        self.production.let_go();
        let number = self.link.number();
        (self.link).interfere(|end, effects| end.stop_asking(number, effects));
        self.client.keep(&self.link, &self.key);
    }
}

fn word_of(put: &mut PutProgress) -> Option<Word> {
    if let Some(result) = put.results.pop_front() {
        return Some(Word::Result(result));
    }
    put.outcome.clone().map(Word::Outcome)
}

impl Drop for Put {
    fn drop(&mut self) {
        let text = "the client left the table before its end";
        self.fail(Status::Cancelled.code(), text);
    }
}
