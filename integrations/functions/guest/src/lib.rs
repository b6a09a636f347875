//! Functions that a libdipc server runs on the batches of its tables, where they lie.
//!
//! A client sends a WebAssembly module once and names one of its functions in a request. A module
//! has a type for each function, with the trait [`Function`], and [`functions!`] once:
//!
//! ```
//! use dipc_guest::arrow_array::RecordBatch;
//! use dipc_guest::arrow_schema::Schema;
//! use dipc_guest::{Function, Out, Output, Result};
//!
//! /// Gives the first row of each batch.
//! struct First;
//!
//! impl Function for First {
//!     fn init(_arguments: &[u8], input: Option<&Schema>) -> Result<(Self, Output)> {
//!         let input = input.ok_or("a table is needed")?;
//!         Ok((First, Output::table(input.clone())))
//!     }
//!
//!     fn process(&mut self, batch: &RecordBatch, out: &mut Out) -> Result<()> {
//!         out.emit(&batch.slice(0, batch.num_rows().min(1)))?;
//!         Ok(())
//!     }
//! }
//!
//! dipc_guest::functions! { "first" => First }
//! ```
//!
//! Modules are built for `wasm32-unknown-unknown`, as a `cdylib`. Elsewhere the macro exports
//! nothing, and [`testing`] runs a function in a test of its author.
//!
//! # Input is borrowed
//!
//! A batch lies in memory that the server writes anew after [`Function::process`] has returned. A
//! function that keeps data for later copies it ([`copy_batch`], [`copy_array`]). One that keeps a
//! part of a batch without a copy fails when the call returns, and none of its code runs again.
//!
//! # Errors and panics
//!
//! The text of an error, and of a panic, is what the client gets.

mod call;
mod copy;
mod entry;
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod exports;
mod function;
mod loan;
mod out;
pub mod testing;

pub use arrow_array;
pub use arrow_schema;

pub use copy::{copy_array, copy_batch};
#[doc(hidden)]
pub use entry::Entry;
pub use function::{Function, Output, Result};
pub use out::{NoHop, Out};
