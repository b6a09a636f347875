//! One stream that a client asks for, as the host sees it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::driver::clock;
use crate::driver::produce::{OutStream, Production};
use crate::error::{Error, Result};
use crate::proto::Timestamp;
use crate::server::streams::Slot;

/// A stream that a client asks for.
///
/// A provider sees it while its stream is served. In the pull form the host owns it, says what the
/// stream holds by [`start`](Self::start), [`push`](Self::push) and [`finish`](Self::finish), and
/// dropping it unfinished fails the stream.
pub struct Request {
    stream: Arc<OutStream>,
    /// The provider's own words for a failure.
    failure: Mutex<Option<(i32, String)>>,
    /// Where the host pushes, in the pull form.
    pushed: Option<Mutex<Pushed>>,
}

struct Pushed {
    production: Production,
    /// Counts the stream as active; after `production`, so that it ends first.
    _slot: Arc<Slot>,
}

impl Request {
    pub(super) fn for_provider(stream: Arc<OutStream>) -> Self {
        Self {
            stream,
            failure: Mutex::new(None),
            pushed: None,
        }
    }

    pub(super) fn for_pull(
        stream: Arc<OutStream>,
        production: Production,
        slot: Arc<Slot>,
    ) -> Self {
        let pushed = Mutex::new(Pushed {
            production,
            _slot: slot,
        });
        Self {
            stream,
            failure: Mutex::new(None),
            pushed: Some(pushed),
        }
    }

    /// What the client asked for.
    pub fn ticket(&self) -> &[u8] {
        &self.stream.ticket
    }

    /// Who asked, for logs.
    pub fn peer(&self) -> &str {
        &self.stream.peer
    }

    /// Whether the client has gone or has cancelled, so that more batches are of no use.
    pub fn is_cancelled(&self) -> bool {
        self.stream.is_cancelled()
    }

    /// A descriptor that is readable once [`is_cancelled`](Self::is_cancelled) is true, to wait for
    /// it beside others. Not to be read from.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn cancel_fd(&self) -> Result<BorrowedFd<'_>> {
        self.stream.lost_fd()
    }

    /// Pull form: gives the schema, which comes first. It is read, not moved.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` in the provider form or when called twice, `InvalidData` for a bad schema,
    /// `Unsupported` for a device that cannot be read here, or what ended the stream.
    pub fn start(&self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        let mut pushed = self.pushed(None)?;
        pushed.production.start(schema, device_type)
    }

    /// Pull form: sends a batch, waiting for room at most `timeout`.
    ///
    /// # Errors
    ///
    /// With the array, which was not taken: `Timeout`, `Cancelled`, `Disconnected`,
    /// `InvalidArgument`, `InvalidData`. What goes wrong once it is taken is said by the next call.
    pub fn push(
        &self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        timeout: Option<Duration>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        let deadline = timeout.map(clock::after);
        match self.pushed(deadline) {
            Ok(mut pushed) => pushed.production.push(array, custom_metadata, deadline),
            Err(error) => Err((error, array)),
        }
    }

    /// Pull form: ends the stream, waiting at most `timeout` for the last batches to leave.
    ///
    /// # Errors
    ///
    /// `Timeout` (call again), `Cancelled`, `Disconnected`, `InvalidArgument`.
    pub fn finish(&self, timeout: Option<Duration>) -> Result<()> {
        let deadline = timeout.map(clock::after);
        self.pushed(deadline)?.production.finish(deadline)
    }

    /// Says why there is no stream, or no more of it. In the provider form the words are used when
    /// the provider then returns a failure; in the pull form the stream ends now, and so does a
    /// call on another thread that waits for the consumer, with `Cancelled`. `code` is a `Status`
    /// code or any number of the host's, which the client then sees as `Provider`.
    pub fn fail(&self, code: i32, text: &str) {
        match &self.pushed {
            Some(pushed) => {
                // A call that waits for the client has the lock.
                self.stream.give_up();
                pushed.lock().production.fail(code, text);
            }
            None => *self.failure.lock() = Some((code, text.to_owned())),
        }
    }

    /// What the client is told when the provider failed with `error`.
    pub(super) fn failure(&self, error: &Error) -> (i32, String) {
        let said = self.failure.lock().take();
        said.unwrap_or_else(|| (error.status().code(), error.text().to_owned()))
    }

    /// What the host pushes to, once no other call uses it.
    fn pushed(&self, deadline: Option<Timestamp>) -> Result<MutexGuard<'_, Pushed>> {
        let pushed = self.pushed.as_ref().ok_or_else(|| {
            Error::invalid_argument(
                "this request belongs to a provider, which gives its batches by a stream; push, \
                 start and finish are for tickets served in the pull form",
            )
        })?;
        match deadline {
            None => Ok(pushed.lock()),
            Some(deadline) => pushed.try_lock_for(clock::until(deadline)).ok_or_else(|| {
                Error::timeout("another call on this request waits for the consumer")
            }),
        }
    }
}
