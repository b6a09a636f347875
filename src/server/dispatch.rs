//! The one place that brings requests from state to state, on the I/O thread and on threads of
//! streams.

use std::sync::Arc;

use super::asked::{Asked, Begun, ConnectionOwner, Dispatch, IncomingRequest, Refusal};
use super::core::ServerCore;
use super::errors::with_retry;
use super::figures::asker;
use crate::driver::end::{End, EndLink, Host};
use crate::driver::turning::Turner;
use crate::proto::ArrivedRequest;

impl Dispatch for ServerCore {
    fn advance(&self, mut asked: Asked) -> Begun {
        loop {
            asked = match asked {
                Asked::Arrived(incoming) => match self.ensure_not_draining(&incoming.request) {
                    Ok(()) => self.decide(incoming),
                    Err(error) => incoming.refused(None, error),
                },
                Asked::Decided(incoming, allowed) => self.admit(incoming, allowed),
                Asked::Admitted(incoming, allowed, admission) => {
                    Asked::Begun(self.begin(incoming, allowed, admission))
                }
                Asked::Refused(refusal) => self.refuse(refusal),
                Asked::Begun(begun) => return begun,
                Asked::Answered(turner) => return Begun::Here(turner),
            };
        }
    }
}

impl ServerCore {
    /// Answers a request by an error.
    fn refuse(&self, refusal: Refusal) -> Asked {
        let Refusal {
            incoming,
            principal,
            error,
        } = refusal;
        let asker = asker(incoming.link(), &incoming.request, principal);
        self.figures.note_refusal(&asker, &error);
        let error = &with_retry(&error);
        let incoming = self
            .own_stream(incoming)
            .unwrap_or_else(|(mut incoming, _)| {
                if let ConnectionOwner::Request(turner) = &mut incoming.owner {
                    // Nobody reads what the client has sent already.
                    turner.step(|served, _| served.end_receiving());
                }
                incoming
            });
        match incoming.owner {
            ConnectionOwner::Stream(source, _) => {
                source.refuse(error);
                Asked::Begun(Begun::Elsewhere)
            }
            ConnectionOwner::Request(mut turner) => {
                turner.step(|served, effects| served.send_refusal(error, effects));
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
            // This is the I/O thread, which turns the connection again after a request.
            turner.give_back_here();
        }
    }

    fn closed(&self, link: &Arc<EndLink>) {
        self.remove(link);
    }
}
