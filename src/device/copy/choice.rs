//! Which of two ways to copy is the quicker one here: timed while it is used.
//!
//! It differs by a factor of two from processor to processor, either way round, and what a
//! machine's description says of its caches does not tell which.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// After so many copies the slower way is tried again: the machine may have other work now.
const TRY_EVERY: u32 = 128;
/// A copy that took longer than what is known counts for one of so many: it may have been
/// interrupted.
const SLOWER_COUNTS: u32 = 8;

/// A way to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMethod {
    /// Past the caches.
    Streaming,
    /// By the C library's `memcpy`.
    Cached,
}

/// What is known of copies of one size. Threads that note something at once may lose one of the
/// notes.
#[derive(Debug)]
// A line of the caches, so that threads that copy bodies of different sizes do not share one.
#[repr(align(64))]
pub(super) struct Choice {
    /// Picoseconds for a byte; 0 is not known.
    streaming: AtomicU32,
    cached: AtomicU32,
    copies: AtomicU32,
}

impl Choice {
    /// Nothing is known.
    pub(super) const fn new() -> Self {
        Self {
            streaming: AtomicU32::new(0),
            cached: AtomicU32::new(0),
            copies: AtomicU32::new(0),
        }
    }

    /// The quicker way, as far as is known.
    pub(super) fn best(&self) -> CopyMethod {
        let streaming = self.streaming.load(Ordering::Relaxed);
        let cached = self.cached.load(Ordering::Relaxed);
        if cached != 0 && cached < streaming {
            CopyMethod::Cached
        } else {
            CopyMethod::Streaming
        }
    }

    /// The way for the next copy, which is to be [noted](Self::note): the quicker one, or now and
    /// then the other.
    pub(super) fn next(&self) -> CopyMethod {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        if self.streaming.load(Ordering::Relaxed) == 0 {
            return CopyMethod::Streaming;
        }
        if self.cached.load(Ordering::Relaxed) == 0 {
            return CopyMethod::Cached;
        }
        match (self.best(), number.is_multiple_of(TRY_EVERY)) {
            (CopyMethod::Streaming, false) | (CopyMethod::Cached, true) => CopyMethod::Streaming,
            (CopyMethod::Cached, false) | (CopyMethod::Streaming, true) => CopyMethod::Cached,
        }
    }

    /// A copy of `len` bytes in one way has taken so long.
    pub(super) fn note(&self, way: CopyMethod, time: Duration, len: u64) {
        let known = match way {
            CopyMethod::Streaming => &self.streaming,
            CopyMethod::Cached => &self.cached,
        };
        let took = time.as_nanos().saturating_mul(1000) / u128::from(len.max(1));
        let took = u32::try_from(took).unwrap_or(u32::MAX).max(1);
        let before = known.load(Ordering::Relaxed);
        let now = if before == 0 || took <= before {
            took
        } else {
            // However long an interruption was.
            let took = took.min(before.saturating_mul(2));
            before + (took - before).div_ceil(SLOWER_COUNTS)
        };
        known.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies by what the choice says, on a machine where the ways take so long for 1,000 bytes.
    /// Returns how many were streamed.
    fn copies(choice: &Choice, count: u32, streaming: u64, cached: u64) -> u32 {
        let mut streamed = 0;
        for _ in 0..count {
            let way = choice.next();
            let time = match way {
                CopyMethod::Streaming => streaming,
                CopyMethod::Cached => cached,
            };
            streamed += u32::from(way == CopyMethod::Streaming);
            choice.note(way, Duration::from_nanos(time), 1000);
        }
        streamed
    }

    /// The quicker way is soon found and taken, whichever it is, and the other one when that has
    /// changed; a single copy that was interrupted changes nothing.
    #[test]
    fn the_quicker_way_is_taken() {
        let choice = Choice::new();
        assert_eq!(choice.best(), CopyMethod::Streaming);
        assert!(copies(&choice, 1000, 70, 50) < 20);
        assert_eq!(choice.best(), CopyMethod::Cached);
        choice.note(CopyMethod::Cached, Duration::from_secs(1), 1000);
        assert_eq!(choice.best(), CopyMethod::Cached);
        // The machine has changed.
        copies(&choice, 1000, 70, 90);
        assert!(copies(&choice, 1000, 70, 90) > 980);
        let choice = Choice::new();
        assert!(copies(&choice, 1000, 50, 70) > 980);
    }

    /// What takes no time that a clock shows, and nothing at all, are no divisions by zero.
    #[test]
    fn the_shortest_copies_count() {
        let choice = Choice::new();
        choice.note(CopyMethod::Cached, Duration::ZERO, 0);
        choice.note(CopyMethod::Streaming, Duration::from_nanos(1), 1000);
        assert_eq!(choice.best(), CopyMethod::Streaming);
    }
}
