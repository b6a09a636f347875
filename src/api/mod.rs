//! The Rust API, which the crate's root re-exports. It uses the same parts as the C API: `client`,
//! `server` and `arena`. Here arrays become record batches of the `arrow` crate.
//!
//! | Files | Part |
//! |---|---|
//! | `client`, `parts`, `options`, `uris`, `description` | requests and their answers |
//! | `reader`, `put`, `device_array`, `arrays` | streams in and out |
//! | `ipc`, `uri` | messages and addresses from elsewhere |
//! | `server`, `server_options`, `provider`, `request`, `batches` | servers and what they send |
//! | `nonblocking`, `pulled`, `readiness`, `blocking` | the same for async programs |
//! | `capability` | what this machine has |
//! | `crossing` | record batches of other versions of `arrow` |
//! | `macros` | code that the types share |

#[macro_use]
mod macros;
mod arrays;
mod batches;
#[cfg(any(feature = "tokio", feature = "async-io"))]
mod blocking;
mod capability;
mod client;
pub mod crossing;
mod description;
mod device_array;
pub mod ipc;
#[cfg(any(feature = "tokio", feature = "async-io"))]
mod nonblocking;
mod options;
mod parts;
mod provider;
#[cfg(any(feature = "tokio", feature = "async-io"))]
mod pulled;
mod put;
mod reader;
#[cfg(any(feature = "tokio", feature = "async-io"))]
mod readiness;
mod request;
mod server;
mod server_options;
mod uri;
mod uris;

pub use batches::Batches;
pub use capability::{Capability, devices, transports};
pub use client::{Client, ClientBuilder};
pub use description::{Description, Endpoint};
pub use device_array::DeviceArray;
#[cfg(any(feature = "tokio", feature = "async-io"))]
pub use nonblocking::{AsyncPut, AsyncReader};
pub use options::{GetOptions, PutOptions};
pub use provider::Provider;
#[cfg(any(feature = "tokio", feature = "async-io"))]
pub use pulled::PulledRequest;
pub use put::Put;
pub use reader::Reader;
pub use request::Request;
pub use server::{Server, WeakServer};
pub use server_options::ServerBuilder;
pub use uri::Uri;
pub use uris::Uris;
