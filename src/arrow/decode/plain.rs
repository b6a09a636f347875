//! Numbers that are read from a peer's bytes as they are.

/// A fixed-size number that any bytes are a value of.
///
/// # Safety
///
/// Every bit pattern of the type's size is a valid value, and it has no padding.
pub(super) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($number:ty)*) => {
        // SAFETY: the integers of Rust are defined for every bit pattern and have no padding.
        $(unsafe impl Plain for $number {})*
    };
}
plain!(u8 i8 u16 i16 u32 i32 u64 i64);
