//! Numbers that are read from a peer's bytes without conversion.

/// A fixed-size number for which all bytes are valid.
///
/// # Safety
///
/// Every bit pattern of the type's size is a valid value, and the type has no padding.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($number:ty)*) => {
        // SAFETY: for Rust's integers every bit pattern is valid, and they have no padding.
        $(unsafe impl Plain for $number {})*
    };
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64);
