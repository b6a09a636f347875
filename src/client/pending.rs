//! Requests for hosts that sleep in an event loop of their own.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use super::requests::{Request, Requests};
use super::{Put, Stream};
use crate::arrow::description::Description;
use crate::cancel::Cancel;
use crate::driver::bell::Bell;
use crate::driver::signal::Signal;
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

/// A request that threads of the client make. Its drop ends it.
pub struct Pending {
    request: Arc<PendingRequest>,
}

/// What the threads and the host share.
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

impl Pending {
    /// Has `requests` make the request that `make` gives for this token. `cancel` ends it too.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no threads or descriptors left.
    pub(super) fn start(
        requests: &Arc<Requests>,
        cancel: Option<&Cancel>,
        make: impl FnOnce(Cancel) -> Box<dyn Request>,
    ) -> Result<Self> {
        let request = Arc::new(PendingRequest {
            progress: Mutex::new(Progress::Asking),
            // Nothing is written to what the host has.
            bell: Bell::by(Arc::new(Signal::new()?)),
            cancel: cancel.map_or_else(Cancel::new, Cancel::child)?,
        });
        let pending = Self {
            request: Arc::clone(&request),
        };
        requests.start(|| {
            let made = make(request.cancel.clone());
            let told = move |answer: Result<Answer>| {
                let progress = answer.map_or_else(Progress::Failed, Progress::Answered);
                *request.progress.lock() = progress;
                request.bell.ring();
            };
            (made, Box::new(told))
        })?;
        Ok(pending)
    }

    /// A descriptor that is readable once [`try_answer`](Self::try_answer) finds something, and
    /// from then on.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.request.bell.fd()
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
