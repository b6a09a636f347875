//! Requests that their hosts do not wait for.
//!
//! A request over a connection that streams share needs no thread: its host's calls look for the
//! answer. One thread connects for all others, and waits for their answers. It sleeps for all of
//! them at once, so that a slow or silent server delays no other request.

mod getting;
mod putting;
mod reaching;
mod retrying;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;

use super::Answer;
use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::stream_loop::{LoopStream, Next, StreamLoop, Watcher, caught};
use crate::error::{Error, Result};

#[cfg(any(feature = "tokio", feature = "async-io"))]
pub(crate) use getting::Rows;
pub(super) use getting::{GetRequest, GetState};
pub(super) use putting::{PutRequest, PutState};
pub(super) use retrying::Retrying;

/// A request for one server.
pub(super) trait Request: Send {
    /// Asks on a connection that is open and that streams share, if there is one with room. `bell`
    /// then rings when [`look`](Self::look) may find something. `later` rings for
    /// [`Start::Later`].
    ///
    /// # Errors
    ///
    /// The request has failed.
    fn begin_at_once(&mut self, bell: &Arc<Bell>, later: Option<&Arc<Bell>>) -> Result<Start> {
        let _ = (bell, later);
        Ok(Start::Elsewhere)
    }

    /// Sets out for a connection. Does not wait: [`look`](Self::look) goes on.
    ///
    /// # Errors
    ///
    /// The request has failed.
    fn begin(&mut self) -> Result<()>;

    /// Goes on. Whether the answer has come, good or not. Does not wait.
    ///
    /// # Errors
    ///
    /// The request has failed.
    fn look(&mut self) -> Result<bool>;

    /// A descriptor that is readable when [`look`](Self::look) may find something. It stays the
    /// same until [`take`](Self::take). The request must have [begun](Self::begin).
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    fn fd(&mut self) -> Result<BorrowedFd<'_>>;

    /// The answer that [`look`](Self::look) has found. `None`: begin once more, since the
    /// connection was dead already, or the server is busy.
    ///
    /// # Errors
    ///
    /// The server's refusal, or why there is no answer.
    fn take(&mut self) -> Result<Option<Answer>>;
}

/// How a request begins that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// The server was asked.
    Asked,
    /// Another request opens the connection. When `later` rings, the call has to be made again.
    Later,
    /// A thread of the client has to go on: it connects, waits for the next try, or reads a
    /// description.
    Elsewhere,
}

fn not_asked() -> Error {
    Error::invalid_argument("the request has no connection")
}

/// Gets the outcome of a request, once, on the thread.
pub(super) trait Told: Send {
    /// The answer, or why there is none.
    fn answered(self: Box<Self>, answer: Result<Answer>);

    /// The bell for a host that looks for the answer itself once the server was asked.
    fn bell(&self) -> Option<&Arc<Bell>> {
        None
    }

    /// The server was asked. From now on the host looks for the answer itself, and has a bell.
    fn asked(self: Box<Self>, request: Box<dyn Request>) {
        drop(request);
    }
}

/// A request, its token, and who gets the outcome.
pub(super) struct Asking {
    pub(super) request: Box<dyn Request>,
    pub(super) cancel: Cancel,
    pub(super) told: Box<dyn Told>,
}

/// The thread that makes a client's requests. It outlives the client as long as there are requests.
#[derive(Default)]
pub(super) struct Requests(Mutex<Option<StreamLoop<Waiting>>>);

impl Requests {
    /// Makes the thread start the request that `make` builds.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left. Then `make` was not
    /// called.
    pub(super) fn start(self: &Arc<Self>, make: impl FnOnce() -> Asking) -> Result<()> {
        {
            let mut started = self.0.lock();
            if started.is_none() {
                *started = Some(StreamLoop::start("dipc-waiting")?);
            }
        }
        self.go_on(make());
        Ok(())
    }

    fn go_on(self: &Arc<Self>, asked: Asking) {
        let caller = self.0.lock().as_mut().map(StreamLoop::caller);
        if let Some(caller) = caller {
            let later = Arc::<Bell>::default();
            later.wake(&Waker::from(Arc::clone(&caller)));
            caller.begin(Waiting {
                asked: Some(asked),
                failure: None,
                phase: Phase::New,
                later,
                requests: Arc::clone(self),
            });
        }
    }
}

/// How far a request is on the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    /// Another request opens the connection.
    Queued,
    Begun,
    /// The thread sleeps on its descriptor.
    Watched,
}

/// A request that waits for its server. Its drop tells the host.
struct Waiting {
    /// `None` only while being dropped.
    asked: Option<Asking>,
    failure: Option<Error>,
    phase: Phase,
    /// Makes the thread go on with the request. It needs no descriptor.
    later: Arc<Bell>,
    requests: Arc<Requests>,
}

impl LoopStream for Waiting {
    type Word = ();

    fn hear(&mut self, (): ()) {}

    fn advance(&mut self) -> Result<Next> {
        if let Phase::New | Phase::Queued = self.phase
            && let Some(next) = self.begin()?
        {
            return Ok(next);
        }
        let Some(asked) = &mut self.asked else {
            return Ok(Next::Over);
        };
        match asked.request.look()? {
            true => Ok(Next::Over),
            false => Ok(Next::Sleep),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.failure = Some(error.clone());
    }

    fn watch(&mut self, _: Next, watcher: Watcher<'_>) -> Result<()> {
        if let (Some(asked), Phase::Begun) = (&mut self.asked, self.phase) {
            watcher.add_fd(asked.request.fd()?)?;
            self.phase = Phase::Watched;
        }
        Ok(())
    }

    fn unwatch(&mut self, watcher: Watcher<'_>) {
        // Before the descriptor is closed: a forked child may keep it open, and readable.
        if let (Some(asked), Phase::Watched) = (&mut self.asked, self.phase)
            && let Ok(fd) = asked.request.fd()
        {
            watcher.remove_fd(fd);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(mut asked) = self.asked.take() else {
            return;
        };
        let taken = match self.failure.take() {
            Some(error) => Err(error),
            None => caught(|| asked.request.take()),
        };
        match taken {
            Ok(Some(answer)) => asked.told.answered(Ok(answer)),
            Ok(None) => self.requests.go_on(asked),
            Err(error) => {
                // The request ends before its host hears of it.
                drop(asked.request);
                asked.told.answered(Err(error));
            }
        }
    }
}

impl Waiting {
    /// Asks on a connection that is open, or sets out for one. `None`: it has set out.
    fn begin(&mut self) -> Result<Option<Next>> {
        let Some(asked) = &mut self.asked else {
            return Ok(Some(Next::Over));
        };
        if self.later.has_rung() {
            self.later.silence();
        }
        let start = match asked.told.bell().cloned() {
            Some(bell) => asked.request.begin_at_once(&bell, Some(&self.later))?,
            None => Start::Elsewhere,
        };
        match start {
            Start::Asked => {
                if let Some(Asking { request, told, .. }) = self.asked.take() {
                    told.asked(request);
                }
                return Ok(Some(Next::Over));
            }
            Start::Later => {
                if self.phase == Phase::New {
                    let later = Arc::downgrade(&self.later) as Weak<Bell>;
                    asked.cancel.tell(later);
                    self.phase = Phase::Queued;
                }
                return Ok(Some(Next::Idle));
            }
            Start::Elsewhere => {}
        }
        asked.request.begin()?;
        self.phase = Phase::Begun;
        Ok(None)
    }
}
