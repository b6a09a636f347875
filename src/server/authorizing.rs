//! The host's decision about each request, before anything else is done for it (rule Q7).
//!
//! The host may take its time: a thread of the stream asks it, and never an I/O thread. The number
//! of questions under way is bounded, as streams are.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::asked::{Asked, Asker, Begun, Question};
use super::asked_for::{Allowed, AskedFor};
use super::attachment::Attachment;
use super::core::ServerCore;
use super::request::Request;
use super::request::{Reply, refused};
use super::threads::StreamWork;
use crate::driver::clock;
use crate::driver::end::EndLink;
use crate::driver::produce::OutStream;
use crate::error::{Error, Result, Status};
use crate::proto::{self, Verb};

/// Decides who may do what.
pub trait Authorizer: Send + Sync + 'static {
    /// Allows a request, or refuses it. [`Request::verb`], [`Request::ticket`],
    /// [`Request::headers`] and [`Request::origin`] say who wants what.
    /// [`Request::set_principal`] gives handlers a name for the client. Several threads may call it
    /// at once.
    ///
    /// For list and describe the host is also asked whether the client may get each ticket that the
    /// answer would show. The answer leaves out the tickets that the host refuses.
    ///
    /// # Errors
    ///
    /// Any error refuses the request. The client gets its status and text.
    fn authorize(&self, request: &Request) -> Result<()>;
}

/// An [`Authorizer`] that servers share.
#[derive(Clone)]
pub struct SharedAuthorizer(pub Arc<dyn Authorizer>);

impl fmt::Debug for SharedAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedAuthorizer")
    }
}

/// How the host is asked.
#[derive(Clone)]
pub(super) enum Asking {
    /// By a call.
    Call(SharedAuthorizer),
    /// By the queue of requests, in the pull form.
    Pull,
}

/// The authorizer of one server.
pub(super) struct Authorizing {
    /// `None` once the server is gone: the last of it is dropped by a thread of the host's or of a
    /// stream's.
    way: Mutex<Option<Asking>>,
    /// Questions under way.
    asking: AtomicUsize,
    most: usize,
}

/// A question under way. The drop ends it, also where the host's code panics.
struct Deciding(Arc<Authorizing>);

impl Drop for Deciding {
    fn drop(&mut self) {
        self.0.asking.fetch_sub(1, Relaxed);
    }
}

impl Authorizing {
    pub(super) fn new(way: Asking, most: usize) -> Self {
        Self {
            way: Mutex::new(Some(way)),
            asking: AtomicUsize::new(0),
            most,
        }
    }

    /// Nobody is asked any more.
    pub(super) fn close(&self) {
        let way = self.way.lock().take();
        drop(way);
    }

    /// A place for a question. The error is the number of questions, as many as there may be.
    fn deciding(self: &Arc<Self>) -> Result<Deciding, usize> {
        let deciding = Deciding(Arc::clone(self));
        match self.asking.fetch_add(1, Relaxed) {
            asking if asking >= self.most => Err(asking),
            _ => Ok(deciding),
        }
    }

    /// Asks the host.
    fn decide(
        &self,
        core: &Weak<ServerCore>,
        link: &Arc<EndLink>,
        ticket: &[u8],
        asked_for: AskedFor,
    ) -> Result<Allowed> {
        let stopped = || Error::new(Status::Stopped, "the server was stopped");
        let way = self.way.lock().clone().ok_or_else(stopped)?;
        let stream = OutStream::without_batches(ticket.to_vec(), Arc::clone(link));
        let request = |reply| Request::new(stream, asked_for, reply, Attachment::Nothing);
        let authorizer = match way {
            Asking::Call(authorizer) => authorizer,
            Asking::Pull => {
                let (word, answer) = mpsc::sync_channel(1);
                let core = core.upgrade().ok_or_else(stopped)?;
                let word = Reply::Decided(Mutex::new(Some(word)));
                core.pulls.put(request(word));
                // The server can go while the host decides.
                drop(core);
                return answer.recv().unwrap_or_else(|_| Err(stopped()));
            }
        };
        let request = request(Reply::Returned);
        let decided = (authorizer.0.authorize(&request)).and_then(|()| request.ensure_not_failed());
        match decided {
            Ok(()) => Ok(Allowed {
                principal: request.principal(),
                label: request.label(),
            }),
            Err(error) => {
                let (code, text) = request.failure(&error);
                Err(refused(code, text))
            }
        }
    }
}

impl ServerCore {
    /// Has the host decide about a request, on a thread of its own.
    pub(super) fn decide(&self, mut question: Question) -> Asked {
        let Some(authorizing) = &self.authorizing else {
            return Asked::Decided(question, Allowed::default());
        };
        let deciding = match authorizing.deciding() {
            Ok(deciding) => deciding,
            Err(asking) => {
                let text = format!(
                    "the server's host already decides about {asking} requests, as many as \
                     max_providers allows; raise it at the server, or give the request a \
                     deadline: until then it waits for a place"
                );
                return self.refuse(question, None, &Error::new(Status::Busy, text));
            }
        };
        let has_source = question.request.request.verb.has_source();
        if let Asker::Turner(turner) = &mut question.connection {
            turner.step_to_host(|served, _| {
                if has_source {
                    served.session.await_decision();
                }
            });
        }
        Asked::Begun(Begun::Thread(Box::new(Undecided {
            question,
            deciding,
            core: Weak::clone(&self.me),
        })))
    }

    /// Whether the client of `link` may get a ticket that an answer of the server would show.
    pub(super) fn may_see(
        &self,
        link: &Arc<EndLink>,
        asked: &proto::Request,
        ticket: &[u8],
    ) -> bool {
        self.authorizing.as_ref().is_none_or(|authorizing| {
            let mut asked_for = AskedFor::of(asked, clock::now());
            asked_for.verb = Verb::Get;
            authorizing
                .decide(&self.me, link, ticket, asked_for)
                .is_ok()
        })
    }
}

/// A request that the host has not decided about.
struct Undecided {
    question: Question,
    deciding: Deciding,
    /// The host may take for ever: the server can go meanwhile.
    core: Weak<ServerCore>,
}

impl StreamWork for Undecided {
    fn run(self: Box<Self>) -> Begun {
        let Self {
            question,
            deciding,
            core,
        } = *self;
        let request = &question.request.request;
        let asked_for = AskedFor::of(request, question.request.at);
        let decided = (deciding.0).decide(&core, question.link(), &request.ticket, asked_for);
        drop(deciding);
        let Some(core) = core.upgrade() else {
            return Begun::Elsewhere;
        };
        core.advance(match decided {
            Ok(allowed) => Asked::Decided(question, allowed),
            Err(error) => core.refuse(question, None, &error),
        })
    }

    fn refuse(self: Box<Self>, error: &Error) {
        if let Some(core) = self.core.upgrade() {
            drop(core.refuse(self.question, None, error));
        }
    }
}
