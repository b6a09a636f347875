//! Memory for what cannot be sent as the producer has it: moved bitmaps, run ends of slices,
//! compressed buffers.

use crate::device::{BufferRef, HostBuffer};
use crate::error::Result;

/// Pieces of a few chunks, aligned to 64 bytes each. They stay where they are until drop.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    chunks: Vec<HostBuffer>,
    /// Bytes used of the last chunk.
    used: usize,
    /// Whole allocations of others.
    whole: Vec<Vec<u8>>,
}

/// Size of a chunk: enough for the bitmaps of a usual batch in one allocation.
const CHUNK: usize = 4096;
const ALIGNMENT: usize = 64;

impl Scratch {
    /// Whether nothing lies in it.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty() && self.whole.is_empty()
    }

    /// A new piece of `len` bytes, zeroed and then filled.
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
        // `as_ref`, the allocation's own, so that later borrows of the chunk do not end it.
        let data = unsafe { chunk.as_ref().data.add(start) };
        Ok(BufferRef { data, len })
    }

    /// Keeps bytes made elsewhere.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) -> BufferRef {
        // Moving the vector does not move its bytes.
        let buffer = BufferRef::of(&bytes);
        self.whole.push(bytes);
        buffer
    }

    /// Whether `buffer` lies in this scratch.
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

    /// Pieces are aligned, apart from each other, and keep what they were filled with.
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
            // SAFETY: the scratch lives to the end of the test and is not written to any more.
            assert!(unsafe { piece.as_slice() }.iter().all(|byte| *byte == mark));
        }
    }
}
