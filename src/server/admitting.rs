//! Requests on their way to a place among the streams.

use std::sync::Arc;

use super::asked::{Admission, Asked, Begun, ConnectionOwner, IncomingRequest};
use super::asked_for::Allowed;
use super::client_stream::ClientStream;
use super::core::ServerCore;
use super::streams::StreamLimits;
use super::tickets::Entry;
use crate::driver::end::{End, EndLink};
use crate::driver::produce::OutStream;
use crate::driver::turning::Turner;
use crate::error::{Error, Result};
use crate::proto::{self, ArrivedRequest, Role, Verb};

impl ServerCore {
    /// Why a request is refused before anything is done for it. The second connection of a stream
    /// under way belongs to the stream.
    pub(super) fn ensure_not_draining(&self, asked: &ArrivedRequest) -> Result<()> {
        match self.draining.refusal() {
            Some(refusal) if self.joinable(asked).is_none() => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The stream under way whose second connection asks (rule E6).
    fn joinable(&self, asked: &ArrivedRequest) -> Option<Arc<OutStream>> {
        if !asked.extension || asked.role == Role::Both {
            return None;
        }
        let stream = self.streams.find(asked.request.stream_id)?;
        (stream.ticket == asked.request.ticket).then_some(stream)
    }

    /// Finds the ticket of a request that the host allows, and a place for its stream.
    pub(super) fn admit(&self, incoming: IncomingRequest, allowed: Allowed) -> Asked {
        let incoming = match self.join(incoming) {
            Ok(()) => return Asked::Begun(Begun::Elsewhere),
            Err(incoming) => incoming,
        };
        let incoming = match self.own_stream(incoming) {
            Ok(incoming) => incoming,
            Err((incoming, error)) => return incoming.refused(allowed.principal, error),
        };
        match self.place(incoming.link(), &incoming.request) {
            Ok(admission) => Asked::Admitted(incoming, allowed, admission),
            Err(error) => incoming.refused(allowed.principal, error),
        }
    }

    /// Hands the second connection of a stream over to the stream (rule E6).
    fn join(&self, incoming: IncomingRequest) -> Result<(), IncomingRequest> {
        let IncomingRequest { request, owner } = incoming;
        let owner = match (self.joinable(&request), owner) {
            (Some(stream), ConnectionOwner::Request(mut turner)) => {
                turner.step_to_host(|_, _| ());
                match stream.join(turner, request.role) {
                    Ok(()) => return Ok(()),
                    Err(turner) => ConnectionOwner::Request(turner),
                }
            }
            (_, owner) => owner,
        };
        Err(IncomingRequest { request, owner })
    }

    /// Has the stream that the client sends own the connection from here on: also a stream that is
    /// refused is read to its end (rule Q10).
    ///
    /// # Errors
    ///
    /// The system's, with the request as it was.
    pub(super) fn own_stream(
        &self,
        incoming: IncomingRequest,
    ) -> Result<IncomingRequest, (IncomingRequest, Error)> {
        let IncomingRequest { request, owner } = incoming;
        let owner = match owner {
            ConnectionOwner::Request(mut turner) if request.request.verb.has_source() => {
                let is_exchange = request.request.verb == Verb::Exchange;
                let other = is_exchange.then(|| turner.share());
                match self.open_stream(turner, &request.request) {
                    Ok(source) => ConnectionOwner::Stream(source, other),
                    Err((error, turner)) => {
                        return Err((IncomingRequest::new(turner, request), error));
                    }
                }
            }
            owner => owner,
        };
        Ok(IncomingRequest { request, owner })
    }

    /// The stream that the client of `request` sends.
    ///
    /// # Errors
    ///
    /// The system's. The connection comes back.
    fn open_stream(
        &self,
        turner: Turner<End>,
        request: &proto::Request,
    ) -> Result<Arc<ClientStream>, (Error, Turner<End>)> {
        let mut options = self.options.take.clone();
        // What all clients may have here unread is bounded, as what waits for them is.
        options.window.bytes = options.window.bytes.min(self.options.most_queued());
        ClientStream::new(turner, request, &options, self.options.first_seq)
    }

    /// Finds what answers a request, and a place for its stream.
    fn place(&self, link: &Arc<EndLink>, asked: &ArrivedRequest) -> Result<Admission> {
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
}
