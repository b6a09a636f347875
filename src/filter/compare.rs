//! Comparisons. Arrow's kernels order floats totally, with NaN above all; filters compare them as
//! arithmetic does: NaN equals nothing, and the two zeros are equal.

use arrow::array::{Array, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::compute::kernels::cmp;
use arrow::compute::{and, is_not_null, is_null, or};
use arrow::datatypes::{DataType, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;

use super::value::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    fn turned(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            same => same,
        }
    }
}

/// Compares row by row. Both sides have the same type.
pub(super) fn compare(
    how: Comparison,
    left: &Value,
    right: &Value,
) -> Result<BooleanArray, ArrowError> {
    match left.array().data_type() {
        of if of != right.array().data_type() => Err(ArrowError::InvalidArgumentError(format!(
            "cannot compare {of} with {}",
            right.array().data_type()
        ))),
        DataType::Float16 => floats::<Float16Type>(how, left, right),
        DataType::Float32 => floats::<Float32Type>(how, left, right),
        DataType::Float64 => floats::<Float64Type>(how, left, right),
        DataType::Null => Ok(BooleanArray::new_null(rows(left, right))),
        _ => match how {
            Comparison::Equal => cmp::eq(left, right),
            Comparison::NotEqual => cmp::neq(left, right),
            Comparison::Less => cmp::lt(left, right),
            Comparison::LessOrEqual => cmp::lt_eq(left, right),
            Comparison::Greater => cmp::gt(left, right),
            Comparison::GreaterOrEqual => cmp::gt_eq(left, right),
        },
    }
}

/// True if the values are equal or both null, else false.
pub(super) fn same(left: &Value, right: &Value) -> Result<BooleanArray, ArrowError> {
    let rows = rows(left, right);
    let equal = compare(Comparison::Equal, left, right)?;
    let known = is_not_null(&equal)?;
    let equal = and(&BooleanArray::new(equal.values().clone(), None), &known)?;
    let null = |value: &Value| {
        let nulls = is_null(value.array())?;
        value.with(std::sync::Arc::new(nulls)).booleans(rows)
    };
    or(&equal, &and(&null(left)?, &null(right)?)?)
}

fn rows(left: &Value, right: &Value) -> usize {
    match left.is_scalar() {
        true => right.array().len(),
        false => left.array().len(),
    }
}

fn floats<T>(how: Comparison, left: &Value, right: &Value) -> Result<BooleanArray, ArrowError>
where
    T: ArrowPrimitiveType,
    T::Native: PartialOrd,
{
    let a = left.array().as_primitive::<T>();
    let b = right.array().as_primitive::<T>();
    match (left.is_scalar(), right.is_scalar()) {
        (true, false) => Ok(with_one::<T>(how.turned(), b, a)),
        (false, true) => Ok(with_one::<T>(how, a, b)),
        _ if a.len() != b.len() => Err(ArrowError::InvalidArgumentError(format!(
            "cannot compare {} rows with {}",
            a.len(),
            b.len()
        ))),
        _ => Ok(match how {
            Comparison::Equal => BooleanArray::from_binary(a, b, |a, b| a == b),
            Comparison::NotEqual => BooleanArray::from_binary(a, b, |a, b| a != b),
            Comparison::Less => BooleanArray::from_binary(a, b, |a, b| a < b),
            Comparison::LessOrEqual => BooleanArray::from_binary(a, b, |a, b| a <= b),
            Comparison::Greater => BooleanArray::from_binary(a, b, |a, b| a > b),
            Comparison::GreaterOrEqual => BooleanArray::from_binary(a, b, |a, b| a >= b),
        }),
    }
}

/// Compares each row with the one row of `one`.
fn with_one<T>(how: Comparison, all: &PrimitiveArray<T>, one: &PrimitiveArray<T>) -> BooleanArray
where
    T: ArrowPrimitiveType,
    T::Native: PartialOrd,
{
    let Some(one) = one.iter().next().flatten() else {
        return BooleanArray::new_null(all.len());
    };
    match how {
        Comparison::Equal => BooleanArray::from_unary(all, |value| value == one),
        Comparison::NotEqual => BooleanArray::from_unary(all, |value| value != one),
        Comparison::Less => BooleanArray::from_unary(all, |value| value < one),
        Comparison::LessOrEqual => BooleanArray::from_unary(all, |value| value <= one),
        Comparison::Greater => BooleanArray::from_unary(all, |value| value > one),
        Comparison::GreaterOrEqual => BooleanArray::from_unary(all, |value| value >= one),
    }
}
