//! Literals and types of a filter's message.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;

use super::message::{
    Decimal, DeclaredType, Interval, Literal, Plain, Precise, Type, TypeKind, Value,
};

/// The number by which messages refer to the type "null", whose one value stands beside those of
/// each type.
pub(super) const NULL: u32 = 0;

/// The most digits of a decimal in a message.
const DIGITS: u8 = 38;

/// The literal with this value; `None` if messages have none for it.
pub(super) fn literal(value: &ScalarValue) -> Option<Literal> {
    let value = bare(value);
    if value.is_null() {
        let kind = TypeKind::Declared(DeclaredType { reference: NULL });
        return Some(plain(Value::Null(Type { kind: Some(kind) })));
    }
    Some(match value {
        ScalarValue::Boolean(Some(value)) => plain(Value::Boolean(*value)),
        ScalarValue::Int8(Some(value)) => plain(Value::I8((*value).into())),
        ScalarValue::Int16(Some(value)) => plain(Value::I16((*value).into())),
        ScalarValue::Int32(Some(value)) => plain(Value::I32(*value)),
        ScalarValue::Int64(Some(value)) => plain(Value::I64(*value)),
        ScalarValue::UInt8(Some(value)) => without_sign(Value::I8((*value).into())),
        ScalarValue::UInt16(Some(value)) => without_sign(Value::I16((*value).into())),
        ScalarValue::UInt32(Some(value)) => without_sign(Value::I32(value.cast_signed())),
        ScalarValue::UInt64(Some(value)) => without_sign(Value::I64(value.cast_signed())),
        // It becomes a half again beside a column of halves.
        ScalarValue::Float16(Some(value)) => plain(Value::Fp32((*value).into())),
        ScalarValue::Float32(Some(value)) => plain(Value::Fp32(*value)),
        ScalarValue::Float64(Some(value)) => plain(Value::Fp64(*value)),
        ScalarValue::Utf8(Some(value))
        | ScalarValue::LargeUtf8(Some(value))
        | ScalarValue::Utf8View(Some(value)) => plain(Value::String(value.clone())),
        ScalarValue::Binary(Some(value))
        | ScalarValue::LargeBinary(Some(value))
        | ScalarValue::BinaryView(Some(value))
        | ScalarValue::FixedSizeBinary(_, Some(value)) => plain(Value::Binary(value.clone())),
        ScalarValue::Decimal32(Some(value), digits, scale) => {
            decimal((*value).into(), *digits, *scale)?
        }
        ScalarValue::Decimal64(Some(value), digits, scale) => {
            decimal((*value).into(), *digits, *scale)?
        }
        ScalarValue::Decimal128(Some(value), digits, scale) => decimal(*value, *digits, *scale)?,
        ScalarValue::Decimal256(Some(value), _, scale) => {
            let value = value.to_i128()?;
            let fits = value.unsigned_abs() < 10_u128.pow(DIGITS.into());
            fits.then(|| decimal(value, DIGITS, *scale)).flatten()?
        }
        other => return time(other),
    })
}

/// The value without the encoding of its column.
pub(super) fn bare(value: &ScalarValue) -> &ScalarValue {
    match value {
        ScalarValue::Dictionary(_, value) | ScalarValue::RunEndEncoded(_, _, value) => bare(value),
        value => value,
    }
}

fn time(value: &ScalarValue) -> Option<Literal> {
    Some(plain(match value {
        ScalarValue::Date32(Some(days)) => Value::Date(*days),
        // Dates of messages have no time.
        ScalarValue::Date64(Some(millis)) => timestamp(3, *millis, false),
        ScalarValue::Time32Second(Some(value)) => Value::Time(precise(0, (*value).into())),
        ScalarValue::Time32Millisecond(Some(value)) => Value::Time(precise(3, (*value).into())),
        ScalarValue::Time64Microsecond(Some(value)) => Value::Time(precise(6, *value)),
        ScalarValue::Time64Nanosecond(Some(value)) => Value::Time(precise(9, *value)),
        ScalarValue::TimestampSecond(Some(value), zone) => timestamp(0, *value, zone.is_some()),
        ScalarValue::TimestampMillisecond(Some(value), zone) => {
            timestamp(3, *value, zone.is_some())
        }
        ScalarValue::TimestampMicrosecond(Some(value), zone) => {
            timestamp(6, *value, zone.is_some())
        }
        ScalarValue::TimestampNanosecond(Some(value), zone) => timestamp(9, *value, zone.is_some()),
        ScalarValue::DurationSecond(Some(value)) => interval(0, *value)?,
        ScalarValue::DurationMillisecond(Some(value)) => interval(3, *value)?,
        ScalarValue::DurationMicrosecond(Some(value)) => interval(6, *value)?,
        ScalarValue::DurationNanosecond(Some(value)) => interval(9, *value)?,
        _ => return None,
    }))
}

fn plain(value: Value) -> Literal {
    Literal {
        value: Some(value),
        variation: 0,
    }
}

fn without_sign(value: Value) -> Literal {
    Literal {
        value: Some(value),
        variation: 1,
    }
}

fn precise(precision: i32, value: i64) -> Precise {
    Precise { precision, value }
}

fn timestamp(precision: i32, value: i64, has_zone: bool) -> Value {
    let time = precise(precision, value);
    match has_zone {
        true => Value::TimestampTz(time),
        false => Value::Timestamp(time),
    }
}

fn interval(precision: i32, value: i64) -> Option<Value> {
    let second = 10_i64.pow(precision.unsigned_abs());
    let (seconds, subseconds) = (value.div_euclid(second), value.rem_euclid(second));
    Some(Value::Interval(Interval {
        days: i32::try_from(seconds.div_euclid(86_400)).ok()?,
        seconds: i32::try_from(seconds.rem_euclid(86_400)).ok()?,
        precision: Some(precision),
        subseconds,
    }))
}

fn decimal(value: i128, digits: u8, scale: i8) -> Option<Literal> {
    let has_place = u8::try_from(scale).is_ok_and(|scale| scale <= digits);
    (has_place && digits <= DIGITS).then(|| {
        plain(Value::Decimal(Decimal {
            value: value.to_le_bytes().into(),
            precision: digits.into(),
            scale: scale.into(),
        }))
    })
}

/// The type of a message for numbers; `None` for other types.
pub(super) fn number_type(of: &DataType) -> Option<Type> {
    let plain = Plain { variation: 0 };
    let without_sign = Plain { variation: 1 };
    let kind = match of {
        DataType::Int8 => TypeKind::I8(plain),
        DataType::Int16 => TypeKind::I16(plain),
        DataType::Int32 => TypeKind::I32(plain),
        DataType::Int64 => TypeKind::I64(plain),
        DataType::UInt8 => TypeKind::I8(without_sign),
        DataType::UInt16 => TypeKind::I16(without_sign),
        DataType::UInt32 => TypeKind::I32(without_sign),
        DataType::UInt64 => TypeKind::I64(without_sign),
        DataType::Float32 => TypeKind::Fp32(plain),
        DataType::Float64 => TypeKind::Fp64(plain),
        _ => return None,
    };
    Some(Type { kind: Some(kind) })
}
