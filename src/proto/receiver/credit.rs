//! Credit (rule E5) at the consuming side.

use crate::proto::{Credit, Header, HeaderKind, ProtocolError};

const NOTHING: Credit = Credit {
    batches: 0,
    bytes: 0,
};

fn plus(left: Credit, right: Credit) -> Credit {
    Credit {
        batches: left.batches.saturating_add(right.batches),
        bytes: left.bytes.saturating_add(right.bytes),
    }
}

/// Share of the window that a message uses: batches use the count, every body the bytes.
fn cost(header: &Header) -> Credit {
    Credit {
        batches: u64::from(header.kind() == HeaderKind::RecordBatch),
        bytes: header.body_len(),
    }
}

/// Counts the messages that the peer sent and that the consumer took.
#[derive(Debug)]
pub(super) struct CreditCount {
    initial: Credit,
    arrived: Credit,
    taken: Credit,
    /// The part of `taken` that the peer knows.
    told: Credit,
    /// Bytes of packed bodies that the consumer has not taken.
    held: u64,
}

impl CreditCount {
    pub(super) fn new(initial: Credit) -> Self {
        Self {
            initial,
            arrived: NOTHING,
            taken: NOTHING,
            told: NOTHING,
            held: 0,
        }
    }

    /// Counts a header that arrived. If bodies lent `in_place` use no credit of bytes, only the
    /// body shows whether it uses credit, so the limit of bytes does not count here.
    ///
    /// # Errors
    ///
    /// Rule E5, if `enforced`: the peer sent the header without credit.
    pub(super) fn arrived(
        &mut self,
        header: &Header,
        enforced: bool,
        in_place: bool,
    ) -> Result<(), ProtocolError> {
        let (before, after) = (self.arrived, plus(self.arrived, cost(header)));
        let mut limit = plus(self.initial, self.told);
        if in_place {
            limit.bytes = u64::MAX;
        }
        // `u64::MAX` means no limit, and does not say how much the consumer has taken.
        let settled = |before: u64, told: u64, limit: u64| before <= told || limit == u64::MAX;
        let nothing_outstanding = settled(before.batches, self.told.batches, limit.batches)
            && settled(before.bytes, self.told.bytes, limit.bytes);
        // The peer learns a batch's size late: the last batch may pass the limit of bytes.
        let within = after.batches <= limit.batches.max(before.batches)
            && (before.bytes < limit.bytes || after.bytes <= limit.bytes);
        // A message without cost may follow the message that passed the limit, because the peer
        // need not wait for credit.
        if enforced && cost(header) != NOTHING && !nothing_outstanding && !within {
            return Err(broken!(
                "E5",
                "the peer has sent {} batches, {} bytes and may send {}, {}",
                after.batches,
                after.bytes,
                limit.batches,
                limit.bytes
            ));
        }
        self.arrived = after;
        Ok(())
    }

    /// Counts a packed body that arrived.
    ///
    /// # Errors
    ///
    /// Rule E5, if `enforced`: earlier packed bodies fill the window. The peer learns later than
    /// this side which bodies were taken, so its own count is never lower.
    pub(super) fn arrived_packed(&mut self, len: u64, enforced: bool) -> Result<(), ProtocolError> {
        if enforced && len > 0 && self.held > 0 && self.held >= self.initial.bytes {
            return Err(broken!(
                "E5",
                "the peer has sent {len} bytes more where {} wait, of a window of {}",
                self.held,
                self.initial.bytes
            ));
        }
        self.held = self.held.saturating_add(len);
        Ok(())
    }

    /// Whether the packed bodies that wait fill the window.
    pub(super) fn is_used_up(&self) -> bool {
        self.held > self.initial.bytes
    }

    /// Counts a message that the consumer took; `packed` if its body was packed. Returns whether
    /// half the window has become free since the peer was last told.
    ///
    /// If bodies lent `in_place` use no credit of bytes, a peer that has sent more bytes than its
    /// credit does not wait for bytes. Else the peer would be told after every few large bodies.
    pub(super) fn taken(&mut self, header: &Header, packed: bool, in_place: bool) -> bool {
        if packed {
            self.held = self.held.saturating_sub(header.body_len());
        }
        self.taken = plus(self.taken, cost(header));
        let batches = self.taken.batches.saturating_sub(self.told.batches);
        let bytes = self.taken.bytes.saturating_sub(self.told.bytes);
        let beyond = in_place && self.arrived.bytes > plus(self.initial, self.told).bytes;
        (batches > 0 && batches >= self.initial.batches / 2)
            || (bytes > 0 && bytes >= self.initial.bytes / 2 && !beyond)
    }

    /// The totals to tell the peer, if the peer does not know them.
    pub(super) fn tell(&mut self) -> Option<Credit> {
        if self.told == self.taken {
            return None;
        }
        self.told = self.taken;
        Some(plus(self.initial, self.told))
    }

    /// Whether messages that wait for the consumer fill the window.
    pub(super) fn full(&self, waiting: usize, waiting_bytes: u64) -> bool {
        waiting > 0
            && (waiting as u64 >= self.initial.batches || waiting_bytes >= self.initial.bytes)
    }
}
