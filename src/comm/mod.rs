//! A communicator: tables among N processes, collectively.
//!
//! [`machine`] has the algorithms, without I/O; [`partition`] says which rank each row goes to.

pub mod machine;
pub mod partition;
