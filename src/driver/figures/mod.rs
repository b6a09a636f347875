//! Figures of streams: what they carried, how long it took, and how they ended.
//!
//! Streams with the same label share a [`Counters`], which they look up when they begin. A batch
//! then costs a few additions that wait for nobody.

mod histogram;
mod labels;
mod record;
mod stream;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use histogram::{BUCKETS, Histogram, HistogramSums, upper_bound};
pub use labels::{HANDLER, LABEL_BYTES, LIST, Labels, MOST_LABELS, OTHER, label_of};
pub use record::{Asker, Record, audit_refusal};
pub use stream::StreamStats;

use crate::error::Status;
use crate::proto::Verb;

/// Places for figures by status: status -N has the place N; a status that the host made up has the
/// place 0.
pub const STATUSES: usize = 64;
/// Places for figures by verb: the verb's number, and 0 for verbs of later protocol versions.
pub const VERBS: usize = 6;

/// In each stream, one batch in this many is timed, beginning with the first.
pub const TIMED_BATCHES: u64 = 64;

/// The place of a verb.
pub fn place_of(verb: Verb) -> usize {
    match verb {
        Verb::Unknown(_) => 0,
        known => usize::from(known.number()),
    }
}

/// Counts by status.
#[derive(Debug)]
pub struct ByStatus([AtomicU64; STATUSES]);

impl Default for ByStatus {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; STATUSES])
    }
}

impl ByStatus {
    /// Counts one event with this `status`.
    pub fn count(&self, status: i32) {
        let known = Status::from_code(status).map_or(0, |status| status.code().unsigned_abs());
        let place = usize::try_from(known).ok();
        if let Some(place) = place.and_then(|place| self.0.get(place)) {
            place.fetch_add(1, Relaxed);
        }
    }

    /// Adds the counts to `sums`.
    pub fn add_to(&self, sums: &mut [u64; STATUSES]) {
        add_counts(&self.0, sums);
    }
}

fn add_counts(counts: &[AtomicU64], sums: &mut [u64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count.load(Relaxed);
    }
}

/// Values that can be added up.
pub(crate) trait Sum {
    /// The sum of nothing.
    const NONE: Self;

    fn add_sums(&mut self, other: &Self);
}

impl Sum for u64 {
    const NONE: Self = 0;

    // Only the sum of a histogram may wrap around.
    fn add_sums(&mut self, other: &Self) {
        *self = self.wrapping_add(*other);
    }
}

impl<const N: usize> Sum for [u64; N] {
    const NONE: Self = [0; N];

    fn add_sums(&mut self, other: &Self) {
        for (sum, other) in self.iter_mut().zip(other) {
            sum.add_sums(other);
        }
    }
}

/// Adds up a struct field by field.
macro_rules! sums {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::driver::figures::Sum for $name {
            const NONE: Self = Self { $($field: $crate::driver::figures::Sum::NONE),* };

            fn add_sums(&mut self, other: &Self) {
                $($crate::driver::figures::Sum::add_sums(&mut self.$field, &other.$field);)*
            }
        }

        impl Default for $name {
            fn default() -> Self {
                $crate::driver::figures::Sum::NONE
            }
        }
    };
}
pub(crate) use sums;

/// Counters of streams with one label, or of one stream that a client sends.
#[derive(Debug, Default)]
pub struct Counters {
    /// Record batches sent.
    pub batches: AtomicU64,
    /// Body bytes lent where they lay.
    pub bytes_lent: AtomicU64,
    /// Body bytes copied on the host: into regions, to be lent from there, or small ones to be
    /// sent.
    pub bytes_copied: AtomicU64,
    /// Body bytes sent through the connection.
    pub bytes_sent: AtomicU64,
    /// Body bytes copied within a GPU's memory.
    pub bytes_copied_on_device: AtomicU64,
    /// Body bytes copied from a GPU's memory to the host's.
    pub bytes_staged: AtomicU64,
    /// Present only at a server.
    pub served: Option<Box<Served>>,
}

/// What only a server counts.
#[derive(Debug, Default)]
pub struct Served {
    /// Rows of the batches sent.
    pub rows: AtomicU64,
    /// Rows of the batches that tables and providers gave.
    pub rows_read: AtomicU64,
    /// Record batches of clients.
    pub batches_received: AtomicU64,
    /// Their rows.
    pub rows_received: AtomicU64,
    /// Body bytes of clients, lent or through the connection.
    pub bytes_received: AtomicU64,
    /// Requests that were begun, by verb.
    pub requests: [AtomicU64; VERBS],
    /// Requests that have ended well.
    pub finished: AtomicU64,
    /// Requests that were begun and did not end well.
    pub failed: ByStatus,
    /// Nanoseconds from a request's arrival until its first batch was sent.
    pub first_batch: Histogram,
    /// Nanoseconds from when a batch was there until it was handed to the connection, for one batch
    /// in [`TIMED_BATCHES`].
    pub hand_over: Histogram,
    /// Body bytes that a request has carried, both ways.
    pub request_bytes: Histogram,
}

impl Counters {
    /// Counts the rows of a batch that was given to be sent.
    pub fn read(&self, rows: u64) {
        if let Some(served) = &self.served {
            served.rows_read.fetch_add(rows, Relaxed);
        }
    }

    /// Counters of a server.
    pub fn of_server() -> Self {
        Self {
            served: Some(Box::default()),
            ..Self::default()
        }
    }
}

/// Figures of streams at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamSums {
    /// Record batches sent.
    pub batches: u64,
    /// Their rows.
    pub rows: u64,
    /// Rows of the batches that tables and providers gave to be sent, including rows that a filter
    /// or a range left out. Batches after the end of a range are not read.
    pub rows_read: u64,
    /// Body bytes lent where they lay.
    pub bytes_lent: u64,
    /// Body bytes copied on the host: into regions, to be lent from them. Includes sent bodies of
    /// at most 1 KiB.
    pub bytes_copied: u64,
    /// Body bytes sent through connections.
    pub bytes_sent: u64,
    /// Body bytes copied within a GPU's memory and lent from the copy.
    pub bytes_copied_on_device: u64,
    /// Body bytes copied from a GPU's memory to the host, then lent or sent.
    pub bytes_staged: u64,
    /// Record batches that clients sent.
    pub batches_received: u64,
    /// Their rows.
    pub rows_received: u64,
    /// Body bytes that clients sent, lent ones included.
    pub bytes_received: u64,
    /// Requests that were begun, by the verb's number; 0 for verbs of later versions.
    pub requests: [u64; VERBS],
    /// Requests that have ended well.
    pub finished: u64,
    /// Requests that were begun and did not end well, by status.
    pub failed: [u64; STATUSES],
    /// Nanoseconds from a request's arrival until its first batch was sent.
    pub first_batch: HistogramSums,
    /// Nanoseconds from when a batch was there until it was handed to the connection, for one batch
    /// in [`TIMED_BATCHES`].
    pub hand_over: HistogramSums,
    /// Body bytes that a request has carried, both ways.
    pub request_bytes: HistogramSums,
}

sums!(StreamSums {
    batches,
    rows,
    rows_read,
    bytes_lent,
    bytes_copied,
    bytes_sent,
    bytes_copied_on_device,
    bytes_staged,
    batches_received,
    rows_received,
    bytes_received,
    requests,
    finished,
    failed,
    first_batch,
    hand_over,
    request_bytes
});

impl StreamSums {
    /// Requests of this verb that were begun.
    pub fn requests_of(&self, verb: Verb) -> u64 {
        self.requests.get(place_of(verb)).copied().unwrap_or(0)
    }

    /// Adds what was counted.
    pub fn add(&mut self, counters: &Counters) {
        self.batches += counters.batches.load(Relaxed);
        self.bytes_lent += counters.bytes_lent.load(Relaxed);
        self.bytes_copied += counters.bytes_copied.load(Relaxed);
        self.bytes_sent += counters.bytes_sent.load(Relaxed);
        self.bytes_copied_on_device += counters.bytes_copied_on_device.load(Relaxed);
        self.bytes_staged += counters.bytes_staged.load(Relaxed);
        let Some(served) = counters.served.as_deref() else {
            return;
        };
        self.rows += served.rows.load(Relaxed);
        self.rows_read += served.rows_read.load(Relaxed);
        self.batches_received += served.batches_received.load(Relaxed);
        self.rows_received += served.rows_received.load(Relaxed);
        self.bytes_received += served.bytes_received.load(Relaxed);
        add_counts(&served.requests, &mut self.requests);
        self.finished += served.finished.load(Relaxed);
        served.failed.add_to(&mut self.failed);
        self.first_batch.add(&served.first_batch);
        self.hand_over.add(&served.hand_over);
        self.request_bytes.add(&served.request_bytes);
    }
}

/// A time in the unit of histograms.
pub(in crate::driver) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
