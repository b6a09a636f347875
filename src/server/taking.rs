//! Streams that clients send: put and exchange (rules Q3 to Q5).

use std::sync::Arc;

use super::authorizing::Allowed;
use super::core::{ServerCore, ending, provide};
use super::refusing::with_retry;
use super::request::{AskedFor, Request};
use super::source::Source;
use super::streams::Slot;
use super::tickets::{Entry, Provider};
use crate::driver::callbacks::Deferred;
use crate::driver::end::{ArrivedRequest, Begun, End, StreamWork};
use crate::driver::figures::Record;
use crate::driver::produce::{OutStream, Production};
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::proto::{self, Headers, Role, Verb};

impl ServerCore {
    /// Begins to take the stream of a client. From here on the stream owns the connection.
    ///
    /// # Errors
    ///
    /// The connection comes back.
    pub(super) fn begin_taking(
        &self,
        mut turner: Turner<End>,
        asked: &ArrivedRequest,
        allowed: Allowed,
    ) -> Result<Begun, (Error, Turner<End>)> {
        let request = &asked.request;
        let other = (request.verb == Verb::Exchange).then(|| turner.share());
        let source = self.source(turner, request)?;
        let admitted = self.admit(source.link(), asked).and_then(|admitted| {
            let (Entry::Provider(_) | Entry::Published(_)) = admitted.0 else {
                return Ok((admitted, self.pulls.callbacks.clone()));
            };
            Ok((admitted, self.callbacks()?))
        });
        let ((entry, slot), callbacks) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => {
                self.note_refusal(source.link(), asked, allowed.principal, &error);
                refuse(&source, &with_retry(&error));
                return Ok(Begun::Elsewhere);
            }
        };
        let record = self.record(source.link(), asked, &entry, &allowed);
        source.set_record(&record);
        let ticket = request.ticket.clone();
        let is_exchange = other.is_some();
        let stream = match other {
            Some(other) => OutStream::new(ticket, other, Role::Both, false),
            None => OutStream::without_batches(ticket, Arc::clone(source.link())),
        };
        let place = Arc::downgrade(&slot);
        stream.when_lost(Box::new(move || {
            if let Some(place) = place.upgrade() {
                place.lost();
            }
        }));
        let asked_for =
            AskedFor::of_allowed(request, allowed, &record).before(self.forwards(request));
        let production = is_exchange.then(|| {
            let options = self.produce(callbacks, &record);
            Production::new(Arc::clone(&stream), options, Box::new(|| ()))
        });
        if let Entry::Provider(provider) = entry {
            return Ok(Begun::Thread(Box::new(TakenStream {
                production,
                record,
                provider,
                request: Request::for_provider(stream, asked_for).with_source(&source),
                source,
                slot,
            })));
        }
        let request = match production {
            Some(production) => Request::for_pull(stream, asked_for, production, slot, &self.me),
            None => Request::for_provider(stream, asked_for).with_place(slot),
        };
        self.pulls.put(request.with_source(&source));
        Ok(Begun::Elsewhere)
    }

    /// Refuses to take the stream of a client, which may send its schema already.
    ///
    /// # Errors
    ///
    /// The connection comes back.
    pub(super) fn refuse_taking(
        &self,
        turner: Turner<End>,
        asked: &ArrivedRequest,
        error: &Error,
    ) -> Result<Begun, (Error, Turner<End>)> {
        let source = self.source(turner, &asked.request)?;
        refuse(&source, error);
        Ok(Begun::Elsewhere)
    }

    /// The stream that a client sends.
    fn source(
        &self,
        turner: Turner<End>,
        request: &proto::Request,
    ) -> Result<Arc<Source>, (Error, Turner<End>)> {
        let mut take = self.options.take.clone();
        // What all clients may have here unread is bounded, as what waits for them is.
        take.window.bytes = take.window.bytes.min(self.options.most_queued());
        Source::new(turner, request, &take, self.options.first_seq)
    }
}

fn refuse(source: &Source, error: &Error) {
    if let Some(advice) = error.advice() {
        let _ = (source.link()).add_answer_headers(&Headers::of_advice(advice));
    }
    // It fails only where the client has gone.
    let _ = source.answer(Err((error.status().code(), error.text().to_owned())));
}

/// A stream of a client that a provider takes.
struct TakenStream {
    /// The provider's own stream, of an exchange. The first field, so that it ends first.
    production: Option<Production>,
    record: Arc<Record>,
    provider: Arc<Deferred<Box<dyn Provider>>>,
    request: Request,
    source: Arc<Source>,
    slot: Arc<Slot>,
}

impl StreamWork for TakenStream {
    fn run(self: Box<Self>) -> Option<Turner<End>> {
        let Self {
            mut production,
            record,
            provider,
            request,
            source,
            slot,
        } = *self;
        let provider = provider.get()?;
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
        None
    }

    fn refuse(self: Box<Self>, error: &Error) {
        let told = (error.status().code(), error.text().to_owned());
        let _ = self.source.answer(Err(told));
    }
}
