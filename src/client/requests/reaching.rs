//! A request on its way to a connection.

use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;

use crate::cancel::Cancel;
use crate::client::core::Reached;
use crate::driver::polling::Poller;
use crate::error::Result;
use crate::transport::Attempt;

/// A request that has no connection yet.
pub(in crate::client) struct Reaching {
    future: Pin<Box<dyn Future<Output = Result<Reached>> + Send>>,
    attempt: Arc<Attempt>,
    /// The poller follows the token, too.
    poller: Box<Poller>,
}

impl Reaching {
    /// Begins the attempt that `reach` makes.
    ///
    /// # Errors
    ///
    /// `OutOfResources` when the process has no file descriptor left.
    pub(super) fn new<F>(cancel: &Cancel, reach: impl FnOnce(Arc<Attempt>) -> F) -> Result<Self>
    where
        F: Future<Output = Result<Reached>> + Send + 'static,
    {
        let mut poller = Poller::new(None)?;
        poller.follow(Some(cancel));
        let attempt = Arc::new(Attempt::new(Some(cancel.clone())));
        Ok(Self {
            future: Box::pin(reach(Arc::clone(&attempt))),
            attempt,
            poller: Box::new(poller),
        })
    }

    /// Goes on. Returns the outcome of the attempt, and the poller that waited for it.
    ///
    /// # Errors
    ///
    /// The request itself, whose descriptor tells when to look again.
    pub(super) fn look(mut self) -> Result<(Result<Reached>, Box<Poller>), Self> {
        match self.attempt.poll(self.future.as_mut()) {
            Ok(reached) => {
                self.poller.wait_for([], None);
                Ok((reached, self.poller))
            }
            Err(awaited) => {
                self.poller.wait_for_attempt(awaited);
                Err(self)
            }
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.poller.fd()
    }
}
