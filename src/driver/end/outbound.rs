//! Streams that the turns of a connection send, whoever turns it.

use super::{End, EndEffects};
use crate::error::Error;

/// How far a turn has come with a stream that this end sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The client's credit is used.
    Waits,
    /// The bounds of a turn are reached, or too much waits to be written.
    Soon,
    /// The stream has ended, well or not.
    Over,
}

/// A stream that this end sends.
pub trait Outbound: Send {
    /// Sends what can be sent now.
    fn advance(&mut self, end: &mut End, effects: &mut EndEffects) -> Progress;

    /// How many messages were sent after the schema; `None` before the stream was accepted.
    fn sent(&self) -> Option<usize>;

    /// The stream ends early.
    fn lost(&mut self, error: &Error);
}

/// What is done once no lock is held.
pub type Afterwards = Box<dyn FnOnce() + Send>;
