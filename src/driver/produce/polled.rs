//! A stream on its way out whose host sleeps in an event loop.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::Production;
use crate::driver::polling::Poller;
use crate::driver::turning::Turn;
use crate::error::Result;
use crate::proto::Timestamp;

impl Production {
    /// A descriptor for an event loop. It is readable before the first call that returns `Timeout`,
    /// when such a call may go on, and after the end of the stream.
    pub fn fd(&mut self) -> Result<BorrowedFd<'_>> {
        let poller = match self.poller.take() {
            Some(poller) => poller,
            None => {
                let token = self.cancel.clone().map(|token| Arc::new(token) as _);
                let mut poller = Box::new(Poller::new(token)?);
                if let Some(other) = self.stream.set_bell(poller.bell()) {
                    poller.watch_always(other)?;
                }
                poller
            }
        };
        Ok(self.poller.insert(poller).fd())
    }

    /// Has the descriptor be readable at this time, too.
    pub fn set_alarm(&mut self, alarm: Option<Timestamp>) {
        self.alarm = alarm;
    }

    /// Has the poller tell of what the stream waits for.
    pub(super) fn arm(&mut self, poller: &mut Poller) {
        let turners = self.outlets.iter().filter_map(|it| it.turner.as_ref());
        let links =
            turners.map(|turner| (turner.link().readiness(), turner.link().look(Turn::wants)));
        let linger = self.linger.filter(|_| !self.is_whole());
        let at = linger.into_iter().chain(self.alarm).min();
        poller.wait_for(links, at);
    }
}
