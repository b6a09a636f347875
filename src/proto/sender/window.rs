//! Rule E5 at the producing side.

use std::collections::VecDeque;

use crate::proto::{Credit, ProtocolError};

/// Credit given and used, all as totals since the start (rule E5).
#[derive(Debug, Clone)]
pub(super) struct CreditWindow {
    initial: Credit,
    credit: Credit,
    sent: Credit,
    /// Bodies lent in place that were not taken yet, where those are free of charge: the total of
    /// bytes sent behind each, and its own.
    in_place: VecDeque<(u64, u64)>,
    /// Their bytes together.
    in_place_bytes: u64,
}

/// What a client's credit has left at a moment (rule E5).
#[derive(Debug, Clone, Copy)]
pub struct WindowRoom {
    /// The consumer has taken everything that was sent.
    is_unused: bool,
    has_batches: bool,
    /// `None` where more was sent than the credit has.
    bytes: Option<u64>,
    spares_in_place: bool,
}

impl WindowRoom {
    /// Whether the next batch may be pulled from the producer, whatever its size turns out to be.
    pub fn may_pull(self) -> bool {
        self.is_unused || (self.has_batches && self.bytes.is_some_and(|bytes| bytes > 0))
    }

    /// Whether a message, dictionary or batch, with a body of `body_len` bytes may be sent.
    pub fn admits(self, body_len: u64, in_place: bool) -> bool {
        let charged = if in_place && self.spares_in_place {
            0
        } else {
            body_len
        };
        // One message is always admitted when nothing is outstanding.
        self.is_unused || (self.has_batches && self.bytes.is_some_and(|bytes| charged <= bytes))
    }
}

impl CreditWindow {
    pub(super) fn new(initial: Credit) -> Self {
        Self {
            initial,
            credit: initial,
            sent: Credit {
                batches: 0,
                bytes: 0,
            },
            in_place: VecDeque::new(),
            in_place_bytes: 0,
        }
    }

    /// Whether the consumer has taken everything that was sent.
    fn nothing_outstanding(&self) -> bool {
        // A total at the top of its range is no limit, and says nothing of what was taken.
        let settled = |sent: u64, credit: u64, initial: u64| {
            sent <= credit.saturating_sub(initial) || credit == u64::MAX
        };
        settled(self.sent.batches, self.credit.batches, self.initial.batches)
            && settled(self.sent.bytes, self.credit.bytes, self.initial.bytes)
    }

    /// Record batches that the consumer has taken.
    pub(super) fn batches_taken(&self) -> u64 {
        self.credit.batches.saturating_sub(self.initial.batches)
    }

    /// The consumer wants nothing more: as if it had taken everything.
    pub(super) fn take_all(&mut self) {
        self.credit.batches = u64::MAX;
    }

    /// Bytes sent, without those that use no credit.
    fn charged_bytes(&self) -> u64 {
        self.sent.bytes.saturating_sub(self.in_place_bytes)
    }

    /// Whether half of what the consumer may have waiting is under way or waits.
    pub(super) fn is_half_used(&self) -> bool {
        let left = self.credit.batches.saturating_sub(self.sent.batches);
        let bytes_left = self.credit.bytes.saturating_sub(self.charged_bytes());
        left <= self.initial.batches / 2 || bytes_left <= self.initial.bytes / 2
    }

    /// What the credit has left. Bodies lent in place use none of the bytes where
    /// `spares_in_place`.
    pub(super) fn room(&self, spares_in_place: bool) -> WindowRoom {
        WindowRoom {
            is_unused: self.nothing_outstanding(),
            has_batches: self.sent.batches < self.credit.batches,
            bytes: self.credit.bytes.checked_sub(self.charged_bytes()),
            spares_in_place,
        }
    }

    /// Counts what is sent. A dictionary is no batch, but its bytes count until it is taken; those
    /// of a body lent in place, where it is `free`, do not.
    pub(super) fn sent(&mut self, batches: u64, bytes: u64, free: bool) {
        self.sent.batches = self.sent.batches.saturating_add(batches);
        self.sent.bytes = self.sent.bytes.saturating_add(bytes);
        // Where bytes have no limit, what is free need not be told apart.
        if free && bytes > 0 && self.credit.bytes != u64::MAX {
            self.in_place.push_back((self.sent.bytes, bytes));
            self.in_place_bytes = self.in_place_bytes.saturating_add(bytes);
        }
    }

    /// Takes the client's word for what it has taken.
    pub(super) fn update(&mut self, credit: Credit) -> Result<(), ProtocolError> {
        // Rule E5: totals, so they never fall.
        if credit.batches < self.credit.batches || credit.bytes < self.credit.bytes {
            return Err(ProtocolError::new(
                "E5",
                format!(
                    "credit falls from {} batches, {} bytes to {}, {}: it counts totals",
                    self.credit.batches, self.credit.bytes, credit.batches, credit.bytes
                ),
            ));
        }
        self.credit = credit;
        // What was taken counts as any other: the credit has its bytes.
        let taken = credit.bytes.saturating_sub(self.initial.bytes);
        while let Some((end, bytes)) = self.in_place.front().copied()
            && end <= taken
        {
            self.in_place.pop_front();
            self.in_place_bytes = self.in_place_bytes.saturating_sub(bytes);
        }
        Ok(())
    }
}
