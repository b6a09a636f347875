//! Types, fields and schemas written as the flatbuffer tables of the IPC format.

use arrow::ipc;
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, UnionWIPOffset, Vector, WIPOffset};

use super::{Field, IntervalUnit, Schema, TimeUnit, Type};

/// A vector of tables in a header under construction.
type Tables<'fbb, T> = WIPOffset<Vector<'fbb, ForwardsUOffset<T>>>;

impl From<TimeUnit> for ipc::TimeUnit {
    fn from(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Second => Self::SECOND,
            TimeUnit::Millisecond => Self::MILLISECOND,
            TimeUnit::Microsecond => Self::MICROSECOND,
            TimeUnit::Nanosecond => Self::NANOSECOND,
        }
    }
}

impl Type {
    /// Writes the type's table. Returns the kind of the table and the table.
    pub fn to_ipc(
        &self,
        fbb: &mut FlatBufferBuilder<'_>,
    ) -> (ipc::Type, WIPOffset<UnionWIPOffset>) {
        macro_rules! table {
            ($name:ident $args:ident $($field:ident: $value:expr),*) => {
                (
                    ipc::Type::$name,
                    ipc::$name::create(fbb, &ipc::$args { $($field: $value),* }).as_union_value(),
                )
            };
        }
        match self {
            Self::Null => table! { Null NullArgs },
            Self::Boolean => table! { Bool BoolArgs },
            Self::Int { bits, signed } => {
                table! { Int IntArgs bitWidth: i32::from(*bits), is_signed: *signed }
            }
            Self::Float { bits } => {
                let precision = match bits {
                    16 => ipc::Precision::HALF,
                    32 => ipc::Precision::SINGLE,
                    _ => ipc::Precision::DOUBLE,
                };
                table! { FloatingPoint FloatingPointArgs precision: precision }
            }
            Self::Decimal {
                bits,
                precision,
                scale,
            } => {
                let bits = i32::from(*bits);
                table! { Decimal DecimalArgs bitWidth: bits, precision: *precision, scale: *scale }
            }
            Self::Date32 => table! { Date DateArgs unit: ipc::DateUnit::DAY },
            Self::Date64 => table! { Date DateArgs unit: ipc::DateUnit::MILLISECOND },
            Self::Time(unit) => {
                let bits = match unit {
                    TimeUnit::Second | TimeUnit::Millisecond => 32,
                    TimeUnit::Microsecond | TimeUnit::Nanosecond => 64,
                };
                table! { Time TimeArgs unit: (*unit).into(), bitWidth: bits }
            }
            Self::Timestamp(unit, zone) => {
                let zone = (!zone.is_empty()).then(|| fbb.create_string(zone));
                table! { Timestamp TimestampArgs unit: (*unit).into(), timezone: zone }
            }
            Self::Duration(unit) => table! { Duration DurationArgs unit: (*unit).into() },
            Self::Interval(unit) => {
                let unit = match unit {
                    IntervalUnit::YearMonth => ipc::IntervalUnit::YEAR_MONTH,
                    IntervalUnit::DayTime => ipc::IntervalUnit::DAY_TIME,
                    IntervalUnit::MonthDayNano => ipc::IntervalUnit::MONTH_DAY_NANO,
                };
                table! { Interval IntervalArgs unit: unit }
            }
            Self::Binary { large, utf8 } => match (large, utf8) {
                (false, false) => table! { Binary BinaryArgs },
                (true, false) => table! { LargeBinary LargeBinaryArgs },
                (false, true) => table! { Utf8 Utf8Args },
                (true, true) => table! { LargeUtf8 LargeUtf8Args },
            },
            Self::View { utf8: false } => table! { BinaryView BinaryViewArgs },
            Self::View { utf8: true } => table! { Utf8View Utf8ViewArgs },
            Self::FixedSizeBinary(width) => {
                table! { FixedSizeBinary FixedSizeBinaryArgs byteWidth: *width }
            }
            Self::List { large: false } => table! { List ListArgs },
            Self::List { large: true } => table! { LargeList LargeListArgs },
            Self::ListView { large: false } => table! { ListView ListViewArgs },
            Self::ListView { large: true } => table! { LargeListView LargeListViewArgs },
            Self::FixedSizeList(size) => {
                table! { FixedSizeList FixedSizeListArgs listSize: *size }
            }
            Self::Map { keys_sorted } => table! { Map MapArgs keysSorted: *keys_sorted },
            Self::Struct => table! { Struct_ Struct_Args },
            Self::Union { dense, ids } => {
                let ids = fbb.create_vector_from_iter(ids.iter().map(|id| i32::from(*id)));
                let mode = if *dense {
                    ipc::UnionMode::Dense
                } else {
                    ipc::UnionMode::Sparse
                };
                table! { Union UnionArgs mode: mode, typeIds: Some(ids) }
            }
            Self::RunEndEncoded => table! { RunEndEncoded RunEndEncodedArgs },
        }
    }
}

impl Field {
    /// Writes the table of the field and of its children.
    pub fn to_ipc<'fbb>(&self, fbb: &mut FlatBufferBuilder<'fbb>) -> WIPOffset<ipc::Field<'fbb>> {
        let children: Vec<_> = self
            .children
            .iter()
            .map(|child| child.to_ipc(fbb))
            .collect();
        // Some readers require the vector, even if it is empty.
        let children = fbb.create_vector(&children);
        let (type_type, type_) = self.ty.to_ipc(fbb);
        let dictionary = self.dictionary.as_ref().map(|dictionary| {
            let (bits, signed) = match dictionary.index {
                Type::Int { bits, signed } => (i32::from(bits), signed),
                _ => (32, true),
            };
            let index = ipc::Int::create(
                fbb,
                &ipc::IntArgs {
                    bitWidth: bits,
                    is_signed: signed,
                },
            );
            ipc::DictionaryEncoding::create(
                fbb,
                &ipc::DictionaryEncodingArgs {
                    id: dictionary.id,
                    indexType: Some(index),
                    isOrdered: dictionary.ordered,
                    dictionaryKind: ipc::DictionaryKind::DenseArray,
                },
            )
        });
        let metadata = metadata_to_ipc(&self.metadata, fbb);
        let name = fbb.create_string(&self.name);
        ipc::Field::create(
            fbb,
            &ipc::FieldArgs {
                name: Some(name),
                nullable: self.nullable,
                type_type,
                type_: Some(type_),
                dictionary,
                children: Some(children),
                custom_metadata: metadata,
            },
        )
    }
}

impl Schema {
    /// Writes the schema's table. Rule A6: this build writes little-endian data.
    pub fn to_ipc<'fbb>(&self, fbb: &mut FlatBufferBuilder<'fbb>) -> WIPOffset<ipc::Schema<'fbb>> {
        let fields: Vec<_> = self.fields.iter().map(|field| field.to_ipc(fbb)).collect();
        let fields = fbb.create_vector(&fields);
        let metadata = metadata_to_ipc(&self.metadata, fbb);
        ipc::Schema::create(
            fbb,
            &ipc::SchemaArgs {
                endianness: ipc::Endianness::Little,
                fields: Some(fields),
                custom_metadata: metadata,
                features: None,
            },
        )
    }
}

/// Writes key-value metadata; `None` for empty metadata.
pub fn metadata_to_ipc<'fbb>(
    metadata: &[(String, String)],
    fbb: &mut FlatBufferBuilder<'fbb>,
) -> Option<Tables<'fbb, ipc::KeyValue<'fbb>>> {
    if metadata.is_empty() {
        return None;
    }
    let pairs: Vec<_> = metadata
        .iter()
        .map(|(key, value)| {
            let key = Some(fbb.create_string(key));
            let value = Some(fbb.create_string(value));
            ipc::KeyValue::create(fbb, &ipc::KeyValueArgs { key, value })
        })
        .collect();
    Some(fbb.create_vector(&pairs))
}
