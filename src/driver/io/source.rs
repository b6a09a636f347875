//! What an I/O thread calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something that an I/O thread wakes. Calls come from the I/O thread, one at a time.
pub trait Source: Send + Sync {
    /// One of the source's descriptors is ready, or was ready a moment ago; or this is the call
    /// asked for by [`IoThread::call_soon`](super::IoThread::call_soon).
    fn ready(&self);

    /// A time asked for by [`IoThread::call_at`](super::IoThread::call_at) has come.
    fn timer(&self) {}

    /// A call to it panicked half-way. It must not go on.
    fn panicked(&self) {}
}

/// Runs a call to a source. A panic there is a bug of ours, and stops only that source. Returns
/// false after a panic.
pub fn guarded(call: impl FnOnce()) -> bool {
    let done = catch_unwind(AssertUnwindSafe(call)).is_ok();
    if !done {
        tracing::error!("a call to a connection or a listener panicked: please report this bug");
    }
    done
}

/// [`guarded`], for a call to `source`, which is told of a panic.
pub(super) fn guarded_for(source: &dyn Source, call: impl FnOnce()) {
    if !guarded(call) {
        guarded(|| source.panicked());
    }
}
