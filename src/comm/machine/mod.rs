//! The pure part of the communicator: who sends what to whom, who meets, who has failed. No unsafe
//! code, clock, I/O or threads.
//!
//! [`Meeting`] seats the processes that come, by their [`Card`]s. [`Layout`] says which ranks share
//! a host, and [`Tree`] and [`Routes`] follow from it. [`Converge`] tells small values of all ranks
//! to all ranks. [`Vigil`] finds out that a rank has died or has stopped.
//!
//! Call order: call `handle_*` for each input, or a command. After each such call, call
//! `poll_message` until `None`, then `poll_timeout`.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
// A panic in a test shows a failure.
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)
)]

mod card;
mod converge;
mod layout;
mod meeting;
mod message;
mod ranges;
mod routes;
mod text;
mod tree;
mod vigil;

pub use card::Card;
pub use converge::Converge;
pub use layout::{Layout, MOST_RANKS, Rank};
pub use meeting::{Meeting, Verdict};
pub use message::{Failure, Message};
pub use ranges::ranges;
pub use routes::{InletRoute, Pattern, Routes};
pub use tree::Tree;
pub use vigil::Vigil;

#[cfg(test)]
mod tests;
