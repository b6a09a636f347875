//! Moves Apache Arrow tables between processes, machines and GPUs without serialising them, by the
//! Dissociated IPC protocol.
//!
//! Layers, imports pointing down only: `ffi` → `server`, `client`, `arena` → `driver` →
//! `transport`, `device`, `arrow`, `proto` → `error`.

pub mod arena;
pub mod arrow;
pub mod device;
pub mod error;
pub mod fork;
pub mod proto;
