//! Middleware: what answers requests before their tickets do, and may pass them on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::core::ServerCore;
use super::relay::Relay;
use super::request::Reply;
use super::request::Request;
use super::selecting::PublishedTable;
use super::source::{Source, not_read};
use super::tickets::{Entry, Provider};
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use crate::driver::callbacks::Deferred;
use crate::error::{Error, Result, Status};
use crate::proto::Verb;

/// What a middleware sends on with a request.
pub(super) struct Forwarded {
    /// The table in the place of the client's, until the host takes it.
    table: Mutex<Option<DeviceStreamReader>>,
    /// The host has read the table to its end.
    is_read: Arc<AtomicBool>,
    /// The stream of the client, to which the host's results go.
    pub(super) source: Option<Arc<Source>>,
}

impl Forwarded {
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

impl Request {
    /// Middleware: has what stands behind it answer the request: the published table, the provider
    /// of the ticket or the handler. Gives the whole table of a get or an exchange, whatever the
    /// client has selected of it; the library selects of what the middleware gives.
    ///
    /// `table` goes to the host in the place of the table that the client sends, which the
    /// middleware takes by [`source`](Self::source). A put returns when the host has taken it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: the request is not a middleware's, or a table is missing or too much.
    /// `Unsupported`: an exchange, and the pull form stands behind the middleware. `Cancelled`: the
    /// client has gone. `NotFound`, `Stopped`, and what the host says.
    pub fn forward(&self, table: Option<OwnedDeviceStream>) -> Result<Option<OwnedDeviceStream>> {
        let core = self.server_behind()?;
        if table.is_some() != self.verb().has_source() {
            return Err(Error::invalid_argument(
                "a table goes with a put and with an exchange, and with nothing else",
            ));
        }
        let entry = match self.verb() {
            Verb::Get => core.tickets.find(self.ticket())?,
            _ => core.tickets.taker()?,
        };
        let forwarded = Forwarded {
            table: Mutex::new(table.map(DeviceStreamReader::new)),
            is_read: Arc::default(),
            source: self.sent.by_client().cloned(),
        };
        let provider = match entry {
            Entry::Provider(provider) => provider,
            Entry::Published(table) => return PublishedTable(table).open(self).map(Some),
            Entry::Pull => return self.forward_to_pull(&core, forwarded),
        };
        let request = Box::new(self.behind(forwarded, Reply::Returned));
        let stopped = || Error::new(Status::Stopped, "the server serves the ticket no more");
        let host = provider.get().ok_or_else(stopped)?;
        if self.verb() == Verb::Put {
            let taken = host
                .take(&request)
                .and_then(|()| request.ensure_not_failed())
                .and_then(|()| request.sent.ensure_read());
            return taken.map(|()| None).map_err(|error| said(&request, &error));
        }
        let opened = host
            .open(&request)
            .map_err(|error| said(&request, &error))?;
        Ok(Some(export_device_stream(Box::new(ForwardedStream {
            reader: DeviceStreamReader::new(opened),
            request,
            _provider: Arc::clone(&provider),
        }))))
    }

    /// Queues the request for a host of the pull form, and waits until it has begun its answer, or
    /// has taken the table of a put.
    fn forward_to_pull(
        &self,
        core: &ServerCore,
        forwarded: Forwarded,
    ) -> Result<Option<OwnedDeviceStream>> {
        if self.verb() == Verb::Exchange {
            return Err(Error::unsupported(
                "an exchange cannot be forwarded to a host of the pull form",
            ));
        }
        let is_put = self.verb() == Verb::Put;
        let relay = Relay::new(&core.me, is_put, core.pulls.callbacks.clone());
        let loses = Arc::downgrade(&relay);
        self.when_cancelled(move || {
            if let Some(relay) = loses.upgrade() {
                relay.lost();
            }
        });
        let reply = Reply::Relayed(Arc::clone(&relay));
        core.pulls.put(self.behind(forwarded, reply));
        match is_put {
            true => relay.wait_taken().map(|()| None),
            false => relay.open().map(Some),
        }
    }
}

/// The host's own word about its failure, if it has said one.
fn said(request: &Request, error: &Error) -> Error {
    let (code, text) = request.failure(error);
    Error::new(Status::from_code(code).unwrap_or(Status::Provider), text)
}

/// The stream of a host behind a middleware.
struct ForwardedStream {
    /// The first field: the host may use its request until the release.
    reader: DeviceStreamReader,
    request: Box<Request>,
    _provider: Arc<Deferred<Box<dyn Provider>>>,
}

impl ArrayReader for ForwardedStream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.reader
            .schema()
            .map_err(|error| said(&self.request, &error))
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let next = self.reader.next();
        let next = next.and_then(|array| self.request.ensure_not_failed().map(|()| array));
        next.map_err(|error| said(&self.request, &error))
    }

    fn device_type(&self) -> i32 {
        self.reader.device_type()
    }

    fn keeps_status(&self) -> bool {
        true
    }
}
