//! Arrays of one row for the literals of a message.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, Float16Array,
    Float32Array, Float64Array, Int32Array, Int64Array, StringArray, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, TimeUnit};
use prost::Message;
use prost::bytes::Bytes;

use super::extensions::Extensions;
use super::message::literal::Kind;
use super::message::{DayTime, Literal, UserDefinedLiteral};
use super::types::{self, UTC};
use crate::error::{Error, Result};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The array of one row for `literal`.
pub(super) fn array(literal: Literal, extensions: &Extensions) -> Result<ArrayRef> {
    let kind = literal.kind.ok_or_else(|| {
        Error::unsupported("the filter has a literal that is empty, or of a newer Substrait")
    })?;
    let variation = literal.variation;
    let varied = |plain| types::varied(plain, variation, extensions);
    let timestamp = |value, zone: Option<&str>| {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into));
        number(value, &varied(micros)?)
    };
    Ok(match kind {
        Kind::Boolean(value) => Arc::new(BooleanArray::from(vec![value])),
        Kind::I8(value) => number(value.into(), &varied(DataType::Int8)?)?,
        Kind::I16(value) => number(value.into(), &varied(DataType::Int16)?)?,
        Kind::I32(value) => number(value.into(), &varied(DataType::Int32)?)?,
        Kind::I64(value) => number(value, &varied(DataType::Int64)?)?,
        Kind::Fp32(value) => Arc::new(Float32Array::from(vec![value])),
        Kind::Fp64(value) => Arc::new(Float64Array::from(vec![value])),
        Kind::String(value) => convert(StringArray::from(vec![value]), &varied(DataType::Utf8)?)?,
        Kind::FixedChar(value) => Arc::new(StringArray::from(vec![value])),
        Kind::VarChar(value) => Arc::new(StringArray::from(vec![value.value])),
        Kind::Binary(value) => {
            let plain = BinaryArray::from(vec![&value[..]]);
            convert(plain, &varied(DataType::Binary)?)?
        }
        Kind::FixedBinary(value) | Kind::Uuid(value) => fixed(&value)?,
        Kind::Date(value) => match varied(DataType::Date32)? {
            DataType::Date64 => number(i64::from(value) * 86_400_000, &DataType::Date64)?,
            date => number(value.into(), &date)?,
        },
        Kind::Time(value) => number(value, &DataType::Time64(TimeUnit::Microsecond))?,
        Kind::Timestamp(value) => timestamp(value, None)?,
        Kind::TimestampTz(value) => timestamp(value, Some(UTC))?,
        Kind::PrecisionTime(time) => {
            number(time.value, &types::time(types::unit(time.precision)?))?
        }
        Kind::PrecisionTimestamp(time) => {
            let unit = types::unit(time.precision)?;
            number(time.value, &DataType::Timestamp(unit, None))?
        }
        Kind::PrecisionTimestampTz(time) => {
            let unit = types::unit(time.precision)?;
            number(time.value, &DataType::Timestamp(unit, Some(UTC.into())))?
        }
        Kind::IntervalDayToSecond(time) => duration(&time)?,
        Kind::Decimal(decimal) => {
            let (precision, scale) = types::decimal(decimal.precision, decimal.scale)?;
            let plain = decimal128(&decimal.value, precision, scale)?;
            convert(plain, &varied(DataType::Decimal128(precision, scale))?)?
        }
        Kind::Null(of) => match types::arrow_type(&of, extensions)? {
            // A null of a fixed width would take as many bytes as the message claims for that
            // width.
            DataType::FixedSizeBinary(_) => new_null_array(&DataType::BinaryView, 1),
            plain => new_null_array(&plain, 1),
        },
        Kind::UserDefined(literal) => user_defined(&literal, extensions)?,
        Kind::IntervalYearToMonth(_) => return Err(unsupported("interval_year_to_month")),
        Kind::IntervalCompound(_) => return Err(unsupported("interval_compound")),
        Kind::Struct(_) => return Err(unsupported("struct")),
        Kind::Map(_) | Kind::EmptyMap(_) => return Err(unsupported("map")),
        Kind::List(_) | Kind::EmptyList(_) => return Err(unsupported("list")),
    })
}

fn unsupported(name: &str) -> Error {
    Error::unsupported(format!("filters do not support literals of type {name}"))
}

/// One row of an integer, or of a type that has integers in its memory.
fn number(value: i64, of: &DataType) -> Result<ArrayRef> {
    let outside = || {
        Error::invalid_argument(format!(
            "the filter has a literal {value}, outside the range of {of}"
        ))
    };
    Ok(match of {
        DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => {
            convert(Int64Array::from(vec![value]), of).map_err(|_| outside())?
        }
        // DataFusion stores the bits of unsigned numbers in the field for signed numbers.
        DataType::UInt32 => {
            let low = value.rem_euclid(1 << 32);
            Arc::new(UInt32Array::from(vec![
                u32::try_from(low).map_err(|_| outside())?,
            ]))
        }
        DataType::UInt64 => Arc::new(UInt64Array::from(vec![value.cast_unsigned()])),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
            let plain = Int32Array::from(vec![i32::try_from(value).map_err(|_| outside())?]);
            convert(plain, of)?
        }
        _ => convert(Int64Array::from(vec![value]), of)?,
    })
}

fn convert(plain: impl arrow::array::Array, to: &DataType) -> Result<ArrayRef> {
    let strict = CastOptions {
        safe: false,
        ..Default::default()
    };
    cast_with_options(&plain, to, &strict)
        .map_err(|error| Error::invalid_argument(format!("a literal of the filter: {error}")))
}

fn fixed(value: &Bytes) -> Result<ArrayRef> {
    let array = FixedSizeBinaryArray::try_from_iter(std::iter::once(value));
    let array = array
        .map_err(|error| Error::invalid_argument(format!("a literal of the filter: {error}")))?;
    Ok(Arc::new(array))
}

fn decimal128(value: &Bytes, precision: u8, scale: i8) -> Result<Decimal128Array> {
    let bytes: [u8; 16] = value[..].try_into().map_err(|_| {
        let len = value.len();
        Error::invalid_argument(format!("the filter has a decimal of {len} bytes, not 16"))
    })?;
    let array = Decimal128Array::from(vec![i128::from_le_bytes(bytes)]);
    let array = array.with_precision_and_scale(precision, scale);
    array
        .and_then(|array| array.validate_decimal_precision(precision).map(|()| array))
        .map_err(|error| Error::invalid_argument(format!("a literal of the filter: {error}")))
}

/// A length of time without months, as a duration of Arrow. Its unit is that of the fraction of a
/// second.
fn duration(time: &DayTime) -> Result<ArrayRef> {
    let (unit, fraction) = match time.microseconds {
        Some(micros) => (TimeUnit::Microsecond, i64::from(micros)),
        None => (types::unit(time.precision)?, time.subseconds),
    };
    let seconds = i64::from(time.days) * 86_400 + i64::from(time.seconds);
    let per_second = 10_i64.pow(types::digits(unit).unsigned_abs().into());
    let value = seconds.checked_mul(per_second);
    let value = value.and_then(|value| value.checked_add(fraction));
    let value = value.ok_or_else(|| {
        Error::invalid_argument("the filter has an interval that is too long for its unit")
    })?;
    number(value, &DataType::Duration(unit))
}

/// A literal of one of `pyarrow`'s own types. Its value is in one of Protobuf's wrapper messages,
/// which `prost` decodes as plain types of Rust.
fn user_defined(literal: &UserDefinedLiteral, extensions: &Extensions) -> Result<ArrayRef> {
    let of = types::user_defined(literal.reference, extensions)?;
    let any = literal.value.as_ref().ok_or_else(|| {
        Error::unsupported(format!(
            "the filter has a literal of type {of} without a value"
        ))
    })?;
    let name = any.type_url.rsplit_once('.').map_or("", |(_, name)| name);
    let number = |value: i64| match of {
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => {
            convert(Int64Array::from(vec![value]), &of)
        }
        _ => number(value, &of),
    };
    let value = &any.value[..];
    match (name, &of) {
        (_, DataType::Null) => Ok(new_null_array(&of, 1)),
        ("UInt32Value", DataType::Float16) => {
            let bits = u16::try_from(decode::<u32>(value)?)
                .map_err(|_| Error::invalid_argument("the filter has a half of over 16 bits"))?;
            Ok(Arc::new(Float16Array::from(vec![Half::from_bits(bits)])))
        }
        (_, DataType::Float16) => Err(unexpected(name, &of)),
        ("StringValue", DataType::LargeUtf8) => {
            convert(StringArray::from(vec![decode::<String>(value)?]), &of)
        }
        ("BytesValue", DataType::LargeBinary) => {
            convert(BinaryArray::from(vec![&decode::<Bytes>(value)?[..]]), &of)
        }
        (_, DataType::LargeUtf8 | DataType::LargeBinary) => Err(unexpected(name, &of)),
        ("UInt64Value", _) => convert(UInt64Array::from(vec![decode::<u64>(value)?]), &of),
        ("UInt32Value", _) => number(decode::<u32>(value)?.into()),
        ("Int64Value", _) => number(decode::<i64>(value)?),
        ("Int32Value", _) => number(decode::<i32>(value)?.into()),
        _ => Err(unexpected(name, &of)),
    }
}

fn unexpected(name: &str, of: &DataType) -> Error {
    Error::unsupported(format!(
        "filters do not support literals of type {of} in a message \"{name}\""
    ))
}

fn decode<T: Message + Default>(value: &[u8]) -> Result<T> {
    T::decode(value)
        .map_err(|error| Error::invalid_argument(format!("a literal of the filter: {error}")))
}
