//! Ranges of bits in bitmaps.

use arrow::util::bit_chunk_iterator::{BitChunks, UnalignedBitChunk};

use crate::device::BufferRef;

/// A range of bits in a bitmap, as an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitRange {
    /// The bytes that contain the bits.
    pub(super) buffer: BufferRef,
    /// The number of the first bit in `buffer`, less than 8.
    pub(super) first: usize,
    /// The number of bits.
    pub(super) len: usize,
}

impl BitRange {
    /// No bits.
    pub(super) const EMPTY: Self = Self {
        buffer: BufferRef::EMPTY,
        first: 0,
        len: 0,
    };
}

/// A range of bits in a bitmap, as bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// The number of the first bit in `bytes`, less than 8.
    offset: usize,
    len: usize,
}

impl<'a> Bits<'a> {
    /// `len` bits from bit `offset` of `bytes` on. `offset` is less than 8, and `bytes` contains
    /// all of the bits.
    pub(super) fn new(bytes: &'a [u8], offset: usize, len: usize) -> Self {
        Self { bytes, offset, len }
    }

    /// The number of 0 bits.
    pub(super) fn zeros(&self) -> usize {
        if self.len == 0 {
            return 0;
        }
        self.len - UnalignedBitChunk::new(self.bytes, self.offset, self.len).count_ones()
    }

    /// The bit at `index`, which must be less than the number of bits.
    pub(super) fn get(&self, index: usize) -> bool {
        let bit = self.offset + index;
        self.bytes[bit / 8] >> (bit % 8) & 1 == 1
    }

    /// The bits in words of 64, from bit 0 on; the last word is filled up with 0.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> + use<'a> {
        let words = BitChunks::new(self.bytes, self.offset, self.len);
        let last = (words.remainder_len() > 0).then(|| words.remainder_bits());
        words.iter().chain(last)
    }
}
