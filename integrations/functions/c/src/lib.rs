//! `libdipc_functions.so`: functions that travel to tables, for programs over libdipc's C API. The
//! header `dipc_functions.h` documents it.
//!
//! It does what the crate `libdipc-functions` does for Rust, by the calls of `libdipc.so` alone, so
//! that it works with the handles of any program: the process has one libdipc.
//!
//! - [`policy`]: what an operator allows.
//! - [`server`]: the middleware that runs functions.
//! - [`module`], [`message`]: what a client sends.
//! - `stream`: Arrow's streams, in and out as record batches.
//! - `sys`: the calls of libdipc; `calls`: safe names for them.
//! - `error`: failures, and the boundary where they and panics end.

#![allow(
    non_camel_case_types,
    reason = "the types of the header have the names of C"
)]

mod arguments;
mod calls;
mod chain;
mod error;
mod files;
pub mod message;
pub mod module;
pub mod policy;
pub mod server;
mod stream;
mod sys;
