//! A communicator: tables among ranks, collectively.

pub mod machine;
