//! Streams of providers, on threads of their own.

use std::sync::Arc;

use super::asked::{Begun, StreamWork};
use super::host::HostProvider;
use super::request::ServerRequest;
use super::streams::Slot;
use crate::arrow::stream::{ArrayReader, DeviceStreamReader};
use crate::driver::callbacks::Deferred;
use crate::driver::figures::Record;
use crate::driver::produce::Production;
use crate::error::{Error, Result};

/// A stream of a provider.
pub(super) struct ProvidedStream {
    /// The first field, so that the stream ends before its slot is free.
    pub(super) production: Production,
    pub(super) provider: Arc<Deferred<Box<dyn HostProvider>>>,
    pub(super) record: Arc<Record>,
    /// Lives until the host's stream is released.
    pub(super) request: ServerRequest,
    pub(super) slot: Arc<Slot>,
    /// The thread yields its processor once after the first batch.
    pub(super) yields: bool,
}

impl StreamWork for ProvidedStream {
    fn run(self: Box<Self>) -> Begun {
        let Self {
            mut production,
            provider,
            record,
            request,
            slot,
            yields,
        } = *self;
        let Some(provider) = provider.get() else {
            return Begun::Elsewhere;
        };
        let _span = record.enter_stream();
        let mut reader = None;
        let sent = provide(&**provider, &request, &mut production, yields, &mut reader);
        if let Err(error) = sent {
            let (code, text) = request.failure(&error);
            production.fail(code, &text);
        }
        // Before the release of the host's stream, which may be slow.
        let link = production.release();
        drop(reader);
        drop(slot);
        let turner = link.and_then(|link| link.take());
        turner.map_or(Begun::Elsewhere, Begun::Here)
    }

    fn refuse(mut self: Box<Self>, error: &Error) {
        self.production.fail(error.status().code(), error.text());
    }
}

/// Calls the provider and sends its batches. The host's stream goes to `reader`.
pub(super) fn provide(
    provider: &dyn HostProvider,
    request: &ServerRequest,
    production: &mut Production,
    yields: bool,
    reader: &mut Option<DeviceStreamReader>,
) -> Result<()> {
    let reader = reader.insert(DeviceStreamReader::new(provider.open(request)?));
    request.ensure_not_failed()?;
    let schema = reader.schema()?;
    let selection = request.selection_left();
    production.start_selected(&schema, reader.device_type(), &selection)?;
    let mut is_first = true;
    while !production.is_complete() {
        // Wait first, then pull: a slow consumer also slows the producer.
        production.wait_for_room(None)?;
        let Some(batch) = reader.next()? else { break };
        production
            .push(batch, None, None)
            .map_err(|(error, _)| error)?;
        if std::mem::take(&mut is_first) && yields {
            // The client may wait for this processor, and for the first batch only.
            std::thread::yield_now();
        }
    }
    request.ensure_not_failed()?;
    production.finish(None)
}
