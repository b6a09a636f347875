//! Which way to copy the bodies that a client fetches is the quicker one for both processes.
//!
//! How long the copy takes does not tell: what goes past the caches may be written sooner and read later, and what is
//! written to the caches is taken from the client's, line by line, if the two processors share none. So a few bodies now and
//! then are copied in either way, and timed until they have been fetched. It is known for each connection, as it
//! differs by where the client runs, and for each power of two of bytes, as it differs by what the caches hold.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::device::copy::{BodyCopy, Way};

/// Bodies in a series. Only the second half counts: what the caches hold when it begins comes from the one before.
const SERIES: u32 = 32;
/// Bodies copied in the quicker way before both are timed anew: the first time, as what is measured when a stream begins is
/// of little worth, and the most, when it was the quicker one again and again. Processors of a virtual machine move.
const KEPT: RangeInclusive<u32> = 128..=4096;
/// The other way has to take less than so many percent of the time: the two are noisy.
const BETTER_PERCENT: u32 = 90;
/// Where bodies come one by one it is not seen when they have been fetched, and both take as long as the producer waits. Then
/// the other way is better if the copy alone takes less than so many percent. Should it be the wrong one, little is lost.
const BETTER_COPY_PERCENT: u32 = 60;

/// What is known of one connection.
#[derive(Debug, Default)]
pub(super) struct Ways(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By the power of two that a body has; as many as there was one for.
    sizes: Vec<Size>,
    /// When the last body was fetched.
    fetched: Option<Instant>,
}

/// Bodies of one size.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// The quicker way, as far as is known.
    best: Way,
    stage: Stage,
    /// Bodies for which the best way is kept next.
    kept: u32,
    /// Counts the series; bodies of an earlier one that are fetched late are not counted.
    series: u32,
    fetched: u32,
    sum: Cost,
    bytes: u64,
}

/// What bodies take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cost {
    /// Until they are fetched.
    all: Duration,
    /// Until they are copied.
    copy: Duration,
}

/// What the present series is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The best way is taken, and what it takes is not used.
    Kept,
    /// It is timed.
    Best,
    /// The other way is timed, beside what the best one took for a MiB.
    Other(Cost),
}

/// How one body is copied.
#[derive(Debug)]
pub struct Attempt {
    way: Way,
    size: usize,
    series: u32,
    began: Instant,
    copy: Duration,
}

impl Attempt {
    /// The copy itself, which is to begin now.
    pub fn copy(&self) -> BodyCopy {
        BodyCopy::by(self.way)
    }

    /// It is done.
    pub(super) fn copied(&mut self) {
        self.copy = self.began.elapsed();
    }
}

impl Ways {
    /// How to copy a body of `len` bytes now.
    pub(super) fn begin(&self, len: u64) -> Attempt {
        let size = len.checked_ilog2().unwrap_or(0) as usize;
        let mut state = self.0.lock();
        if state.sizes.len() <= size {
            state.sizes.resize(size + 1, Size::UNKNOWN);
        }
        let known = state.sizes[size];
        Attempt {
            way: known.way(),
            size,
            series: known.series,
            began: Instant::now(),
            copy: Duration::ZERO,
        }
    }

    /// A body of `len` bytes has been fetched, `now`.
    pub(super) fn fetched(&self, attempt: &Attempt, len: u64, now: Instant) {
        let mut state = self.0.lock();
        // Those before it were in its way.
        let began = state
            .fetched
            .map_or(attempt.began, |last| last.max(attempt.began));
        state.fetched = Some(now);
        let size = &mut state.sizes[attempt.size];
        if attempt.series == size.series {
            let cost = Cost {
                all: now.saturating_duration_since(began),
                copy: attempt.copy,
            };
            size.count(cost, len);
        }
    }
}

impl Cost {
    fn is_better_than(&self, other: &Self) -> bool {
        let is_as_good = self.all * BETTER_PERCENT < other.all * 100;
        self.all * 100 < other.all * BETTER_PERCENT
            || is_as_good && self.copy * 100 < other.copy * BETTER_COPY_PERCENT
    }
}

impl Size {
    const UNKNOWN: Self = Self {
        best: Way::Cached,
        stage: Stage::Best,
        kept: *KEPT.start(),
        series: 0,
        fetched: 0,
        sum: Cost {
            all: Duration::ZERO,
            copy: Duration::ZERO,
        },
        bytes: 0,
    };

    fn way(&self) -> Way {
        match self.stage {
            Stage::Kept | Stage::Best => self.best,
            Stage::Other(_) => self.best.other(),
        }
    }

    fn count(&mut self, cost: Cost, len: u64) {
        self.fetched += 1;
        let all = match self.stage {
            Stage::Kept => self.kept,
            Stage::Best | Stage::Other(_) => SERIES,
        };
        if self.stage != Stage::Kept && self.fetched > all / 2 {
            self.sum.all += cost.all;
            self.sum.copy += cost.copy;
            self.bytes += len;
        }
        if self.fetched == all {
            self.finish();
        }
    }

    /// The series is over, and the next one begins.
    fn finish(&mut self) {
        let for_a_mib = |time: Duration| time.mul_f64((1 << 20) as f64 / self.bytes.max(1) as f64);
        let took = Cost {
            all: for_a_mib(self.sum.all),
            copy: for_a_mib(self.sum.copy),
        };
        self.stage = match self.stage {
            Stage::Kept => Stage::Best,
            Stage::Best => Stage::Other(took),
            Stage::Other(best) => {
                if took.is_better_than(&best) {
                    self.best = self.best.other();
                    self.kept = *KEPT.start();
                } else {
                    self.kept = (self.kept * 2).min(*KEPT.end());
                }
                Stage::Kept
            }
        };
        self.series = self.series.wrapping_add(1);
        self.fetched = 0;
        self.sum = Cost::default();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Has bodies of a MiB fetched, one after the other. Returns how many were copied past the caches.
    fn bodies(
        ways: &Ways,
        now: &mut Instant,
        count: u32,
        streaming_us: u64,
        cached_us: u64,
    ) -> u32 {
        let mut streamed = 0;
        for _ in 0..count {
            let mut attempt = ways.begin(MIB);
            attempt.began = *now;
            let us = match attempt.way {
                Way::Streaming => streaming_us,
                Way::Cached => cached_us,
            };
            streamed += u32::from(attempt.way == Way::Streaming);
            *now += Duration::from_micros(us);
            ways.fetched(&attempt, MIB, *now);
        }
        streamed
    }

    /// The way in which bodies are there sooner is soon found, and the other one after the machine has changed; each is
    /// tried seldom where it is the slower one.
    #[test]
    fn the_way_that_is_quicker_for_both_is_taken() {
        let (ways, mut now) = (Ways::default(), Instant::now());
        let many = 20 * KEPT.end();
        let seldom = SERIES * 30;
        assert!(bodies(&ways, &mut now, many, 150, 100) < seldom);
        // The two were put on processors that share no cache.
        bodies(&ways, &mut now, many, 100, 300);
        assert!(bodies(&ways, &mut now, many, 100, 300) > many - seldom);
    }

    /// What is hardly better is noise; and what other sizes take says nothing.
    #[test]
    fn the_caches_are_left_only_for_much() {
        let (ways, mut now) = (Ways::default(), Instant::now());
        bodies(&ways, &mut now, 2 * SERIES, 95, 100);
        assert_eq!(ways.begin(MIB).way, Way::Cached);
        bodies(&ways, &mut now, KEPT.end() + 2 * SERIES, 80, 100);
        assert_eq!(ways.begin(MIB).way, Way::Streaming);
        assert_eq!(ways.begin(MIB / 4).way, Way::Cached);
    }

    /// Bodies that come one by one are all there when the next one comes: then the copy says which way is better.
    #[test]
    fn the_shorter_copy_is_taken_where_nothing_else_differs() {
        let (ways, mut now) = (Ways::default(), Instant::now());
        for _ in 0..2 * SERIES {
            let mut attempt = ways.begin(MIB);
            attempt.began = now;
            attempt.copy = Duration::from_micros(match attempt.way {
                Way::Streaming => 100,
                Way::Cached => 300,
            });
            now += Duration::from_millis(10);
            ways.fetched(&attempt, MIB, now);
        }
        assert_eq!(ways.begin(MIB).way, Way::Streaming);
    }

    /// Bodies that wait for those before them are not charged for that, and one that was made by an earlier series is not counted.
    #[test]
    fn a_body_counts_from_when_the_one_before_was_fetched() {
        let (ways, start) = (Ways::default(), Instant::now());
        let mut attempts: Vec<_> = (0..SERIES).map(|_| ways.begin(MIB)).collect();
        let late = ways.begin(MIB);
        for (number, attempt) in (1..).zip(&mut attempts) {
            attempt.began = start;
            ways.fetched(attempt, MIB, start + Duration::from_micros(100) * number);
        }
        let size = ways.0.lock().sizes[20];
        assert!(matches!(size.stage, Stage::Other(cost) if cost.all == Duration::from_micros(100)));
        ways.fetched(&late, MIB, start + Duration::from_secs(1));
        assert_eq!(ways.0.lock().sizes[20].fetched, 0);
    }
}
