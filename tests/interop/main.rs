//! Tables of every type and shape between a server and a client: the vectors of `tests/vectors` and
//! the golden streams of Arrow's own integration tests (`DIPC_GOLDEN`), compared with arrow-rs's
//! reading of the same files; and replays of broken files.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too, which clippy takes for other code"
)]

#[path = "../common/mod.rs"]
mod common;
mod crossing;
mod files;
mod hostile;
mod made;
mod peer;
mod replay;
mod sending;

use std::sync::atomic::{AtomicU64, Ordering};

/// An abstract name that no other test uses.
fn name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("dipc-interop-{}-{number}", std::process::id())
}
