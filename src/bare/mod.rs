//! The protocol without a transport, a clock or threads: the state machines of [`crate::proto`]
//! joined with Arrow arrays, for hosts that move messages themselves.
//!
//! A host hands in what arrives, sends what `poll_transmit` gives until it gives nothing, and says
//! what time it is. [`BareSender`] is one connection of a server, [`BareReceiver`] one stream of a
//! client.

mod message;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use message::{MessageClass, WireMessage};
pub use receiver::{BareReceiver, NextBatch, OpenMemory};
pub use sender::BareSender;
