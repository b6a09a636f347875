//! Streams that clients send: put and exchange (rules Q3 to Q5).

use std::sync::Arc;

use super::asked::{Begun, StreamWork};
use super::client_stream::ClientStream;
use super::host::HostProvider;
use super::providing::provide;
use super::request::ServerRequest;
use super::streams::{Slot, ending};
use crate::driver::callbacks::Deferred;
use crate::driver::figures::Record;
use crate::driver::produce::Production;
use crate::error::{Error, Status};

/// Answers at its drop where nobody has: a client must not wait for a handler that has panicked, or
/// that was withdrawn.
struct Unanswered(Arc<ClientStream>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.0.is_answered() {
            let text = "the server's handler ended without an answer to the table";
            // It fails only where there was an answer.
            let _ = self
                .0
                .answer(Err((Status::Provider.code(), text.to_owned())));
        }
    }
}

/// A stream of a client that a provider takes.
pub(super) struct TakenStream {
    /// The provider's own stream, of an exchange. The first field, so that it ends first.
    pub(super) production: Option<Production>,
    pub(super) record: Arc<Record>,
    pub(super) provider: Arc<Deferred<Box<dyn HostProvider>>>,
    pub(super) request: ServerRequest,
    pub(super) source: Arc<ClientStream>,
    pub(super) slot: Arc<Slot>,
}

impl StreamWork for TakenStream {
    fn run(self: Box<Self>) -> Begun {
        let Self {
            mut production,
            record,
            provider,
            request,
            source,
            slot,
        } = *self;
        let _unanswered = Unanswered(Arc::clone(&source));
        let Some(provider) = provider.get() else {
            return Begun::Elsewhere;
        };
        let _span = record.enter_stream();
        let mut reader = None;
        let taken = match &mut production {
            None => (provider.take(&request)).and_then(|()| request.ensure_not_failed()),
            Some(production) => provide(&**provider, &request, production, true, &mut reader),
        };
        ending(&slot)();
        let outcome = taken.map_err(|error| request.failure(&error));
        if let (Err((code, text)), Some(production)) = (&outcome, &mut production) {
            production.fail(*code, text);
        }
        if let Err(error) = source.answer(outcome) {
            tracing::debug!("a client is not told that its table was taken: {error}");
        }
        drop(production);
        Begun::Elsewhere
    }

    fn refuse(self: Box<Self>, error: &Error) {
        let outcome = (error.status().code(), error.text().to_owned());
        let _ = self.source.answer(Err(outcome));
    }
}
