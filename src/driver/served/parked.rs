//! A connection between two streams: who waits for the next request.

use super::{Effects, ServedLink};
use crate::proto::SenderState;

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
}
