//! From the flatbuffer of a field's type to the type, with its parameters checked.

use std::sync::Arc;

use arrow::ipc;

use crate::arrow::decode::field::{DecodedField, DecodedType, Interval, Unit};
use crate::error::{Error, Result};

pub(super) fn integer(int: ipc::Int<'_>) -> Result<(u8, bool)> {
    match u8::try_from(int.bitWidth()) {
        Ok(bits @ (8 | 16 | 32 | 64)) => Ok((bits, int.is_signed())),
        _ => Err(Error::invalid_data(format!(
            "integers of {} bits",
            int.bitWidth()
        ))),
    }
}

fn unit(unit: ipc::TimeUnit) -> Result<Unit> {
    match unit {
        ipc::TimeUnit::SECOND => Ok(Unit::Second),
        ipc::TimeUnit::MILLISECOND => Ok(Unit::Milli),
        ipc::TimeUnit::MICROSECOND => Ok(Unit::Micro),
        ipc::TimeUnit::NANOSECOND => Ok(Unit::Nano),
        other => Err(Error::invalid_data(format!(
            "unknown time unit {}",
            other.0
        ))),
    }
}

/// The type of a field, its parameters checked (rule A8). What a newer format may add is refused.
pub(super) fn parse_type(field: ipc::Field<'_>, n_children: usize) -> Result<DecodedType> {
    let absent = || Error::invalid_data("the type's parameters are missing");
    let unknown = |what: &str, number: i16| Error::invalid_data(format!("unknown {what} {number}"));
    Ok(match field.type_type() {
        ipc::Type::Null => DecodedType::Null,
        ipc::Type::Bool => DecodedType::Bool,
        ipc::Type::Int => {
            let (bits, signed) = integer(field.type_as_int().ok_or_else(absent)?)?;
            DecodedType::Int { bits, signed }
        }
        ipc::Type::FloatingPoint => {
            let float = field.type_as_floating_point().ok_or_else(absent)?;
            match float.precision() {
                ipc::Precision::HALF => DecodedType::Float { bits: 16 },
                ipc::Precision::SINGLE => DecodedType::Float { bits: 32 },
                ipc::Precision::DOUBLE => DecodedType::Float { bits: 64 },
                other => return Err(unknown("floating-point precision", other.0)),
            }
        }
        ipc::Type::Decimal => decimal(field.type_as_decimal().ok_or_else(absent)?)?,
        ipc::Type::Date => match field.type_as_date().ok_or_else(absent)?.unit() {
            ipc::DateUnit::DAY => DecodedType::Date32,
            ipc::DateUnit::MILLISECOND => DecodedType::Date64,
            other => return Err(unknown("date unit", other.0)),
        },
        ipc::Type::Time => {
            let time = field.type_as_time().ok_or_else(absent)?;
            let unit = unit(time.unit())?;
            match (unit, time.bitWidth()) {
                (Unit::Second | Unit::Milli, 32) | (Unit::Micro | Unit::Nano, 64) => {
                    DecodedType::Time(unit)
                }
                (unit, bits) => {
                    return Err(Error::invalid_data(format!(
                        "time of unit {unit:?} with {bits} bits"
                    )));
                }
            }
        }
        ipc::Type::Timestamp => {
            let timestamp = field.type_as_timestamp().ok_or_else(absent)?;
            DecodedType::Timestamp {
                unit: unit(timestamp.unit())?,
                zone: timestamp.timezone().unwrap_or_default().to_owned(),
            }
        }
        ipc::Type::Duration => {
            DecodedType::Duration(unit(field.type_as_duration().ok_or_else(absent)?.unit())?)
        }
        ipc::Type::Interval => match field.type_as_interval().ok_or_else(absent)?.unit() {
            ipc::IntervalUnit::YEAR_MONTH => DecodedType::Interval(Interval::Months),
            ipc::IntervalUnit::DAY_TIME => DecodedType::Interval(Interval::DayTime),
            ipc::IntervalUnit::MONTH_DAY_NANO => DecodedType::Interval(Interval::MonthDayNano),
            other => return Err(unknown("interval unit", other.0)),
        },
        ipc::Type::Binary => DecodedType::Bytes {
            large: false,
            utf8: false,
        },
        ipc::Type::LargeBinary => DecodedType::Bytes {
            large: true,
            utf8: false,
        },
        ipc::Type::Utf8 => DecodedType::Bytes {
            large: false,
            utf8: true,
        },
        ipc::Type::LargeUtf8 => DecodedType::Bytes {
            large: true,
            utf8: true,
        },
        ipc::Type::BinaryView => DecodedType::View { utf8: false },
        ipc::Type::Utf8View => DecodedType::View { utf8: true },
        ipc::Type::FixedSizeBinary => {
            let width = field
                .type_as_fixed_size_binary()
                .ok_or_else(absent)?
                .byteWidth();
            DecodedType::FixedBytes(not_negative("width", width)?)
        }
        ipc::Type::List => DecodedType::List { large: false },
        ipc::Type::LargeList => DecodedType::List { large: true },
        ipc::Type::ListView => DecodedType::ListView { large: false },
        ipc::Type::LargeListView => DecodedType::ListView { large: true },
        ipc::Type::FixedSizeList => {
            let size = field
                .type_as_fixed_size_list()
                .ok_or_else(absent)?
                .listSize();
            DecodedType::FixedList(not_negative("list size", size)?)
        }
        ipc::Type::Map => DecodedType::Map {
            sorted: field.type_as_map().ok_or_else(absent)?.keysSorted(),
        },
        ipc::Type::Struct_ => DecodedType::Struct,
        ipc::Type::Union => union(field.type_as_union().ok_or_else(absent)?, n_children)?,
        ipc::Type::RunEndEncoded => DecodedType::RunEnds,
        other => {
            return Err(Error::unsupported(format!(
                "type {} of the Arrow format is not known here",
                other.0
            )));
        }
    })
}

fn not_negative(what: &str, number: i32) -> Result<i32> {
    if number < 0 {
        return Err(Error::invalid_data(format!("{what} {number} is negative")));
    }
    Ok(number)
}

fn decimal(decimal: ipc::Decimal<'_>) -> Result<DecodedType> {
    // Digits that fit each width.
    let (bits, most) = match decimal.bitWidth() {
        32 => (32, 9),
        64 => (64, 18),
        128 => (128, 38),
        256 => (256, 76),
        other => return Err(Error::invalid_data(format!("decimals of {other} bits"))),
    };
    let (precision, scale) = (decimal.precision(), decimal.scale());
    if !(1..=most).contains(&precision) {
        return Err(Error::invalid_data(format!(
            "decimals of {bits} bits with precision {precision}: it must be from 1 to {most}"
        )));
    }
    Ok(DecodedType::Decimal {
        bits,
        precision,
        scale,
    })
}

fn union(union: ipc::Union<'_>, n_children: usize) -> Result<DecodedType> {
    let dense = match union.mode() {
        ipc::UnionMode::Sparse => false,
        ipc::UnionMode::Dense => true,
        other => {
            return Err(Error::invalid_data(format!(
                "unknown union mode {}",
                other.0
            )));
        }
    };
    let given: Vec<i32> = match union.typeIds() {
        Some(ids) if ids.len() == n_children => ids.iter().collect(),
        Some(ids) => {
            return Err(Error::invalid_data(format!(
                "a union with {} type ids and {n_children} children",
                ids.len()
            )));
        }
        None => (0i32..).take(n_children).collect(),
    };
    let mut seen = [false; 128];
    let mut ids = Vec::with_capacity(n_children.min(seen.len()));
    for id in given {
        let wrong = || {
            Error::invalid_data(format!(
                "type id {id} of a union: they must be distinct and from 0 to 127"
            ))
        };
        let small = i8::try_from(id).map_err(|_| wrong())?;
        let seen = usize::try_from(small)
            .ok()
            .and_then(|id| seen.get_mut(id))
            .ok_or_else(wrong)?;
        if std::mem::replace(seen, true) {
            return Err(wrong());
        }
        ids.push(small);
    }
    Ok(DecodedType::Union {
        dense,
        ids: ids.into_boxed_slice(),
    })
}

/// Whether the children are those that the type asks for.
pub(super) fn check_children(ty: &DecodedType, children: &[Arc<DecodedField>]) -> Result<()> {
    let wanted = match ty {
        DecodedType::Struct | DecodedType::Union { .. } => children.len(),
        DecodedType::List { .. }
        | DecodedType::ListView { .. }
        | DecodedType::FixedList(_)
        | DecodedType::Map { .. } => 1,
        DecodedType::RunEnds => 2,
        _ => 0,
    };
    if children.len() != wanted {
        return Err(Error::invalid_data(format!(
            "type {} has {} children where it must have {wanted}",
            ty.format(),
            children.len()
        )));
    }
    match (ty, children) {
        (DecodedType::Map { .. }, [entries])
            if entries.ty != DecodedType::Struct
                || entries.dictionary.is_some()
                || entries.children.len() != 2 =>
        {
            Err(Error::invalid_data(
                "the entries of a map are not a struct of key and value",
            ))
        }
        (DecodedType::RunEnds, [ends, _])
            if ends.dictionary.is_some()
                || !matches!(
                    ends.ty,
                    DecodedType::Int {
                        bits: 16 | 32 | 64,
                        signed: true
                    }
                ) =>
        {
            Err(Error::invalid_data(
                "run ends are not signed integers of 16, 32 or 64 bits",
            ))
        }
        _ => Ok(()),
    }
}
