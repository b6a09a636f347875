//! The pull form: a host that pushes the batches of a stream.

use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use super::errors::{answered_before, stopped};
use super::request::{AsyncAnswer, PullAnswer, Reply, ServerRequest, Services, not_pulled};
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::driver::callbacks::Callbacks;
use crate::driver::clock;
use crate::error::{Error, Result, Status};
use crate::proto::Verb;

impl ServerRequest {
    /// Pull form: sends the schema, before the first batch. The schema is only read.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a provider's request or a second call, `InvalidData` for an invalid
    /// schema, `Unsupported` for a device that this process cannot read, or the error that ended
    /// the stream. `InvalidArgument`, too, if the [selection](Self::selection) does not fit the
    /// schema: then the client has been told.
    pub fn start(&self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        if let Reply::Relayed(relay, _) = &self.reply {
            return relay.start(schema, device_type);
        }
        let mut pull = self.pull(None)?;
        let selection = self.selection_left();
        (pull.production).start_selected(schema, device_type, &selection)?;
        pull.production.end_if_complete();
        Ok(())
    }

    /// Pull form: sends a batch, or what the client has selected of it. Waits at most `timeout` for
    /// a slow client. If the client wants nothing of a batch, the batch is released.
    ///
    /// # Errors
    ///
    /// The array is given back with `Timeout`, `Cancelled`, `Disconnected`, `InvalidArgument` or
    /// `InvalidData`. The next call reports a failure after the array was taken.
    pub fn push(
        &self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        timeout: Option<Duration>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        let deadline = timeout.map(clock::after);
        if let Reply::Relayed(relay, _) = &self.reply {
            return relay.push(array, custom_metadata, deadline);
        }
        let mut pull = match self.pull(deadline) {
            Ok(pull) => pull,
            Err(error) => return Err((error, array)),
        };
        pull.production.push(array, custom_metadata, deadline)?;
        pull.production.end_if_complete();
        Ok(())
    }

    /// Pull form: whether the client has all rows that it has selected. Then more batches are
    /// useless, and the host may finish the stream.
    pub fn is_complete(&self) -> bool {
        match &self.reply {
            Reply::Relayed(relay, _) => relay.is_complete(),
            Reply::Pushed(pull, _) => {
                // Another thread may hold the lock while it waits for the client.
                let pull = pull.try_lock();
                pull.is_some_and(|pull| pull.production.is_complete())
            }
            Reply::Returned | Reply::Decided(_) | Reply::Taken(_) => false,
        }
    }

    /// Pull form: how many batches the client has room for now, if they are small enough. After 0
    /// the descriptor of [`fd`](Self::fd) shows when there may be room.
    pub(super) fn room(&self) -> Result<u64> {
        if let Reply::Relayed(relay, _) = &self.reply {
            return Ok(relay.room());
        }
        match self.pull(None)?.production.room() {
            Err(error) if error.status() == Status::Timeout => Ok(0),
            room => room,
        }
    }

    /// Pull form: a descriptor for an event loop, not to be read. It is readable when a call of
    /// [`push`](Self::push) or [`finish`](Self::finish) that had no time left may go on. It is
    /// readable at first, and always after the end. The request owns it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a provider's request, `OutOfResources` when the process has no file
    /// descriptor left.
    pub fn fd(&self) -> Result<RawFd> {
        self.with_fd(|fd| fd.as_raw_fd())
    }

    /// Calls `with` with the descriptor of [`fd`](Self::fd).
    pub fn with_fd<T>(&self, with: impl FnOnce(BorrowedFd<'_>) -> T) -> Result<T> {
        match &self.reply {
            Reply::Relayed(relay, _) => relay.fd().map(with),
            _ => Ok(with(self.pull(None)?.production.fd()?)),
        }
    }

    /// Pull form: the server, for a stream that the host has not begun.
    fn ensure_unanswered(&self) -> Result<Arc<dyn Services>> {
        let server = match &self.reply {
            Reply::Taken(_) => {
                let text = "the client of this request sends a table, and gets none";
                return Err(Error::invalid_argument(text));
            }
            Reply::Relayed(relay, server) => {
                relay.ensure_fresh()?;
                server
            }
            Reply::Pushed(_, server) => {
                self.pull(None)?.production.ensure_fresh()?;
                server
            }
            Reply::Returned | Reply::Decided(_) => return Err(not_pulled()),
        };
        server.upgrade().ok_or_else(stopped)
    }

    /// Pull form: makes `callbacks` release the arrays of a stream that the host has not begun.
    fn release_by(&self, callbacks: Callbacks) -> Result<()> {
        match &self.reply {
            Reply::Relayed(relay, _) => relay.release_by(callbacks),
            _ => self.pull(None)?.production.release_by(callbacks),
        }
    }

    /// Pull form: completes the stream. Waits at most `timeout` until the last batches are sent. If
    /// the client sends a stream, this also says that the host has taken all of it.
    ///
    /// # Errors
    ///
    /// `Timeout` (call again), `Cancelled`, `Disconnected`; `InvalidArgument`, also if the request
    /// was failed.
    pub fn finish(&self, timeout: Option<Duration>) -> Result<()> {
        match &self.reply {
            Reply::Relayed(relay, _) => {
                if self.verb() == Verb::Put
                    && let Err(error) = self.attachment.ensure_read()
                {
                    relay.fail(error.status().code(), error.text());
                    return Err(error);
                }
                return relay.finish();
            }
            Reply::Taken(place) => {
                let place = place.lock().take().ok_or_else(answered_before)?;
                place.ending();
                return self.attachment.client_stream()?.answer(Ok(()));
            }
            Reply::Returned | Reply::Decided(_) | Reply::Pushed(..) => {}
        }
        let deadline = timeout.map(clock::after);
        let mut pull = self.pull(deadline)?;
        if pull.answer == Some(PullAnswer::Failed) {
            return Err(answered_before());
        }
        pull.production.finish(deadline)?;
        pull.answer = Some(PullAnswer::Finished);
        let answered = match self.attachment.of_client() {
            Some(source) => source.answer(Ok(())),
            None => Ok(()),
        };
        pull.production.let_go();
        answered
    }

    /// Pull form: prepares an answer by a producer of Arrow's asynchronous interface. Its arrays
    /// will be released on the thread that releases those of providers.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a provider's request, for a client that only sends a stream, and for a
    /// stream that the host has begun otherwise; `Stopped`; `OutOfResources` when the process has
    /// no threads or descriptors left.
    pub fn prepare_async_answer(&self) -> Result<AsyncAnswer> {
        let server = self.ensure_unanswered()?;
        let callbacks = server.callbacks()?;
        let answer = server.prepare_async_answer()?;
        self.release_by(callbacks)?;
        Ok(answer)
    }

    /// Pull form: the arrays of a stream that the host has not begun will be released on the thread
    /// that releases those of providers, instead of during the host's own calls.
    ///
    /// # Errors
    ///
    /// As [`prepare_async_answer`](Self::prepare_async_answer).
    pub fn release_by_callbacks(&self) -> Result<()> {
        let server = self.ensure_unanswered()?;
        self.release_by(server.callbacks()?)
    }
}
