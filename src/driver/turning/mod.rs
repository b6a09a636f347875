//! Turning a connection: reading, writing and upkeep, by one owner at a time.
//!
//! [`Link`] holds one connection of a server or of a client under its lock. One function turns the
//! connection, [`Turn::turn`], for every transport and both ends. Its callers are the I/O thread,
//! which owns the connection while nobody holds the [`Turner`], and the holder of that token.

mod guests;
mod link;
mod ownership;
mod turner;

use smallvec::SmallVec;

pub use link::Link;
pub use turner::Turner;

use crate::driver::waiting::{Cause, Wants};
use crate::error::Error;
use crate::proto::Timestamp;

/// While more bytes than this wait to be written outside a stream, the peer sends requests but does
/// not read the answers.
pub const ANSWERS_HIGH_WATER_BYTES: u64 = 1 << 20;

/// The most messages that one turn reads, and produces, before other connections get a turn and a
/// consumer looks at its token.
pub const TURN_MESSAGES: usize = 64;
/// The most bytes of bodies that one turn reads, copies, or writes. This few bytes still lie in a
/// cache when they are used.
pub const TURN_BYTES: u64 = 256 << 10;

/// Streams of a connection for which something has changed.
#[derive(Debug, Default)]
pub struct Stirred {
    /// Their numbers.
    pub numbers: SmallVec<[u32; 4]>,
    /// Streams for which a time has come.
    pub late: SmallVec<[u32; 1]>,
    /// All streams have changed.
    pub all: bool,
}

impl Stirred {
    /// Whether no stream has changed.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.late.is_empty() && !self.all
    }

    /// Adds a stream.
    #[inline]
    pub fn add(&mut self, number: u32) {
        if self.numbers.last() != Some(&number) {
            self.numbers.push(number);
        }
    }
}

/// One end of a connection: the state that only the owner changes.
pub trait Turn: Send + Sized + 'static {
    /// What does not need the lock.
    type Context: Send + Sync;
    /// The effects of a turn, which are carried out once the lock is released.
    type Effects: Default;

    /// One turn: writes, reads and answers as much as is possible without blocking and within the
    /// bounds of a turn.
    fn turn(&mut self, cause: Cause, effects: &mut Self::Effects) -> Wants;

    /// Whether no turn is needed now: nothing waits to be written, sent or reported, and an event
    /// announces each message that comes. False if this is not known.
    fn is_quiet(&self) -> bool {
        false
    }

    /// What the I/O thread does in place of a holder that is in the host's code.
    fn turn_as_deputy(&mut self, cause: Cause, effects: &mut Self::Effects) -> Wants {
        self.turn(cause, effects)
    }

    /// What an owner would wait for now.
    fn wants(&self) -> Wants;

    /// Does the upkeep that is due at `now`, whoever owns the connection.
    fn upkeep(&mut self, now: Timestamp, effects: &mut Self::Effects);

    /// When the next upkeep is due.
    fn next_upkeep(&self) -> Option<Timestamp>;

    /// Ends the connection, because it cannot be watched or a turn of it panicked.
    fn fail(&mut self, error: Error, effects: &mut Self::Effects);

    /// Whether the connection is over.
    fn is_over(&self) -> bool;

    /// The streams that have changed since the last call, so that their tokens can be informed.
    fn take_stirred(&mut self) -> Stirred {
        Stirred::default()
    }

    /// Whether a change of the stream is news for its guest.
    fn has_news(&self, number: u32) -> bool {
        let _ = number;
        true
    }

    /// The last guest of a stream is gone; for a connection that carries many streams.
    fn leave(&mut self, number: u32, effects: &mut Self::Effects) {
        let _ = (number, effects);
    }

    /// The I/O thread turns the connection soon, and will write what is queued until then.
    fn leave_writes(&mut self) {}

    /// Sends what waits to be sent. Called before a connection that nothing needs is dropped.
    fn let_go(&mut self);

    /// Carries out the effects of a turn. No lock of a connection is held.
    fn settle(link: &std::sync::Arc<Link<Self>>, effects: Self::Effects);
}
