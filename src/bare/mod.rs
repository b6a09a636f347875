//! The protocol without a transport, a clock or threads: the state machines of [`crate::proto`]
//! together with Arrow arrays, for hosts that carry the messages themselves.
//!
//! A host hands in each arriving message, sends the messages of `poll_transmit` until it gives
//! `None`, and passes the time. [`BareSender`] is one connection of a server, [`BareReceiver`] one
//! stream of a client.

mod lent;
mod message;
mod receiver;
mod request;
mod sender;
#[cfg(test)]
mod tests;

pub use lent::OpenMemory;
pub use message::{MessageClass, WireMessage};
pub use receiver::BareReceiver;
pub use sender::BareSender;
