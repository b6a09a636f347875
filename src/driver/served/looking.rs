//! A connection whose I/O thread looks: it is read without being asked to by its descriptor.

use super::{Effects, Half, ServedLink};
use crate::driver::io::Source as _;

impl ServedLink {
    /// Reads what has come, whatever the descriptor says. Returns whether there was something.
    pub(super) fn look_once(&self) -> bool {
        let mut effects = Effects::default();
        let moved = {
            // Whoever has it drives it on.
            let Some(mut half) = self.half.try_lock() else {
                return false;
            };
            if half.closed.is_some() {
                return false;
            }
            if !self.is_to_be_looked_at() {
                // By the thread of a stream it still may be.
                let looked_at = half.looked_at && !half.reading.is_by_thread();
                drop(half);
                if looked_at {
                    self.ready();
                }
                return false;
            }
            if !std::mem::replace(&mut half.looked_at, true) {
                half.link.wake();
            }
            let ways = |half: &Half| (half.link.queued_bytes(), half.link.moved());
            let (before, crowded) = (ways(&half), half.is_crowded());
            let more = self.receive(&mut half, false, &mut effects);
            if crowded && !half.is_crowded() {
                // Who waits for room has it now.
                effects.signal = half.signal.clone().or(effects.signal);
            }
            more || ways(&half) != before || !effects.is_none()
        };
        if moved {
            self.finish(effects);
        }
        moved
    }
}

impl Effects {
    /// Whether there is nothing to do.
    fn is_none(&self) -> bool {
        let Self {
            asked,
            given_up,
            signal,
            // Of the stream behind `signal`.
            lost: _,
            closed,
            timers,
        } = self;
        asked.is_none() && given_up.is_none() && signal.is_none() && !closed && timers.is_empty()
    }
}
