//! Lists of buffers to copy, between the host and a GPU or within a GPU.

use crate::device::BufferRef;
use crate::device::cuda::pinned::is_registered;
use crate::error::{Error, Result};

/// Copies between the host and a GPU go through two pieces of pinned memory of this many bytes: the
/// GPU copies one while the processor copies the other.
pub(super) const CHUNK: usize = 4 << 20;
/// Registered buffers of at least this many bytes on average are copied one by one, without pinned
/// memory. For smaller buffers the start of a copy takes longer than the processor's copy.
const LEAST_DIRECT_BYTES: u64 = 32 << 10;
/// Alignment of buffers (rule A2).
pub(super) const ALIGNMENT: usize = 64;

/// Buffers to copy into one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct CopyList {
    pub(super) pieces: Vec<Piece>,
    /// Total bytes, with the gaps between the pieces.
    pub(super) len: usize,
    /// Total bytes, without the gaps.
    bytes: u64,
}

/// A non-empty buffer and its offset in the target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) source: BufferRef,
    pub(super) at: usize,
}

impl CopyList {
    /// Adds a non-empty buffer and returns its offset in the target.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the total is not a valid length.
    pub(crate) fn add(&mut self, source: BufferRef) -> Result<usize> {
        let at = self.len;
        self.len = at
            .checked_add(source.len)
            .and_then(|end| end.checked_next_multiple_of(ALIGNMENT))
            .ok_or_else(|| {
                Error::out_of_memory("the buffers of a body are too long to be copied")
            })?;
        self.bytes = self.bytes.saturating_add(source.len as u64);
        self.pieces.push(Piece { source, at });
        Ok(at)
    }

    /// True if the list has no buffers.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Total bytes of the buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if a GPU can read all buffers directly, and they are long enough for copies of their
    /// own.
    pub(crate) fn is_registered(&self) -> bool {
        let worth = (self.pieces.len() as u64).saturating_mul(LEAST_DIRECT_BYTES);
        self.bytes >= worth && self.pieces.iter().all(|piece| is_registered(piece.source))
    }

    /// The parts of buffers between two offsets of the target, each with its offset from `from`.
    pub(super) fn parts(&self, from: usize, to: usize) -> impl Iterator<Item = (BufferRef, usize)> {
        let first = self
            .pieces
            .partition_point(|piece| piece.at + piece.source.len <= from);
        self.pieces
            .iter()
            .skip(first)
            .take_while(move |piece| piece.at < to)
            .map(move |piece| {
                let start = from.max(piece.at);
                let end = to.min(piece.at + piece.source.len);
                let part = BufferRef {
                    data: piece.source.data.wrapping_add(start - piece.at),
                    len: end - start,
                };
                (part, start - from)
            })
    }

    /// The ranges of the target that go through pinned memory one by one.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let len = self.len;
        (0..len)
            .step_by(CHUNK)
            .map(move |from| (from, len.min(from + CHUNK)))
    }

    /// A list of all non-empty buffers, and the offset of each buffer.
    pub(crate) fn of(buffers: &[BufferRef]) -> Result<(Self, Vec<usize>)> {
        let mut list = Self::default();
        let places = buffers
            .iter()
            .map(|buffer| match buffer.len {
                0 => Ok(0),
                _ => list.add(*buffer),
            })
            .collect::<Result<_>>()?;
        Ok((list, places))
    }
}
