//! Types of Arrow for those of a message.

use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DECIMAL256_MAX_SCALE, DataType, Field,
    TimeUnit,
};

use super::extensions::Extensions;
use super::message::kind::Kind;
use super::message::{DecimalType, ListType, MapType, Plain, Sized, StructType, Type};
use crate::error::{Error, Result};

/// The type of timestamps in UTC, as literals have it.
pub(super) const UTC: &str = "UTC";

/// Arrow's type for `of`.
pub(super) fn arrow_type(of: &Type, extensions: &Extensions) -> Result<DataType> {
    use DataType::{
        Binary, Boolean, Date32, Decimal128, FixedSizeBinary, Float32, Float64, Int8, Int16, Int32,
        Int64, Time64, Timestamp, Utf8,
    };
    let Some(kind) = &of.kind else {
        return Err(Error::unsupported(
            "the filter has a type that is empty, or of a newer Substrait",
        ));
    };
    let (plain, variation) = match kind {
        Kind::Bool(of) => (Boolean, of.variation),
        Kind::I8(of) => (Int8, of.variation),
        Kind::I16(of) => (Int16, of.variation),
        Kind::I32(of) => (Int32, of.variation),
        Kind::I64(of) => (Int64, of.variation),
        Kind::Fp32(of) => (Float32, of.variation),
        Kind::Fp64(of) => (Float64, of.variation),
        Kind::String(of) => (Utf8, of.variation),
        Kind::Binary(of) => (Binary, of.variation),
        Kind::Date(of) => (Date32, of.variation),
        Kind::Time(of) => (Time64(TimeUnit::Microsecond), of.variation),
        Kind::Timestamp(of) => (Timestamp(TimeUnit::Microsecond, None), of.variation),
        Kind::TimestampTz(of) => {
            let utc = Some(UTC.into());
            (Timestamp(TimeUnit::Microsecond, utc), of.variation)
        }
        Kind::Decimal(of) => {
            let (precision, scale) = decimal(of.precision, of.scale)?;
            (Decimal128(precision, scale), of.variation)
        }
        Kind::PrecisionTimestamp(of) => (Timestamp(unit(of.size)?, None), 0),
        Kind::PrecisionTimestampTz(of) => (Timestamp(unit(of.size)?, Some(UTC.into())), 0),
        Kind::PrecisionTime(of) => (time(unit(of.size)?), 0),
        Kind::FixedChar(_) | Kind::VarChar(_) => (Utf8, 0),
        Kind::FixedBinary(of) => match of.size {
            0.. => (FixedSizeBinary(of.size), 0),
            size => return Err(Error::invalid_argument(format!("a width of {size} bytes"))),
        },
        Kind::Uuid(_) => (FixedSizeBinary(16), 0),
        Kind::UserDefined(of) => return user_defined(of.reference, extensions),
        Kind::Struct(_) => return Err(unsupported("struct")),
        Kind::List(_) => return Err(unsupported("list")),
        Kind::Map(_) => return Err(unsupported("map")),
        Kind::IntervalYear(_) => return Err(unsupported("interval_year")),
        Kind::IntervalDay(_) => return Err(unsupported("interval_day")),
        Kind::IntervalCompound(_) => return Err(unsupported("interval_compound")),
    };
    varied(plain, variation, extensions)
}

/// The type `plain`, changed by a variation. Variations have DataFusion's fixed numbers. A
/// variation that the message declares is refused.
pub(super) fn varied(plain: DataType, variation: u32, extensions: &Extensions) -> Result<DataType> {
    use DataType::{
        Binary, BinaryView, Date32, Date64, Decimal128, Decimal256, Int8, Int16, Int32, Int64,
        LargeBinary, LargeUtf8, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8, Utf8View,
    };
    if variation == 0 {
        return Ok(plain);
    }
    if let Some(name) = extensions.variation(variation) {
        return Err(Error::unsupported(format!(
            "filters do not support the type variation \"{name}\""
        )));
    }
    Ok(match (plain, variation) {
        (Int8, 1) => UInt8,
        (Int16, 1) => UInt16,
        (Int32, 1) => UInt32,
        (Int64, 1) => UInt64,
        (Utf8, 1) => LargeUtf8,
        (Utf8, 2) => Utf8View,
        (Binary, 1) => LargeBinary,
        (Binary, 2) => BinaryView,
        (Date32, 1) => Date64,
        (Decimal128(precision, scale), 1) => Decimal256(precision, scale),
        (Timestamp(_, zone), 1) => Timestamp(TimeUnit::Millisecond, zone),
        (Timestamp(_, zone), 2) => Timestamp(TimeUnit::Microsecond, zone),
        (Timestamp(_, zone), 3) => Timestamp(TimeUnit::Nanosecond, zone),
        (plain, _) => {
            return Err(Error::unsupported(format!(
                "filters do not know variation {variation} of {plain}"
            )));
        }
    })
}

/// A type that `pyarrow` adds to Substrait's types, by its number in the message.
pub(super) fn user_defined(reference: u32, extensions: &Extensions) -> Result<DataType> {
    let name = extensions.user_type(reference).ok_or_else(|| {
        Error::invalid_argument(format!(
            "the filter has a type of number {reference}, which it does not declare"
        ))
    })?;
    Ok(match name {
        "u8" => DataType::UInt8,
        "u16" => DataType::UInt16,
        "u32" => DataType::UInt32,
        "u64" => DataType::UInt64,
        "fp16" => DataType::Float16,
        "null" => DataType::Null,
        "large_string" => DataType::LargeUtf8,
        "large_binary" => DataType::LargeBinary,
        "date_millis" => DataType::Date64,
        "time_seconds" => DataType::Time32(TimeUnit::Second),
        "time_millis" => DataType::Time32(TimeUnit::Millisecond),
        "time_nanos" => DataType::Time64(TimeUnit::Nanosecond),
        name => return Err(unsupported(name)),
    })
}

/// The type that messages have for `of`; a type without a kind if messages have no such type.
pub(super) fn substrait_type(of: &DataType) -> Type {
    let plain = |variation| Plain { variation };
    let sized = |unit: TimeUnit| Sized {
        size: i32::from(digits(unit)),
    };
    let decimal = |precision: u8, scale: i8, variation| DecimalType {
        scale: i32::from(scale),
        precision: i32::from(precision),
        variation,
    };
    let boxed = |field: &Field| Some(Box::new(substrait_type(field.data_type())));
    let kind = match of {
        DataType::Boolean => Kind::Bool(plain(0)),
        DataType::Int8 => Kind::I8(plain(0)),
        DataType::Int16 => Kind::I16(plain(0)),
        DataType::Int32 => Kind::I32(plain(0)),
        DataType::Int64 => Kind::I64(plain(0)),
        DataType::UInt8 => Kind::I8(plain(1)),
        DataType::UInt16 => Kind::I16(plain(1)),
        DataType::UInt32 => Kind::I32(plain(1)),
        DataType::UInt64 => Kind::I64(plain(1)),
        DataType::Float16 | DataType::Float32 => Kind::Fp32(plain(0)),
        DataType::Float64 => Kind::Fp64(plain(0)),
        DataType::Utf8 => Kind::String(plain(0)),
        DataType::LargeUtf8 => Kind::String(plain(1)),
        DataType::Utf8View => Kind::String(plain(2)),
        DataType::Binary => Kind::Binary(plain(0)),
        DataType::LargeBinary => Kind::Binary(plain(1)),
        DataType::BinaryView => Kind::Binary(plain(2)),
        DataType::FixedSizeBinary(size) => Kind::FixedBinary(Sized { size: *size }),
        DataType::Date32 => Kind::Date(plain(0)),
        DataType::Date64 => Kind::Date(plain(1)),
        DataType::Time32(unit) | DataType::Time64(unit) => Kind::PrecisionTime(sized(*unit)),
        DataType::Timestamp(unit, None) => Kind::PrecisionTimestamp(sized(*unit)),
        DataType::Timestamp(unit, Some(_)) => Kind::PrecisionTimestampTz(sized(*unit)),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale) => Kind::Decimal(decimal(*precision, *scale, 0)),
        DataType::Decimal256(precision, scale) => Kind::Decimal(decimal(*precision, *scale, 1)),
        DataType::Struct(fields) => Kind::Struct(StructType {
            types: fields
                .iter()
                .map(|field| substrait_type(field.data_type()))
                .collect(),
        }),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Kind::List(Box::new(ListType { item: boxed(item) }))
        }
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => Kind::Map(Box::new(MapType {
                key: fields.first().and_then(|key| boxed(key)),
                value: fields.get(1).and_then(|value| boxed(value)),
            })),
            _ => return Type { kind: None },
        },
        DataType::Dictionary(_, values) => return substrait_type(values),
        DataType::RunEndEncoded(_, values) => return substrait_type(values.data_type()),
        _ => return Type { kind: None },
    };
    Type { kind: Some(kind) }
}

/// The type for times of day in `unit`.
pub(super) fn time(unit: TimeUnit) -> DataType {
    match unit {
        TimeUnit::Second | TimeUnit::Millisecond => DataType::Time32(unit),
        TimeUnit::Microsecond | TimeUnit::Nanosecond => DataType::Time64(unit),
    }
}

/// The unit of a fraction of a second with this many digits.
pub(super) fn unit(digits: i32) -> Result<TimeUnit> {
    match digits {
        0 => Ok(TimeUnit::Second),
        3 => Ok(TimeUnit::Millisecond),
        6 => Ok(TimeUnit::Microsecond),
        9 => Ok(TimeUnit::Nanosecond),
        _ => Err(Error::unsupported(format!(
            "filters know times of precision 0, 3, 6 and 9, not {digits}"
        ))),
    }
}

/// Digits of a second's fraction in `unit`.
pub(super) fn digits(unit: TimeUnit) -> i8 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// Precision and scale of a decimal of a message.
pub(super) fn decimal(precision: i32, scale: i32) -> Result<(u8, i8)> {
    let checked = u8::try_from(precision).ok().zip(i8::try_from(scale).ok());
    checked
        .filter(|&(precision, scale)| {
            (1..=DECIMAL128_MAX_PRECISION).contains(&precision)
                && (0..=i16::from(precision)).contains(&i16::from(scale))
        })
        .ok_or_else(|| {
            Error::invalid_argument(format!(
                "the filter has a decimal of precision {precision} and scale {scale}"
            ))
        })
}

/// The decimal type with `whole` digits before the point and `scale` digits after it; `None` if no
/// decimal type is so wide.
pub(super) fn decimal_of(whole: i16, scale: i8) -> Option<DataType> {
    let precision = u8::try_from((whole + i16::from(scale)).max(1)).ok()?;
    match precision {
        0..=DECIMAL128_MAX_PRECISION => Some(DataType::Decimal128(precision, scale)),
        0..=DECIMAL256_MAX_PRECISION if scale <= DECIMAL256_MAX_SCALE => {
            Some(DataType::Decimal256(precision, scale))
        }
        _ => None,
    }
}

fn unsupported(name: &str) -> Error {
    Error::unsupported(format!("filters do not support the type {name}"))
}
