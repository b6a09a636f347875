//! Values on their way through a filter: whole columns, and single rows that stand for all rows.

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Datum, RecordBatch, UInt64Array, new_empty_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, nullif, take};
use arrow::datatypes::{
    ArrowNativeType, DataType, Field, Int16Type, Int32Type, Int64Type, RunEndIndexType, UInt64Type,
};
use arrow::error::ArrowError;

use crate::error::{Error, Result};

/// A value for each row of a batch.
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

    /// The value as booleans, with `rows` rows.
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
    /// The type of the values after they are unpacked.
    plain: DataType,
    /// The name, for the texts of errors.
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

    /// Finds the values in `batch`, without work for each row.
    pub(super) fn find(&self, batch: &RecordBatch) -> Result<Found<'_>> {
        let (&top, fields) = self.path.split_first().ok_or_else(|| self.absent())?;
        let top = batch.columns().get(top);
        let mut array = top.ok_or_else(|| self.absent())?.clone();
        let mut nulls = None;
        for &place in fields {
            let parent = array.as_struct_opt().ok_or_else(|| self.absent())?;
            let own = parent.nulls().filter(|nulls| nulls.null_count() > 0);
            nulls = NullBuffer::union(nulls.as_ref(), own);
            let child = parent.columns().get(place).ok_or_else(|| self.absent())?;
            array = child.clone();
        }
        match *array.data_type() == self.declared {
            true => Ok(Found {
                stored: Stored::new(&array).map_err(super::failed)?,
                nulls,
                plain: &self.plain,
            }),
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

/// The values of a column in one batch.
pub(super) struct Found<'a> {
    stored: Stored,
    /// The nulls of the structs around the field. Where a struct is null, its fields are null too.
    nulls: Option<NullBuffer>,
    plain: &'a DataType,
}

impl Found<'_> {
    /// Some rows, unpacked.
    pub(super) fn rows(&self, start: usize, len: usize) -> Result<ArrayRef, ArrowError> {
        if len == 0 {
            return Ok(new_empty_array(self.plain));
        }
        let array = self.stored.rows(start, len)?;
        match &self.nulls {
            Some(nulls) => hide(&array, &nulls.slice(start, len)),
            None => Ok(array),
        }
    }
}

/// `child` with nulls where `nulls` has them.
fn hide(child: &ArrayRef, nulls: &NullBuffer) -> Result<ArrayRef, ArrowError> {
    match child.data_type() {
        DataType::Null => Ok(child.clone()),
        // A union has no nulls of its own.
        DataType::Union(_, _) => {
            let rows = 0..child.len();
            let shown = rows.map(|row| nulls.is_valid(row).then_some(row as u64));
            take(child, &UInt64Array::from_iter(shown), None)
        }
        _ => nullif(child, &BooleanArray::new(!nulls.inner(), None)),
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

/// An array whose dictionaries and runs are unpacked for a few rows at a time, because runs may
/// have many more rows than bytes. Texts become views, so that unpacked rows share one copy of a
/// long value.
enum Stored {
    Plain(ArrayRef),
    /// Keys, and the values that they choose.
    Dictionary(ArrayRef, Box<Stored>),
    Runs(ArrayRef, Box<Stored>),
}

impl Stored {
    fn new(array: &ArrayRef) -> Result<Self, ArrowError> {
        Ok(match array.data_type() {
            DataType::Dictionary(_, _) => {
                let dictionary = array.as_any_dictionary();
                let keys = dictionary.keys().slice(0, array.len());
                Self::Dictionary(keys, Self::values(dictionary.values())?)
            }
            DataType::RunEndEncoded(ends, _) => {
                let values = match ends.data_type() {
                    DataType::Int16 => array.as_run::<Int16Type>().values(),
                    DataType::Int32 => array.as_run::<Int32Type>().values(),
                    _ => array.as_run::<Int64Type>().values(),
                };
                Self::Runs(array.clone(), Self::values(values)?)
            }
            _ => Self::Plain(array.clone()),
        })
    }

    /// The values of a dictionary or of runs.
    fn values(array: &ArrayRef) -> Result<Box<Self>, ArrowError> {
        Ok(Box::new(match Self::new(array)? {
            // Values without bytes stay as they are, because views of them would be larger.
            Self::Plain(array) if *array.data_type() != DataType::FixedSizeBinary(0) => {
                Self::Plain(viewed(&array)?)
            }
            stored => stored,
        }))
    }

    /// Some rows; at least one.
    fn rows(&self, start: usize, len: usize) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Plain(array) => Ok(array.slice(start, len)),
            Self::Dictionary(keys, values) => values.pick(&keys.slice(start, len)),
            Self::Runs(array, values) => {
                values.pick(&runs_at(array, (start..start + len).map(Some)))
            }
        }
    }

    /// The rows at these places. Some places may be null.
    fn pick(&self, places: &dyn Array) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Plain(array) => viewed(&take(array, places, None)?),
            Self::Dictionary(keys, values) => values.pick(&take(keys, places, None)?),
            Self::Runs(array, values) => {
                let places = cast(places, &DataType::UInt64)?;
                let places = places.as_primitive::<UInt64Type>().iter();
                let places = places.map(|place| place.and_then(|place| place.try_into().ok()));
                values.pick(&runs_at(array, places))
            }
        }
    }
}

/// For each of these rows of an array, the number of its run.
fn runs_at(array: &ArrayRef, rows: impl Iterator<Item = Option<usize>>) -> UInt64Array {
    fn of<R: RunEndIndexType>(
        array: &ArrayRef,
        rows: impl Iterator<Item = Option<usize>>,
    ) -> UInt64Array {
        let runs = array.as_run::<R>().run_ends();
        let ends = runs.values();
        let last = ends.len().saturating_sub(1);
        let mut run = 0;
        rows.map(|row| {
            let row = row?.saturating_add(runs.offset());
            let begins = |run: usize| {
                ends.get(run.wrapping_sub(1))
                    .is_none_or(|end| end.as_usize() <= row)
            };
            // Rows mostly come in order, and lie in the run of the row before or in the next one.
            if !(begins(run) && ends.get(run).is_some_and(|end| end.as_usize() > row)) {
                run = ends.partition_point(|end| end.as_usize() <= row).min(last);
            }
            Some(run as u64)
        })
        .collect()
    }
    match array.data_type() {
        DataType::RunEndEncoded(ends, _) if *ends.data_type() == DataType::Int16 => {
            of::<Int16Type>(array, rows)
        }
        DataType::RunEndEncoded(ends, _) if *ends.data_type() == DataType::Int32 => {
            of::<Int32Type>(array, rows)
        }
        _ => of::<Int64Type>(array, rows),
    }
}

fn viewed(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    cast(array, &view(array.data_type().clone()))
}
