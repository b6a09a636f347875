//! A set of literals, to look up each row in.

use std::collections::HashSet;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, BooleanBufferBuilder,
    PrimitiveArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::concat;
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};

/// How many rows are copied as bytes at a time. This limits the memory: each row gets its own copy,
/// even if rows of a view or a dictionary share a long value.
const ROWS_AT_ONCE: usize = 1024;

/// Literals of one type, as bytes: two literals have the same bytes if they are equal.
pub(super) struct Members {
    converter: RowConverter,
    bytes: HashSet<Box<[u8]>>,
    /// A null is among the literals. A row that equals no other literal may equal the unknown
    /// value, so its result is null.
    null: bool,
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Members({})", self.bytes.len())
    }
}

impl Members {
    /// The set of `literals`, each of one row and all of one type.
    pub(super) fn new(literals: &[ArrayRef]) -> Result<Self, ArrowError> {
        let references: Vec<_> = literals.iter().map(|literal| literal.as_ref()).collect();
        let all = concat(&references)?;
        let converter = RowConverter::new(vec![SortField::new(all.data_type().clone())])?;
        let rows = converter.convert_columns(&[one_zero(&all)])?;
        let nulls = all.logical_nulls();
        let unknown = not_a_number(&all);
        let bytes = (0..all.len())
            .filter(|&row| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)))
            .filter(|&row| unknown.as_ref().is_none_or(|unknown| !unknown.value(row)))
            .map(|row| rows.row(row).as_ref().into())
            .collect();
        Ok(Self {
            converter,
            bytes,
            null: nulls.is_some_and(|nulls| nulls.null_count() > 0),
        })
    }

    /// Whether each row is in the set; null if that is unknown.
    pub(super) fn test(&self, array: &ArrayRef) -> Result<BooleanArray, ArrowError> {
        let mut found = BooleanBufferBuilder::new(array.len());
        for start in (0..array.len()).step_by(ROWS_AT_ONCE) {
            let part = array.slice(start, ROWS_AT_ONCE.min(array.len() - start));
            let rows = self.converter.convert_columns(&[one_zero(&part)])?;
            for row in &rows {
                found.append(self.bytes.contains(row.as_ref()));
            }
        }
        let found = found.finish();
        let known = self.null.then(|| NullBuffer::new(found.clone()));
        let nulls = NullBuffer::union(array.logical_nulls().as_ref(), known.as_ref());
        Ok(BooleanArray::new(found, nulls))
    }
}

/// Replaces -0.0 by 0.0 in floats: the two are equal, but differ in their bytes. Other arrays stay
/// as they are.
fn one_zero(array: &ArrayRef) -> ArrayRef {
    fn of<T>(array: &ArrayRef) -> ArrayRef
    where
        T: ArrowPrimitiveType,
        T::Native: PartialEq + Default,
    {
        let zero = T::Native::default();
        let one = |value| if value == zero { zero } else { value };
        let floats: PrimitiveArray<T> = array.as_primitive::<T>().unary(one);
        std::sync::Arc::new(floats)
    }
    match array.data_type() {
        DataType::Float16 => of::<Float16Type>(array),
        DataType::Float32 => of::<Float32Type>(array),
        DataType::Float64 => of::<Float64Type>(array),
        _ => array.clone(),
    }
}

/// Which rows are NaN, if these are floats.
fn not_a_number(array: &ArrayRef) -> Option<BooleanArray> {
    Some(match array.data_type() {
        DataType::Float16 => {
            BooleanArray::from_unary(array.as_primitive::<Float16Type>(), |value| value.is_nan())
        }
        DataType::Float32 => {
            BooleanArray::from_unary(array.as_primitive::<Float32Type>(), f32::is_nan)
        }
        DataType::Float64 => {
            BooleanArray::from_unary(array.as_primitive::<Float64Type>(), f64::is_nan)
        }
        _ => return None,
    })
}
