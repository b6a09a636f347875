//! Reading the producer's memory: the seam for other devices, and bitmaps.

use arrow::util::bit_chunk_iterator::{BitChunks, UnalignedBitChunk};

use crate::device::{BufferRef, DeviceKind};
use crate::error::Result;

/// How the values of buffers are read: the seam for devices whose memory the processor does not
/// see. What the encoder reads is small (offsets at the ends, bitmaps that must be counted or
/// moved, run ends), apart from dictionaries that must be compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory(());

impl Memory {
    /// # Errors
    ///
    /// `Unsupported` where memory of that kind cannot be read.
    pub(super) fn of(device: DeviceKind) -> Result<Self> {
        device.ensure_readable()?;
        Ok(Self(()))
    }

    /// # Safety
    ///
    /// The buffer lies on the device this was made for, lives for `'a`, and nobody writes to it.
    pub(super) unsafe fn read<'a>(self, buffer: BufferRef) -> &'a [u8] {
        // SAFETY: `of` admits only memory that the processor reads; the caller promises the rest.
        unsafe { buffer.as_slice() }
    }
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
