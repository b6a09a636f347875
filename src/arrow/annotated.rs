//! Arrays that carry custom metadata of their batch.
//!
//! Arrow's structs have no place for it. An annotated array has the parts of the array that it
//! owns, and a release of this module, by which the library knows it again, whichever way it comes:
//! published, of a stream, or pushed.

use std::ptr;

use crate::arrow::OwnedDeviceArray;
use crate::arrow::abi::{ArrowArray, ArrowDeviceArray};

/// The array that is annotated, and its metadata.
struct Annotation {
    array: OwnedDeviceArray,
    metadata: Box<[u8]>,
}

/// Gives an array custom metadata, encoded as `ArrowSchema.metadata`, in the place of its own.
/// Empty metadata are none.
pub fn annotate(array: OwnedDeviceArray, metadata: &[u8]) -> OwnedDeviceArray {
    let array = bare(array);
    if metadata.is_empty() || array.is_released() {
        return array;
    }
    // SAFETY: `array` is initialised. The copy gets a release of its own before it has an owner.
    let mut outer = unsafe { ptr::read(array.raw()) };
    let annotation = Box::new(Annotation {
        array,
        metadata: metadata.into(),
    });
    outer.array.private_data = Box::into_raw(annotation).cast();
    outer.array.release = Some(release_annotated);
    // SAFETY: it has the parts of an array that keeps the promise of an owned one. The annotation,
    // which its release drops, owns that array, and nobody else uses it.
    unsafe { OwnedDeviceArray::from_raw(outer) }
}

/// The custom metadata of an array; empty where [`annotate`] gave it none.
pub fn annotation(array: &ArrowDeviceArray) -> &[u8] {
    let raw = &array.array;
    if !is_annotated(raw) {
        return &[];
    }
    // SAFETY: only `annotate` pairs the release with `private_data`, which lives until the release.
    let annotation = unsafe { &*raw.private_data.cast::<Annotation>() };
    &annotation.metadata
}

/// The array without its annotation.
fn bare(array: OwnedDeviceArray) -> OwnedDeviceArray {
    if !is_annotated(&array.raw().array) {
        return array;
    }
    let raw = array.into_raw();
    // SAFETY: as in `annotation`. Nobody calls the release of `raw` any more, so this is the only
    // owner of the box. What a consumer moved out of the outer array it moved out of the lists that
    // both arrays have.
    let annotation = unsafe { Box::from_raw(raw.array.private_data.cast::<Annotation>()) };
    annotation.array
}

fn is_annotated(array: &ArrowArray) -> bool {
    let own: unsafe extern "C" fn(*mut ArrowArray) = release_annotated;
    (array.release).is_some_and(|release| ptr::fn_addr_eq(release, own))
}

unsafe extern "C" fn release_annotated(array: *mut ArrowArray) {
    // SAFETY: Arrow's interface passes the struct that holds this function, live.
    let array = unsafe { &mut *array };
    array.release = None;
    let private = std::mem::replace(&mut array.private_data, ptr::null_mut());
    // SAFETY: `annotate` made it from a box of this type. The NULL prevents a second use.
    drop(unsafe { Box::from_raw(private.cast::<Annotation>()) });
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    unsafe extern "C" fn release(array: *mut ArrowArray) {
        // SAFETY: the tests' arrays hold a live counter.
        let array = unsafe { &mut *array };
        array.release = None;
        // SAFETY: as above.
        unsafe { *array.private_data.cast::<u32>() += 1 };
    }

    fn array(released: &mut u32) -> OwnedDeviceArray {
        let mut raw = ArrowDeviceArray::empty();
        raw.array.length = 7;
        raw.array.release = Some(release);
        raw.array.private_data = ptr::from_mut(released).cast::<c_void>();
        // SAFETY: the counter outlives the array in each test.
        unsafe { OwnedDeviceArray::from_raw(raw) }
    }

    /// Promise: the metadata are found again, the last ones count, and the array is released once.
    #[test]
    fn an_array_keeps_its_metadata_and_is_released_once() {
        let mut released = 0;
        let plain = array(&mut released);
        assert!(annotation(plain.raw()).is_empty());
        let first = annotate(plain, b"first");
        assert_eq!(annotation(first.raw()), b"first");
        assert_eq!(first.raw().array.length, 7);
        let second = annotate(first, b"second");
        assert_eq!(annotation(second.raw()), b"second");
        let plain = annotate(second, b"");
        assert!(annotation(plain.raw()).is_empty());
        drop(annotate(plain, b"third"));
        assert_eq!(released, 1);
    }
}
