//! Runs functions of WebAssembly modules on Arrow record batches, within bounds.
//!
//! A module is code of somebody who is not trusted. It reaches nothing of the host: it has its own
//! memory, and three functions of the host to put out and to fail. Its time, memory and output are
//! bounded ([`Limits`]), and all that it puts out is checked and copied.
//!
//! - [`Sandbox`] compiles modules, [`Modules`] keeps them.
//! - [`Module::start`] begins a function on a table, or without one.
//! - [`Running::process`] gives it a batch and returns what it puts out; [`Running::finish`] ends
//!   the table.
//! - [`Error`] tells whose fault an end was. It ends that call alone.

mod error;
mod host;
mod limits;
mod module;
mod modules;
mod running;
mod sandbox;
mod ticker;
mod wasm32;

pub use error::{Bound, Error, Result};
pub use limits::{Limits, Options};
pub use module::Module;
pub use modules::{Modules, ModulesOptions};
pub use running::{Canceller, Outputs, Running};
pub use sandbox::Sandbox;
