//! Checks of the numbers in a producer's array.

use super::fault::{Checked, Fault};
use crate::arrow::abi::ArrowArray;
use crate::arrow::format::Layout;

/// A signed number of 2, 4 or 8 bytes in native order.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    if let Ok(bytes) = bytes.try_into() {
        i64::from_ne_bytes(bytes)
    } else if let Ok(bytes) = bytes.try_into() {
        i64::from(i32::from_ne_bytes(bytes))
    } else if let Ok(bytes) = bytes.try_into() {
        i64::from(i16::from_ne_bytes(bytes))
    } else {
        0
    }
}

/// A number at `position` of the buffer `name`. A negative number is an error.
#[inline]
pub(super) fn unsigned(value: i64, name: &str, position: usize) -> Checked<usize> {
    usize::try_from(value).map_err(|_| {
        Fault::invalid(format!(
            "the {name} buffer has {value} at position {position}"
        ))
    })
}

#[cold]
pub(super) fn too_large() -> Box<Fault> {
    Fault::invalid("a buffer would be larger than any memory")
}

#[inline]
pub(super) fn size(name: &str, value: i64) -> Checked<usize> {
    usize::try_from(value)
        .map_err(|_| Fault::invalid(format!("the {name} is {value}, which is negative")))
}

/// Checks `n_buffers` and the list of buffers against the layout. Returns the number of buffers
/// before the layout's first buffer.
#[inline]
pub(super) fn check_buffers(layout: Layout, array: &ArrowArray) -> Checked<usize> {
    let wanted = match layout {
        // Any variadic buffers come before their lengths.
        Layout::View { .. } if array.n_buffers >= 3 => array.n_buffers,
        _ => i64::from(layout.buffers()),
    };
    let skipped = match layout {
        _ if array.n_buffers == wanted => 0,
        _ => skipped_bitmap(layout, array, wanted)?,
    };
    if wanted > 0 && array.buffers.is_null() {
        return Err(Fault::invalid("the list of buffers is NULL"));
    }
    Ok(skipped)
}

/// Some exporters pass a bitmap with types that have none. For the null type it is harmless. For
/// the others a NULL bitmap means that there are no nulls.
#[cold]
pub(super) fn skipped_bitmap(layout: Layout, array: &ArrowArray, wanted: i64) -> Checked<usize> {
    let one_more = !layout.has_validity() && array.n_buffers == wanted + 1;
    if !one_more {
        return Err(Fault::invalid(format!(
            "the array has {} buffers, but its type needs {wanted}",
            array.n_buffers
        )));
    }
    if layout == Layout::Null {
        return Ok(0);
    }
    if array.buffers.is_null() {
        return Err(Fault::invalid("the list of buffers is NULL"));
    }
    // SAFETY: the producer is trusted that the list has `n_buffers` entries, and `n_buffers` is at
    // least 1 here.
    let bitmap = unsafe { array.buffers.read() };
    if !bitmap.is_null() {
        return Err(Fault::invalid(
            "the array has a validity bitmap, but its type has none",
        ));
    }
    Ok(usize::from(wanted > 0))
}
