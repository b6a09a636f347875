//! Memory for buffers that the encoder writes: aligned bitmaps, run ends of slices, compressed
//! buffers.

use crate::device::{BufferRef, HostBuffer};
use crate::error::Result;

/// Pieces of a few chunks, each aligned to 64 bytes. Addresses are stable until drop.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    chunks: Vec<HostBuffer>,
    /// Used bytes of the last chunk.
    used: usize,
    /// Allocations that other code made.
    whole: Vec<Vec<u8>>,
}

/// Bytes of a chunk: enough for the bitmaps of a usual batch.
const CHUNK: usize = 4096;
const ALIGNMENT: usize = 64;

impl Scratch {
    /// True if it has no pieces.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.whole.is_empty()
    }

    /// A new piece of `len` bytes: zeros, overwritten by `fill`.
    pub(super) fn fill(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<BufferRef> {
        if len == 0 {
            return Ok(BufferRef::EMPTY);
        }
        let room = self
            .chunks
            .last()
            .map_or(0, |chunk| chunk.len() - self.used);
        if room < len {
            self.chunks.push(HostBuffer::new(len.max(CHUNK))?);
            self.used = 0;
        }
        let Some(chunk) = self.chunks.last_mut() else {
            return Ok(BufferRef::EMPTY);
        };
        let start = self.used;
        fill(&mut chunk.as_mut_slice()[start..start + len]);
        self.used = (start + len).next_multiple_of(ALIGNMENT).min(chunk.len());
        // SAFETY: `start` is inside the chunk, as the slicing above shows. The pointer comes from
        // `as_ref` and so from the allocation: later borrows of the chunk do not invalidate it.
        let data = unsafe { chunk.as_ref().data.add(start) };
        Ok(BufferRef { data, len })
    }

    /// Takes ownership of bytes that other code made.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) -> BufferRef {
        // A move of the vector does not move its bytes.
        let buffer = BufferRef::of(&bytes);
        self.whole.push(bytes);
        buffer
    }

    /// True if `buffer` lies in this scratch.
    pub(super) fn holds(&self, buffer: BufferRef) -> bool {
        let chunks = self
            .chunks
            .iter()
            .map(|chunk| chunk.as_ref().data as usize..);
        let starts = chunks.zip(self.chunks.iter().map(HostBuffer::len));
        let whole = self
            .whole
            .iter()
            .map(|bytes| (bytes.as_ptr() as usize.., bytes.len()));
        let at = buffer.data as usize;
        starts
            .chain(whole)
            .any(|(start, len)| at >= start.start && at < start.start + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces are aligned, do not overlap, and keep their content.
    #[test]
    fn pieces_are_aligned_and_stay() {
        let mut scratch = Scratch::default();
        let lens = [1, 64, 65, 4096, 0, 10_000, 3];
        let pieces: Vec<BufferRef> = lens
            .iter()
            .zip(1..)
            .map(|(len, mark)| scratch.fill(*len, |bytes| bytes.fill(mark)).unwrap())
            .collect();
        for ((piece, len), mark) in pieces.iter().zip(lens).zip(1..) {
            assert_eq!(piece.len, len);
            assert_eq!(piece.data as usize % ALIGNMENT, 0);
            // SAFETY: the scratch lives to the end of the test, and nobody writes to it any more.
            assert!(unsafe { piece.as_slice() }.iter().all(|byte| *byte == mark));
        }
    }
}
