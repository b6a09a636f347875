//! A consumer that sleeps in an event loop of its own.

use super::taken::Look;
use super::{Fetch, NextBatch};
use crate::arrow::decode::DecodedBatch;
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::driver::polling::Poller;
use crate::error::Result;

impl Fetch {
    /// [`next`](Self::next) without a wait. If nothing has come, `poller` announces when to look
    /// again.
    ///
    /// # Errors
    ///
    /// As [`next`](Self::next).
    pub fn try_next(
        &mut self,
        cancel: Option<&Cancel>,
        poller: Option<&mut Poller>,
    ) -> Result<NextBatch<DecodedBatch>> {
        if !self.is_guest() {
            self.change(|stream| stream.handle_timeout(clock::now()));
        }
        let mut found = self.find_at_once(cancel)?;
        if matches!(found, NextBatch::NotYet) && self.notice_death() {
            // The dead server's last messages are read, and then the end.
            found = self.find_at_once(cancel)?;
        }
        if !matches!(found, NextBatch::NotYet) {
            return Ok(found);
        }
        // Rule E5: the server is told of everything that was taken. Otherwise both ends would wait.
        let late = self.change(|stream| {
            stream.flush_credit();
            // From now on the consumer waits, so its deadlines are checked.
            stream.handle_timeout(clock::now());
            stream.error().cloned()
        });
        if late.is_some() {
            self.check()?;
        }
        self.arm(poller);
        Ok(NextBatch::NotYet)
    }

    /// [`wait_for_schema`](Self::wait_for_schema) without a wait: whether the schema is there. If
    /// it is not, `poller` announces when to look again. If the stream shares its connection, its
    /// bell does.
    ///
    /// # Errors
    ///
    /// As [`wait_for_schema`](Self::wait_for_schema).
    pub fn try_schema(
        &mut self,
        cancel: Option<&Cancel>,
        poller: Option<&mut Poller>,
    ) -> Result<bool> {
        // The I/O thread watches the deadlines of a guest.
        if !self.is_guest() {
            self.change(|stream| stream.handle_timeout(clock::now()));
        }
        let mut found = self.find_schema(cancel)?;
        if !found && self.notice_death() {
            found = self.find_schema(cancel)?;
        }
        if !found {
            self.arm(poller);
        }
        Ok(found)
    }

    /// [`wait_for_streams`](Self::wait_for_streams) without a wait. If the answer is not known yet,
    /// `poller` announces when to look again.
    ///
    /// # Errors
    ///
    /// As [`wait_for_streams`](Self::wait_for_streams).
    pub fn try_streams(
        &mut self,
        cancel: Option<&Cancel>,
        poller: Option<&mut Poller>,
    ) -> Result<Option<bool>> {
        if let Some(Err(error)) = cancel.map(Cancel::check) {
            return Err(self.abort(error));
        }
        self.change(|stream| stream.handle_timeout(clock::now()));
        let mut has_died = false;
        loop {
            let found = self.find_streams()?;
            if found.is_some() {
                return Ok(found);
            }
            if !self.look(Look::Wait) {
                // The dead server's last messages are read, and then the end.
                if has_died || !self.notice_death() {
                    break;
                }
                has_died = true;
            }
        }
        self.arm(poller);
        Ok(None)
    }

    fn find_at_once(&mut self, cancel: Option<&Cancel>) -> Result<NextBatch<DecodedBatch>> {
        match self.begin_next(cancel)? {
            true => self.find_next(cancel),
            false => Ok(NextBatch::NotYet),
        }
    }

    /// Makes the poller announce what the stream waits for.
    fn arm(&mut self, poller: Option<&mut Poller>) {
        if self.is_guest() {
            self.keep_time();
            if let Some(poller) = poller {
                let is_new = self.bell.is_none();
                if is_new {
                    self.ring_by(poller);
                }
                // The host looks once more.
                poller.wait_for([], is_new.then(clock::now));
            }
            return;
        }
        let Some(poller) = poller else {
            return self.doze();
        };
        let (all, at) = self.wants();
        poller.wait_for(
            all.iter().map(|(link, wants)| (link.readiness(), *wants)),
            at,
        );
    }
}
