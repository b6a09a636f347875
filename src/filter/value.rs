//! Values on their way through a filter: whole columns, and single rows that stand for all rows.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Datum, RecordBatch, UInt64Array, new_null_array,
};
use arrow::compute::{cast, is_null, nullif, take};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

use crate::error::{Error, Result};

/// The rows of a batch.
#[derive(Clone)]
pub(super) enum Value {
    /// A row for each one of the batch.
    Array(ArrayRef),
    /// One row, equal for all of the batch.
    Scalar(ArrayRef),
}

impl Value {
    pub(super) fn array(&self) -> &ArrayRef {
        match self {
            Self::Array(array) | Self::Scalar(array) => array,
        }
    }

    pub(super) fn is_scalar(&self) -> bool {
        matches!(self, Self::Scalar(_))
    }

    /// As booleans, a row for each of `rows`.
    pub(super) fn booleans(&self, rows: usize) -> Result<BooleanArray, ArrowError> {
        let array = self.array();
        let booleans = array.as_boolean_opt().ok_or_else(|| {
            let of = array.data_type();
            ArrowError::InvalidArgumentError(format!("{of} where a boolean is needed"))
        })?;
        if !self.is_scalar() || rows == booleans.len() {
            return Ok(booleans.clone());
        }
        let first = booleans.iter().next().flatten();
        Ok(match first {
            Some(true) => BooleanArray::new(arrow::buffer::BooleanBuffer::new_set(rows), None),
            Some(false) => BooleanArray::new(arrow::buffer::BooleanBuffer::new_unset(rows), None),
            None => BooleanArray::new_null(rows),
        })
    }

    /// The same value, with another array of as many rows.
    pub(super) fn with(&self, array: ArrayRef) -> Self {
        match self {
            Self::Array(_) => Self::Array(array),
            Self::Scalar(_) => Self::Scalar(array),
        }
    }
}

impl Datum for Value {
    fn get(&self) -> (&dyn Array, bool) {
        match self {
            Self::Array(array) => (array.as_ref(), false),
            Self::Scalar(array) => (array.as_ref(), true),
        }
    }
}

/// A column of the table, or a field of a struct in it.
pub(super) struct Column {
    /// Positions, from the table's column down.
    path: Vec<usize>,
    /// The type of the field in the table.
    declared: DataType,
    /// The type in which its values come.
    plain: DataType,
    /// For errors.
    name: String,
}

impl Column {
    pub(super) fn new(path: Vec<usize>, field: &Field) -> Self {
        Self {
            path,
            declared: field.data_type().clone(),
            plain: plain(field.data_type()),
            name: field.name().clone(),
        }
    }

    /// The position of the table's column.
    pub(super) fn top(&self) -> Option<usize> {
        self.path.first().copied()
    }

    pub(super) fn data_type(&self) -> &DataType {
        &self.plain
    }

    /// Whether both are the same field of the table.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// The values in `batch`: a struct's nulls are its fields' too; dictionaries and runs are
    /// unpacked.
    pub(super) fn load(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let (&top, fields) = self.path.split_first().ok_or_else(|| self.absent())?;
        let mut array = batch
            .columns()
            .get(top)
            .ok_or_else(|| self.absent())?
            .clone();
        for &place in fields {
            let parent = array.as_struct_opt().ok_or_else(|| self.absent())?;
            let child = parent.columns().get(place).ok_or_else(|| self.absent())?;
            array = match parent.nulls() {
                Some(nulls) if nulls.null_count() > 0 => {
                    let child = unpack(child).map_err(super::failed)?;
                    hide(&child, &array).map_err(super::failed)?
                }
                _ => child.clone(),
            };
        }
        let array = unpack(&array).map_err(super::failed)?;
        match *array.data_type() == self.plain {
            true => Ok(array),
            false => Err(self.absent()),
        }
    }

    fn absent(&self) -> Error {
        Error::invalid_data(format!(
            "a batch has no column \"{}\" of type {} where the table's schema has it",
            self.name, self.declared
        ))
    }
}

/// `child` with nulls where `parent` has them.
fn hide(child: &ArrayRef, parent: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match child.data_type() {
        DataType::Null => Ok(child.clone()),
        // A union has no nulls of its own.
        DataType::Union(_, _) => {
            let rows = 0..child.len();
            let shown = rows.map(|row| parent.is_valid(row).then_some(row as u64));
            take(child, &UInt64Array::from_iter(shown), None)
        }
        _ => nullif(child, &is_null(parent)?),
    }
}

/// The type of a column once it is unpacked.
pub(super) fn plain(of: &DataType) -> DataType {
    match of {
        DataType::Dictionary(_, values) => view(plain(values)),
        DataType::RunEndEncoded(_, values) => view(plain(values.data_type())),
        _ => of.clone(),
    }
}

/// The type whose arrays share the bytes of equal values.
pub(super) fn view(of: DataType) -> DataType {
    match of {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary | DataType::FixedSizeBinary(_) => {
            DataType::BinaryView
        }
        other => other,
    }
}

/// Dictionaries and runs as arrays of their values. Texts become views: unpacked, each row has its
/// own place, and long values their one copy.
fn unpack(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary();
            let values = viewed(&unpack(dictionary.values())?)?;
            take(&values, dictionary.keys(), None)
        }
        DataType::RunEndEncoded(ends, values) => {
            let to = view(plain(values.data_type()));
            if array.is_empty() {
                return Ok(new_null_array(&to, 0));
            }
            let values = Arc::new(Field::new(values.name(), to.clone(), true));
            let runs = cast(array, &DataType::RunEndEncoded(ends.clone(), values))?;
            cast(&runs, &to)
        }
        _ => Ok(array.clone()),
    }
}

fn viewed(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    cast(array, &view(array.data_type().clone()))
}
