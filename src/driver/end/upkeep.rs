//! What a connection looks after from time to time: regions that nobody uses, and whether the
//! peer's machine still answers.

use super::{End, EndEffects};
use crate::driver::clock;
use crate::error::Error;
use crate::proto::{SenderState, Timestamp};

impl End {
    /// Retires regions that have been idle, when it is time to look.
    pub(super) fn retire_when_due(&mut self, now: Timestamp) {
        if self.retire_at.take_if(|at| *at <= now).is_some()
            && let Some(lender) = &self.lender
        {
            let (idle, next) = lender.retire_idle();
            self.retire_at = next.map(clock::after);
            self.retire_regions(idle);
        }
    }

    /// Retires regions that must not stay open at the peer.
    pub(super) fn retire_at_once(&mut self, effects: &mut EndEffects) {
        let due = self.lender.as_ref().map(|lender| lender.take_retired());
        if self.closed.is_none() {
            self.retire_regions(due.unwrap_or_default());
            self.pump(effects);
        }
    }

    /// Asks whether the peer's machine still answers, and when to ask again.
    pub(super) fn probe(&mut self, effects: &mut EndEffects) {
        match self.connection.probe() {
            Ok(next) => self.probe_at = next.map(clock::after),
            Err(error) => self.close(error, effects),
        }
    }

    /// Asks when it is time to, as long as something is to be sent.
    pub(super) fn probe_when_due(&mut self, now: Timestamp, effects: &mut EndEffects) {
        let is_due = self.probe_at.take_if(|at| *at <= now).is_some();
        if is_due
            && (self.sender.state() != SenderState::Idle || self.connection.queued().bytes > 0)
        {
            self.probe(effects);
        }
    }

    /// Ends a connection at a server over which nothing is asked for, when it is time to look. What
    /// either side still has of the other's memory keeps it.
    pub(super) fn end_quiet_when_due(&mut self, now: Timestamp, effects: &mut EndEffects) {
        if self.quiet_at.take_if(|at| *at <= now).is_none() || self.closed.is_some() {
            return;
        }
        let is_idle = self.sender.state() == SenderState::Idle
            && self.sender.lent_outstanding() == 0
            && self.connection.queued().bytes == 0
            && self.publication.is_none()
            && self.waiting_request.is_none()
            && !self.receives;
        if is_idle && self.is_quiet {
            let error = Error::timeout("the client has asked for nothing for too long");
            return self.close(error, effects);
        }
        self.is_quiet = is_idle;
        self.quiet_at = self.idle_time.map(clock::after);
    }

    fn retire_regions(&mut self, ids: Vec<u16>) {
        for id in ids {
            if let Err(error) = self.sender.retire_region(id) {
                tracing::error!("region {id} cannot be retired: {error}");
            }
        }
    }
}
