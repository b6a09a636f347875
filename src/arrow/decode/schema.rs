//! From the verified flatbuffer of a schema message to the type tree.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;

use arrow::ipc;

use crate::arrow::decode::budget::past_limit;
use crate::arrow::decode::field::{DecodedField, DecodedType, Encoding, Interval, Unit};
use crate::arrow::format::MAX_DEPTH;
use crate::error::{Error, Result};
use crate::proto::{Header, HeaderKind};

/// A stream's schema.
#[derive(Debug)]
pub(super) struct DecodedSchema {
    /// The fields as children of one struct, as record batches cross the C data interface.
    pub(super) root: Arc<DecodedField>,
    /// For each dictionary id, the type of its values: the first field that names it.
    pub(super) dictionaries: HashMap<i64, Arc<DecodedField>>,
}

/// The message inside a header.
pub(super) fn message(header: &Header) -> ipc::Message<'_> {
    // SAFETY: `Header::parse` is the only way to make a header; it has verified exactly these
    // bytes as a message (rule M7), and they have not changed since, for `Header` gives out no
    // mutable access to them.
    unsafe { ipc::root_as_message_unchecked(header.bytes()) }
}

/// Whether the message has metadata version 4; versions before that are refused (rule A6).
pub(super) fn is_version_4(message: &ipc::Message<'_>) -> Result<bool> {
    match message.version() {
        ipc::MetadataVersion::V5 => Ok(false),
        ipc::MetadataVersion::V4 => {
            ensure_not_experimental(message)?;
            Ok(true)
        }
        other => Err(Error::unsupported(format!(
            "metadata version {} of the Arrow format cannot be read: only 4 and 5 can",
            i32::from(other.0) + 1
        ))),
    }
}

/// Arrow 0.17 said in a message's metadata that its buffers are compressed, before the format had a
/// place for that: whoever does not look takes the compressed bytes for values.
fn ensure_not_experimental(message: &ipc::Message<'_>) -> Result<()> {
    let mut pairs = message.custom_metadata().into_iter().flatten();
    match pairs.find(|pair| pair.key() == Some("ARROW:experimental_compression")) {
        None => Ok(()),
        Some(pair) => Err(Error::unsupported(format!(
            "the message is compressed ({:?}) as Arrow 0.17 did it, which cannot be read: write it \
             anew with a later version",
            pair.value().unwrap_or_default()
        ))),
    }
}

/// Reads and checks the schema.
pub(super) fn parse(header: &Header, limit: u64) -> Result<DecodedSchema> {
    let message = message(header);
    is_version_4(&message)?;
    let schema = (header.kind() == HeaderKind::Schema)
        .then(|| message.header_as_schema())
        .flatten()
        .ok_or_else(|| Error::invalid_data("the first message of the stream is not a schema"))?;
    // Rule A6: big-endian streams are refused.
    if schema.endianness() != ipc::Endianness::Little {
        return Err(Error::unsupported(
            "the stream is big-endian; only little-endian Arrow data can be read: have the \
             producer convert it",
        ));
    }
    let features = schema.features().into_iter().flatten();
    if let Some(feature) = features.into_iter().find(|f| f.variant_name().is_none()) {
        return Err(Error::unsupported(format!(
            "the stream uses feature {} of the Arrow format, which is not known here",
            feature.0
        )));
    }
    let mut parser = Parser {
        dictionaries: HashMap::new(),
        fields_left: header.bytes().len() / LEAST_FIELD,
        left: limit,
    };
    parser.take(metadata_len(schema.custom_metadata()))?;
    let mut children = Vec::new();
    for field in schema.fields().into_iter().flatten() {
        children.push(parser.field(field, 0)?);
    }
    let root = DecodedField {
        name: CString::default(),
        nullable: false,
        metadata: metadata(schema.custom_metadata())?,
        ty: DecodedType::Struct,
        layout: DecodedType::Struct.layout(),
        format: format(&DecodedType::Struct)?,
        children,
        dictionary: None,
    };
    Ok(DecodedSchema {
        root: Arc::new(root),
        dictionaries: parser.dictionaries,
    })
}

type KeyValues<'a> = flatbuffers::Vector<'a, flatbuffers::ForwardsUOffset<ipc::KeyValue<'a>>>;

/// Metadata as the C data interface encodes it: a count, then lengths and bytes, in native order.
fn metadata(pairs: Option<KeyValues<'_>>) -> Result<Box<[u8]>> {
    let Some(pairs) = pairs.filter(|pairs| !pairs.is_empty()) else {
        return Ok(Box::default());
    };
    let length = |length: usize| {
        i32::try_from(length)
            .map(i32::to_ne_bytes)
            .map_err(|_| Error::invalid_data("metadata of a field is longer than 2 GiB"))
    };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&length(pairs.len())?);
    for pair in pairs {
        for text in [pair.key(), pair.value()] {
            let text = text.unwrap_or_default();
            bytes.extend_from_slice(&length(text.len())?);
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    Ok(bytes.into_boxed_slice())
}

fn format(ty: &DecodedType) -> Result<CString> {
    CString::new(ty.format())
        .map_err(|_| Error::invalid_data("the time zone of a timestamp holds a NUL character"))
}

/// Bytes of a header that each field takes where no two share their table.
const LEAST_FIELD: usize = 24;

/// What a field takes here and as a C struct, beside its name and its metadata.
const FIELD_BYTES: usize = 512;

/// The most bytes that [`metadata`] makes of the pairs.
fn metadata_len(pairs: Option<KeyValues<'_>>) -> usize {
    let texts = pairs
        .into_iter()
        .flatten()
        .flat_map(|pair| [pair.key(), pair.value()]);
    let lens = texts.map(|text| text.map_or(0, str::len).saturating_add(4));
    lens.fold(4, usize::saturating_add)
}

struct Parser {
    dictionaries: HashMap<i64, Arc<DecodedField>>,
    /// A field that is named often is read as often.
    fields_left: usize,
    /// Bytes that the schema may still take.
    left: u64,
}

impl Parser {
    /// Counts bytes that a part of the schema takes: here, and as a C struct.
    fn take(&mut self, bytes: usize) -> Result<()> {
        let bytes = (bytes as u64).saturating_mul(2);
        self.left = (self.left.checked_sub(bytes)).ok_or_else(|| past_limit(bytes, self.left))?;
        Ok(())
    }

    fn field(&mut self, field: ipc::Field<'_>, depth: usize) -> Result<Arc<DecodedField>> {
        let name = field.name().unwrap_or_default();
        self.checked_field(field, name, depth)
            .map_err(|error| error.context(format_args!("field {name:?}")))
    }

    fn checked_field(
        &mut self,
        field: ipc::Field<'_>,
        name: &str,
        depth: usize,
    ) -> Result<Arc<DecodedField>> {
        if depth >= MAX_DEPTH {
            return Err(Error::invalid_data(format!(
                "fields nest deeper than {MAX_DEPTH} levels"
            )));
        }
        self.fields_left = self.fields_left.checked_sub(1).ok_or_else(|| {
            Error::invalid_data("the schema has more fields than its header has room for")
        })?;
        self.take(
            FIELD_BYTES
                .saturating_add(name.len())
                .saturating_add(zone_len(field))
                .saturating_add(metadata_len(field.custom_metadata())),
        )?;
        let mut children = Vec::new();
        for child in field.children().into_iter().flatten() {
            children.push(self.field(child, depth + 1)?);
        }
        let ty = parse_type(field, children.len())?;
        check_children(&ty, &children)?;
        let field = Arc::new(DecodedField {
            name: CString::new(name)
                .map_err(|_| Error::invalid_data("the name holds a NUL character"))?,
            nullable: field.nullable(),
            metadata: metadata(field.custom_metadata())?,
            format: format(&ty)?,
            layout: ty.layout(),
            ty,
            children,
            dictionary: field.dictionary().map(encoding).transpose()?,
        });
        if let Some(encoding) = field.dictionary {
            let first = self
                .dictionaries
                .entry(encoding.id)
                .or_insert_with(|| Arc::clone(&field));
            if !first.same_type(&field) {
                return Err(Error::invalid_data(format!(
                    "dictionary {} is used for values of two different types",
                    encoding.id
                )));
            }
        }
        Ok(field)
    }
}

/// Bytes of the time zone, which stands in the type and in its format.
fn zone_len(field: ipc::Field<'_>) -> usize {
    let zone = field.type_as_timestamp().and_then(|ty| ty.timezone());
    zone.map_or(0, str::len)
}

fn encoding(encoding: ipc::DictionaryEncoding<'_>) -> Result<Encoding> {
    if encoding.dictionaryKind() != ipc::DictionaryKind::DenseArray {
        return Err(Error::unsupported(format!(
            "dictionaries of kind {} are not known here",
            encoding.dictionaryKind().0
        )));
    }
    let (bits, signed) = match encoding.indexType() {
        Some(index) => integer(index)?,
        // The format's default.
        None => (32, true),
    };
    Ok(Encoding {
        id: encoding.id(),
        bits,
        signed,
        ordered: encoding.isOrdered(),
    })
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
fn parse_type(field: ipc::Field<'_>, n_children: usize) -> Result<DecodedType> {
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
fn check_children(ty: &DecodedType, children: &[Arc<DecodedField>]) -> Result<()> {
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
