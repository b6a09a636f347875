//! A connection between two streams: who waits for the next request.

use super::{Effects, ServedLink};
use crate::driver::io::{Source as _, guarded};
use crate::proto::SenderState;

impl ServedLink {
    /// From now on the caller waits for the descriptor between two streams, and calls `ready`, until
    /// it [leaves](Self::leave); of a socket the I/O thread still sees the peer's end. Returns whether that
    /// is so.
    pub fn park(&self) -> bool {
        let mut effects = Effects::default();
        let (parked, timer, more) = {
            let mut half = self.half.lock();
            let more = half.stop_reading();
            let idle = half.sender.state() == SenderState::Idle && half.link.queued_bytes() == 0;
            half.parked = half.closed.is_none() && idle;
            self.pump(&mut half, &mut effects);
            // Where the next stream has begun, what it begins with needs that timer to leave.
            let timer = half.parked.then(|| half.cork.take_timer()).flatten();
            (half.parked, timer, more)
        };
        self.finish(effects);
        if let Some(timer) = timer {
            self.io.cancel(timer);
        }
        if more {
            self.io.call_soon(self.source());
        }
        parked
    }

    /// Reads what has come, on the thread that waited for it, and that then serves what is asked for, or parks the connection again
    /// or leaves it. Until it does so the I/O thread does not read beside it, as within a stream
    /// ([`read_along`](Self::read_along)), unless it takes its time: to tell the I/O thread of the connection is a system call
    /// before the answer.
    pub fn read_parked(&self) {
        {
            let mut half = self.half.lock();
            half.parked = false;
            half.read_by_thread();
        }
        // What has been asked for is answered whatever happens here.
        if !guarded(|| self.ready()) {
            guarded(|| self.panicked());
        }
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
