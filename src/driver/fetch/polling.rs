//! A consumer that sleeps in an event loop of its own.

use super::taken::Look;
use super::{Fetch, NextBatch};
use crate::arrow::decode::DecodedBatch;
use crate::cancel::Cancel;
use crate::driver::clock;
use crate::driver::polling::Poller;
use crate::error::Result;

impl Fetch {
    /// [`next`](Self::next) without a wait. Where nothing has come, `poller` tells when to look
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
            // What it left is read, and then its end.
            found = self.find_at_once(cancel)?;
        }
        if !matches!(found, NextBatch::NotYet) {
            return Ok(found);
        }
        // Rule E5: the server is told of everything taken, or both would wait.
        let late = self.change(|stream| {
            stream.flush_credit();
            // From now on the consumer waits.
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
    /// it is not, `poller` tells when to look again, or the bell of a stream that shares its
    /// connection.
    ///
    /// # Errors
    ///
    /// As [`wait_for_schema`](Self::wait_for_schema).
    pub fn try_schema(
        &mut self,
        cancel: Option<&Cancel>,
        poller: Option<&mut Poller>,
    ) -> Result<bool> {
        // The I/O thread keeps the time of a guest.
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

    /// [`wait_for_streams`](Self::wait_for_streams) without a wait. If it is not known, `poller`
    /// tells when to look again.
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
                // What it left is read, and then its end.
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

    /// Has the poller tell of what the stream waits for.
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
