//! Credit (rule E5) at the producing side.

use std::collections::VecDeque;

use crate::proto::{Credit, ProtocolError};

/// Credit given and used, as totals since the start of the stream (rule E5).
#[derive(Debug, Clone)]
pub(super) struct CreditWindow {
    initial: Credit,
    credit: Credit,
    sent: Credit,
    /// Bodies lent in place that use no credit and that the consumer has not taken. For each body:
    /// the total of bytes sent up to its end, and its own bytes.
    in_place: VecDeque<(u64, u64)>,
    /// Sum of the bytes of these bodies.
    in_place_bytes: u64,
}

/// The rest of a client's credit at one moment (rule E5).
#[derive(Debug, Clone, Copy)]
pub struct WindowRoom {
    /// Whether the consumer has taken all sent messages.
    is_unused: bool,
    /// Record batches.
    batches: u64,
    /// `None` if the sender has sent more bytes than the credit allows.
    bytes: Option<u64>,
    spares_in_place: bool,
}

impl WindowRoom {
    /// No room: nothing may be sent now.
    pub(super) const NONE: Self = Self {
        is_unused: false,
        batches: 0,
        bytes: None,
        spares_in_place: false,
    };

    /// Record batches that the sender may send, if they are small enough.
    pub fn batches(self) -> u64 {
        self.batches.max(self.is_unused.into())
    }

    /// Whether the driver may pull the next batch from the producer, whatever the batch's size.
    pub fn may_pull(self) -> bool {
        self.is_unused || (self.batches > 0 && self.bytes.is_some_and(|bytes| bytes > 0))
    }

    /// Whether the sender may send a dictionary or batch with a body of `body_len` bytes.
    pub fn admits(self, body_len: u64, in_place: bool) -> bool {
        let charged = if in_place && self.spares_in_place {
            0
        } else {
            body_len
        };
        // If nothing is outstanding, one message of any size may go.
        self.is_unused || (self.batches > 0 && self.bytes.is_some_and(|bytes| charged <= bytes))
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

    /// Whether the consumer has taken all sent messages.
    fn nothing_outstanding(&self) -> bool {
        // `u64::MAX` means no limit, and does not say how much the consumer has taken.
        let settled = |sent: u64, credit: u64, initial: u64| {
            sent <= credit.saturating_sub(initial) || credit == u64::MAX
        };
        settled(self.sent.batches, self.credit.batches, self.initial.batches)
            && settled(self.sent.bytes, self.credit.bytes, self.initial.bytes)
    }

    /// Record batches that were sent.
    pub(super) fn batches_sent(&self) -> u64 {
        self.sent.batches
    }

    /// Record batches that the consumer has taken.
    pub(super) fn batches_taken(&self) -> u64 {
        self.credit.batches.saturating_sub(self.initial.batches)
    }

    /// Counts all batches as taken, because the consumer wants no more.
    pub(super) fn take_all(&mut self) {
        self.credit.batches = u64::MAX;
    }

    /// Sent bytes that use credit.
    fn charged_bytes(&self) -> u64 {
        self.sent.bytes.saturating_sub(self.in_place_bytes)
    }

    /// Whether at least half of the window is used, in batches or in bytes.
    pub(super) fn is_half_used(&self) -> bool {
        let left = self.credit.batches.saturating_sub(self.sent.batches);
        let bytes_left = self.credit.bytes.saturating_sub(self.charged_bytes());
        left <= self.initial.batches / 2 || bytes_left <= self.initial.bytes / 2
    }

    /// The rest of the credit. With `spares_in_place`, bodies lent in place use no bytes of credit.
    pub(super) fn room(&self, spares_in_place: bool) -> WindowRoom {
        WindowRoom {
            is_unused: self.nothing_outstanding(),
            batches: self.credit.batches.saturating_sub(self.sent.batches),
            bytes: self.credit.bytes.checked_sub(self.charged_bytes()),
            spares_in_place,
        }
    }

    /// Counts a message. A dictionary is no batch, but its bytes count until the consumer takes it.
    /// A `free` body, which is lent in place, uses no credit of bytes.
    pub(super) fn sent(&mut self, batches: u64, bytes: u64, free: bool) {
        self.sent.batches = self.sent.batches.saturating_add(batches);
        self.sent.bytes = self.sent.bytes.saturating_add(bytes);
        // Without a limit of bytes, free bodies need no record.
        if free && bytes > 0 && self.credit.bytes != u64::MAX {
            self.in_place.push_back((self.sent.bytes, bytes));
            self.in_place_bytes = self.in_place_bytes.saturating_add(bytes);
        }
    }

    /// Takes the new totals of the client.
    pub(super) fn update(&mut self, credit: Credit) -> Result<(), ProtocolError> {
        // Rule E5: totals never fall.
        if credit.batches < self.credit.batches || credit.bytes < self.credit.bytes {
            return Err(broken!(
                "E5",
                "credit falls from {} batches, {} bytes to {}, {}: it counts totals",
                self.credit.batches,
                self.credit.bytes,
                credit.batches,
                credit.bytes
            ));
        }
        self.credit = credit;
        // A taken body is no exception any more: the credit now includes its bytes.
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
