//! Memory of a joined dictionary with free room at its end. A delta is appended there, so that the
//! cost of many deltas is that of their own bytes.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};

/// Bytes that never change once they are used, and room for more.
#[derive(Debug)]
pub(super) struct Grown {
    memory: HostBuffer,
    /// Bytes that are used, or reserved by an `append` under way.
    used: AtomicUsize,
}

/// The capacity for `len` bytes: half as much again, so that copies of the whole are rare.
pub(super) fn with_room(len: usize) -> usize {
    len.saturating_add(len / 2)
}

impl Grown {
    /// Empty memory with a capacity.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`.
    pub(super) fn new(capacity: usize) -> Result<Self> {
        Ok(Self {
            memory: HostBuffer::new(capacity)?,
            used: AtomicUsize::new(0),
        })
    }

    /// The allocated bytes.
    pub(super) fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// The first `len` bytes, which must be used.
    ///
    /// # Errors
    ///
    /// `InvalidData` if fewer bytes are used.
    pub(super) fn bytes(&self, len: usize) -> Result<BufferRef> {
        if len > self.used.load(Ordering::Acquire) {
            return Err(Error::invalid_data("a dictionary lacks bytes of its own"));
        }
        Ok(BufferRef {
            data: self.memory.as_ref().data,
            len,
        })
    }

    /// Appends `bytes` after the first `len` bytes. Returns false and does nothing if there is no
    /// room, or another delta already follows the first `len` bytes.
    pub(super) fn append(&self, len: usize, bytes: &[u8]) -> bool {
        let Some(end) = len
            .checked_add(bytes.len())
            .filter(|end| *end <= self.capacity())
        else {
            return false;
        };
        let taken = self
            .used
            .compare_exchange(len, end, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_err() {
            return false;
        }
        let place = self.memory.as_ref().data.cast_mut().wrapping_add(len);
        // SAFETY: the bytes from `len` to `end` lie in the memory, as checked above, and the memory
        // is writable. The exchange reserves them for this call, so nobody else writes to them.
        // Readers have only bytes up to `len`. The source is a slice that its owner reads, so it
        // does not overlap them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of two appends after the same bytes only the first gets the room.
    #[test]
    fn room_is_given_once() {
        let grown = Grown::new(8).unwrap();
        assert!(grown.append(0, b"abc"));
        assert!(grown.append(3, b"de"));
        assert!(!grown.append(3, b"xy"), "taken");
        assert!(!grown.append(5, b"1234"), "no room");
        assert!(grown.append(5, b"123"));
        let bytes = grown.bytes(8).unwrap();
        // SAFETY: `grown` lives, and all of its bytes are used.
        assert_eq!(unsafe { bytes.as_slice() }, b"abcde123");
        assert!(grown.bytes(9).is_err());
        assert_eq!(grown.capacity(), 8);
    }
}
