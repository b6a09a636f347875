//! Types, fields and schemas read from the flatbuffer tables of the IPC format.

use arrow::ipc;
use flatbuffers::{ForwardsUOffset, Vector};

use super::{DictionaryEncoding, Field, IntervalUnit, MAX_DEPTH, Metadata, Schema, TimeUnit, Type};
use crate::error::{Error, Result};

impl Type {
    /// Reads the type of an IPC field and checks its parameters (rule A8). For a dictionary-encoded
    /// field, the type of the dictionary's values.
    ///
    /// # Errors
    ///
    /// `InvalidData` for a wrong parameter; `Unsupported` for a type of a newer format.
    pub fn from_ipc(field: ipc::Field<'_>) -> Result<Self> {
        let absent = || Error::invalid_data("the type's parameters are missing");
        let unknown =
            |what: &str, number: i16| Error::invalid_data(format!("unknown {what} {number}"));
        let binary = |large, utf8| Self::Binary { large, utf8 };
        Ok(match field.type_type() {
            ipc::Type::Null => Self::Null,
            ipc::Type::Bool => Self::Boolean,
            ipc::Type::Int => {
                let (bits, signed) = integer(field.type_as_int().ok_or_else(absent)?)?;
                Self::Int { bits, signed }
            }
            ipc::Type::FloatingPoint => {
                let float = field.type_as_floating_point().ok_or_else(absent)?;
                match float.precision() {
                    ipc::Precision::HALF => Self::Float { bits: 16 },
                    ipc::Precision::SINGLE => Self::Float { bits: 32 },
                    ipc::Precision::DOUBLE => Self::Float { bits: 64 },
                    other => return Err(unknown("floating-point precision", other.0)),
                }
            }
            ipc::Type::Decimal => decimal(field.type_as_decimal().ok_or_else(absent)?)?,
            ipc::Type::Date => match field.type_as_date().ok_or_else(absent)?.unit() {
                ipc::DateUnit::DAY => Self::Date32,
                ipc::DateUnit::MILLISECOND => Self::Date64,
                other => return Err(unknown("date unit", other.0)),
            },
            ipc::Type::Time => {
                let time = field.type_as_time().ok_or_else(absent)?;
                let unit = unit(time.unit())?;
                match (unit, time.bitWidth()) {
                    (TimeUnit::Second | TimeUnit::Millisecond, 32)
                    | (TimeUnit::Microsecond | TimeUnit::Nanosecond, 64) => Self::Time(unit),
                    (unit, bits) => {
                        return Err(Error::invalid_data(format!(
                            "time of unit {unit:?} with {bits} bits"
                        )));
                    }
                }
            }
            ipc::Type::Timestamp => {
                let timestamp = field.type_as_timestamp().ok_or_else(absent)?;
                Self::Timestamp(
                    unit(timestamp.unit())?,
                    timestamp.timezone().unwrap_or_default().to_owned(),
                )
            }
            ipc::Type::Duration => {
                Self::Duration(unit(field.type_as_duration().ok_or_else(absent)?.unit())?)
            }
            ipc::Type::Interval => match field.type_as_interval().ok_or_else(absent)?.unit() {
                ipc::IntervalUnit::YEAR_MONTH => Self::Interval(IntervalUnit::YearMonth),
                ipc::IntervalUnit::DAY_TIME => Self::Interval(IntervalUnit::DayTime),
                ipc::IntervalUnit::MONTH_DAY_NANO => Self::Interval(IntervalUnit::MonthDayNano),
                other => return Err(unknown("interval unit", other.0)),
            },
            ipc::Type::Binary => binary(false, false),
            ipc::Type::LargeBinary => binary(true, false),
            ipc::Type::Utf8 => binary(false, true),
            ipc::Type::LargeUtf8 => binary(true, true),
            ipc::Type::BinaryView => Self::View { utf8: false },
            ipc::Type::Utf8View => Self::View { utf8: true },
            ipc::Type::FixedSizeBinary => {
                let table = field.type_as_fixed_size_binary().ok_or_else(absent)?;
                Self::FixedSizeBinary(not_negative("width", table.byteWidth())?)
            }
            ipc::Type::List => Self::List { large: false },
            ipc::Type::LargeList => Self::List { large: true },
            ipc::Type::ListView => Self::ListView { large: false },
            ipc::Type::LargeListView => Self::ListView { large: true },
            ipc::Type::FixedSizeList => {
                let table = field.type_as_fixed_size_list().ok_or_else(absent)?;
                Self::FixedSizeList(not_negative("list size", table.listSize())?)
            }
            ipc::Type::Map => Self::Map {
                keys_sorted: field.type_as_map().ok_or_else(absent)?.keysSorted(),
            },
            ipc::Type::Struct_ => Self::Struct,
            ipc::Type::Union => union(
                field.type_as_union().ok_or_else(absent)?,
                field.children().map_or(0, |children| children.len()),
            )?,
            ipc::Type::RunEndEncoded => Self::RunEndEncoded,
            other => {
                return Err(Error::unsupported(format!(
                    "type {} of the Arrow format is not known here",
                    other.0
                )));
            }
        })
    }
}

impl Schema {
    /// Reads the table of a schema.
    ///
    /// # Errors
    ///
    /// `Unsupported` for big-endian data (rule A6); `InvalidData` with the field and the fault.
    pub fn from_ipc(schema: &ipc::Schema<'_>) -> Result<Self> {
        ensure_little_endian(schema)?;
        let fields = schema.fields().into_iter().flatten();
        Ok(Self {
            fields: fields
                .map(|field| Field::from_ipc(field, 0))
                .collect::<Result<_>>()?,
            metadata: metadata_from_ipc(schema.custom_metadata()),
        })
    }
}

/// Rule A6: refuses big-endian streams.
pub fn ensure_little_endian(schema: &ipc::Schema<'_>) -> Result<()> {
    if schema.endianness() == ipc::Endianness::Little {
        return Ok(());
    }
    Err(Error::unsupported(
        "the stream is big-endian; only little-endian Arrow data can be read: have the producer \
         convert it",
    ))
}

impl Field {
    /// Reads the table of a field and of its children. `depth` is the number of fields above.
    fn from_ipc(field: ipc::Field<'_>, depth: usize) -> Result<Self> {
        let name = field.name().unwrap_or_default();
        Self::read(field, name, depth)
            .map_err(|error| error.context(format_args!("field {name:?}")))
    }

    fn read(field: ipc::Field<'_>, name: &str, depth: usize) -> Result<Self> {
        ensure_not_too_deep(depth)?;
        let children = field.children().into_iter().flatten();
        let field = Self {
            name: name.to_owned(),
            ty: Type::from_ipc(field)?,
            nullable: field.nullable(),
            children: children
                .map(|child| Self::from_ipc(child, depth + 1))
                .collect::<Result<_>>()?,
            dictionary: field
                .dictionary()
                .map(DictionaryEncoding::from_ipc)
                .transpose()?,
            metadata: metadata_from_ipc(field.custom_metadata()),
        };
        field.check_children().map_err(Error::invalid_data)?;
        Ok(field)
    }
}

/// Refuses a field with [`MAX_DEPTH`] or more fields above it.
pub fn ensure_not_too_deep(depth: usize) -> Result<()> {
    if depth < MAX_DEPTH {
        return Ok(());
    }
    Err(Error::invalid_data(format!(
        "fields nest deeper than {MAX_DEPTH} levels"
    )))
}

impl DictionaryEncoding {
    fn from_ipc(encoding: ipc::DictionaryEncoding<'_>) -> Result<Self> {
        let (bits, signed) = index_type(encoding)?;
        Ok(Self {
            id: encoding.id(),
            index: Type::Int { bits, signed },
            ordered: encoding.isOrdered(),
        })
    }
}

/// The width in bits of a dictionary's indices, and whether the indices are signed.
///
/// # Errors
///
/// `Unsupported` for an unknown kind of dictionary; `InvalidData` for an invalid width.
pub fn index_type(encoding: ipc::DictionaryEncoding<'_>) -> Result<(u8, bool)> {
    if encoding.dictionaryKind() != ipc::DictionaryKind::DenseArray {
        return Err(Error::unsupported(format!(
            "dictionaries of kind {} are not known here",
            encoding.dictionaryKind().0
        )));
    }
    match encoding.indexType() {
        Some(index) => integer(index),
        // The format's default.
        None => Ok((32, true)),
    }
}

fn integer(int: ipc::Int<'_>) -> Result<(u8, bool)> {
    match u8::try_from(int.bitWidth()) {
        Ok(bits @ (8 | 16 | 32 | 64)) => Ok((bits, int.is_signed())),
        _ => Err(Error::invalid_data(format!(
            "integers of {} bits",
            int.bitWidth()
        ))),
    }
}

fn unit(unit: ipc::TimeUnit) -> Result<TimeUnit> {
    match unit {
        ipc::TimeUnit::SECOND => Ok(TimeUnit::Second),
        ipc::TimeUnit::MILLISECOND => Ok(TimeUnit::Millisecond),
        ipc::TimeUnit::MICROSECOND => Ok(TimeUnit::Microsecond),
        ipc::TimeUnit::NANOSECOND => Ok(TimeUnit::Nanosecond),
        other => Err(Error::invalid_data(format!(
            "unknown time unit {}",
            other.0
        ))),
    }
}

fn not_negative(what: &str, number: i32) -> Result<i32> {
    if number < 0 {
        return Err(Error::invalid_data(format!("{what} {number} is negative")));
    }
    Ok(number)
}

fn decimal(decimal: ipc::Decimal<'_>) -> Result<Type> {
    Type::decimal(decimal.bitWidth(), decimal.precision(), decimal.scale())
        .map_err(Error::invalid_data)
}

fn union(union: ipc::Union<'_>, n_children: usize) -> Result<Type> {
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
    let checked = |id: i32| {
        let known = usize::try_from(id).ok().and_then(|id| seen.get_mut(id));
        let is_new = known.is_some_and(|known| !std::mem::replace(known, true));
        let small = i8::try_from(id).ok().filter(|_| is_new);
        small.ok_or_else(|| {
            Error::invalid_data(format!(
                "type id {id} of a union: they must be distinct and from 0 to 127"
            ))
        })
    };
    let ids = given.into_iter().map(checked).collect::<Result<_>>()?;
    Ok(Type::Union { dense, ids })
}

/// Reads key-value metadata, in order.
pub fn metadata_from_ipc(
    pairs: Option<Vector<'_, ForwardsUOffset<ipc::KeyValue<'_>>>>,
) -> Metadata {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    pairs
        .into_iter()
        .flatten()
        .map(|pair| (text(pair.key()), text(pair.value())))
        .collect()
}
