//! Bitmaps.

use arrow::util::bit_chunk_iterator::UnalignedBitChunk;

/// Sets `count` bits from bit `at` on.
pub(super) fn fill(target: &mut [u8], at: usize, count: usize) {
    let before = (at.wrapping_neg() % 8).min(count);
    put(target, at, before, |_| 0xff);
    let (at, count) = (at + before, count - before);
    if let Some(whole) = target.get_mut(at / 8..(at + count) / 8) {
        whole.fill(0xff);
    }
    put(target, at + count / 8 * 8, count % 8, |_| 0xff);
}

/// Copies `count` bits of `source` from bit `start` on to `target` from bit `at` on, where the bits
/// are 0. Bits after the end of `source` count as 0.
pub(super) fn copy(target: &mut [u8], at: usize, source: &[u8], start: usize, count: usize) {
    let shift = start % 8;
    let whole = source.get(start / 8..start / 8 + count / 8);
    let place = target.get_mut(at / 8..at / 8 + count / 8);
    if let (Some(whole), Some(place), 0, 0) = (whole, place, shift, at % 8) {
        place.copy_from_slice(whole);
        let done = count / 8 * 8;
        let last = source.get((start + done) / 8).copied().unwrap_or(0);
        return put(target, at + done, count % 8, |_| last);
    }
    put(target, at, count, |done| {
        let index = start / 8 + done;
        let byte = |index: usize| u16::from(source.get(index).copied().unwrap_or(0));
        let both = byte(index) | byte(index + 1) << 8;
        (both >> shift).to_le_bytes()[0]
    });
}

/// Sets `count` bits from bit `at` on; `byte(n)` returns the bits from bit `8 * n` on.
fn put(target: &mut [u8], at: usize, count: usize, byte: impl Fn(usize) -> u8) {
    let shift = at % 8;
    for done in 0..count.div_ceil(8) {
        let place = at / 8 + done;
        let left = count - done * 8;
        let mask = if left < 8 { (1u16 << left) - 1 } else { 0xff };
        let bits = ((u16::from(byte(done)) & mask) << shift).to_le_bytes();
        for (index, bits) in bits.into_iter().enumerate() {
            if let Some(target) = target.get_mut(place + index) {
                *target |= bits;
            }
        }
    }
}

/// A validity bitmap. An empty bitmap means that all values are valid.
pub(super) struct Bitmap<'a>(pub(super) &'a [u8]);

impl Bitmap<'_> {
    pub(super) fn get(&self, row: usize) -> bool {
        self.0.is_empty()
            || self
                .0
                .get(row / 8)
                .is_some_and(|byte| byte >> (row % 8) & 1 == 1)
    }
}

/// The number of 1 bits among the first `len` bits of `bytes`, which has as many.
pub(super) fn count_ones(bytes: &[u8], len: usize) -> usize {
    UnalignedBitChunk::new(bytes, 0, len).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit(bytes: &[u8], index: usize) -> bool {
        bytes
            .get(index / 8)
            .is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    /// All alignments of source and target; other bits stay unchanged.
    #[test]
    fn bits_come_to_their_places() {
        let source = [0b1011_0010, 0b0111_0101, 0b1100_1001];
        for at in 0..17 {
            for start in 0..10 {
                for count in 0..=14 {
                    let mut copied = [0; 5];
                    copy(&mut copied, at, &source, start, count);
                    let mut filled = [0; 5];
                    fill(&mut filled, at, count);
                    for index in 0..40 {
                        let inside = (at..at + count).contains(&index);
                        let wanted = inside && bit(&source, start + index - at.min(index));
                        assert_eq!(bit(&copied, index), wanted, "{at} {start} {count} {index}");
                        assert_eq!(bit(&filled, index), inside, "{at} {count} {index}");
                    }
                }
            }
        }
    }
}
