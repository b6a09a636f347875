//! Requests about which the host has to decide (rule Q7).

use std::sync::Weak;

use super::asked::{Asked, Begun, ConnectionOwner, Dispatch, IncomingRequest, StreamWork};
use super::asked_for::{Allowed, AskedFor};
use super::authorizing::OpenDecision;
use super::core::ServerCore;
use crate::driver::clock;
use crate::driver::end::StreamLink;
use crate::error::{Error, Status};
use crate::proto::{self, Verb};

impl ServerCore {
    /// Makes the host decide about a request, on a thread of its own.
    pub(super) fn decide(&self, mut incoming: IncomingRequest) -> Asked {
        let Some(authorizing) = &self.authorizing else {
            return Asked::Decided(incoming, Allowed::default());
        };
        let deciding = match authorizing.deciding() {
            Ok(deciding) => deciding,
            Err(asking) => {
                let text = format!(
                    "the server's host already decides about {asking} requests, as many as \
                     max_providers allows; raise it at the server, or give the request a \
                     deadline: until then it waits for a place"
                );
                return Asked::Refused(incoming, None, Error::new(Status::Busy, text));
            }
        };
        let has_source = incoming.request.request.verb.has_source();
        if let ConnectionOwner::Request(turner) = &mut incoming.owner {
            let number = turner.number();
            turner.step_to_host(|served, _| {
                if has_source && let Ok(stream) = served.stream_mut(number) {
                    stream.await_decision();
                }
            });
        }
        Asked::Begun(Begun::Thread(Box::new(Undecided {
            incoming,
            deciding,
            server: Weak::clone(&self.me) as Weak<Self>,
        })))
    }

    /// Whether the client of `link` may get a ticket that an answer of the server would show.
    pub(super) fn may_see(&self, link: &StreamLink, asked: &proto::Request, ticket: &[u8]) -> bool {
        self.authorizing.as_ref().is_none_or(|authorizing| {
            let mut asked_for = AskedFor::of(asked, clock::now());
            asked_for.verb = Verb::Get;
            authorizing.decide(link, ticket, asked_for).is_ok()
        })
    }
}

/// A request that the host has not decided about.
struct Undecided {
    incoming: IncomingRequest,
    deciding: OpenDecision,
    /// Weak, because the server may go away while the host decides.
    server: Weak<dyn Dispatch>,
}

impl StreamWork for Undecided {
    fn run(self: Box<Self>) -> Begun {
        let (incoming, deciding) = (self.incoming, self.deciding);
        let request = &incoming.request.request;
        let asked_for = AskedFor::of(request, incoming.request.at);
        let decided = (deciding.0).decide(&incoming.stream(), &request.ticket, asked_for);
        drop(deciding);
        let Some(server) = self.server.upgrade() else {
            return Begun::Elsewhere;
        };
        server.advance(match decided {
            Ok(allowed) => Asked::Decided(incoming, allowed),
            Err(error) => Asked::Refused(incoming, None, error),
        })
    }

    fn refuse(self: Box<Self>, error: &Error) {
        if let Some(server) = self.server.upgrade() {
            drop(server.advance(Asked::Refused(self.incoming, None, error.clone())));
        }
    }
}
