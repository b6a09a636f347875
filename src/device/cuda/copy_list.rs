//! Buffers that are copied together, between the host and a GPU or within it.

use crate::device::BufferRef;
use crate::device::cuda::pinned::is_registered;
use crate::error::{Error, Result};

/// What is moved between the host and a GPU goes by way of two pieces of pinned memory of this
/// length: while the GPU copies the one, the processor copies the other.
pub(super) const CHUNK: usize = 4 << 20;
/// Buffers of at least so many bytes, on average, are copied one by one from where they lie:
/// starting a copy takes microseconds, in which the processor copies about as many.
const WORTH_A_COPY: u64 = 32 << 10;
/// Alignment of buffers (rule A2).
pub(super) const ALIGNMENT: usize = 64;

/// Buffers to be moved into one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct CopyList {
    pub(super) pieces: Vec<Piece>,
    /// With what lies between the pieces.
    pub(super) len: usize,
    /// Without.
    bytes: u64,
}

/// A buffer that is not empty, and where it is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) source: BufferRef,
    pub(super) at: usize,
}

impl CopyList {
    /// Adds a buffer, which is not empty, and gives the place that it will have.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` where no memory can have that length.
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

    /// Whether there is nothing to move.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes of the buffers.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a GPU can take all of it from where it lies, and each piece is worth a copy of its
    /// own.
    pub(crate) fn is_registered(&self) -> bool {
        let worth = (self.pieces.len() as u64).saturating_mul(WORTH_A_COPY);
        self.bytes >= worth && self.pieces.iter().all(|piece| is_registered(piece.source))
    }

    /// What will lie between two places: where it is now, and how far behind the first it will be.
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

    /// The chunks in which it goes through pinned memory.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let len = self.len;
        (0..len)
            .step_by(CHUNK)
            .map(move |from| (from, len.min(from + CHUNK)))
    }

    /// All that are not empty, and where each will be.
    pub(crate) fn of(buffers: &[BufferRef]) -> Result<(Self, Vec<usize>)> {
        let mut load = Self::default();
        let places = buffers
            .iter()
            .map(|buffer| match buffer.len {
                0 => Ok(0),
                _ => load.add(*buffer),
            })
            .collect::<Result<_>>()?;
        Ok((load, places))
    }
}
