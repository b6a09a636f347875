//! The functions of filters: their names in messages, and what they do with columns.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringViewBuilder, new_null_array};
use arrow::compute::kernels::{numeric, zip::zip};
use arrow::compute::{self, CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Float16Type, Float32Type, Float64Type};
use arrow::error::ArrowError;

use super::compare::{Comparison, compare, same};
use super::members::Members;
use super::types;
use super::value::Value;

#[derive(Debug, Clone)]
pub(super) enum Function {
    Compare(Comparison),
    /// Whether the first argument lies between the other two, or equals one of them.
    Between,
    /// `true`: whether the two arguments are equal or both null. `false`: the opposite.
    Same(bool),
    IsNull,
    IsNotNull,
    IsNan,
    IsFinite,
    IsInfinite,
    /// Whether a boolean has the value `value`. With `not`: whether it has the other value or is
    /// null.
    Is {
        value: bool,
        not: bool,
    },
    /// False and null is false, true or null is true.
    And,
    Or,
    /// Null with anything is null.
    StrictAnd,
    StrictOr,
    Xor,
    Not,
    Arithmetic(Arithmetic, Overflow),
    Negate(Overflow),
    /// The first argument that is not null.
    Coalesce,
    /// Conditions, each followed by its result, and the result where no condition is true.
    IfThen,
    Text(Text),
    Lower,
    Upper,
    /// The first argument equals one of the others.
    AnyOf,
    Member(Arc<Members>),
    /// `null`: values that cannot be converted become null; otherwise they are errors.
    Cast {
        to: DataType,
        null: bool,
    },
    /// Times as decimal seconds, so that those of different units can be compared.
    Seconds,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulus,
}

/// What becomes of a result that does not fit its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overflow {
    Error,
    /// The lowest bits of the result.
    Wrap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    StartsWith,
    EndsWith,
    Contains,
    Like,
    /// Without regard to case.
    LikeAnyCase,
}

/// The function of Substrait with this name. Names that only DataFusion uses are known too.
pub(super) fn of_substrait(name: &str) -> Option<Function> {
    let is = |value, not| Function::Is { value, not };
    Some(match name {
        "equal" => Function::Compare(Comparison::Equal),
        "not_equal" => Function::Compare(Comparison::NotEqual),
        "lt" => Function::Compare(Comparison::Less),
        "lte" => Function::Compare(Comparison::LessOrEqual),
        "gt" => Function::Compare(Comparison::Greater),
        "gte" => Function::Compare(Comparison::GreaterOrEqual),
        "between" => Function::Between,
        "is_not_distinct_from" => Function::Same(true),
        "is_distinct_from" => Function::Same(false),
        "is_null" | "is_unknown" => Function::IsNull,
        "is_not_null" | "is_not_unknown" => Function::IsNotNull,
        "is_nan" | "isnan" => Function::IsNan,
        "is_finite" => Function::IsFinite,
        "is_infinite" => Function::IsInfinite,
        "is_true" => is(true, false),
        "is_not_true" => is(true, true),
        "is_false" => is(false, false),
        "is_not_false" => is(false, true),
        "and" => Function::And,
        "or" => Function::Or,
        "xor" => Function::Xor,
        "not" => Function::Not,
        "add" => Function::Arithmetic(Arithmetic::Add, Overflow::Error),
        "subtract" => Function::Arithmetic(Arithmetic::Subtract, Overflow::Error),
        "multiply" => Function::Arithmetic(Arithmetic::Multiply, Overflow::Error),
        "divide" => Function::Arithmetic(Arithmetic::Divide, Overflow::Error),
        "modulus" | "modulo" | "mod" => Function::Arithmetic(Arithmetic::Modulus, Overflow::Error),
        "negate" => Function::Negate(Overflow::Error),
        "coalesce" => Function::Coalesce,
        "starts_with" => Function::Text(Text::StartsWith),
        "ends_with" => Function::Text(Text::EndsWith),
        "contains" => Function::Text(Text::Contains),
        "like" => Function::Text(Text::Like),
        "ilike" => Function::Text(Text::LikeAnyCase),
        "lower" => Function::Lower,
        "upper" => Function::Upper,
        _ => return None,
    })
}

/// The compute function of Arrow with this name. Functions that need options are missing, because
/// messages cannot carry these options.
pub(super) fn of_arrow(name: &str) -> Option<Function> {
    let wrapping = |what| Function::Arithmetic(what, Overflow::Wrap);
    let checked = |what| Function::Arithmetic(what, Overflow::Error);
    Some(match name {
        "less" => Function::Compare(Comparison::Less),
        "less_equal" => Function::Compare(Comparison::LessOrEqual),
        "greater" => Function::Compare(Comparison::Greater),
        "greater_equal" => Function::Compare(Comparison::GreaterOrEqual),
        "is_valid" => Function::IsNotNull,
        "is_inf" => Function::IsInfinite,
        "and" => Function::StrictAnd,
        "or" => Function::StrictOr,
        "and_kleene" => Function::And,
        "or_kleene" => Function::Or,
        "invert" => Function::Not,
        "add" => wrapping(Arithmetic::Add),
        "subtract" => wrapping(Arithmetic::Subtract),
        "multiply" => wrapping(Arithmetic::Multiply),
        "add_checked" => checked(Arithmetic::Add),
        "subtract_checked" => checked(Arithmetic::Subtract),
        "multiply_checked" => checked(Arithmetic::Multiply),
        "divide_checked" => checked(Arithmetic::Divide),
        "negate" => Function::Negate(Overflow::Wrap),
        "negate_checked" => Function::Negate(Overflow::Error),
        "utf8_lower" => Function::Lower,
        "utf8_upper" => Function::Upper,
        // Substrait has the same functions under the same names.
        "equal" | "not_equal" | "is_null" | "is_nan" | "is_finite" | "xor" | "divide"
        | "coalesce" => return of_substrait(name),
        _ => return None,
    })
}

impl Function {
    /// The least and the greatest number of arguments.
    pub(super) fn arguments(&self) -> (usize, usize) {
        match self {
            Self::And | Self::Or => (1, usize::MAX),
            Self::Coalesce | Self::AnyOf | Self::IfThen => (1, usize::MAX),
            Self::Between => (3, 3),
            Self::Compare(_) | Self::Same(_) | Self::Arithmetic(_, _) | Self::Text(_) => (2, 2),
            Self::StrictAnd | Self::StrictOr | Self::Xor => (2, 2),
            _ => (1, 1),
        }
    }

    /// The values for `arguments`. The caller has checked their number against [`Self::arguments`].
    pub(super) fn call(&self, arguments: &[Value]) -> Result<Value, ArrowError> {
        let all = arguments.iter().find(|value| !value.is_scalar());
        let rows = all.map_or(1, |value| value.array().len());
        let array = self.array(arguments, rows)?;
        Ok(match all {
            Some(_) => Value::Array(array),
            None => Value::Scalar(array),
        })
    }

    fn array(&self, arguments: &[Value], rows: usize) -> Result<ArrayRef, ArrowError> {
        match (self, arguments) {
            (Self::Arithmetic(what, overflow), [a, b]) => arithmetic(*what, *overflow, a, b),
            (Self::Negate(Overflow::Error), [a]) => numeric::neg(a.array()),
            (Self::Negate(Overflow::Wrap), [a]) => numeric::neg_wrapping(a.array()),
            (Self::Coalesce, values) => coalesce(values, rows),
            (Self::IfThen, values) => if_then(values, rows),
            (Self::Lower, [text]) => changed(text.array(), str::to_lowercase),
            (Self::Upper, [text]) => changed(text.array(), str::to_uppercase),
            (Self::Cast { to, null }, [value]) => {
                let options = CastOptions {
                    safe: *null,
                    ..Default::default()
                };
                cast_with_options(value.array(), to, &options)
            }
            (Self::Seconds, [value]) => seconds(value.array()),
            _ => Ok(Arc::new(self.truth(arguments, rows)?)),
        }
    }

    /// The result of a function that gives booleans.
    fn truth(&self, arguments: &[Value], rows: usize) -> Result<BooleanArray, ArrowError> {
        match (self, arguments) {
            (Self::Compare(how), [a, b]) => compare(*how, a, b),
            (Self::Between, [value, low, high]) => {
                let above = compare(Comparison::GreaterOrEqual, value, low)?;
                let below = compare(Comparison::LessOrEqual, value, high)?;
                // If the value and one bound are scalars, the comparison with this bound has a
                // single row.
                let above = spread(above, value, low).booleans(rows)?;
                compute::and_kleene(&above, &spread(below, value, high).booleans(rows)?)
            }
            (Self::Same(wanted), [a, b]) => match wanted {
                true => same(a, b),
                false => compute::not(&same(a, b)?),
            },
            (Self::IsNull, [value]) => compute::is_null(value.array()),
            (Self::IsNotNull, [value]) => compute::is_not_null(value.array()),
            (Self::IsNan, [value]) => floats(value.array(), false, f64::is_nan),
            (Self::IsFinite, [value]) => floats(value.array(), true, f64::is_finite),
            (Self::IsInfinite, [value]) => floats(value.array(), false, f64::is_infinite),
            (Self::Is { value, not }, [tested]) => {
                let tested = tested.booleans(rows)?;
                Ok(tested
                    .iter()
                    .map(|row| Some((row == Some(*value)) != *not))
                    .collect())
            }
            (Self::And, values) => fold(values, rows, compute::and_kleene),
            (Self::Or, values) => fold(values, rows, compute::or_kleene),
            (Self::StrictAnd, values) => fold(values, rows, compute::and),
            (Self::StrictOr, values) => fold(values, rows, compute::or),
            (Self::Xor, [a, b]) => compare(
                Comparison::NotEqual,
                &booleans(a, rows)?,
                &booleans(b, rows)?,
            ),
            (Self::Not, [value]) => compute::not(&value.booleans(rows)?),
            (Self::Text(test), [text, pattern]) => match test {
                Text::StartsWith => compute::starts_with(text, pattern),
                Text::EndsWith => compute::ends_with(text, pattern),
                Text::Contains => compute::contains(text, pattern),
                Text::Like => compute::like(text, pattern),
                Text::LikeAnyCase => compute::ilike(text, pattern),
            },
            (Self::AnyOf, [value, options @ ..]) => {
                let mut any = BooleanArray::from(vec![false; rows]);
                for option in options {
                    let equal = compare(Comparison::Equal, value, option)?;
                    let equal = spread(equal, value, option).booleans(rows)?;
                    any = compute::or_kleene(&any, &equal)?;
                }
                Ok(any)
            }
            (Self::Member(members), [value]) => members.test(value.array()),
            _ => Err(ArrowError::InvalidArgumentError(format!(
                "{} arguments",
                arguments.len()
            ))),
        }
    }
}

/// The result of a function of `a` and `b`, as a scalar if both are scalars.
fn spread(result: BooleanArray, a: &Value, b: &Value) -> Value {
    match a.is_scalar() && b.is_scalar() {
        true => Value::Scalar(Arc::new(result)),
        false => Value::Array(Arc::new(result)),
    }
}

fn booleans(value: &Value, rows: usize) -> Result<Value, ArrowError> {
    Ok(Value::Array(Arc::new(value.booleans(rows)?)))
}

fn fold(
    values: &[Value],
    rows: usize,
    join: fn(&BooleanArray, &BooleanArray) -> Result<BooleanArray, ArrowError>,
) -> Result<BooleanArray, ArrowError> {
    let (first, others) = values.split_first().ok_or_else(|| {
        ArrowError::InvalidArgumentError("a function without arguments".to_owned())
    })?;
    let mut joined = first.booleans(rows)?;
    for other in others {
        joined = join(&joined, &other.booleans(rows)?)?;
    }
    Ok(joined)
}

fn arithmetic(
    what: Arithmetic,
    overflow: Overflow,
    a: &Value,
    b: &Value,
) -> Result<ArrayRef, ArrowError> {
    match (what, overflow) {
        (Arithmetic::Add, Overflow::Error) => numeric::add(a, b),
        (Arithmetic::Subtract, Overflow::Error) => numeric::sub(a, b),
        (Arithmetic::Multiply, Overflow::Error) => numeric::mul(a, b),
        (Arithmetic::Add, Overflow::Wrap) => numeric::add_wrapping(a, b),
        (Arithmetic::Subtract, Overflow::Wrap) => numeric::sub_wrapping(a, b),
        (Arithmetic::Multiply, Overflow::Wrap) => numeric::mul_wrapping(a, b),
        (Arithmetic::Divide, _) => numeric::div(a, b),
        (Arithmetic::Modulus, _) => numeric::rem(a, b),
    }
}

fn coalesce(values: &[Value], rows: usize) -> Result<ArrayRef, ArrowError> {
    let last = values
        .last()
        .ok_or_else(|| ArrowError::InvalidArgumentError("coalesce without arguments".to_owned()))?;
    let mut result = last.clone();
    for value in values.iter().rev().skip(1) {
        let known = Arc::new(compute::is_not_null(value.array())?);
        result = Value::Array(zip(&value.with(known).booleans(rows)?, value, &result)?);
    }
    Ok(result.array().clone())
}

/// Every branch is computed for every row.
fn if_then(values: &[Value], rows: usize) -> Result<ArrayRef, ArrowError> {
    let mut pairs = values.chunks_exact(2);
    let [otherwise] = pairs.remainder() else {
        return Err(ArrowError::InvalidArgumentError(
            "conditions without results".to_owned(),
        ));
    };
    let mut result = otherwise.clone();
    while let Some([condition, then]) = pairs.next_back() {
        result = Value::Array(zip(&condition.booleans(rows)?, then, &result)?);
    }
    Ok(result.array().clone())
}

/// Tests floats. Numbers of other types give `others`. Types other than numbers are errors.
fn floats(
    array: &ArrayRef,
    others: bool,
    test: fn(f64) -> bool,
) -> Result<BooleanArray, ArrowError> {
    Ok(match array.data_type() {
        DataType::Float16 => {
            BooleanArray::from_unary(array.as_primitive::<Float16Type>(), |v| test(v.into()))
        }
        DataType::Float32 => {
            BooleanArray::from_unary(array.as_primitive::<Float32Type>(), |v| test(v.into()))
        }
        DataType::Float64 => BooleanArray::from_unary(array.as_primitive::<Float64Type>(), test),
        of if of.is_numeric() || of.is_null() => {
            let rows = vec![others; array.len()];
            BooleanArray::new(rows.into(), array.logical_nulls())
        }
        of => {
            return Err(ArrowError::InvalidArgumentError(format!(
                "{of} is no number"
            )));
        }
    })
}

/// Applies `change` to each text. Equal results share their bytes.
fn changed(array: &ArrayRef, change: fn(&str) -> String) -> Result<ArrayRef, ArrowError> {
    if array.data_type().is_null() {
        return Ok(new_null_array(&DataType::Utf8View, array.len()));
    }
    let of = array.data_type();
    if !matches!(
        of,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    ) {
        return Err(ArrowError::InvalidArgumentError(format!("{of} is no text")));
    }
    let views = cast(array, &DataType::Utf8View)?;
    let mut changed = StringViewBuilder::with_capacity(views.len()).with_deduplicate_strings();
    for text in views.as_string_view() {
        match text {
            Some(text) => changed.try_append_value(change(text))?,
            None => changed.append_null(),
        }
    }
    Ok(Arc::new(changed.finish()))
}

fn seconds(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let digits = match array.data_type() {
        DataType::Timestamp(unit, _) | DataType::Time32(unit) => types::digits(*unit),
        DataType::Time64(unit) | DataType::Duration(unit) => types::digits(*unit),
        DataType::Date64 => 3,
        _ => 0,
    };
    let mut counts = cast(array, &DataType::Int64)?;
    if *array.data_type() == DataType::Date32 {
        let day = arrow::array::Int64Array::new_scalar(86_400);
        counts = numeric::mul(&counts, &day)?;
    }
    // The longest number of 64 bits has 19 digits.
    let plain = cast(&counts, &DataType::Decimal128(19, 0))?;
    let plain = plain.as_primitive::<Decimal128Type>().clone();
    Ok(Arc::new(plain.with_precision_and_scale(19, digits)?))
}
