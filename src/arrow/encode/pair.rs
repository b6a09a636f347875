//! The entries of a header's vectors.

use flatbuffers::{Push, PushAlignment};

/// A `FieldNode` or a `Buffer` in wire format: two numbers of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair(pub(super) u64, pub(super) u64);

impl Push for Pair {
    type Output = Self;

    #[inline]
    unsafe fn push(&self, target: &mut [u8], _written: usize) {
        if let Some(target) = target.first_chunk_mut::<16>() {
            let number = u128::from(self.0) | u128::from(self.1) << 64;
            *target = number.to_le_bytes();
        }
    }

    #[inline]
    fn alignment() -> PushAlignment {
        PushAlignment::new(8)
    }
}
