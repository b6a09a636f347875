//! Atomics of std, or of loom for the models of synchronisation (`tools/test-slow.sh loom`).

#[cfg(all(loom, test))]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(all(loom, test)))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
