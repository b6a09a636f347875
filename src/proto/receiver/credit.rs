//! Rule E5 at the consuming side.

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

/// What a message uses of the window: record batches alone use the count, every body the bytes.
fn cost(header: &Header) -> Credit {
    Credit {
        batches: u64::from(header.kind() == HeaderKind::RecordBatch),
        bytes: header.body_len(),
    }
}

/// Counts what the peer sent and what the consumer took.
#[derive(Debug)]
pub(super) struct CreditCount {
    initial: Credit,
    arrived: Credit,
    taken: Credit,
    /// What the peer was told to have been taken.
    told: Credit,
    /// Bytes of bodies that came as bytes and were not taken.
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

    /// Counts a header that arrived. Where bodies lent `in_place` use no credit of bytes, the body
    /// itself says whether it does.
    ///
    /// # Errors
    ///
    /// Rule E5, where `enforced`: the peer sent it without credit.
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
        // A total at the top of its range is no limit, and says nothing of what was taken.
        let settled = |before: u64, told: u64, limit: u64| before <= told || limit == u64::MAX;
        let nothing_outstanding = settled(before.batches, self.told.batches, limit.batches)
            && settled(before.bytes, self.told.bytes, limit.bytes);
        // A size is not known before a batch is pulled: the last one may pass the limit of bytes.
        let within = after.batches <= limit.batches.max(before.batches)
            && (before.bytes < limit.bytes || after.bytes <= limit.bytes);
        // One that costs nothing may come after the one that passes the limit: it was not waited
        // for.
        if enforced && cost(header) != NOTHING && !nothing_outstanding && !within {
            return Err(ProtocolError::new(
                "E5",
                format!(
                    "the peer has sent {} batches, {} bytes and may send {}, {}",
                    after.batches, after.bytes, limit.batches, limit.bytes
                ),
            ));
        }
        self.arrived = after;
        Ok(())
    }

    /// Counts a body that arrived as bytes.
    ///
    /// # Errors
    ///
    /// Rule E5, where `enforced`: those before it fill the window. Their sum is at most what the
    /// peer counts, which hears later of what was taken.
    pub(super) fn arrived_packed(&mut self, len: u64, enforced: bool) -> Result<(), ProtocolError> {
        if enforced && len > 0 && self.held > 0 && self.held >= self.initial.bytes {
            return Err(ProtocolError::new(
                "E5",
                format!(
                    "the peer has sent {len} bytes more where {} wait, of a window of {}",
                    self.held, self.initial.bytes
                ),
            ));
        }
        self.held = self.held.saturating_add(len);
        Ok(())
    }

    /// Counts a message that the consumer took; `packed` where its body came as bytes. Gives back
    /// whether half the window is free since the peer was last told.
    ///
    /// Where bodies lent `in_place` use no credit of bytes, a peer that has sent more than its
    /// credit waits for no bytes: of large bodies it would else be told after every few.
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

    /// The totals to tell the peer, if it does not know them.
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
