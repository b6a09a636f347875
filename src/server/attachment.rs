//! The table that comes with a request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::client_stream::{ClientStream, not_read};
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use crate::driver::fetch::Stream;
use crate::error::{Error, Result};

/// The table that comes with a request.
pub(super) enum Attachment {
    Nothing,
    /// The client's table.
    Client(Arc<ClientStream>),
    /// The table that the middleware sends in place of the client's.
    Forwarded(Forwarded),
}

/// A table on its way to the host.
pub enum SentTable {
    /// From the client.
    Client(Box<Stream>),
    /// From the middleware that stands before the host.
    Forwarded(DeviceStreamReader),
}

impl Attachment {
    /// Fails if the host has not read all of the table that a middleware sends.
    pub(super) fn ensure_read(&self) -> Result<()> {
        match self {
            Self::Forwarded(forwarded) => forwarded.ensure_read(),
            Self::Nothing | Self::Client(_) => Ok(()),
        }
    }

    /// The client's stream, even if the middleware has taken it.
    pub(super) fn of_client(&self) -> Option<&Arc<ClientStream>> {
        match self {
            Self::Nothing => None,
            Self::Client(source) => Some(source),
            Self::Forwarded(forwarded) => forwarded.source.as_ref(),
        }
    }

    /// [`of_client`](Self::of_client), but an error if there is no such stream.
    pub(super) fn client_stream(&self) -> Result<&Arc<ClientStream>> {
        (self.of_client())
            .ok_or_else(|| Error::invalid_argument("the client of this request sends no stream"))
    }

    pub(super) fn schema(&self) -> Result<OwnedSchema> {
        match self {
            Self::Forwarded(forwarded) => forwarded.schema(),
            Self::Client(_) | Self::Nothing => self.client_stream()?.schema(),
        }
    }

    pub(super) fn take(&self) -> Result<SentTable> {
        match self {
            Self::Forwarded(forwarded) => forwarded.take().map(SentTable::Forwarded),
            Self::Client(_) | Self::Nothing => {
                let stream = self.client_stream()?.take()?;
                Ok(SentTable::Client(Box::new(stream)))
            }
        }
    }

    /// Tells the client that the first `batches` of its stream are safe.
    pub(super) fn send_result(&self, batches: u64, bytes: &[u8]) -> Result<()> {
        // The batches of a middleware are not those that the client counts, so the result names
        // none.
        let batches = match self {
            Self::Forwarded(_) => 0,
            Self::Client(_) | Self::Nothing => batches,
        };
        self.client_stream()?.send_result(batches, bytes)
    }
}

/// What a middleware sends on with a request.
pub(super) struct Forwarded {
    /// The table that replaces the client's, until the host takes it.
    table: Mutex<Option<DeviceStreamReader>>,
    /// The host has read the table to its end.
    is_read: Arc<AtomicBool>,
    /// The stream of the client, to which the host's results go.
    pub(super) source: Option<Arc<ClientStream>>,
}

impl Forwarded {
    pub(super) fn new(table: Option<OwnedDeviceStream>, source: Option<Arc<ClientStream>>) -> Self {
        Self {
            table: Mutex::new(table.map(DeviceStreamReader::new)),
            is_read: Arc::default(),
            source,
        }
    }

    pub(super) fn schema(&self) -> Result<OwnedSchema> {
        self.table.lock().as_mut().ok_or_else(no_table)?.schema()
    }

    pub(super) fn take(&self) -> Result<DeviceStreamReader> {
        let reader = self.table.lock().take().ok_or_else(no_table)?;
        let counted = ForwardedTable {
            reader,
            is_read: Arc::clone(&self.is_read),
        };
        Ok(DeviceStreamReader::new(export_device_stream(Box::new(
            counted,
        ))))
    }

    /// Fails if the host has not read the whole table.
    pub(super) fn ensure_read(&self) -> Result<()> {
        match self.is_read.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(not_read(self.table.lock().is_none())),
        }
    }
}

/// A middleware's table in the hands of the host.
struct ForwardedTable {
    reader: DeviceStreamReader,
    is_read: Arc<AtomicBool>,
}

impl ArrayReader for ForwardedTable {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.reader.schema()
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let next = self.reader.next()?;
        if next.is_none() {
            self.is_read.store(true, Ordering::Release);
        }
        Ok(next)
    }

    fn device_type(&self) -> i32 {
        self.reader.device_type()
    }

    fn keeps_status(&self) -> bool {
        true
    }
}

fn no_table() -> Error {
    Error::invalid_argument("the middleware sends no table with this request, or it was taken")
}
