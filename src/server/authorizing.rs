//! The host's decision about each request, before anything else is done for it (rule Q7).
//!
//! The host may need long to decide, so a thread of the stream asks it, never an I/O thread. The
//! number of questions under way is bounded, as the number of streams is.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::asked_for::{Allowed, AskedFor};
use super::attachment::Attachment;
use super::errors::stopped;
use super::host::SharedAuthorizer;
use super::pulls::PullQueues;
use super::request::{Reply, ServerRequest, refused};
use crate::driver::end::StreamLink;
use crate::driver::produce::OutStream;
use crate::error::Result;

/// How the host is asked.
#[derive(Clone)]
pub(super) enum Asking {
    /// By a call.
    Call(SharedAuthorizer),
    /// Through the queue of requests, in the pull form.
    Pull(Weak<PullQueues>),
}

/// The authorizer of one server.
pub(super) struct Authorizing {
    /// `None` once the server is gone. Then a thread of the host's or of a stream's drops the last
    /// reference.
    way: Mutex<Option<Asking>>,
    /// Questions under way.
    asking: AtomicUsize,
    most: usize,
}

/// A question under way. The drop ends the question, even if the host's code panics.
pub(super) struct OpenDecision(pub(super) Arc<Authorizing>);

impl Drop for OpenDecision {
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

    /// The host is not asked any more.
    pub(super) fn close(&self) {
        let way = self.way.lock().take();
        drop(way);
    }

    /// A place for a question. If all places are taken, the error is their number.
    pub(super) fn deciding(self: &Arc<Self>) -> Result<OpenDecision, usize> {
        let deciding = OpenDecision(Arc::clone(self));
        match self.asking.fetch_add(1, Relaxed) {
            asking if asking >= self.most => Err(asking),
            _ => Ok(deciding),
        }
    }

    /// Asks the host.
    pub(super) fn decide(
        &self,
        link: &StreamLink,
        ticket: &[u8],
        asked_for: AskedFor,
    ) -> Result<Allowed> {
        let way = self.way.lock().clone().ok_or_else(stopped)?;
        let stream = OutStream::without_batches(ticket.to_vec(), link.clone());
        let request = |reply| ServerRequest::new(stream, asked_for, reply, Attachment::Nothing);
        let authorizer = match way {
            Asking::Call(authorizer) => authorizer,
            Asking::Pull(pulls) => {
                let (word, answer) = mpsc::sync_channel(1);
                let word = Reply::Decided(Mutex::new(Some(word)));
                // The server may go away while the host decides.
                pulls.upgrade().ok_or_else(stopped)?.put(request(word));
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
