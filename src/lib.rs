//! Moves Apache Arrow tables between processes, machines and GPUs without serialising them, by the
//! Dissociated IPC protocol.
//!
//! Layers, imports pointing down only: `ffi` → `server`, `client`, `arena` → `driver` →
//! `transport`, `device`, `arrow`, `proto` → `error`.

pub mod arrow;
pub mod cancel;
pub mod device;
pub mod error;
pub mod ffi;
pub mod log;
pub mod proto;
