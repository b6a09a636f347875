//! The end of a connection at a stop: at once, or so that the peer loses nothing of what was said.

use std::time::Duration;

use super::{End, EndEffects, EndLink, Writes};
use crate::driver::clock;
use crate::driver::turning::Turn as _;
use crate::error::Error;
use crate::proto::SenderState;

/// How long a baseline peer, which cannot be asked to close the connection, has for reading the
/// end.
const BASELINE_WAIT: Duration = Duration::from_millis(250);

impl EndLink {
    /// Ends the connection, telling the peer why where it is in a stream and can be told.
    pub fn cut(&self, error: &Error) {
        self.interfere(|served, effects| served.cut(error, effects));
    }

    /// Nothing more is sent, unless a stream is under way. Returns whether all that was sent
    /// outlives a [`cut`](Self::cut); where not, it is asked again.
    pub fn end_sending(&self) -> bool {
        let reads_on = self.profile().is_read_after_close;
        self.interfere(|served, effects| {
            if served.is_over() {
                true
            } else if served.session.is_under_way() {
                false
            } else if reads_on {
                served.connection.finish()
            } else {
                served.dismiss(effects)
            }
        })
    }
}

impl End {
    pub(super) fn cut(&mut self, error: &Error, effects: &mut EndEffects) {
        if self.is_over() {
            return;
        }
        // What is queued is written now, or never.
        self.writes = Writes::AtOnce;
        if self.session.is_extension() {
            for number in self.session.serving() {
                self.send_failure(number, error.status().code(), error.text(), effects);
            }
        }
        self.pump(effects);
        // The I/O thread may turn it no more, and a stream that was left keeps the connection.
        self.fail(error.clone(), effects);
    }

    /// Ends one of many streams, and tells its client why.
    pub(super) fn cut_stream(&mut self, number: u32, error: &Error, effects: &mut EndEffects) {
        if let Some(attached) = self.attached.get_mut(number) {
            effects.lost.extend(attached.watch.take());
            if let Some(mut outbound) = attached.outbound.take() {
                outbound.lost(error);
                effects.sent.push(outbound);
            }
        }
        self.send_failure(number, error.status().code(), error.text(), effects);
        // A host that waits for the client's table waits no more.
        if let Ok(stream) = self.stream_mut(number)
            && let Some(incoming) = stream.incoming_mut()
        {
            incoming.cancel();
        }
        self.stirred.add(number);
    }

    /// Has the peer end the connection, since what it has not read is lost once this side does.
    /// Returns whether it need not be waited for.
    fn dismiss(&mut self, effects: &mut EndEffects) -> bool {
        let since = self.session.dismiss(clock::now());
        self.pump(effects);
        if self.session.is_extension() {
            return self.is_over();
        }
        let was_served = self.session.first().state() == SenderState::Ended;
        self.connection.finish() && (!was_served || clock::since(since) >= BASELINE_WAIT)
    }
}
