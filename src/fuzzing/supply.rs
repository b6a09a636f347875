//! Choices out of a fuzzer's bytes.

/// The bytes as a supply of choices; zeros once they are used up.
pub(super) struct Supply<'a>(pub(super) &'a [u8]);

impl<'a> Supply<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let (byte, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *byte
    }

    pub(super) fn bytes(&mut self, len: u8) -> &'a [u8] {
        let (bytes, rest) = self.0.split_at(usize::from(len).min(self.0.len()));
        self.0 = rest;
        bytes
    }

    pub(super) fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// Up to three buffer lengths, among them 0.
    pub(super) fn lengths(&mut self) -> Vec<u64> {
        (0..self.byte() % 4)
            .map(|_| u64::from(self.byte()) * 7)
            .collect()
    }
}
