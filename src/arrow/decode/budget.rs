//! How much memory of the host one message may take beside its body: for compressed buffers unpacked,
//! for copies of what its sender could still write to, and for a dictionary joined with its delta.
//!
//! A peer's word costs it nothing: a compressed buffer may claim any length, and a list may name the same
//! memory many times over.

use std::cell::Cell;

use crate::device::BufferRef;
use crate::error::{Error, Result};

/// What is left of the memory that one message may take.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    left: Cell<u64>,
    limit: u64,
    /// The body, whose own memory is there, so that as much again may always be taken.
    body: &'a [BufferRef],
    /// That was added.
    counted: Cell<bool>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(limit: u64, body: &'a [BufferRef]) -> Self {
        Self {
            left: Cell::new(limit),
            limit,
            body,
            counted: Cell::new(false),
        }
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
            false => covered(self.body).saturating_sub(self.limit),
            true => 0,
        };
        let left = self.left.get().saturating_add(more);
        self.left.set(left);
        let rest = left.checked_sub(bytes).ok_or_else(|| {
            Error::out_of_memory(format!(
                "{bytes} bytes take a message past its limit for what is unpacked and copied ({left} bytes are \
                 left); send smaller batches"
            ))
        })?;
        self.left.set(rest);
        Ok(())
    }
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

    /// As much as a body really has may be copied, whatever the limit, and no more, however often the
    /// body names it.
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
        let budget = Budget::new(30, &body);
        budget.take(20).unwrap();
        budget.take(180).unwrap();
        let error = budget.take(1).unwrap_err();
        assert_eq!(error.status(), crate::error::Status::OutOfMemory);
        let budget = Budget::new(300, &body);
        budget.take(300).unwrap();
        budget.take(1).unwrap_err();
    }
}
