//! Requests for hosts that sleep in an event loop of their own.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use parking_lot::Mutex;

use super::threads::AskingThreads;
use super::{Put, Stream};
use crate::arrow::description::Description;
use crate::cancel::Cancel;
use crate::driver::stream_loop::caught;
use crate::driver::turning::Bell;
use crate::error::{Error, Result};
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

/// A request that a thread of the client makes. Its drop ends it.
pub struct Pending {
    request: Arc<PendingRequest>,
}

/// What the thread and the host share.
struct PendingRequest {
    progress: Mutex<Progress>,
    /// Rings for good once there is an answer.
    bell: Bell,
    /// Ends the request alone.
    cancel: Cancel,
}

enum Progress {
    Asking,
    Answered(Answer),
    Taken,
    Failed(Error),
}

impl PendingRequest {
    /// Asks, unless the host has left.
    fn run(&self, ask: impl FnOnce(&Cancel) -> Result<Answer>) {
        let answer = caught(|| {
            self.cancel.check()?;
            ask(&self.cancel)
        });
        *self.progress.lock() = answer.map_or_else(Progress::Failed, Progress::Answered);
        self.bell.ring();
    }
}

impl Pending {
    /// Has one of the `threads` make the request `ask`. `cancel` ends it too.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub(super) fn start(
        threads: &Arc<AskingThreads>,
        cancel: Option<&Cancel>,
        ask: impl FnOnce(&Cancel) -> Result<Answer> + Send + 'static,
    ) -> Result<Self> {
        let pending = Self::new(cancel)?;
        let request = Arc::clone(&pending.request);
        threads.run(|| Box::new(move || request.run(ask)))?;
        Ok(pending)
    }

    fn new(cancel: Option<&Cancel>) -> Result<Self> {
        let request = PendingRequest {
            progress: Mutex::new(Progress::Asking),
            bell: Bell::new()?,
            cancel: cancel.map_or_else(Cancel::new, Cancel::child)?,
        };
        Ok(Self {
            request: Arc::new(request),
        })
    }

    /// A descriptor that is readable once [`try_answer`](Self::try_answer) finds something, and
    /// from then on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.request.bell.as_fd()
    }

    /// Takes the answer, if it has come and `is_wanted`; `None` before. A failure is said again at
    /// each call.
    ///
    /// # Errors
    ///
    /// As the waiting form of the request; `InvalidArgument` for an answer that was taken, or that
    /// is not wanted.
    pub fn try_answer(&self, is_wanted: impl FnOnce(&Answer) -> bool) -> Result<Option<Answer>> {
        let mut progress = self.request.progress.lock();
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
                    Progress::Asking | Progress::Taken => Ok(None),
                }
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.request.cancel.cancel();
    }
}
