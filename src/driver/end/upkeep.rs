//! What a connection checks from time to time: regions that nobody uses, and whether the peer's
//! machine still answers.

use super::{End, EndEffects};
use crate::driver::clock;
use crate::proto::{SenderState, Timestamp};

impl End {
    /// Retires regions that have been idle, when it is time to look.
    pub(super) fn retire_when_due(&mut self, now: Timestamp) {
        if self.retire_at.take_if(|at| *at <= now).is_some()
            && let Some(pool) = &self.pool
        {
            let (idle, next) = pool.retire_idle();
            self.retire_at = next.map(clock::after);
            self.retire_regions(idle);
        }
    }

    /// Retires regions that must not stay open at the peer.
    pub(super) fn retire_at_once(&mut self, effects: &mut EndEffects) {
        let due = self.pool.as_ref().map(|pool| pool.take_retired());
        if self.session.closed().is_none() {
            self.retire_regions(due.unwrap_or_default());
            self.pump(effects);
        }
    }

    /// Checks whether the peer's machine still answers, and sets the time of the next check.
    pub(super) fn probe(&mut self, effects: &mut EndEffects) {
        let identity = self.connection.identity();
        let Some(machine) = &identity.readiness.peer_machine else {
            return;
        };
        match machine.ensure_answers(&identity.peer) {
            Ok(()) => self.probe_at = Some(clock::after(machine.pause())),
            Err(error) => self.close(error, effects),
        }
    }

    /// Does that check when it is due, while something waits to be sent.
    pub(super) fn probe_when_due(&mut self, now: Timestamp, effects: &mut EndEffects) {
        let is_due = self.probe_at.take_if(|at| *at <= now).is_some();
        let is_used = match self.session.is_many() {
            true => self.session.has_streams(),
            false => self.session.first().state() != SenderState::Idle,
        };
        if is_due && (is_used || self.connection.traffic().queued > 0) {
            self.probe(effects);
        }
    }

    /// When it is time to look, ends a connection on which no request has come for too long.
    pub(super) fn end_quiet_when_due(&mut self, now: Timestamp, effects: &mut EndEffects) {
        let is_unused = self.connection.traffic().queued == 0 && !self.returns.is_holding();
        if let Err(error) = self.session.handle_timeout(now, is_unused) {
            self.close(error, effects);
        }
    }

    /// Tells clients whose answers take long that their requests were read. On a connection with
    /// one stream, the turns in place of a holder do that.
    pub(super) fn say_pending_when_due(&mut self, now: Timestamp) {
        while let Some((_, number)) = self.unanswered.pop_front_if(|(at, _)| *at <= now) {
            if let Ok(stream) = self.stream_mut(number) {
                stream.say_pending();
            }
        }
    }

    fn retire_regions(&mut self, ids: Vec<u16>) {
        for id in ids {
            if let Err(error) = self.session.retire_region(id) {
                tracing::error!("region {id} cannot be retired: {error}");
            }
        }
    }
}
