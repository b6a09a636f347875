//! Arrays that carry custom metadata of their batch.
//!
//! Arrow's structs have no place for such metadata. An annotated array owns the original array, has
//! the same parts, and has a release function of this module. By this function the library
//! recognises the array, however it comes: published, from a stream, or pushed.

use std::ptr::{self, NonNull};

use crate::arrow::abi::{ArrowArray, ArrowDeviceArray};
use crate::arrow::{OwnedDeviceArray, select};

/// The array that is annotated, and its metadata.
struct Annotation {
    _array: OwnedDeviceArray,
    metadata: Box<[u8]>,
}

/// Gives an array custom metadata, encoded as `ArrowSchema.metadata`, in place of what an earlier
/// call gave it. Empty metadata mean no metadata. Everything else stays as it is, even what the
/// caller has changed since an earlier call.
pub fn annotate(array: OwnedDeviceArray, metadata: &[u8]) -> OwnedDeviceArray {
    if let Some(mut annotation) = annotation_of(array.raw()) {
        // SAFETY: only `annotate` and the release use the annotation, and this function owns the
        // array.
        unsafe { annotation.as_mut() }.metadata = metadata.into();
        return array;
    }
    if metadata.is_empty() || array.is_released() {
        return array;
    }
    // SAFETY: `array` is initialised. The copy gets a release of its own before it has an owner.
    let mut outer = unsafe { ptr::read(array.raw()) };
    let annotation = Box::new(Annotation {
        _array: array,
        metadata: metadata.into(),
    });
    outer.array.private_data = Box::into_raw(annotation).cast();
    outer.array.release = Some(release_annotated);
    // SAFETY: `outer` has the parts of an array that keeps the promise of an owned one. The
    // annotation owns that array, and nobody else uses it. The release of `outer` drops the
    // annotation.
    unsafe { OwnedDeviceArray::from_raw(outer) }
}

/// The custom metadata of an array; empty if [`annotate`] gave it none. A selected array has the
/// metadata of the whole array.
pub fn annotation(array: &ArrowDeviceArray) -> &[u8] {
    let array = select::whole(array).unwrap_or(array);
    match annotation_of(array) {
        // SAFETY: the annotation lives until the release, and only the owner of the array changes
        // it.
        Some(annotation) => unsafe { &annotation.as_ref().metadata },
        None => &[],
    }
}

fn annotation_of(array: &ArrowDeviceArray) -> Option<NonNull<Annotation>> {
    let own: unsafe extern "C" fn(*mut ArrowArray) = release_annotated;
    let release = array.array.release?;
    // Only `annotate` pairs the release with `private_data`.
    ptr::fn_addr_eq(release, own)
        .then(|| NonNull::new(array.array.private_data.cast()))
        .flatten()
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
        let mut first = first;
        // SAFETY: a slice of an array follows the interface.
        unsafe { first.raw_mut() }.array.length = 3;
        let second = annotate(first, b"second");
        assert_eq!(second.raw().array.length, 3);
        assert_eq!(annotation(second.raw()), b"second");
        let plain = annotate(second, b"");
        assert!(annotation(plain.raw()).is_empty());
        drop(annotate(plain, b"third"));
        assert_eq!(released, 1);
    }
}
