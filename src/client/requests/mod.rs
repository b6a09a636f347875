//! Requests that their hosts do not wait for.
//!
//! A request over a connection that streams share needs no thread: its host's calls look for the
//! answer. For others up to [`MOST_THREADS`] threads connect, which may take time. Then one thread
//! waits for the answers of all servers, however many there are: a server may think for as long as
//! it likes.
//!
//! [`MOST_THREADS`]: super::threads::MOST_THREADS

mod getting;
mod putting;
mod retrying;

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Answer;
use super::threads::AskingThreads;
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

    /// Connects and asks. May wait for the connection.
    ///
    /// # Errors
    ///
    /// The request has failed.
    fn begin(&mut self) -> Result<()>;

    /// Whether the answer has come, good or not. Does not wait.
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

/// The threads that make a client's requests. They outlive it while there are some.
#[derive(Default)]
pub(super) struct Requests {
    threads: AskingThreads,
    waiting: Mutex<Option<StreamLoop<Waiting>>>,
}

impl Requests {
    /// Has threads make the request that `make` gives.
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
            let mut waiting = self.waiting.lock();
            if waiting.is_none() {
                *waiting = Some(StreamLoop::start("dipc-waiting")?);
            }
        }
        self.threads.run(|| {
            let (this, (request, told)) = (Arc::clone(self), make());
            Box::new(move || this.begin(request, told))
        })
    }

    /// Connects, and has the answer waited for.
    fn begin(self: Arc<Self>, mut request: Box<dyn Request>, told: Told) {
        if let Err(error) = caught(|| request.begin()) {
            told(Err(error));
            return;
        }
        let caller = self.waiting.lock().as_mut().map(StreamLoop::caller);
        let waiting = Waiting {
            asked: Some((request, told)),
            failure: None,
            is_watched: false,
            requests: self,
        };
        if let Some(caller) = caller {
            caller.begin(waiting);
        }
    }
}

/// A request that waits for its server. Its drop tells the host.
struct Waiting {
    /// `None` only while being dropped.
    asked: Option<(Box<dyn Request>, Told)>,
    failure: Option<Error>,
    is_watched: bool,
    requests: Arc<Requests>,
}

impl LoopStream for Waiting {
    type Word = ();

    fn hear(&mut self, (): ()) {}

    fn advance(&mut self) -> Result<Next> {
        let Some((request, _)) = &mut self.asked else {
            return Ok(Next::Over);
        };
        match request.look()? {
            true => Ok(Next::Over),
            false => Ok(Next::Sleep),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.failure = Some(error.clone());
    }

    fn watch(&mut self, _: Next, watcher: Watcher<'_>) -> Result<()> {
        if let (Some((request, _)), false) = (&mut self.asked, self.is_watched) {
            watcher.add_fd(request.fd()?)?;
            self.is_watched = true;
        }
        Ok(())
    }

    fn unwatch(&mut self, watcher: Watcher<'_>) {
        // Before the descriptor is closed: a forked child may keep it open, and readable.
        if let (Some((request, _)), true) = (&mut self.asked, self.is_watched)
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
            Ok(None) => self.repeat(request, told),
            Err(error) => {
                // The request ends before its host hears of it.
                drop(request);
                told(Err(error));
            }
        }
    }
}

impl Waiting {
    fn repeat(&self, request: Box<dyn Request>, told: Told) {
        let requests = Arc::clone(&self.requests);
        let mut asked = Some((request, told));
        let repeated = self.requests.threads.run(|| {
            let asked = asked.take();
            Box::new(move || {
                if let Some((request, told)) = asked {
                    requests.begin(request, told);
                }
            })
        });
        if let (Err(error), Some((request, told))) = (repeated, asked) {
            drop(request);
            told(Err(error));
        }
    }
}
