//! The answer of a host of the pull form to a middleware, which waits for it in this process.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::errors::answered_before;
use crate::arrow::stream::{ArrayReader, export_device_stream};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema, annotate, copy_schema};
use crate::driver::callbacks::{Callbacks, lent_array};
use crate::driver::clock;
use crate::driver::signal::{Reason, Signal};
use crate::error::{Error, Result, Status};
use crate::proto::Timestamp;

/// The host's answer, batch by batch: the next batch is taken once the middleware has taken the
/// last one.
pub(super) struct Relay {
    /// The host takes a table, and provides none.
    is_put: bool,
    state: Mutex<RelayState>,
    changed: Condvar,
    /// For the host's event loop: readable unless the host has to wait. Made when first asked for.
    signal: OnceCell<Signal>,
}

struct RelayState {
    /// Releases the host's arrays.
    callbacks: Callbacks,
    /// The schema, once the host has begun its stream.
    schema: Option<OwnedSchema>,
    device_type: i32,
    batch: Option<OwnedDeviceArray>,
    /// How the host has ended its answer.
    outcome: Option<Result<(), Error>>,
    reader: RelayReader,
}

/// The state of the middleware, which reads the answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RelayReader {
    Reading,
    /// It reads no more.
    Done,
    /// Its client has gone or has cancelled.
    Lost,
}

impl RelayState {
    fn must_wait(&self) -> bool {
        self.batch.is_some() && self.reader == RelayReader::Reading && self.outcome.is_none()
    }

    /// Fails if the host has ended its answer, or if the middleware reads no more.
    fn ensure_open(&self) -> Result<()> {
        match (&self.outcome, self.reader) {
            (Some(_), _) => Err(answered_before()),
            (None, RelayReader::Lost) => Err(lost()),
            (None, RelayReader::Reading | RelayReader::Done) => Ok(()),
        }
    }

    fn ensure_begun(&self) -> Result<()> {
        match &self.schema {
            Some(_) => Ok(()),
            None => Err(Error::invalid_argument(
                "the stream has no schema: start it first",
            )),
        }
    }
}

fn lost() -> Error {
    Error::cancelled("the client has gone or has cancelled its request")
}

impl Relay {
    pub(super) fn new(is_put: bool, callbacks: Callbacks) -> Arc<Self> {
        Arc::new(Self {
            is_put,
            state: Mutex::new(RelayState {
                callbacks,
                schema: None,
                device_type: 0,
                batch: None,
                outcome: None,
                reader: RelayReader::Reading,
            }),
            changed: Condvar::new(),
            signal: OnceCell::new(),
        })
    }

    /// Changes the state, and wakes the threads that wait. What `change` moves out is dropped after
    /// the lock is released.
    fn change<T>(&self, change: impl FnOnce(&mut RelayState) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        self.notify(&state);
        drop(state);
        changed
    }

    fn notify(&self, state: &RelayState) {
        self.changed.notify_all();
        if let Some(signal) = self.signal.get() {
            signal.set(Reason::Bell, !state.must_wait());
        }
    }
}

/// The host's end.
impl Relay {
    /// Fails for a stream that was begun, and for a stream in the answer to a put.
    pub(super) fn ensure_fresh(&self) -> Result<()> {
        if self.is_put {
            let text = "the client of this request sends a table, and gets none";
            return Err(Error::invalid_argument(text));
        }
        let state = self.state.lock();
        state.ensure_open()?;
        match &state.schema {
            Some(_) => Err(Error::invalid_argument("the stream was begun before")),
            None => Ok(()),
        }
    }

    pub(super) fn release_by(&self, callbacks: Callbacks) -> Result<()> {
        self.ensure_fresh()?;
        self.state.lock().callbacks = callbacks;
        Ok(())
    }

    pub(super) fn start(&self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        self.ensure_fresh()?;
        let schema = copy_schema(schema)?;
        self.change(|state| {
            state.schema = Some(schema);
            state.device_type = device_type;
        });
        Ok(())
    }

    pub(super) fn push(
        &self,
        array: OwnedDeviceArray,
        custom_metadata: Option<&[u8]>,
        deadline: Option<Timestamp>,
    ) -> Result<(), (Error, OwnedDeviceArray)> {
        let mut state = self.state.lock();
        let room = (state.ensure_begun()).and_then(|()| self.wait_for_room(&mut state, deadline));
        if let Err(error) = room {
            return Err((error, array));
        }
        let batch = lent_array(array, state.callbacks.clone());
        if state.reader == RelayReader::Done {
            // The lock is released first.
            drop(state);
            drop(batch);
            return Ok(());
        }
        state.batch = Some(annotate(batch, custom_metadata.unwrap_or_default()));
        self.notify(&state);
        Ok(())
    }

    fn wait_for_room(
        &self,
        state: &mut MutexGuard<'_, RelayState>,
        deadline: Option<Timestamp>,
    ) -> Result<()> {
        let waits = state.must_wait();
        while state.must_wait() {
            let Some(deadline) = deadline else {
                self.changed.wait(state);
                continue;
            };
            let left = clock::until(deadline);
            if left.is_zero() {
                return Err(Error::timeout(
                    "the middleware has not taken the last batch",
                ));
            }
            self.changed.wait_for(state, left);
        }
        if waits && state.outcome.is_some() {
            return Err(Error::cancelled("another thread has failed the request"));
        }
        state.ensure_open()
    }

    /// The host has given its whole table, or has taken the whole table of a put.
    pub(super) fn finish(&self) -> Result<()> {
        self.change(|state| {
            state.ensure_open()?;
            if !self.is_put {
                state.ensure_begun()?;
            }
            state.outcome = Some(Ok(()));
            Ok(())
        })
    }

    /// The host fails. This changes nothing after the end of its answer.
    pub(super) fn fail(&self, code: i32, text: &str) {
        let status = Status::from_code(code).unwrap_or(Status::Provider);
        let failed = Err(Error::new(status, text));
        let unread = self.change(|state| {
            if state.outcome.is_some() {
                return None;
            }
            state.outcome = Some(failed);
            state.batch.take()
        });
        drop(unread);
    }

    /// Whether the middleware wants nothing more.
    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().reader == RelayReader::Done
    }

    /// How many batches can be pushed without a wait.
    pub(super) fn room(&self) -> u64 {
        u64::from(!self.state.lock().must_wait())
    }

    pub(super) fn fd(&self) -> Result<BorrowedFd<'_>> {
        let state = self.state.lock();
        let signal = self.signal.get_or_try_init(Signal::new)?;
        self.notify(&state);
        Ok(signal.as_fd())
    }
}

/// The middleware's end.
impl Relay {
    /// The client has gone: all waits end.
    pub(super) fn lost(&self) {
        drop(self.change(|state| {
            state.reader = RelayReader::Lost;
            state.batch.take()
        }));
    }

    /// Waits until `find` finds something, or the host has failed or finished.
    fn wait<T>(&self, mut find: impl FnMut(&mut RelayState) -> Option<T>) -> Result<Option<T>> {
        let mut state = self.state.lock();
        loop {
            if state.reader == RelayReader::Lost {
                return Err(lost());
            }
            if let Some(found) = find(&mut state) {
                self.notify(&state);
                return Ok(Some(found));
            }
            if let Some(outcome) = &state.outcome {
                return outcome.clone().map(|()| None);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Waits until the host has taken the table of a put.
    pub(super) fn wait_taken(&self) -> Result<()> {
        self.wait(|_| None::<()>).map(drop)
    }

    /// Waits until the host has begun its stream.
    pub(super) fn open(self: &Arc<Self>) -> Result<OwnedDeviceStream> {
        let begun = self.wait(|state| state.schema.as_ref().map(|_| state.device_type))?;
        let device_type = begun.ok_or_else(answered_before)?;
        Ok(export_device_stream(Box::new(RelayedStream {
            relay: Arc::clone(self),
            device_type,
        })))
    }
}

/// The stream of a host, for the middleware.
struct RelayedStream {
    relay: Arc<Relay>,
    device_type: i32,
}

impl ArrayReader for RelayedStream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        let state = self.relay.state.lock();
        copy_schema(state.schema.as_ref().ok_or_else(answered_before)?)
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        self.relay.wait(|state| state.batch.take())
    }

    fn device_type(&self) -> i32 {
        self.device_type
    }

    fn keeps_status(&self) -> bool {
        true
    }
}

impl Drop for RelayedStream {
    fn drop(&mut self) {
        drop(self.relay.change(|state| {
            if state.reader == RelayReader::Reading {
                state.reader = RelayReader::Done;
            }
            state.batch.take()
        }));
    }
}
