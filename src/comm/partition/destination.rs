//! Rows that name the ranks that they go to.

use arrow::array::{Array, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};

use crate::error::{Error, Result};

/// The destination of each row, from a column of integers of any type. `name` is the column's name,
/// for errors.
///
/// # Errors
///
/// `InvalidArgument`: the type is not an integer's. `InvalidData`, with the row: a value is null,
/// negative, or not less than `ranks`.
pub fn destinations(name: &str, column: &dyn Array, ranks: u32) -> Result<Vec<u32>> {
    match column.data_type() {
        DataType::Int8 => of::<Int8Type>(name, column, ranks),
        DataType::Int16 => of::<Int16Type>(name, column, ranks),
        DataType::Int32 => of::<Int32Type>(name, column, ranks),
        DataType::Int64 => of::<Int64Type>(name, column, ranks),
        DataType::UInt8 => of::<UInt8Type>(name, column, ranks),
        DataType::UInt16 => of::<UInt16Type>(name, column, ranks),
        DataType::UInt32 => of::<UInt32Type>(name, column, ranks),
        DataType::UInt64 => of::<UInt64Type>(name, column, ranks),
        other => Err(not_integers(name, other)),
    }
}

/// The error for a column of destinations of type `of`.
pub fn not_integers(name: &str, of: &DataType) -> Error {
    Error::invalid_argument(format!(
        "the column of destinations \"{name}\" has type {of}: ranks are integers"
    ))
}

fn of<T>(name: &str, column: &dyn Array, ranks: u32) -> Result<Vec<u32>>
where
    T: ArrowPrimitiveType,
    u32: TryFrom<T::Native>,
{
    let column = column.as_primitive::<T>();
    let wrong = |row: usize, value: &dyn std::fmt::Display| {
        Error::invalid_data(format!(
            "the column of destinations \"{name}\" has {value} in row {row}: there are {ranks} \
             ranks, which count from 0"
        ))
    };
    if column.null_count() > 0 {
        let nulls = column.nulls().into_iter().flatten();
        let row = nulls.take_while(|is_valid| *is_valid).count();
        return Err(wrong(row, &"null"));
    }
    let rows = column.values().iter().enumerate();
    let rank = |(row, value): (usize, &T::Native)| match u32::try_from(*value) {
        Ok(rank) if rank < ranks => Ok(rank),
        _ => Err(wrong(row, &format_args!("{value:?}"))),
    };
    rows.map(rank).collect()
}
