//! Histograms that several threads fill without locks.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::driver::figures::sums;

/// Buckets of a histogram.
pub const BUCKETS: usize = 130;

/// The first bound is 2^`FIRST`: 256 nanoseconds, or bytes.
const FIRST: u32 = 8;
/// The last bound is 2^`LAST`: 18 minutes, or 1 TiB.
const LAST: u32 = 40;
/// Each power of two has 2^`PARTS` buckets of the same width.
const PARTS: u32 = 2;

const _: () = assert!(BUCKETS == ((LAST - FIRST) << PARTS) as usize + 2);

/// The largest value that bucket `index` counts; `u64::MAX` for the last bucket, and beyond.
pub const fn upper_bound(index: usize) -> u64 {
    if index + 1 >= BUCKETS {
        return u64::MAX;
    }
    if index == 0 {
        return 1 << FIRST;
    }
    let octave = FIRST as usize + ((index - 1) >> PARTS);
    let part = ((index - 1) & ((1 << PARTS) - 1)) as u64;
    (1 << octave) + ((part + 1) << (octave - PARTS as usize))
}

/// The bucket that counts `value`.
fn bucket_of(value: u64) -> usize {
    // A bound belongs to the bucket below it.
    let below = value.saturating_sub(1);
    let Some(octave) = below.checked_ilog2().filter(|octave| *octave >= FIRST) else {
        return 0;
    };
    if octave >= LAST {
        return BUCKETS - 1;
    }
    let part = (below >> (octave - PARTS)) & ((1 << PARTS) - 1);
    // Both numbers are small.
    1 + ((((octave - FIRST) << PARTS) as usize) | part as usize)
}

/// How often values came, by size.
#[derive(Debug)]
pub struct Histogram {
    sum: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            sum: AtomicU64::new(0),
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }
}

impl Histogram {
    /// Counts a value.
    pub fn observe(&self, value: u64) {
        self.sum.fetch_add(value, Relaxed);
        if let Some(bucket) = self.buckets.get(bucket_of(value)) {
            bucket.fetch_add(1, Relaxed);
        }
    }
}

/// A histogram at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSums {
    /// How many values came.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// How many came for each bucket; [`upper_bound`] says which.
    pub buckets: [u64; BUCKETS],
}

sums!(HistogramSums {
    count,
    sum,
    buckets
});

impl HistogramSums {
    /// Adds what came for another histogram.
    pub fn add(&mut self, other: &Histogram) {
        self.sum = self.sum.wrapping_add(other.sum.load(Relaxed));
        for (sum, bucket) in self.buckets.iter_mut().zip(&other.buckets) {
            let came = bucket.load(Relaxed);
            *sum += came;
            self.count += came;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::figures::Sum as _;

    /// Promise: bounds rise, and each value is counted by the first bucket whose bound it does not
    /// exceed.
    #[test]
    fn a_bound_belongs_to_its_bucket() {
        for index in 1..BUCKETS {
            let (below, bound) = (upper_bound(index - 1), upper_bound(index));
            assert!(below < bound, "{index}");
            assert_eq!(bucket_of(below), index - 1);
            assert_eq!(bucket_of(below + 1), index);
            assert_eq!(bucket_of(bound), index);
        }
        assert_eq!(bucket_of(0), 0);
        assert_eq!(upper_bound(BUCKETS - 2), 1 << 40);
        assert_eq!(upper_bound(usize::MAX - 1), u64::MAX);
    }

    /// Promise: within the bounds a bucket is at most a fifth wider than its values.
    #[test]
    fn buckets_are_narrow() {
        for index in 1..BUCKETS - 1 {
            let (below, bound) = (upper_bound(index - 1), upper_bound(index));
            assert!(bound - below <= below / 4, "{index}");
        }
    }

    /// Promise: the count is that of all buckets, and sums add up.
    #[test]
    fn sums_add_up() {
        let histogram = Histogram::default();
        for value in [0, 256, 257, 1 << 40, u64::MAX >> 1] {
            histogram.observe(value);
        }
        let mut sums = HistogramSums::default();
        sums.add(&histogram);
        assert_eq!((sums.count, sums.buckets[0], sums.buckets[1]), (5, 2, 1));
        let mut twice = sums;
        twice.add_sums(&sums);
        assert_eq!((twice.count, twice.buckets[BUCKETS - 1]), (10, 2));
    }
}
