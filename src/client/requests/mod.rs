//! Requests that their hosts do not wait for.
//!
//! A request over a connection that streams share needs no thread: its host's calls look for the
//! answer. For all others one thread connects, and waits for the answers: it sleeps for all of them
//! at once, so that a server that is silent, or thinks for as long as it likes, holds up none.

mod getting;
mod putting;
mod reaching;
mod retrying;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Answer;
use crate::driver::bell::Bell;
use crate::driver::stream_loop::{LoopStream, Next, StreamLoop, Watcher, caught};
use crate::error::{Error, Result};

pub(super) use getting::{GetRequest, GetState};
pub(super) use putting::{PutRequest, PutState};
pub(super) use retrying::Retrying;

/// A request for one server.
pub(super) trait Request: Send {
    /// Asks on a connection that is open and that streams share, if there is one with room. From
    /// then on `bell` rings when [`look`](Self::look) may find something. False: nothing was done.
    ///
    /// # Errors
    ///
    /// The request has failed.
    fn begin_at_once(&mut self, bell: &Arc<Bell>) -> Result<bool> {
        let _ = bell;
        Ok(false)
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

    /// A descriptor that is readable when [`look`](Self::look) may find something: one and the same
    /// until [`take`](Self::take). Of a request that has [begun](Self::begin).
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

fn not_asked() -> Error {
    Error::invalid_argument("the request has no connection")
}

/// Told of the outcome, once, on a thread of the client.
pub(super) type Told = Box<dyn FnOnce(Result<Answer>) + Send>;

/// The thread that makes a client's requests. It outlives the client while there are some.
#[derive(Default)]
pub(super) struct Requests(Mutex<Option<StreamLoop<Waiting>>>);

impl Requests {
    /// Has the thread make the request that `make` gives.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left. Then `make` was not
    /// called.
    pub(super) fn start(
        self: &Arc<Self>,
        make: impl FnOnce() -> (Box<dyn Request>, Told),
    ) -> Result<()> {
        {
            let mut started = self.0.lock();
            if started.is_none() {
                *started = Some(StreamLoop::start("dipc-waiting")?);
            }
        }
        self.go_on(make());
        Ok(())
    }

    fn go_on(self: &Arc<Self>, asked: (Box<dyn Request>, Told)) {
        let caller = self.0.lock().as_mut().map(StreamLoop::caller);
        let waiting = Waiting {
            asked: Some(asked),
            failure: None,
            phase: Phase::New,
            requests: Arc::clone(self),
        };
        if let Some(caller) = caller {
            caller.begin(waiting);
        }
    }
}

/// How far a request is on the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Begun,
    /// The thread sleeps on its descriptor.
    Watched,
}

/// A request that waits for its server. Its drop tells the host.
struct Waiting {
    /// `None` only while being dropped.
    asked: Option<(Box<dyn Request>, Told)>,
    failure: Option<Error>,
    phase: Phase,
    requests: Arc<Requests>,
}

impl LoopStream for Waiting {
    type Word = ();

    fn hear(&mut self, (): ()) {}

    fn advance(&mut self) -> Result<Next> {
        let Some((request, _)) = &mut self.asked else {
            return Ok(Next::Over);
        };
        if self.phase == Phase::New {
            request.begin()?;
            self.phase = Phase::Begun;
        }
        match request.look()? {
            true => Ok(Next::Over),
            false => Ok(Next::Sleep),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.failure = Some(error.clone());
    }

    fn watch(&mut self, _: Next, watcher: Watcher<'_>) -> Result<()> {
        if let (Some((request, _)), Phase::Begun) = (&mut self.asked, self.phase) {
            watcher.add_fd(request.fd()?)?;
            self.phase = Phase::Watched;
        }
        Ok(())
    }

    fn unwatch(&mut self, watcher: Watcher<'_>) {
        // Before the descriptor is closed: a forked child may keep it open, and readable.
        if let (Some((request, _)), Phase::Watched) = (&mut self.asked, self.phase)
            && let Ok(fd) = request.fd()
        {
            watcher.remove_fd(fd);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some((mut request, told)) = self.asked.take() else {
            return;
        };
        let taken = match self.failure.take() {
            Some(error) => Err(error),
            None => caught(|| request.take()),
        };
        match taken {
            Ok(Some(answer)) => told(Ok(answer)),
            Ok(None) => self.requests.go_on((request, told)),
            Err(error) => {
                // The request ends before its host hears of it.
                drop(request);
                told(Err(error));
            }
        }
    }
}
