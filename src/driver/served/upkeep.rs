//! What a connection looks after from time to time: regions that nobody uses, and whether the peer's
//! machine still answers.

use super::{Effects, Half, ServedLink};
use crate::driver::clock;
use crate::proto::SenderState;

impl ServedLink {
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
