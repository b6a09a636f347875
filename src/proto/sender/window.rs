//! Rule E5 at the producing side.

use crate::proto::{Credit, ProtocolError};

/// Credit given and used, all as totals since the start (rule E5).
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    initial: Credit,
    credit: Credit,
    sent: Credit,
}

impl Window {
    pub(super) fn new(initial: Credit) -> Self {
        Self {
            initial,
            credit: initial,
            sent: Credit {
                batches: 0,
                bytes: 0,
            },
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

    pub(super) fn admits(&self, body_len: u64) -> bool {
        // Rule E5: one message is always admitted when nothing is outstanding.
        self.nothing_outstanding()
            || (self.sent.batches < self.credit.batches
                && self.sent.bytes.saturating_add(body_len) <= self.credit.bytes)
    }

    pub(super) fn may_pull(&self) -> bool {
        self.nothing_outstanding()
            || (self.sent.batches < self.credit.batches && self.sent.bytes < self.credit.bytes)
    }

    /// Counts what is sent. A dictionary is no batch, but its bytes count until it is taken.
    pub(super) fn sent(&mut self, batches: u64, bytes: u64) {
        self.sent.batches = self.sent.batches.saturating_add(batches);
        self.sent.bytes = self.sent.bytes.saturating_add(bytes);
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
        Ok(())
    }
}
