//! Ids of streams.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The ids of a client's streams: a random first id, and its successors.
pub(super) struct StreamIds {
    base: u128,
    next: AtomicU64,
}

impl StreamIds {
    /// # Errors
    ///
    /// The system's error if it has no random bytes.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            base: draw_id()?,
            next: AtomicU64::new(0),
        })
    }

    /// The next id. A server joins two connections by the id of their stream (rule E6), so such an
    /// id must not be guessable. Other ids only have to differ.
    pub(super) fn next(&self, joined: bool) -> Result<u128> {
        if joined {
            return draw_id();
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        Ok(self.base.wrapping_add(u128::from(next)))
    }
}

fn draw_id() -> Result<u128> {
    let mut id = [0; 16];
    rustix::rand::getrandom(&mut id[..], rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::os("cannot draw a stream id", errno))?;
    Ok(u128::from_le_bytes(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server distinguishes the streams of a connection by the low half of the id, and joins two
    /// connections by the whole id (rule E6).
    #[test]
    fn numbers_differ_and_those_that_join_cannot_be_guessed() {
        let ids = StreamIds::new().unwrap();
        let first = ids.next(false).unwrap();
        let second = ids.next(false).unwrap();
        assert_ne!(first & u128::from(u64::MAX), second & u128::from(u64::MAX));
        let joined = [ids.next(true).unwrap(), ids.next(true).unwrap()];
        for id in joined {
            assert!(
                id.abs_diff(first) > 1 << 20,
                "not behind those that are counted"
            );
        }
        assert!(joined[0].abs_diff(joined[1]) > 1 << 20);
    }
}
