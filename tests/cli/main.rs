//! The `dipc` command in processes of its own: what crosses, what it says, how it ends.

mod ends;
mod support;
mod tables;
mod usage;
