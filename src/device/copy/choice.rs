//! The choice of the faster of two copy methods, timed during use.
//!
//! Either method can be faster, depending on the processor. A machine's description of its caches
//! does not tell which.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// After this many copies, the slower method is tried again, since the load may have changed.
const TRY_EVERY: u32 = 128;
/// A slower copy changes the average by one part in this number: it may have been interrupted.
const SLOWER_COUNTS: u32 = 8;

/// A method to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyMethod {
    /// Stores that bypass the caches.
    Streaming,
    /// The C library's `memcpy`.
    Cached,
}

/// The timings of copies of one size. Threads that note timings at the same time may lose one.
#[derive(Debug)]
// One cache line, so that threads that copy bodies of different sizes share no line.
#[repr(align(64))]
pub(super) struct Choice {
    /// Picoseconds for each byte; 0 if unknown.
    streaming: AtomicU32,
    cached: AtomicU32,
    copies: AtomicU32,
}

impl Choice {
    /// A choice without timings.
    pub(super) const fn new() -> Self {
        Self {
            streaming: AtomicU32::new(0),
            cached: AtomicU32::new(0),
            copies: AtomicU32::new(0),
        }
    }

    /// The faster method according to the timings.
    pub(super) fn best(&self) -> CopyMethod {
        let streaming = self.streaming.load(Ordering::Relaxed);
        let cached = self.cached.load(Ordering::Relaxed);
        if cached != 0 && cached < streaming {
            CopyMethod::Cached
        } else {
            CopyMethod::Streaming
        }
    }

    /// The method for the next copy: the faster one, or now and then the other. The caller
    /// [notes](Self::note) its timing.
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

    /// Notes the time of a copy of `len` bytes.
    pub(super) fn note(&self, method: CopyMethod, time: Duration, len: u64) {
        let known = match method {
            CopyMethod::Streaming => &self.streaming,
            CopyMethod::Cached => &self.cached,
        };
        let took = time.as_nanos().saturating_mul(1000) / u128::from(len.max(1));
        let took = u32::try_from(took).unwrap_or(u32::MAX).max(1);
        let before = known.load(Ordering::Relaxed);
        let now = if before == 0 || took <= before {
            took
        } else {
            // Bounds the effect of an interruption.
            let took = took.min(before.saturating_mul(2));
            before + (took - before).div_ceil(SLOWER_COUNTS)
        };
        known.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes copies on a machine with these nanoseconds for 1,000 bytes. Returns the number of
    /// streamed copies.
    fn copies(choice: &Choice, count: u32, streaming: u64, cached: u64) -> u32 {
        let mut streamed = 0;
        for _ in 0..count {
            let method = choice.next();
            let time = match method {
                CopyMethod::Streaming => streaming,
                CopyMethod::Cached => cached,
            };
            streamed += u32::from(method == CopyMethod::Streaming);
            choice.note(method, Duration::from_nanos(time), 1000);
        }
        streamed
    }

    /// The faster method is soon found, also after a change. A single interrupted copy changes
    /// nothing.
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

    /// A copy of no time or of no bytes causes no division by zero.
    #[test]
    fn the_shortest_copies_count() {
        let choice = Choice::new();
        choice.note(CopyMethod::Cached, Duration::ZERO, 0);
        choice.note(CopyMethod::Streaming, Duration::from_nanos(1), 1000);
        assert_eq!(choice.best(), CopyMethod::Streaming);
    }
}
