//! A stream on its way out whose host sleeps in an event loop.

use std::os::fd::BorrowedFd;

use super::production::Production;
use crate::cancel::Cancel;
use crate::driver::polling::Poller;
use crate::error::Result;
use crate::proto::Timestamp;

impl Production {
    /// A descriptor for an event loop. It is readable before the first call that returns `Timeout`,
    /// when such a call may go on, and after the end of the stream.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        let poller = match self.poller.take() {
            Some(poller) => poller,
            None => self.set_up(Box::new(Poller::new(None)?))?,
        };
        Ok(self.poller.insert(poller).fd())
    }

    /// Uses this poller from now on.
    ///
    /// # Errors
    ///
    /// `OutOfResources` if the system can watch no more descriptors.
    pub fn adopt(&mut self, poller: Box<Poller>) -> Result<()> {
        self.poller = Some(self.set_up(poller)?);
        Ok(())
    }

    fn set_up(&mut self, mut poller: Box<Poller>) -> Result<Box<Poller>> {
        poller.follow(self.cancel.as_ref());
        let other = self.stream.set_bell(poller.bell());
        if let Some(other) = other.and_then(|other| other.counter()) {
            poller.watch_always(other)?;
        }
        Ok(poller)
    }

    /// Gives the stream to a host with another token. For that host the descriptor is readable at
    /// first.
    pub fn set_cancel(&mut self, cancel: Option<&Cancel>) {
        self.cancel = cancel.cloned();
        self.alarm = None;
        let Some(mut poller) = self.poller.take() else {
            return;
        };
        poller.follow(self.cancel.as_ref());
        poller.end();
        self.poller = Some(poller);
    }

    /// Makes the descriptor readable at this time too.
    pub fn set_alarm(&mut self, alarm: Option<Timestamp>) {
        self.alarm = alarm;
    }

    /// Makes the poller announce what the stream waits for.
    pub(super) fn arm(&mut self, poller: &mut Poller) {
        let turners = self.outlets.iter().filter_map(|it| it.turner.as_ref());
        let links = turners.map(|turner| (turner.link().readiness(), turner.wants()));
        let linger = self.linger.filter(|_| !self.is_whole());
        let at = linger.into_iter().chain(self.alarm).min();
        poller.wait_for(links, at);
    }
}
