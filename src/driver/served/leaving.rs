//! The end of a connection at a stop that has the time: the peer loses nothing of what was said.

use std::time::Duration;

use super::{Effects, Half, ServedLink};
use crate::driver::clock;
use crate::proto::SenderState;

/// How long a baseline peer, which cannot be asked to close the connection, has for reading the end.
const BASELINE_WAIT: Duration = Duration::from_millis(250);

impl ServedLink {
    /// Nothing more is sent, unless a stream is under way. Returns whether all that was sent outlives a
    /// [`cut`](Self::cut); where not, it is asked again.
    pub fn end_sending(&self) -> bool {
        let mut effects = Effects::default();
        let ended = {
            let mut half = self.half.lock();
            match half.sender.state() {
                _ if half.closed.is_some() => true,
                SenderState::Requested | SenderState::Streaming => false,
                _ if self.profile.is_read_after_close => half.link.finish(),
                _ => self.dismiss(&mut half, &mut effects),
            }
        };
        self.finish(effects);
        ended
    }

    /// Has the peer end the connection, since what it has not read is lost once this side does. Returns
    /// whether it need not be waited for.
    fn dismiss(&self, half: &mut Half, effects: &mut Effects) -> bool {
        let is_first = half.dismissed_at.is_none();
        let since = *half.dismissed_at.get_or_insert_with(clock::now);
        if half.sender.is_extension() {
            if is_first {
                // It fails only where the connection is over.
                let _ = half.sender.go_away();
                self.pump(half, effects);
            }
            return half.closed.is_some();
        }
        let was_served = half.sender.state() == SenderState::Ended;
        half.link.finish() && (!was_served || clock::since(since) >= BASELINE_WAIT)
    }
}
