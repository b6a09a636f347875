//! The `dipc` command.
mod calm;
mod checksum;
mod source;
mod tpch;
mod verify;
fn main() {}
