//! Moves Apache Arrow tables between processes, machines and GPUs without serialising them, by
//! Arrow's Dissociated IPC protocol.
//!
//! One process serves a table, another gets it. Between processes of one machine the reader's
//! record batches lie in the server's own memory; between machines each buffer goes from the
//! sender's memory into the reader's.
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{ArrayRef, Int64Array, RecordBatch};
//!
//! let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! let batch = RecordBatch::try_from_iter([("n", column)])?;
//!
//! // In one process:
//! let server = dipc::Server::new()?;
//! server.publish("numbers", &batch.schema(), [batch.clone()])?;
//! let uri = server.listen("shm:@dipc-doc-first")?;
//!
//! // In another:
//! let client = dipc::Client::new()?;
//! for got in client.get(&uri, "numbers")? {
//!     assert_eq!(got?, batch);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is where
//!
//! - [`Client`] gets, puts, exchanges, describes and lists tables. [`Reader`] is a
//!   [`RecordBatchReader`](::arrow::record_batch::RecordBatchReader).
//! - [`Server`] publishes tables, calls a [`Provider`] for each request, and listens at shared
//!   memory (`shm:`), TCP (`tcp:`), TLS (`tls:`) and UCX (`ucx:`).
//! - [`DeviceArray`] is a batch in memory of the host or of a GPU, with Arrow's C structs.
//! - [`ipc`] reads messages of Arrow's IPC format that nobody has checked.
//! - [`Arena`] is memory that a server lends where it lies.
//! - [`Error`] has a [`Status`] for programs and a text for people.
//! - [`transports`] and [`devices`] say what works on this machine.
//! - [`crossing`] has record batches of other versions of `arrow`.
//!
//! # Features
//!
//! | Feature | Gives |
//! |---|---|
//! | `tls` (default) | `tls:` URIs, by rustls |
//! | `tokio`, `async-io` | `Client::get_async` and similar calls; with both, tokio in its runtime |
//! | `arrow-59`, `arrow-60` | [`crossing`] for that version of `arrow` |
//!
//! # Soundness
//!
//! A reader checks what a peer sends before it becomes a record batch. It checks all values of
//! peers of another user and of other machines, on a private copy. The values of a peer of the same
//! user are trusted, because such a peer could change this process's memory anyway: only lengths
//! and buffers are checked, and its memory is read where it lies. [`Level::Full`]
//! (`GetOptions::validation`, `ServerBuilder::put_validation`) checks and copies from every peer.
//!
//! # Stability
//!
//! What these pages show is the API. Other public items are hidden: they serve the C API, the
//! command and the tests, and may change at any time.

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/rust.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../docs/guide/tls.md")]
struct GuideToTls;

// docs/architecture.md has the layers. Imports point down only.
mod api;
#[doc(hidden)]
pub mod arena;
#[doc(hidden)]
pub mod arrow;
#[doc(hidden)]
pub mod bare;
#[doc(hidden)]
pub mod cancel;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod comm;
#[doc(hidden)]
pub mod device;
#[doc(hidden)]
pub mod driver;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod ffi;
#[doc(hidden)]
pub mod filter;
#[doc(hidden)]
pub mod fork;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[doc(hidden)]
pub mod lines;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod proto;
#[doc(hidden)]
pub mod server;
mod sync;
#[doc(hidden)]
pub mod transport;

#[doc(inline)]
pub use api::*;
#[doc(inline)]
pub use arena::{Arena, ArenaBuffer, ArenaFile, ArenaOptions};
#[doc(inline)]
pub use arrow::Compression;
#[doc(inline)]
pub use arrow::abi::{ArrowArray, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema};
#[doc(inline)]
pub use arrow::decode::Level;
#[doc(inline)]
pub use arrow::format::Metadata;
#[doc(inline)]
pub use cancel::Cancel;
#[doc(inline)]
pub use client::{ClientStats, PutStats, StreamStats};
#[doc(inline)]
pub use device::{DeviceKind, Target};
#[doc(inline)]
pub use error::{Advice, Error, Result, Status};
#[doc(inline)]
pub use filter::{
    Filter,
    build::{FilterBuilder, FilterExpression},
};
#[doc(inline)]
pub use proto::{Headers, Role, Selection, Verb};
#[doc(inline)]
pub use server::ServerStats;
#[doc(inline)]
pub use transport::{BodyPolicy, PeerCertificate, PeerIds};
