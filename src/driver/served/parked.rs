//! A connection between two streams and at the beginning of one: who waits for the next request, and
//! what the first batch has to do with the schema.

use std::time::Duration;

use super::{Effects, ServedLink};
use crate::driver::clock;
use crate::proto::SenderState;

/// How long a schema waits for the first batch, give or take the system's timers (a millisecond).
const BRIEF: Duration = Duration::from_micros(200);

impl ServedLink {
    /// From now on the caller waits for the descriptor between two streams, and calls `ready`, until
    /// it [leaves](Self::leave); the I/O thread goes on looking for the peer's end. Returns whether
    /// that is so.
    pub fn park(&self) -> bool {
        let mut effects = Effects::default();
        let parked = {
            let mut half = self.half.lock();
            let idle = half.sender.state() == SenderState::Idle && half.link.queued_bytes() == 0;
            half.parked = half.closed.is_none() && idle && self.readiness.socket;
            self.pump(&mut half, &mut effects);
            half.parked
        };
        self.finish(effects);
        parked
    }

    /// The I/O thread waits for the descriptor again.
    pub fn leave(&self) {
        let mut effects = Effects::default();
        {
            let mut half = self.half.lock();
            half.parked = false;
            self.pump(&mut half, &mut effects);
        }
        self.finish(effects);
    }

    /// As [`cork`](Self::cork), for a moment, in which the caller may call the host: the schema then
    /// leaves with the first batch, if that comes at once, and the client is woken once. On the I/O
    /// thread.
    pub fn cork_briefly(&self) {
        let until = clock::after(BRIEF);
        {
            let mut half = self.half.lock();
            half.corked = true;
            half.uncork_at = Some(until);
        }
        self.io.call_at(until, self.source());
    }

    /// Writes what has waited for a first batch long enough.
    pub(super) fn uncork_when_due(&self) {
        let due = {
            let half = self.half.lock();
            half.uncork_at.is_some_and(|at| clock::now() >= at)
        };
        if due {
            self.uncork();
        }
    }
}
