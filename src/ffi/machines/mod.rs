//! Senders and receivers: the protocol for hosts that carry the messages themselves.
//! `include/dipc_machines.h` is generated from this folder.

mod message;
mod receiver;
mod receiver_output;
mod sender;
mod sender_request;
mod sender_state;

pub use message::*;
pub use receiver::*;
pub use receiver_output::*;
pub use sender::*;
pub use sender_request::*;
pub use sender_state::*;
