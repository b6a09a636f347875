//! The operations, one a file: both sides of each, which know nothing of who runs them.

pub mod connect;
pub mod fetching;
pub mod filtering;
pub mod flight;
pub mod idle;
pub mod latency;
pub mod machine;
pub mod opening;
pub mod pushing;
pub mod putting;
pub mod shed;
