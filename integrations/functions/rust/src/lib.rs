//! Functions that travel to the tables of libdipc's servers, and run where the tables lie.
//!
//! A client has a [`Module`] of WebAssembly and makes a [`Message`] of it: a function with its
//! arguments. It sends the message with a get (the server's table goes through the function), with a
//! put (the client's table does, before the server's host has it), with an exchange, or alone. The
//! module's code goes to a server once, when the server says that it lacks it.
//!
//! A function may go on at another server: one that follows pointers, for example, or the edges of a
//! graph whose tables lie on several. The server where it is follows, if its [`Policy`] lists the
//! other one ([`Policy::allow_peer`]), and passes the answer on.
//!
//! A server runs no functions until its operator [enables](enable) them with a [`Policy`].
//! docs/code-to-the-data.md shows this program:
//!
//! ```no_run
//! use dipc::{Client, Server};
//! use dipc_functions::{Message, Module, Policy, enable};
//!
//! # use arrow::array::{ArrayRef, Float64Array, RecordBatch};
//! # let prices: ArrayRef = std::sync::Arc::new(Float64Array::from(vec![8.5, 12.25]));
//! # let batch = RecordBatch::try_from_iter([("price", prices)])?;
//! # let (schema, batches) = (batch.schema(), [batch]);
//! // The server.
//! let module = Module::read("filter.wasm")?;
//! let server = Server::new()?;
//! server.publish("prices", &schema, batches)?;
//! enable(&server, Policy::new().allow_module(module.hash()))?;
//! let uri = server.listen("shm:@functions")?;
//!
//! // The client.
//! let message = Message::new(&module, "keep", b"price>9.5");
//! for batch in message.get(&Client::new()?, &uri, "prices")? {
//!     println!("{} rows", batch?.num_rows());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod chain;
mod files;
mod message;
mod module;
mod refusal;
mod server;

pub use dipc_sandbox::service::{Hash, Policy, signed_bytes};
pub use dipc_sandbox::{HostFile, HostFiles, Limits, ModulesOptions, Options};
pub use message::Message;
pub use module::Module;
pub use server::{enable, enable_with};
