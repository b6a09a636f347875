//! How much memory of the host one message may take beside its body: for compressed buffers
//! unpacked, for copies of what its sender could still write to, for the structs of arrays, and for
//! dictionaries with their deltas.
//!
//! A peer's word costs it nothing: a compressed buffer may claim any length, a list may name the
//! same memory many times over, and many columns may use one dictionary.

use std::cell::Cell;

use crate::device::BufferRef;
use crate::error::{Error, Result};

/// What is left of the memory that one message may take.
#[derive(Debug)]
pub(super) struct DecodeBudget<'a> {
    left: Cell<u64>,
    /// What was left at first.
    limit: u64,
    /// The body, whose own memory is there, so that as much again may always be taken.
    body: &'a [BufferRef],
    /// How often that.
    times: u64,
    /// Bytes received before that the message builds on.
    earlier: u64,
    /// The body was added.
    counted: Cell<bool>,
}

/// How often a dictionary may take what was received for it: a delta for itself, and for what it is
/// joined with, which has room to grow.
const TIMES_OF_DICTIONARY: u64 = 4;

impl<'a> DecodeBudget<'a> {
    /// Of a batch.
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

    /// Of a dictionary, where `others` hold that many bytes. `earlier` bytes were received for what
    /// it adds to.
    pub(super) fn of_dictionary(
        limit: u64,
        others: u64,
        earlier: u64,
        body: &'a [BufferRef],
    ) -> Self {
        // Who has no limit counts nothing.
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

    /// Bytes that are left, the body aside.
    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    /// Takes a part of it.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` where less is left.
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
        // Bytes, each once, however often the body names it.
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

/// What a message is told that takes more than it may.
#[cold]
pub(super) fn past_limit(bytes: u64, left: u64) -> Error {
    Error::out_of_memory(format!(
        "{bytes} bytes take a message past its limit for what is unpacked and copied ({left} \
         bytes are left): raise message_limit_bytes (--max-message) if the sender is trusted, or \
         have it send smaller batches"
    ))
}

/// How many bytes the buffers have together, those that overlap counted once.
fn covered(buffers: &[BufferRef]) -> u64 {
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

    /// As much as a body really has may be copied, whatever the limit, and no more, however often
    /// the body names it.
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

    /// Dictionaries share one limit, and what was received may always be joined.
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
