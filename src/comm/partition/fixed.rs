//! The bytes of arrays whose values have one width.

use arrow::array::ArrayData;
use arrow::datatypes::DataType;

// The values of an array lie in memory as the machine has them, and the hash of a value is that of
// its little-endian bytes.
const _: () = assert!(
    cfg!(target_endian = "little"),
    "libdipc is for little-endian machines"
);

/// The bytes of each value of an array of this type, if all have as many: numbers, times, and
/// binary values of fixed size.
pub fn width(of: &DataType) -> Option<usize> {
    match of {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
        of => of.primitive_width(),
    }
}

/// The values of an array with values of `width` bytes.
pub fn bytes(data: &ArrayData, width: usize) -> Option<&[u8]> {
    let first = data.offset().checked_mul(width)?;
    let len_bytes = data.len().checked_mul(width)?;
    data.buffers()
        .first()?
        .get(first..first.checked_add(len_bytes)?)
}
