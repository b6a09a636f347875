//! Functions of modules, the kind ones and the hostile.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "in tests a panic is how a failure shows"
)]

mod calls;
mod forwards;
mod hostile;
mod kept;
mod lies;
mod mapped;
mod rows;
mod support;
mod types;
