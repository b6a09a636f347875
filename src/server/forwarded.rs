//! A table that a middleware sends on with a request, in the place of the client's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::client_stream::{ClientStream, not_read};
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use crate::error::{Error, Result};

/// What a middleware sends on with a request.
pub(super) struct Forwarded {
    /// The table in the place of the client's, until the host takes it.
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

    /// Fails if the host has left something of the table.
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
