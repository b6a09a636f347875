//! What a connection looks after from time to time: regions that nobody uses, whether the peer's
//! machine still answers, and whether the peer waits for an answer to its request.

use std::time::Duration;

use super::{Effects, Half, ServedLink};
use crate::driver::clock;
use crate::proto::SenderState;

/// How long after a request the client hears that it was read, where the answer takes longer and no
/// cork looks before: less than any time to connect that makes sense.
const PENDING_AFTER: Duration = Duration::from_millis(20);

impl ServedLink {
    /// Whoever answers the request that has come may take long: the client hears that it was read.
    /// One timer serves all requests that come until it is due.
    pub fn say_pending_later(&self) {
        let due = {
            let mut half = self.half.lock();
            half.asked_at = clock::now();
            if half.pending_at.is_some() || !half.sender.awaits_pending() {
                return;
            }
            let due = half.asked_at.saturating_add(PENDING_AFTER);
            *half.pending_at.insert(due)
        };
        self.io.call_at(due, self.source());
    }

    /// Says PENDING when it is time to.
    pub(super) fn say_pending_when_due(&self) {
        let now = clock::now();
        {
            let mut half = self.half.lock();
            if half.pending_at.is_none_or(|at| now < at) {
                return;
            }
            half.pending_at = None;
            let due = half.asked_at.saturating_add(PENDING_AFTER);
            if half.closed.is_none() && half.sender.awaits_pending() && now < due {
                // That of a later request.
                half.pending_at = Some(due);
                drop(half);
                self.io.call_at(due, self.source());
                return;
            }
        }
        self.say_pending();
    }

    /// Says PENDING, where the client still waits for its answer.
    pub(super) fn say_pending(&self) {
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            half.sender.say_pending();
            self.pump(&mut half, &mut effects);
        }
        self.finish(effects);
    }

    /// Retires regions that have been idle, when it is time to look.
    pub(super) fn retire(&self) {
        let Some(lender) = &self.lender else { return };
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            let due = half.retire_at.is_some_and(|at| clock::now() >= at);
            if half.closed.is_some() || !due {
                return;
            }
            let (idle, next) = lender.retire_idle();
            half.retire_regions(idle);
            half.retire_at = next.map(clock::after);
            effects.timers.extend(half.retire_at);
            self.pump(&mut half, &mut effects);
        }
        self.finish(effects);
    }

    /// Asks whether the peer's machine still answers, and when to ask again.
    pub(super) fn probe(&self, half: &mut Half, effects: &mut Effects) {
        match half.link.probe() {
            Ok(next) => {
                half.probe_at = next.map(clock::after);
                effects.timers.extend(half.probe_at);
            }
            Err(error) => self.close(half, error, effects),
        }
    }

    /// Asks it when it is time to, as long as something is to be sent.
    pub(super) fn probe_when_due(&self) {
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            let due = half.probe_at.is_some_and(|at| clock::now() >= at);
            if half.closed.is_some() || !due {
                return;
            }
            half.probe_at = None;
            if half.sender.state() != SenderState::Idle || half.link.queued_bytes() > 0 {
                self.probe(&mut half, &mut effects);
            }
        }
        self.finish(effects);
    }

    /// Retires regions that must not stay open at the peer.
    pub(super) fn retire_at_once(&self) {
        let Some(lender) = self.lender.as_ref().filter(|lender| lender.has_retired()) else {
            return;
        };
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            let due = lender.take_retired();
            if half.closed.is_some() {
                return;
            }
            half.retire_regions(due);
            self.pump(&mut half, &mut effects);
        }
        self.finish(effects);
    }
}
