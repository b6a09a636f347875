//! Which types a filter's message can compare.

use datafusion::arrow::datatypes::DataType;

/// The type of the values, without dictionaries and runs.
pub(super) fn plain(of: &DataType) -> &DataType {
    match of {
        DataType::Dictionary(_, values) => plain(values),
        DataType::RunEndEncoded(_, values) => plain(values.data_type()),
        of => of,
    }
}

pub(super) fn is_text(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn is_binary(of: &DataType) -> bool {
    matches!(
        of,
        DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_)
    )
}

/// Whether servers order values of the type as DataFusion does; for floats, apart from NaN and
/// zero.
pub(super) fn is_comparable(of: &DataType) -> bool {
    let is_time = of.is_temporal() && !matches!(of, DataType::Interval(_));
    *of == DataType::Boolean || of.is_numeric() || is_time || is_text(of) || is_binary(of)
}

/// Whether values of both types compare as they are.
pub(super) fn is_alike(one: &DataType, other: &DataType) -> bool {
    let zoned = |of: &DataType| match of {
        DataType::Timestamp(unit, Some(_)) => Some(*unit),
        _ => None,
    };
    one == other
        || (is_text(one) && is_text(other))
        || (is_binary(one) && is_binary(other))
        || (zoned(one).is_some() && zoned(one) == zoned(other))
}

/// Whether another type has all values of a type, or for floats the nearest value.
pub(super) fn widens(from: &DataType, to: &DataType) -> bool {
    let bits = |of: &DataType| of.primitive_width().unwrap_or(0) * 8;
    match to {
        DataType::Float64 => from.is_integer() || from.is_floating(),
        DataType::Float32 => from.is_integer() || *from == DataType::Float16,
        to if to.is_signed_integer() => from.is_integer() && bits(from) < bits(to),
        to if to.is_unsigned_integer() => from.is_unsigned_integer() && bits(from) < bits(to),
        _ => false,
    }
}
