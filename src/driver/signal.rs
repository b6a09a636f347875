//! Something has changed: wakes the thread that drives one stream.

use parking_lot::{Condvar, Mutex};

use crate::driver::clock;
use crate::proto::Timestamp;

/// Whoever drives a stream and is told of changes: credit, room, the end of the connection.
pub trait Wake: Send + Sync {
    /// Something changed. No lock of a connection is held.
    fn notify(&self);

    /// The client has gone or has cancelled; [`notify`](Self::notify) follows. No lock of a
    /// connection is held.
    fn lost(&self) {}

    /// Whether that wakes a thread of the stream's own, and no more.
    fn wakes_a_thread(&self) -> bool {
        false
    }
}

/// A counter of changes that can be waited for.
///
/// A waiter reads the counter, looks at whatever state it cares about, and waits for the counter to
/// move on: a change between the look and the wait is not missed, although the state lies behind
/// other locks.
#[derive(Debug, Default)]
pub struct Signal {
    changes: Mutex<u64>,
    moved: Condvar,
}

impl Signal {
    /// The counter now.
    pub fn changes(&self) -> u64 {
        *self.changes.lock()
    }

    /// Sleeps until the counter differs from `seen` or the deadline passes. Returns whether it
    /// differs.
    pub fn wait(&self, seen: u64, deadline: Option<Timestamp>) -> bool {
        let mut changes = self.changes.lock();
        while *changes == seen {
            match deadline {
                None => self.moved.wait(&mut changes),
                Some(deadline) => {
                    let left = clock::until(deadline);
                    if left.is_zero() {
                        return false;
                    }
                    self.moved.wait_for(&mut changes, left);
                }
            }
        }
        true
    }
}

impl Wake for Signal {
    fn notify(&self) {
        *self.changes.lock() += 1;
        self.moved.notify_all();
    }

    fn wakes_a_thread(&self) -> bool {
        true
    }
}
