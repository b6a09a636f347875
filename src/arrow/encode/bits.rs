//! Bits of bitmaps.

use arrow::util::bit_chunk_iterator::{BitChunks, UnalignedBitChunk};

use crate::device::BufferRef;

/// Where some bits of a bitmap lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct BitRange {
    /// The bytes that have them.
    pub(super) buffer: BufferRef,
    /// Of the first bit in `buffer`, less than 8.
    pub(super) first: usize,
    /// How many.
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

/// Some bits of a bitmap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    /// Of the first bit in `bytes`, less than 8.
    offset: usize,
    len: usize,
}

impl<'a> Bits<'a> {
    /// `len` bits from bit `offset` of `bytes` on, where `offset` is less than 8 and `bytes` has
    /// them all.
    pub(super) fn new(bytes: &'a [u8], offset: usize, len: usize) -> Self {
        Self { bytes, offset, len }
    }

    /// How many are 0.
    pub(super) fn zeros(&self) -> usize {
        if self.len == 0 {
            return 0;
        }
        self.len - UnalignedBitChunk::new(self.bytes, self.offset, self.len).count_ones()
    }

    /// The bit at `index`, which is less than the number of bits.
    pub(super) fn get(&self, index: usize) -> bool {
        let bit = self.offset + index;
        self.bytes[bit / 8] >> (bit % 8) & 1 == 1
    }

    /// The bits from bit 0 on, 64 at a time, the last ones filled up with 0.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> + use<'a> {
        let words = BitChunks::new(self.bytes, self.offset, self.len);
        let last = (words.remainder_len() > 0).then(|| words.remainder_bits());
        words.iter().chain(last)
    }
}
