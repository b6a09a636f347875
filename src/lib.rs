//! Moves Apache Arrow tables between processes, machines and GPUs without serialising them, by the
//! Dissociated IPC protocol.
//!
//! Layers, where imports point to the right only: `ffi` → `server`, `client`, `arena` → `driver` →
//! `transport`, `device`, `arrow`, `proto` → `error`.

pub mod arena;
pub mod arrow;
pub mod bare;
pub mod cancel;
pub mod client;
pub mod device;
pub mod driver;
pub mod error;
pub mod ffi;
pub mod fork;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod lines;
pub mod log;
pub mod proto;
pub mod server;
mod sync;
pub mod transport;
