//! The C API: every exported function of `libdipc.so` and nothing else.
//!
//! Each export is one call of a guard ([`guard`]) around code that turns pointers into references
//! and calls the crate. No panic leaves it, no output is written on failure, and an argument's
//! ownership moves only when the call returns `DIPC_OK`. `include/dipc.h` is generated from this
//! module; the doc comments are its documentation.

#![allow(
    non_camel_case_types,
    reason = "types of the C API have the names that C programs see: dipc_server, dipc_status"
)]

#[macro_use]
mod handle;
mod cancel;
mod error;
mod foreign;
mod guard;
mod library;
mod loan;
mod log;
mod status;
mod text;

pub use cancel::*;
pub use error::*;
pub use foreign::dipc_finalizer;
pub use library::*;
pub use log::*;
pub use status::*;
