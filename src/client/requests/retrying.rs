//! A request that is made again when its server is busy (rule Q8).

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{Request, Start};
use crate::cancel::Cancel;
use crate::client::Answer;
use crate::client::busy::Tries;
use crate::driver::bell::Bell;
use crate::driver::clock;
use crate::driver::polling::Poller;
use crate::error::{Error, Result};
use crate::proto::Timestamp;

/// A request and the pauses between its tries.
pub(in crate::client) struct Retrying<R> {
    request: R,
    tries: Tries,
    /// The token of the request.
    cancel: Cancel,
    /// When the next try is to be made, after a try that met a busy server.
    next: Option<Timestamp>,
    /// The pause before that try.
    pause: Option<Pause>,
}

/// A time that is waited for.
struct Pause {
    until: Timestamp,
    poller: Poller,
}

impl<R: Request> Retrying<R> {
    /// `due`: the request's deadline. `None`: there is one try.
    pub(in crate::client) fn new(request: R, due: Option<Timestamp>, cancel: Cancel) -> Self {
        Self {
            request,
            tries: Tries::until(due),
            cancel,
            next: None,
            pause: None,
        }
    }

    /// Notes when to try again after `error`.
    ///
    /// # Errors
    ///
    /// `error` if there is no next try.
    fn note(&mut self, error: Error) -> Result<()> {
        self.next = Some(self.tries.next(error)?);
        Ok(())
    }

    fn rest(&mut self, until: Timestamp) -> Result<()> {
        let mut poller = Poller::new(None)?;
        poller.follow(Some(&self.cancel));
        poller.wait_for([], Some(until));
        self.pause = Some(Pause { until, poller });
        Ok(())
    }
}

impl<R: Request> Request for Retrying<R> {
    fn begin_at_once(&mut self, bell: &Arc<Bell>, later: Option<&Arc<Bell>>) -> Result<Start> {
        if self.next.is_some() {
            return Ok(Start::Elsewhere);
        }
        self.request.begin_at_once(bell, later).or_else(|error| {
            self.note(error)?;
            Ok(Start::Elsewhere)
        })
    }

    fn begin(&mut self) -> Result<()> {
        if self.next.is_none() {
            match self.request.begin() {
                Ok(()) => return Ok(()),
                Err(error) => self.note(error)?,
            }
        }
        self.next.take().map_or(Ok(()), |until| self.rest(until))
    }

    fn look(&mut self) -> Result<bool> {
        let Some(pause) = &self.pause else {
            return self.request.look();
        };
        self.cancel.check()?;
        Ok(clock::now() >= pause.until)
    }

    fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        match &self.pause {
            Some(pause) => Ok(pause.poller.fd()),
            None => self.request.fd(),
        }
    }

    fn take(&mut self) -> Result<Option<Answer>> {
        if self.pause.take().is_some() {
            return Ok(None);
        }
        self.request.take().or_else(|error| {
            self.note(error)?;
            Ok(None)
        })
    }
}
