//! Exporters that pass a validity bitmap with types that have none.

use std::sync::Arc;

use arrow::array::*;
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Field, Int32Type, UnionFields};

use super::super::*;
use super::broken::keep;
use super::support::{assert_same, batch_of, child, cross_arrays, edit, encoder, export, named};
use crate::arrow::abi::ArrowArray;

/// Inserts a bitmap before the buffers of an array; 0 is NULL.
fn prepend(array: &mut ArrowArray, bitmap: usize) {
    let mut buffers = vec![bitmap];
    for index in 0..usize::try_from(array.n_buffers).unwrap() {
        // SAFETY: arrow-rs exports `n_buffers` pointers.
        let slot = unsafe { array.buffers.add(index) };
        // SAFETY: as above.
        let buffer = unsafe { slot.read() };
        buffers.push(buffer.expose_provenance());
    }
    array.n_buffers += 1;
    array.buffers = keep(&buffers).cast();
}

fn unions() -> [ArrayRef; 2] {
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let fields = UnionFields::try_new([0], [Field::new("i", DataType::Int32, true)]).unwrap();
    [Some(vec![0, 1, 2]), None].map(|offsets| {
        let ids = ScalarBuffer::from(vec![0i8; 3]);
        let offsets = offsets.map(ScalarBuffer::from);
        let union = UnionArray::try_new(fields.clone(), ids, offsets, vec![ints.clone()]);
        Arc::new(union.unwrap()) as ArrayRef
    })
}

/// A surplus bitmap is accepted if it has no meaning: the null type needs no bitmap, and for other
/// types a NULL bitmap hides no values.
#[test]
fn one_bitmap_too_many_is_taken() {
    let nulls: ArrayRef = Arc::new(NullArray::new(3));
    let item = Arc::new(Field::new("n", DataType::Null, true));
    let inside = StructArray::new(vec![item].into(), vec![nulls.clone()], None);
    let runs: RunArray<Int32Type> = [Some("a"), Some("a"), None].into_iter().collect();
    let [dense, sparse] = unions();
    let columns = vec![
        named("nulls", nulls),
        named("inside", Arc::new(inside)),
        named("runs", Arc::new(runs)),
        named("dense", dense),
        named("sparse", sparse),
    ];
    let batch = batch_of(columns);
    // arrow-rs exports no surplus bitmap. polars exports one buffer for the null type, NULL or not.
    for bitmap in [0, keep(&[0u8; 8]).expose_provenance()] {
        let exported = || {
            edit(export(&batch), |array| {
                prepend(child(array, 0), bitmap);
                prepend(child(child(array, 1), 0), bitmap);
                for index in 2..5 {
                    prepend(child(array, index), 0);
                }
            })
        };
        let arrays = [exported(), exported()];
        let (_, read) = cross_arrays(&batch.schema(), arrays, EncodeOptions::default());
        assert_same(&read, &[batch.clone(), batch.clone()]);
    }
}

/// A surplus bitmap that is not NULL is refused, because it would be lost.
#[test]
fn a_bitmap_that_says_something_is_refused() {
    let [dense, sparse] = unions();
    for column in [dense, sparse] {
        let batch = batch_of(vec![named("u", column)]);
        let mut encoder = encoder(&batch.schema(), EncodeOptions::default());
        let bitmap = keep(&[0u8; 8]).expose_provenance();
        let array = edit(export(&batch), |array| prepend(child(array, 0), bitmap));
        let (error, _) = *encoder.try_encode(array, None).unwrap_err();
        assert!(
            error
                .text()
                .contains("a validity bitmap, but its type has none"),
            "{error}"
        );
    }
}
