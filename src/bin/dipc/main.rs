//! The `dipc` command.
fn main() {}
