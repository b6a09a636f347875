//! Requests that a middleware passes on to the provider or handler after it.

use std::sync::{Arc, Weak};

use super::attachment::Forwarded;
use super::core::ServerCore;
use super::host::HostProvider;
use super::relay::Relay;
use super::request::{AsyncAnswer, Reply, ServerRequest, Services};
use super::tickets::{Entry, PublishedTable};
use crate::arrow::stream::{ArrayReader, DeviceStreamReader, export_device_stream};
use crate::arrow::{OwnedDeviceArray, OwnedDeviceStream, OwnedSchema};
use crate::driver::callbacks::{Callbacks, Deferred};
use crate::error::{Error, Result, Status};
use crate::proto::Verb;

impl Services for ServerCore {
    fn callbacks(&self) -> Result<Callbacks> {
        Self::callbacks(self)
    }

    fn prepare_async_answer(&self) -> Result<AsyncAnswer> {
        self.answers.prepare()
    }

    fn forward(
        &self,
        request: &ServerRequest,
        table: Option<OwnedDeviceStream>,
    ) -> Result<Option<OwnedDeviceStream>> {
        self.ensure_running()?;
        if table.is_some() != request.verb().has_source() {
            return Err(Error::invalid_argument(
                "a table goes with a put and with an exchange, and with nothing else",
            ));
        }
        let entry = match request.verb() {
            Verb::Get => self.tickets.find(request.ticket())?,
            _ => self.tickets.taker()?,
        };
        let forwarded = Forwarded::new(table, request.attachment.of_client().cloned());
        match entry {
            Entry::Provider(provider) => forward_to_provider(request, forwarded, &provider),
            Entry::Published(table) => PublishedTable(table).open(request).map(Some),
            Entry::Pull => forward_to_pull(self, request, forwarded),
        }
    }
}

fn forward_to_provider(
    request: &ServerRequest,
    forwarded: Forwarded,
    provider: &Arc<Deferred<Box<dyn HostProvider>>>,
) -> Result<Option<OwnedDeviceStream>> {
    let request = Box::new(request.behind(forwarded, Reply::Returned));
    let failed = |error: Error| failure_of(&request, &error);
    if request.verb() == Verb::Put {
        let taken = provider
            .take(&request)
            .and_then(|()| request.ensure_not_failed())
            .and_then(|()| request.attachment.ensure_read());
        return taken.map(|()| None).map_err(failed);
    }
    let opened = provider.open(&request).map_err(failed)?;
    Ok(Some(export_device_stream(Box::new(ForwardedStream {
        reader: DeviceStreamReader::new(opened),
        request,
        _provider: Arc::clone(provider),
    }))))
}

/// Queues the request for a host of the pull form, and waits until it has begun its answer, or has
/// taken the table of a put.
fn forward_to_pull(
    core: &ServerCore,
    request: &ServerRequest,
    forwarded: Forwarded,
) -> Result<Option<OwnedDeviceStream>> {
    if request.verb() == Verb::Exchange {
        return Err(Error::unsupported(
            "an exchange cannot be forwarded to a host of the pull form",
        ));
    }
    let is_put = request.verb() == Verb::Put;
    let relay = Relay::new(is_put, core.pulls.callbacks.clone());
    let loses = Arc::downgrade(&relay);
    request.when_cancelled(move || {
        if let Some(relay) = loses.upgrade() {
            relay.lost();
        }
    });
    let server = Weak::clone(&core.me) as Weak<dyn Services>;
    let reply = Reply::Relayed(Arc::clone(&relay), server);
    core.pulls.put(request.behind(forwarded, reply));
    match is_put {
        true => relay.wait_taken().map(|()| None),
        false => relay.open().map(Some),
    }
}

/// The reason that the host itself gives for its failure, if it does.
fn failure_of(request: &ServerRequest, error: &Error) -> Error {
    let (code, text) = request.failure(error);
    Error::new(Status::from_code(code).unwrap_or(Status::Provider), text)
}

/// The stream of a host behind a middleware.
struct ForwardedStream {
    /// The first field: the host may use its request until the release.
    reader: DeviceStreamReader,
    request: Box<ServerRequest>,
    _provider: Arc<Deferred<Box<dyn HostProvider>>>,
}

impl ArrayReader for ForwardedStream {
    fn schema(&mut self) -> Result<OwnedSchema> {
        self.reader
            .schema()
            .map_err(|error| failure_of(&self.request, &error))
    }

    fn next(&mut self) -> Result<Option<OwnedDeviceArray>> {
        let next = self.reader.next();
        let next = next.and_then(|array| self.request.ensure_not_failed().map(|()| array));
        next.map_err(|error| failure_of(&self.request, &error))
    }

    fn device_type(&self) -> i32 {
        self.reader.device_type()
    }

    fn keeps_status(&self) -> bool {
        true
    }
}
