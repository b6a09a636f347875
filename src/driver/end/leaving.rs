//! The end of a connection at a stop: at once, or such that the peer loses nothing that was sent.

use std::time::Duration;

use super::{End, EndEffects, EndLink, Writes};
use crate::driver::clock;
use crate::driver::turning::Turn as _;
use crate::error::Error;
use crate::proto::SenderState;

/// How long a baseline peer has to read the end. It cannot be asked to close the connection.
const BASELINE_WAIT: Duration = Duration::from_millis(250);

impl EndLink {
    /// Ends the connection. A peer that is in a stream, and that can be told, learns the reason.
    pub fn cut(&self, error: &Error) {
        self.interfere(|served, effects| served.cut(error, effects));
    }

    /// Ends sending, unless a stream is under way. Returns true if a [`cut`](Self::cut) loses
    /// nothing that was sent. If false, the caller asks again.
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
        // The queue is written now, because this connection may get no later turn.
        self.writes = Writes::AtOnce;
        if self.session.is_extension() {
            for number in self.session.serving() {
                self.send_failure(number, error.status().code(), error.text(), effects);
            }
        }
        self.pump(effects);
        // The I/O thread may not turn the connection again, and a stream that its consumer left
        // would keep the connection alive.
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
        // Wakes a host that waits for the client's table.
        if let Ok(stream) = self.stream_mut(number)
            && let Some(incoming) = stream.incoming_mut()
        {
            incoming.cancel();
        }
        self.stirred.add(number);
    }

    /// Asks the peer to end the connection, because an end by this side loses what the peer has not
    /// read. Returns true if there is no need to wait for the peer.
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
