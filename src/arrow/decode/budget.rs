//! The limit of host memory that one message may take besides its body: for unpacked buffers,
//! copies of lent memory, the structs of arrays, and dictionaries with their deltas.
//!
//! A peer can claim much at no cost: a compressed buffer may claim any length, a list may name the
//! same memory many times, and many columns may use one dictionary.

use std::cell::Cell;

use crate::device::BufferRef;
use crate::error::{Error, Result};

/// The rest of the memory that one message may take.
#[derive(Debug)]
pub(super) struct DecodeBudget<'a> {
    left: Cell<u64>,
    /// The value of `left` at the start.
    limit: u64,
    /// The body. A message may always take as much memory as its body has.
    body: &'a [BufferRef],
    /// A factor for the length of the body.
    times: u64,
    /// Bytes of the earlier bodies that the message extends.
    earlier: u64,
    /// True if the allowance for the body was added.
    counted: Cell<bool>,
}

/// The factor for a dictionary. A delta takes memory for itself, and for the joined dictionary,
/// which has room to grow.
pub(super) const TIMES_OF_DICTIONARY: u64 = 4;

impl<'a> DecodeBudget<'a> {
    /// The budget of a batch.
    pub(super) fn new(limit: u64, body: &'a [BufferRef]) -> Self {
        Self {
            left: Cell::new(limit),
            limit,
            body,
            times: 1,
            earlier: 0,
            counted: Cell::new(false),
        }
    }

    /// The budget of a dictionary. The other dictionaries hold `others` bytes. A delta extends
    /// earlier bodies of `earlier` bytes.
    pub(super) fn of_dictionary(
        limit: u64,
        others: u64,
        earlier: u64,
        body: &'a [BufferRef],
    ) -> Self {
        // Without a limit, nothing is counted.
        let left = match limit {
            u64::MAX => limit,
            _ => limit.saturating_sub(others),
        };
        Self {
            times: TIMES_OF_DICTIONARY,
            earlier,
            ..Self::new(left, body)
        }
    }

    /// The remaining bytes, without the allowance for the body.
    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes bytes from the budget.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if fewer bytes are left.
    #[inline]
    pub(super) fn take(&self, bytes: u64) -> Result<()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => self.take_more(bytes),
        }
    }

    #[cold]
    fn take_more(&self, bytes: u64) -> Result<()> {
        // Each byte of the body counts once, even if several buffers contain it.
        let more = match self.counted.replace(true) {
            false => covered(self.body)
                .saturating_add(self.earlier)
                .saturating_mul(self.times)
                .saturating_sub(self.limit),
            true => 0,
        };
        let left = self.left.get().saturating_add(more);
        self.left.set(left);
        let rest = left
            .checked_sub(bytes)
            .ok_or_else(|| past_limit(bytes, left))?;
        self.left.set(rest);
        Ok(())
    }
}

/// The error for a message over its limit.
#[cold]
pub(super) fn past_limit(bytes: u64, left: u64) -> Error {
    Error::out_of_memory(format!(
        "{bytes} bytes take a message past its limit for what is unpacked and copied ({left} \
         bytes are left): raise message_limit_bytes (--max-message) if the sender is trusted, or \
         have it send smaller batches"
    ))
}

/// The total bytes of the buffers; an overlap counts once.
pub(super) fn covered(buffers: &[BufferRef]) -> u64 {
    let mut ranges: Vec<(usize, usize)> = buffers
        .iter()
        .map(|buffer| {
            (
                buffer.data.addr(),
                buffer.data.addr().saturating_add(buffer.len),
            )
        })
        .collect();
    ranges.sort_unstable();
    let (mut total, mut end) = (0_u64, 0);
    for (start, stop) in ranges {
        total = total.saturating_add(stop.saturating_sub(start.max(end)) as u64);
        end = end.max(stop);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: usize, len: usize) -> BufferRef {
        BufferRef {
            data: std::ptr::without_provenance(start),
            len,
        }
    }

    /// A message may copy as many bytes as its body really has, whatever the limit. Repeated
    /// buffers do not count.
    #[test]
    fn a_body_may_be_copied_once() {
        let body = [
            at(1000, 100),
            at(1050, 100),
            at(1050, 100),
            at(5000, 50),
            at(0, 0),
        ];
        assert_eq!(covered(&body), 200);
        let budget = DecodeBudget::new(30, &body);
        budget.take(20).unwrap();
        budget.take(180).unwrap();
        let error = budget.take(1).unwrap_err();
        assert_eq!(error.status(), crate::error::Status::OutOfMemory);
        let budget = DecodeBudget::new(300, &body);
        budget.take(300).unwrap();
        budget.take(1).unwrap_err();
    }

    /// Dictionaries share one limit, and a delta may always be joined.
    #[test]
    fn dictionaries_share_a_limit() {
        let budget = DecodeBudget::of_dictionary(1000, 900, 0, &[]);
        budget.take(100).unwrap();
        budget.take(1).unwrap_err();
        let budget = DecodeBudget::of_dictionary(1000, 5000, 100, &[]);
        budget.take(400).unwrap();
        budget.take(1).unwrap_err();
        let budget = DecodeBudget::of_dictionary(u64::MAX, u64::MAX, 0, &[]);
        budget.take(1 << 60).unwrap();
    }
}
