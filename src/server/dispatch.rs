//! The one place that brings requests from state to state, on the I/O thread and on threads of
//! streams.

use std::sync::Arc;

use super::asked::{Admission, Asked, Begun, ConnectionOwner, Dispatch, IncomingRequest};
use super::asked_for::Allowed;
use super::client_stream::ClientStream;
use super::core::ServerCore;
use super::errors::with_retry;
use super::figures::asker;
use super::streams::StreamLimits;
use super::tickets::Entry;
use crate::driver::end::{End, EndLink, Host, StreamLink};
use crate::driver::produce::OutStream;
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::proto::{ArrivedRequest, Role, Verb};

impl Dispatch for ServerCore {
    fn advance(&self, mut asked: Asked) -> Begun {
        loop {
            asked = match asked {
                Asked::Arrived(incoming) => {
                    let incoming = incoming.share_connection();
                    match self.ensure_not_draining(&incoming.request) {
                        Ok(()) => self.decide(incoming),
                        Err(error) => Asked::Refused(incoming, None, error),
                    }
                }
                Asked::Decided(incoming, allowed) => self.admit(incoming, allowed),
                Asked::Admitted(incoming, allowed, admission) => {
                    Asked::Begun(self.begin(incoming, allowed, admission))
                }
                Asked::Refused(incoming, principal, error) => {
                    self.refuse(incoming, principal, &error)
                }
                Asked::Begun(begun) => return begun,
                Asked::Answered(turner) => return Begun::Here(turner),
            };
        }
    }
}

impl ServerCore {
    /// Refuses a request at once if the server drains. The second connection of a stream under way
    /// is let through, because it belongs to that stream.
    fn ensure_not_draining(&self, asked: &ArrivedRequest) -> Result<()> {
        match self.draining.refusal() {
            Some(refusal) if self.joinable(asked).is_none() => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The stream under way whose second connection sends this request (rule E6).
    fn joinable(&self, asked: &ArrivedRequest) -> Option<Arc<OutStream>> {
        if !asked.extension || asked.role == Role::Both {
            return None;
        }
        let stream = self.streams.find(asked.request.stream_id)?;
        (stream.ticket == asked.request.ticket).then_some(stream)
    }

    /// Finds the ticket of a request that the host allows, and a place for its stream.
    fn admit(&self, incoming: IncomingRequest, allowed: Allowed) -> Asked {
        let incoming = match self.join(incoming) {
            Ok(()) => return Asked::Begun(Begun::Elsewhere),
            Err(incoming) => incoming,
        };
        let incoming = match self.own_stream(incoming) {
            Ok(incoming) => incoming,
            Err((incoming, error)) => return Asked::Refused(incoming, allowed.principal, error),
        };
        match self.place(&incoming.stream(), &incoming.request) {
            Ok(admission) => Asked::Admitted(incoming, allowed, admission),
            Err(error) => Asked::Refused(incoming, allowed.principal, error),
        }
    }

    /// Hands the second connection of a stream over to the stream (rule E6).
    fn join(&self, incoming: IncomingRequest) -> Result<(), IncomingRequest> {
        let Some(stream) = self.joinable(&incoming.request) else {
            return Err(incoming);
        };
        let ConnectionOwner::Request(mut turner) = incoming.owner else {
            return Err(incoming);
        };
        turner.step_to_host(|_, _| ());
        (stream.join(turner, incoming.request.role))
            .map_err(|turner| IncomingRequest::new(turner, incoming.request))
    }

    /// From here on the stream that the client sends owns the connection: even a refused stream is
    /// read to its end (rule Q10).
    ///
    /// # Errors
    ///
    /// The system's, with the request as it was.
    fn own_stream(
        &self,
        mut incoming: IncomingRequest,
    ) -> Result<IncomingRequest, (IncomingRequest, Error)> {
        let request = &incoming.request.request;
        let mut turner = match incoming.owner {
            ConnectionOwner::Request(turner) if request.verb.has_source() => turner,
            owner => {
                incoming.owner = owner;
                return Ok(incoming);
            }
        };
        let other = (request.verb == Verb::Exchange).then(|| turner.share());
        let mut options = self.options.take.clone();
        // Bounds the unread bytes of all clients together, as the bytes that wait to be sent to
        // them are.
        options.window.bytes = options.window.bytes.min(self.options.most_queued());
        match ClientStream::new(turner, request, &options, self.options.first_seq) {
            Ok(source) => {
                incoming.owner = ConnectionOwner::Stream(source, other);
                Ok(incoming)
            }
            Err((error, turner)) => Err((IncomingRequest::new(turner, incoming.request), error)),
        }
    }

    /// Finds what answers a request, and a place for its stream.
    fn place(&self, link: &StreamLink, asked: &ArrivedRequest) -> Result<Admission> {
        self.ensure_running()?;
        let request = &asked.request;
        let entry = self.entry(link, request)?;
        if !asked.extension && asked.role != Role::Both && !entry.replays() {
            return Err(Error::unsupported(
                "a baseline peer on two connections can be served only tickets that give the same \
                 batches each time: published ones, or a provider declared deterministic",
            )); // Rule E6
        }
        let callbacks = match entry {
            Entry::Pull => self.pulls.callbacks.clone(),
            Entry::Provider(_) | Entry::Published(_) => self.callbacks()?,
        };
        let calls_host = matches!(entry, Entry::Provider(_) | Entry::Pull);
        let limits = StreamLimits {
            bounds: self.options.stream_bounds(),
            is_granted: !asked.extension || request.verb == Verb::Put || request.credit.batches > 0,
            most_provided: calls_host.then(|| self.options.most_providers()),
            credit_time: self.options.credit_timeout,
        };
        let slot = self.streams.acquire(link, limits)?;
        Ok(Admission {
            entry,
            slot,
            callbacks,
        })
    }

    /// Answers a request with an error.
    fn refuse(&self, incoming: IncomingRequest, principal: Option<String>, error: &Error) -> Asked {
        let asker = asker(incoming.link(), &incoming.request, principal);
        self.figures.note_refusal(&asker, error);
        let error = &with_retry(error);
        let incoming = self
            .own_stream(incoming)
            .unwrap_or_else(|(mut incoming, _)| {
                if let ConnectionOwner::Request(turner) = &mut incoming.owner {
                    // The bytes that the client has already sent will not be read.
                    let number = turner.number();
                    turner.step(|served, _| served.end_receiving(number));
                }
                incoming
            });
        match incoming.owner {
            ConnectionOwner::Stream(source, _) => {
                source.refuse(error);
                Asked::Begun(Begun::Elsewhere)
            }
            ConnectionOwner::Request(mut turner) => {
                let number = turner.number();
                turner.step(|served, effects| served.send_refusal(number, error, effects));
                Asked::Answered(turner)
            }
        }
    }
}

impl Host for ServerCore {
    fn requested(&self, turner: Turner<End>, request: ArrivedRequest) {
        let asked = Asked::Arrived(IncomingRequest::new(turner, request));
        let here = self.advance(asked).dispatch(|work| self.threads.run(work));
        if let Some(turner) = here {
            // This is the I/O thread, which turns the connection again after each request.
            turner.give_back_here();
        }
    }

    fn closed(&self, link: &Arc<EndLink>) {
        self.remove(link);
    }
}
