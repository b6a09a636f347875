//! Memory of a joined dictionary, with room behind what is in use: a delta is added there, so that
//! many deltas cost what they bring, and not the whole dictionary each time.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::device::{BufferRef, HostBuffer};
use crate::error::{Error, Result};

/// Bytes that never change once they are in use, and room for more.
#[derive(Debug)]
pub(super) struct Grown {
    memory: HostBuffer,
    /// Bytes in use, or taken by an `append` under way.
    used: AtomicUsize,
}

/// What is allocated for `len` bytes: half as much again, so that copying all of them is rare.
pub(super) fn with_room(len: usize) -> usize {
    len.saturating_add(len / 2)
}

impl Grown {
    /// No bytes, and room for `capacity`.
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

    /// Bytes allocated.
    pub(super) fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// The first `len` bytes, which are in use.
    ///
    /// # Errors
    ///
    /// `InvalidData` when they are not.
    pub(super) fn bytes(&self, len: usize) -> Result<BufferRef> {
        if len > self.used.load(Ordering::Acquire) {
            return Err(Error::invalid_data("a dictionary lacks bytes of its own"));
        }
        Ok(BufferRef {
            data: self.memory.as_ref().data,
            len,
        })
    }

    /// Adds `bytes` behind the first `len`. `false`, with nothing done, where there is no room, or
    /// another delta was put there.
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
        // SAFETY: the bytes from `len` to `end` lie in the memory (checked above), which was made
        // to be written to. The exchange has given them to this call alone: nobody else writes to
        // them, and nobody reads what is past the bytes that he was handed, which end at `len` or
        // before. The source is a slice that its owner reads from, so that it is none of them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two that add behind the same bytes do not share the room: the second copies.
    #[test]
    fn room_is_given_once() {
        let grown = Grown::new(8).unwrap();
        assert!(grown.append(0, b"abc"));
        assert!(grown.append(3, b"de"));
        assert!(!grown.append(3, b"xy"), "taken");
        assert!(!grown.append(5, b"1234"), "no room");
        assert!(grown.append(5, b"123"));
        let bytes = grown.bytes(8).unwrap();
        // SAFETY: `grown` lives, and all of it is in use.
        assert_eq!(unsafe { bytes.as_slice() }, b"abcde123");
        assert!(grown.bytes(9).is_err());
        assert_eq!(grown.capacity(), 8);
    }
}
