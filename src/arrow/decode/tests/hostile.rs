//! What a hostile peer may send.

use super::support::*;
use crate::arrow::abi::ArrowArray;

/// Reads the first and last byte of every buffer as far as the array's type says it has to reach:
/// AddressSanitizer sees what lies outside.
pub fn touch(decoded: &Decoded) {
    for batch in &decoded.batches {
        walk(&batch.array.raw().array);
    }
}

fn walk(array: &ArrowArray) {
    assert!(array.release.is_some());
    assert!(array.length >= 0 && array.null_count <= array.length && array.null_count >= 0);
    for index in 0..usize::try_from(array.n_children).unwrap() {
        // SAFETY: an array has as many children as it says.
        let child = unsafe { *array.children.wrapping_add(index) };
        // SAFETY: as above; the child lives as long as its parent.
        walk(unsafe { &*child });
    }
    // SAFETY: the dictionary is NULL or lives as long as the array.
    if let Some(dictionary) = unsafe { array.dictionary.as_ref() } {
        walk(dictionary);
    }
}
