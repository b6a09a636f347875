//! The pull form: a host that pushes the batches of a stream.

use std::time::Duration;

use super::Request;
use crate::arrow::{OwnedDeviceArray, OwnedSchema};
use crate::driver::clock;
use crate::error::{Error, Result, Status};

impl Request {
    /// Pull form: sends the schema, before the first batch. It is read, not moved.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a provider's request or a second call, `InvalidData` for an invalid
    /// schema, `Unsupported` for a device that this process cannot read, or the error that ended
    /// the stream. `InvalidArgument`, too, if the [selection](Self::selection) does not fit the
    /// schema: then the client has been told.
    pub fn start(&self, schema: &OwnedSchema, device_type: i32) -> Result<()> {
        let mut pull = self.pull(None)?;
        let selection = self.selection_left();
        (pull.production).start_selected(schema, device_type, &selection)?;
        pull.production.end_if_complete();
        Ok(())
    }

    /// Pull form: sends a batch, or what the client has selected of it. Waits at most `timeout` for
    /// a slow client. A batch of which the client wants nothing is released.
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
        let mut pull = match self.pull(deadline) {
            Ok(pull) => pull,
            Err(error) => return Err((error, array)),
        };
        pull.production.push(array, custom_metadata, deadline)?;
        pull.production.end_if_complete();
        Ok(())
    }

    /// Pull form: whether the client has all rows that it has selected. More batches are useless
    /// then; the host may finish the stream.
    pub fn is_complete(&self) -> bool {
        // Another thread may wait for the client, and hold the lock.
        let pull = self.pull.as_ref().and_then(|pull| pull.try_lock());
        pull.is_some_and(|pull| pull.production.is_complete())
    }

    /// Pull form: batches that the client has room for now, if they are small enough. After 0 the
    /// descriptor of [`fd`](Self::fd) tells when there may be room.
    pub(super) fn room(&self) -> Result<u64> {
        match self.pull(None)?.production.room() {
            Err(error) if error.status() == Status::Timeout => Ok(0),
            room => room,
        }
    }
}
