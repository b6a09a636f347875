//! What an I/O thread calls.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Something that an I/O thread wakes. Calls come from the I/O thread, one at a time.
pub trait Source: Send + Sync {
    /// One of the source's descriptors is ready, or was a moment ago; or the call asked for by
    /// [`IoThread::call_soon`](super::IoThread::call_soon) has come.
    fn ready(&self);

    /// A time asked for by [`IoThread::call_at`](super::IoThread::call_at) has come.
    fn timer(&self) {}

    /// A call to it panicked half-way: it is to go on no more.
    fn panicked(&self) {}
}

/// Runs a call to a source. A panic there is a bug of ours: it costs that source and no other one.
/// Returns whether there was none.
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
