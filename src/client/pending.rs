//! Requests for hosts that sleep in an event loop of their own, or that are tasks.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use parking_lot::{Mutex, MutexGuard};

use super::requests::{Asking, Request, Requests, Start, Told};
use super::{Put, Stream};
use crate::arrow::description::Description;
use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::stream_loop::caught;
use crate::error::{Error, Result};
use crate::fork::Generation;
use crate::proto::Headers;

/// What a server has answered.
pub enum Answer {
    /// To a get or a list.
    Stream(Box<Stream>),
    /// To a describe.
    Description(Description, Headers),
    /// To a put; with the server's stream to an exchange.
    Put(Box<Put>, Option<Box<Stream>>),
}

/// A request that its host does not wait for. Dropping it ends the request.
pub struct Pending {
    request: Arc<PendingRequest>,
    requests: Arc<Requests>,
    generation: Generation,
}

/// What the threads and the host share.
struct PendingRequest {
    progress: Mutex<Progress>,
    /// Rings for good once there is an answer.
    bell: Arc<Bell>,
    /// Ends only the request.
    cancel: Cancel,
}

enum Progress {
    /// A thread of the client asks.
    Asking,
    /// The server was asked. The host's calls look for the answer.
    Asked(Box<dyn Request>),
    Answered(Answer),
    Taken,
    Failed(Error),
}

impl Pending {
    /// Starts the request that `make` builds for a token: at once on a connection that streams
    /// share, or on the thread of `requests`. `cancel` also ends the request.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub(super) fn start(
        requests: &Arc<Requests>,
        cancel: Option<&Cancel>,
        make: impl FnOnce(Cancel) -> Box<dyn Request>,
    ) -> Result<Self> {
        let own = cancel.map_or_else(Cancel::new, Cancel::child)?;
        let pending = Self {
            request: Arc::new(PendingRequest {
                progress: Mutex::new(Progress::Asking),
                bell: Arc::default(),
                cancel: own.clone(),
            }),
            requests: Arc::clone(requests),
            generation: Generation::now(),
        };
        let bell = &pending.request.bell;
        let mut request = make(own);
        match caught(|| request.begin_at_once(bell, None)) {
            Ok(Start::Asked) => pending.request.asked(request),
            Ok(Start::Later | Start::Elsewhere) => pending.ask(request)?,
            Err(error) => pending.request.end(Progress::Failed(error)),
        }
        Ok(pending)
    }

    /// Has a thread of the client ask.
    fn ask(&self, request: Box<dyn Request>) -> Result<()> {
        self.requests.start(|| Asking {
            request,
            cancel: self.request.cancel.clone(),
            told: Box::new(Arc::clone(&self.request)),
        })
    }

    /// A descriptor that is readable once [`try_answer`](Self::try_answer) may find something, and
    /// for good once it does.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        // The library writes nothing to the descriptor that the host has.
        self.request.bell.host_fd()
    }

    /// Takes the answer, if it has come and `is_wanted`; `None` before. Each call returns a failure
    /// again.
    ///
    /// # Errors
    ///
    /// As the waiting form of the request; `InvalidArgument` for an answer that was taken, or that
    /// is not wanted.
    pub fn try_answer(&self, is_wanted: impl FnOnce(&Answer) -> bool) -> Result<Option<Answer>> {
        self.generation.ensure_same_process()?;
        let mut progress = self.request.progress.lock();
        self.look(&mut progress);
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Answered(answer) if is_wanted(&answer) => Ok(Some(answer)),
            Progress::Taken => Err(Error::invalid_argument("the answer was taken before")),
            other => {
                *progress = other;
                match &*progress {
                    Progress::Failed(error) => Err(error.clone()),
                    Progress::Answered(_) => Err(Error::invalid_argument(
                        "the request has another verb: its answer is of another kind",
                    )),
                    _ => Ok(None),
                }
            }
        }
    }

    /// The answer, whatever its kind, for a task, which is woken once it has come.
    ///
    /// # Errors
    ///
    /// As [`try_answer`](Self::try_answer).
    pub fn poll_answer(&self, context: &mut Context<'_>) -> Poll<Result<Answer>> {
        // Set before the look, which answers every ring so far.
        self.request.bell.wake(context.waker());
        match self.try_answer(|_| true) {
            Ok(Some(answer)) => Poll::Ready(Ok(answer)),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Looks for the answer to a request that needs no thread.
    fn look(&self, progress: &mut MutexGuard<'_, Progress>) {
        let Progress::Asked(request) = &mut **progress else {
            return;
        };
        match caught(|| request.look()) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => return self.request.end_locked(progress, Progress::Failed(error)),
        }
        let Progress::Asked(mut request) = std::mem::replace(&mut **progress, Progress::Asking)
        else {
            return;
        };
        match caught(|| request.take()) {
            Ok(Some(answer)) => {
                self.request
                    .end_locked(progress, Progress::Answered(answer));
            }
            // The request has to be made once more.
            Ok(None) => {
                if let Err(error) = self.ask(request) {
                    self.request.end_locked(progress, Progress::Failed(error));
                }
            }
            Err(error) => {
                drop(request);
                self.request.end_locked(progress, Progress::Failed(error));
            }
        }
    }
}

impl Told for Arc<PendingRequest> {
    fn answered(self: Box<Self>, answer: Result<Answer>) {
        self.end(answer.map_or_else(Progress::Failed, Progress::Answered));
    }

    fn bell(&self) -> Option<&Arc<Bell>> {
        Some(&self.bell)
    }

    fn asked(self: Box<Self>, request: Box<dyn Request>) {
        (**self).asked(request);
        // A task that looked before this line sleeps again, and has to be woken.
        if self.bell.has_rung() {
            self.bell.silence();
            self.bell.ring();
        }
    }
}

impl PendingRequest {
    /// From now on the host's calls look for the answer, and the token wakes the host.
    fn asked(&self, request: Box<dyn Request>) {
        self.cancel.tell(Arc::downgrade(&self.bell) as Weak<Bell>);
        *self.progress.lock() = Progress::Asked(request);
    }

    fn end(&self, end: Progress) {
        // The lock is released first, because the code that is woken may take locks of its own.
        *self.progress.lock() = end;
        self.bell.ring();
    }

    /// The descriptor is readable from now on.
    fn end_locked(&self, progress: &mut MutexGuard<'_, Progress>, end: Progress) {
        **progress = end;
        self.bell.ring();
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.generation.is_same_process() {
            // In a forked child locks may be held for ever: the copy is leaked.
            let _left = std::mem::ManuallyDrop::new(Arc::clone(&self.request));
            return;
        }
        self.request.cancel.cancel();
        let mut progress = self.request.progress.lock();
        // The host's calls will not look any more, so the cancel has to end the request.
        self.look(&mut progress);
    }
}
