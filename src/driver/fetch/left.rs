//! A stream that its consumer has left. The I/O thread reads it to its end, for the sake of its
//! connections.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Connections;
use super::inbound::Inbound;
use crate::driver::clock;
use crate::driver::end::{Afterwards, End, EndEffects, Leftover};
use crate::driver::turning::{Budget, Turn as _};
use crate::error::Error;
use crate::lines::Lines;
use crate::proto::{Side, Timestamp};

/// How long a server that has no reason to be silent is waited for (rule R5).
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);

/// How many messages a server may send of a stream that its consumer has left. It hears of that by
/// CANCEL, so that an honest one sends hardly more than is on its way.
const MOST_LEFT: usize = 1 << 20;

/// What becomes of connections once nothing of a stream is under way on them.
pub type Home = Box<dyn FnOnce(Connections) + Send>;

/// The stream, which its connections share until it is over. It keeps them alive, also without a
/// client.
pub struct Left(Mutex<Option<Box<LeftStream>>>);

/// What its consumer has left of a stream.
struct LeftStream {
    inbound: Inbound,
    home: Home,
    /// When the server last sent something, and how long it may be silent.
    heard: Timestamp,
    patience: Duration,
    /// How many messages it may still send.
    left: usize,
}

impl Left {
    /// Hands the connections of a stream over to the I/O thread, until the stream is over.
    pub(super) fn start(inbound: Inbound, mut connections: Connections, home: Home) {
        let patience = inbound.receiver.stall_timeout();
        let patience = patience.unwrap_or(SILENCE_TIMEOUT);
        let left = Arc::new(Self(Mutex::new(Some(Box::new(LeftStream {
            inbound,
            home,
            heard: clock::now(),
            patience,
            left: MOST_LEFT,
        })))));
        let mut is_cut = false;
        for (side, connection) in connections.iter_mut() {
            let left = Arc::clone(&left);
            connection.step(|end, _| {
                // A body that nobody wants is not announced either: it is thrown away.
                end.connection.forget_bodies();
                end.wake();
                end.keep_for(side, left);
                is_cut |= end.is_over();
            });
        }
        // Nobody may turn a connection any more that was cut meanwhile, and each keeps the stream.
        if is_cut && let Some(stream) = left.take() {
            stream();
        }
    }
}

impl Leftover for Left {
    fn turn(&self, side: Side, end: &mut End, budget: Budget, effects: &mut EndEffects) -> usize {
        let mut left = self.0.lock();
        let Some(stream) = left.as_deref_mut() else {
            end.forget_leftover();
            return 0;
        };
        let read = stream.inbound.turn(side, end, budget, effects);
        if read > 0 {
            stream.heard = clock::now();
        }
        stream.left = stream.left.saturating_sub(read);
        let is_endless = stream.left == 0 && !stream.inbound.is_over();
        if is_endless {
            end.close(endless(), effects);
        }
        if is_endless || stream.inbound.is_over() {
            end.forget_leftover();
            effects.over = left.take().map(afterwards);
        }
        read
    }

    fn deadline(&self) -> Option<Timestamp> {
        let left = self.0.lock();
        let stream = left.as_deref()?;
        Some(stream.heard.saturating_add(stream.patience))
    }

    fn end_silence(&self, now: Timestamp, effects: &mut EndEffects) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if let Some(stream) = self.0.lock().take() {
            static SAID: Lines = Lines::new();
            let silent = stream.patience;
            SAID.say(|more| {
                tracing::warn!(
                    "a cancelled stream is cut: its server has not said its end for \
                     {silent:?}{more}"
                );
            });
            effects.over = Some(afterwards(stream));
        }
    }

    fn take(&self) -> Option<Afterwards> {
        self.0.lock().take().map(afterwards)
    }
}

fn afterwards(stream: Box<LeftStream>) -> Afterwards {
    Box::new(move || stream.end())
}

fn endless() -> Error {
    Error::protocol(format!(
        // Rule E4: CANCEL is answered by ERROR.
        "the server goes on with a cancelled stream: {MOST_LEFT} messages came after it was left"
    ))
}

impl LeftStream {
    /// Gives the connections back where they can be used again. No lock of a connection is held.
    fn end(self) {
        let Self { inbound, home, .. } = self;
        if !inbound.is_settled() {
            inbound.close();
            return;
        }
        let links = &inbound.links;
        // The I/O thread owns them, which runs this.
        let Some(metadata) = links.metadata.take() else {
            return;
        };
        let data = links.data.as_ref().and_then(|link| link.take());
        let mut connections = Connections { metadata, data };
        for (_, connection) in connections.iter_mut() {
            connection.step(|end, _| {
                end.forget_leftover();
                end.end_receiving();
            });
        }
        home(connections);
    }
}
