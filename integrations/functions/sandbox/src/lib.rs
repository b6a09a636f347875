//! Runs functions of WebAssembly modules on Arrow record batches, within bounds.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use arrow::array::{ArrayRef, Int64Array, RecordBatch};
//! use dipc_sandbox::{Limits, Options, Sandbox};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let column: ArrayRef = Arc::new(Int64Array::from(vec![40, 2]));
//! # let batch = RecordBatch::try_from_iter([("price", column)])?;
//! # let (schema, batches) = (batch.schema(), [batch]);
//! let sandbox = Sandbox::new(Options::default())?;
//! let module = sandbox.compile(&std::fs::read("filters.wasm")?)?;
//!
//! let mut function = module.start("at_least", b"40", Some(&schema), &Limits::default())?;
//! println!("{}", function.schema());
//! for batch in &batches {
//!     for output in function.process(batch)? {
//!         println!("{} rows", output.num_rows());
//!     }
//! }
//! let _rest = function.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Sandbox`] compiles modules, [`Modules`] keeps them.
//! - [`Module::start`] begins a function on a table, or without one.
//! - [`Running::process`] gives it a batch and returns what it puts out; [`Running::finish`] ends
//!   the table.
//! - [`service`] joins them for a server: who may run which module.
//! - [`Error`] tells whose fault an end was. It ends that call alone.
//!
//! # What a module can do
//!
//! A module is code of somebody who is not trusted. It has its own memory, and four functions of
//! the host: to put out a batch, to put out bytes, to give the text of a failure, and to name the
//! server where the call shall go on. It has no clock, no files, no network and no threads: the
//! host decides whether a call goes on. Its instructions, time, memory and output are
//! bounded ([`Limits`]). All that it puts out is checked and copied. Each call has an instance of
//! its own, and nothing of it outlives the call.
//!
//! These remain for the host to bound: how many calls run at once, and who may have how many
//! modules compiled, for compilation is bounded by the size of a module alone.
//!
//! # The interface of a module
//!
//! Version 1. All parameters and results are i32; pointers are into the module's memory.
//!
//! ```text
//! exports
//!   memory                                      one, of 32 bits, not shared
//!   dipc_abi_version() -> 1
//!   dipc_alloc(length, alignment) -> pointer    memory for the host's input; 0: none is left
//!   dipc_free(pointer, length, alignment)
//!   dipc_init(name, name_length, arguments, arguments_length, input, output) -> code
//!                                               begins a function
//!   dipc_process(array) -> code                 takes a batch, which lives during the call
//!   dipc_finish() -> code                       takes the end of the input
//!
//! imports of "dipc"
//!   emit(array) -> enough                       puts out a batch; 1: nobody needs more
//!   emit_bytes(bytes, length) -> enough         puts out a value, if the output is bytes
//!   fail(text, length)                          tells of the failure that is returned next
//!   forward(uri, uri_length, descriptor, descriptor_length, state, state_length) -> over
//!                                               has the call go on elsewhere; 1: it may not
//! ```
//!
//! A module need not import all of them, and no others. `emit` and `emit_bytes` belong into
//! `dipc_process` and `dipc_finish`, and the host has copied what they point to when they return.
//! A code is 0, or any other number for a failure.
//!
//! `forward` belongs there too. Once `dipc_finish` has returned 0, the same function of the same
//! module runs at the server at `uri` (UTF-8, at most 4 KiB), on its table `descriptor` (at most
//! 64 KiB; none: on no table), with `state` (at most 48 KiB) as its arguments. Its output follows
//! this one's and has the same schema. A call goes on at one server: another `forward` after a 0
//! ends it with an error. A function that fails without a text after a 1 has reached the bound
//! of hops.
//!
//! `dipc_init` gets the ArrowSchema of the input, 0 in a call without a table, and an ArrowSchema
//! of zeros, into which it writes the schema of its output, a struct. Left as it is, the output is
//! bytes. The host reads it when `dipc_init` returns. A batch is an ArrowArray of a struct.
//!
//! The structs are those of Arrow's C data interface for 32-bit processors: an ArrowSchema has 48
//! bytes, an ArrowArray 64. Buffers of the input are aligned to 64 bytes. `release` is 0 in the
//! host's structs, and the host does not call that of the module's.

mod error;
mod forward;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod limits;
mod memory;
mod module;
mod modules;
mod running;
mod sandbox;
pub mod service;
mod ticker;
mod wasm32;

pub use error::{Bound, Error, Result};
pub use forward::Forward;
pub use limits::{Limits, Options};
pub use memory::{HostFile, HostFiles};
pub use module::Module;
pub use modules::{Modules, ModulesOptions};
pub use running::{Canceller, Outputs, Running};
pub use sandbox::Sandbox;
