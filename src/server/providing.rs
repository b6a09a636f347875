//! Streams that a provider gives, takes or both, on threads of their own.

use std::sync::Arc;

use super::asked::{Begun, StreamWork};
use super::client_stream::ClientStream;
use super::host::HostProvider;
use super::request::ServerRequest;
use super::streams::{Slot, ending};
use crate::arrow::stream::{ArrayReader as _, DeviceStreamReader};
use crate::driver::callbacks::Deferred;
use crate::driver::figures::Record;
use crate::driver::produce::Production;
use crate::error::{Error, Result, Status};

/// A stream of a provider.
pub(super) struct HostStream {
    /// `None` for a put. The first field, so that the stream ends before its slot is free.
    pub(super) production: Option<Production>,
    pub(super) provider: Arc<Deferred<Box<dyn HostProvider>>>,
    pub(super) record: Arc<Record>,
    /// Lives until the host's stream is released.
    pub(super) request: ServerRequest,
    pub(super) slot: Arc<Slot>,
    /// The thread yields its processor once after the first batch.
    pub(super) yields: bool,
}

/// Its drop answers the client, unless the client has an answer. Otherwise the client would wait
/// for a handler that has panicked or was withdrawn.
struct Unanswered(Arc<ClientStream>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.0.is_answered() {
            let text = "the server's handler ended without an answer to the table";
            // It fails only if the client has an answer.
            let _ = self
                .0
                .answer(Err((Status::Provider.code(), text.to_owned())));
        }
    }
}

impl StreamWork for HostStream {
    fn run(self: Box<Self>) -> Begun {
        let Self {
            mut production,
            provider,
            record,
            request,
            slot,
            yields,
        } = *self;
        let unanswered = request.attachment.of_client().cloned().map(Unanswered);
        let _span = record.enter_stream();
        let mut reader = None;
        let served = match &mut production {
            None => (provider.take(&request)).and_then(|()| request.ensure_not_failed()),
            Some(production) => provide(&***provider, &request, production, yields, &mut reader),
        };
        if unanswered.is_some() {
            ending(&slot)();
        }
        let outcome = served.map_err(|error| request.failure(&error));
        if let (Err((code, text)), Some(production)) = (&outcome, &mut production) {
            production.fail(*code, text);
        }
        if let Some(Unanswered(source)) = &unanswered {
            if let Err(error) = source.answer(outcome) {
                tracing::debug!("a client is not told that its table was taken: {error}");
            }
            drop(production);
            return Begun::Elsewhere;
        }
        // Released before the host's stream, whose release may be slow.
        let link = production.and_then(Production::release);
        drop(reader);
        drop(slot);
        let turner = link.and_then(|link| link.acquire());
        turner.map_or(Begun::Elsewhere, Begun::Here)
    }

    fn refuse(mut self: Box<Self>, error: &Error) {
        let (code, text) = (error.status().code(), error.text());
        if let Some(source) = self.request.attachment.of_client() {
            let _ = source.answer(Err((code, text.to_owned())));
        } else if let Some(production) = &mut self.production {
            production.fail(code, text);
        }
    }
}

/// Calls the provider and sends its batches. `reader` gets the host's stream.
fn provide(
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
            // The client may be waiting for this processor; only the first batch is worth the call.
            std::thread::yield_now();
        }
    }
    request.ensure_not_failed()?;
    production.finish(None)
}
