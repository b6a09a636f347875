//! What the consumer of a stream wants.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the consumer of one stream wants. Any thread may ask for arrays; one thread gives them.
#[derive(Debug, Default)]
pub(super) struct Demand {
    /// Arrays that the consumer has asked for and was not given yet.
    wanted: AtomicU64,
    /// The consumer has asked for fewer than one array.
    is_wrong: AtomicBool,
    has_cancelled: AtomicBool,
}

impl Demand {
    /// Adds `n` arrays.
    pub(super) fn add(&self, n: i64) {
        match u64::try_from(n) {
            Ok(n @ 1..) => {
                let more = |wanted: u64| Some(wanted.saturating_add(n));
                let _ = (self.wanted).fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
            }
            _ => self.is_wrong.store(true, Ordering::Release),
        }
    }

    /// Counts one array as given, if the consumer wants one.
    pub(super) fn take_one(&self) -> bool {
        let less = |wanted: u64| wanted.checked_sub(1);
        let taken = (self.wanted).fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        taken.is_ok()
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong.load(Ordering::Acquire)
    }

    /// Notes that the consumer wants nothing any more. Returns whether this is new.
    pub(super) fn cancel(&self) -> bool {
        !self.has_cancelled.swap(true, Ordering::AcqRel)
    }

    pub(super) fn has_cancelled(&self) -> bool {
        self.has_cancelled.load(Ordering::Acquire)
    }
}
