//! Types, fields and schemas as the flatbuffer tables of the IPC format.

use arrow::ipc;
use flatbuffers::{FlatBufferBuilder, ForwardsUOffset, UnionWIPOffset, Vector, WIPOffset};

use super::{
    DictionaryEncoding, Field, IntervalUnit, MAX_DEPTH, Metadata, Schema, TimeUnit, Type, valid_ids,
};

/// A vector of tables, while a header is being built.
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

impl TimeUnit {
    fn from_ipc(unit: ipc::TimeUnit) -> Option<Self> {
        match unit {
            ipc::TimeUnit::SECOND => Some(Self::Second),
            ipc::TimeUnit::MILLISECOND => Some(Self::Millisecond),
            ipc::TimeUnit::MICROSECOND => Some(Self::Microsecond),
            ipc::TimeUnit::NANOSECOND => Some(Self::Nanosecond),
            _ => None,
        }
    }
}

impl Type {
    /// Writes the type's table and gives the number that tells which table it is.
    pub fn to_ipc(
        &self,
        fbb: &mut FlatBufferBuilder<'_>,
    ) -> (ipc::Type, WIPOffset<UnionWIPOffset>) {
        macro_rules! table {
            ($name:ident, $args:ident { $($field:ident: $value:expr),* }) => {
                (
                    ipc::Type::$name,
                    ipc::$name::create(fbb, &ipc::$args { $($field: $value),* }).as_union_value(),
                )
            };
        }
        match self {
            Self::Null => table!(Null, NullArgs {}),
            Self::Boolean => table!(Bool, BoolArgs {}),
            Self::Int { bits, signed } => {
                table!(
                    Int,
                    IntArgs {
                        bitWidth: i32::from(*bits),
                        is_signed: *signed
                    }
                )
            }
            Self::Float { bits } => {
                let precision = match bits {
                    16 => ipc::Precision::HALF,
                    32 => ipc::Precision::SINGLE,
                    _ => ipc::Precision::DOUBLE,
                };
                table!(
                    FloatingPoint,
                    FloatingPointArgs {
                        precision: precision
                    }
                )
            }
            Self::Decimal {
                bits,
                precision,
                scale,
            } => table!(
                Decimal,
                DecimalArgs {
                    bitWidth: i32::from(*bits),
                    precision: *precision,
                    scale: *scale
                }
            ),
            Self::Date32 => table!(
                Date,
                DateArgs {
                    unit: ipc::DateUnit::DAY
                }
            ),
            Self::Date64 => table!(
                Date,
                DateArgs {
                    unit: ipc::DateUnit::MILLISECOND
                }
            ),
            Self::Time(unit) => {
                let bits = match unit {
                    TimeUnit::Second | TimeUnit::Millisecond => 32,
                    TimeUnit::Microsecond | TimeUnit::Nanosecond => 64,
                };
                table!(
                    Time,
                    TimeArgs {
                        unit: (*unit).into(),
                        bitWidth: bits
                    }
                )
            }
            Self::Timestamp(unit, zone) => {
                let zone = (!zone.is_empty()).then(|| fbb.create_string(zone));
                table!(
                    Timestamp,
                    TimestampArgs {
                        unit: (*unit).into(),
                        timezone: zone
                    }
                )
            }
            Self::Duration(unit) => table!(
                Duration,
                DurationArgs {
                    unit: (*unit).into()
                }
            ),
            Self::Interval(unit) => {
                let unit = match unit {
                    IntervalUnit::YearMonth => ipc::IntervalUnit::YEAR_MONTH,
                    IntervalUnit::DayTime => ipc::IntervalUnit::DAY_TIME,
                    IntervalUnit::MonthDayNano => ipc::IntervalUnit::MONTH_DAY_NANO,
                };
                table!(Interval, IntervalArgs { unit: unit })
            }
            Self::Binary {
                large: false,
                utf8: false,
            } => table!(Binary, BinaryArgs {}),
            Self::Binary {
                large: true,
                utf8: false,
            } => table!(LargeBinary, LargeBinaryArgs {}),
            Self::Binary {
                large: false,
                utf8: true,
            } => table!(Utf8, Utf8Args {}),
            Self::Binary {
                large: true,
                utf8: true,
            } => table!(LargeUtf8, LargeUtf8Args {}),
            Self::View { utf8: false } => table!(BinaryView, BinaryViewArgs {}),
            Self::View { utf8: true } => table!(Utf8View, Utf8ViewArgs {}),
            Self::FixedSizeBinary(width) => {
                table!(FixedSizeBinary, FixedSizeBinaryArgs { byteWidth: *width })
            }
            Self::List { large: false } => table!(List, ListArgs {}),
            Self::List { large: true } => table!(LargeList, LargeListArgs {}),
            Self::ListView { large: false } => table!(ListView, ListViewArgs {}),
            Self::ListView { large: true } => table!(LargeListView, LargeListViewArgs {}),
            Self::FixedSizeList(size) => {
                table!(FixedSizeList, FixedSizeListArgs { listSize: *size })
            }
            Self::Map { keys_sorted } => table!(
                Map,
                MapArgs {
                    keysSorted: *keys_sorted
                }
            ),
            Self::Struct => table!(Struct_, Struct_Args {}),
            Self::Union { dense, ids } => {
                let ids = fbb.create_vector_from_iter(ids.iter().map(|id| i32::from(*id)));
                let mode = if *dense {
                    ipc::UnionMode::Dense
                } else {
                    ipc::UnionMode::Sparse
                };
                table!(
                    Union,
                    UnionArgs {
                        mode: mode,
                        typeIds: Some(ids)
                    }
                )
            }
            Self::RunEndEncoded => table!(RunEndEncoded, RunEndEncodedArgs {}),
        }
    }

    /// Reads the type of an IPC field; for a dictionary-encoded one, the type of its values.
    /// What is wrong comes back as a text.
    pub fn from_ipc(field: &ipc::Field<'_>) -> Result<Self, String> {
        let name = field
            .type_type()
            .variant_name()
            .unwrap_or("of an unknown kind");
        Self::from_table(field)
            .filter(|ty| {
                let children = field.children().map_or(0, |children| children.len());
                ty.child_count().is_none_or(|wanted| wanted == children)
            })
            .ok_or_else(|| format!("the type {name} is not valid or not known"))
    }

    fn from_table(field: &ipc::Field<'_>) -> Option<Self> {
        Some(match field.type_type() {
            ipc::Type::Null => Self::Null,
            ipc::Type::Bool => Self::Boolean,
            ipc::Type::Int => Self::int_from_ipc(&field.type_as_int()?)?,
            ipc::Type::FloatingPoint => {
                let bits = match field.type_as_floating_point()?.precision() {
                    ipc::Precision::HALF => 16,
                    ipc::Precision::SINGLE => 32,
                    ipc::Precision::DOUBLE => 64,
                    _ => return None,
                };
                Self::Float { bits }
            }
            ipc::Type::Decimal => {
                let decimal = field.type_as_decimal()?;
                Self::decimal(decimal.bitWidth(), decimal.precision(), decimal.scale())?
            }
            ipc::Type::Date => match field.type_as_date()?.unit() {
                ipc::DateUnit::DAY => Self::Date32,
                ipc::DateUnit::MILLISECOND => Self::Date64,
                _ => return None,
            },
            ipc::Type::Time => {
                let time = field.type_as_time()?;
                let unit = TimeUnit::from_ipc(time.unit())?;
                let bits = match unit {
                    TimeUnit::Second | TimeUnit::Millisecond => 32,
                    TimeUnit::Microsecond | TimeUnit::Nanosecond => 64,
                };
                if time.bitWidth() != bits {
                    return None;
                }
                Self::Time(unit)
            }
            ipc::Type::Timestamp => {
                let timestamp = field.type_as_timestamp()?;
                let zone = timestamp.timezone().unwrap_or_default().to_owned();
                Self::Timestamp(TimeUnit::from_ipc(timestamp.unit())?, zone)
            }
            ipc::Type::Duration => {
                Self::Duration(TimeUnit::from_ipc(field.type_as_duration()?.unit())?)
            }
            ipc::Type::Interval => Self::Interval(match field.type_as_interval()?.unit() {
                ipc::IntervalUnit::YEAR_MONTH => IntervalUnit::YearMonth,
                ipc::IntervalUnit::DAY_TIME => IntervalUnit::DayTime,
                ipc::IntervalUnit::MONTH_DAY_NANO => IntervalUnit::MonthDayNano,
                _ => return None,
            }),
            ipc::Type::Binary => Self::Binary {
                large: false,
                utf8: false,
            },
            ipc::Type::LargeBinary => Self::Binary {
                large: true,
                utf8: false,
            },
            ipc::Type::Utf8 => Self::Binary {
                large: false,
                utf8: true,
            },
            ipc::Type::LargeUtf8 => Self::Binary {
                large: true,
                utf8: true,
            },
            ipc::Type::BinaryView => Self::View { utf8: false },
            ipc::Type::Utf8View => Self::View { utf8: true },
            ipc::Type::FixedSizeBinary => Self::FixedSizeBinary(
                Some(field.type_as_fixed_size_binary()?.byteWidth()).filter(|width| *width >= 0)?,
            ),
            ipc::Type::List => Self::List { large: false },
            ipc::Type::LargeList => Self::List { large: true },
            ipc::Type::ListView => Self::ListView { large: false },
            ipc::Type::LargeListView => Self::ListView { large: true },
            ipc::Type::FixedSizeList => Self::FixedSizeList(
                Some(field.type_as_fixed_size_list()?.listSize()).filter(|size| *size >= 0)?,
            ),
            ipc::Type::Map => Self::Map {
                keys_sorted: field.type_as_map()?.keysSorted(),
            },
            ipc::Type::Struct_ => Self::Struct,
            ipc::Type::Union => Self::union_from_ipc(field)?,
            ipc::Type::RunEndEncoded => Self::RunEndEncoded,
            _ => return None,
        })
    }

    fn int_from_ipc(int: &ipc::Int<'_>) -> Option<Self> {
        let bits = u8::try_from(int.bitWidth()).ok()?;
        matches!(bits, 8 | 16 | 32 | 64).then_some(Self::Int {
            bits,
            signed: int.is_signed(),
        })
    }

    fn union_from_ipc(field: &ipc::Field<'_>) -> Option<Self> {
        let union = field.type_as_union()?;
        let dense = match union.mode() {
            ipc::UnionMode::Sparse => false,
            ipc::UnionMode::Dense => true,
            _ => return None,
        };
        let ids: Vec<i8> = match union.typeIds() {
            Some(ids) => ids
                .iter()
                .map(|id| i8::try_from(id).ok())
                .collect::<Option<_>>()?,
            // Without ids, children are numbered from 0.
            None => {
                let children = field.children().map_or(0, |children| children.len());
                (0..i8::try_from(children).ok()?).collect()
            }
        };
        valid_ids(&ids).then_some(Self::Union { dense, ids })
    }
}

impl Field {
    /// Writes the field's table and those under it.
    pub fn to_ipc<'fbb>(&self, fbb: &mut FlatBufferBuilder<'fbb>) -> WIPOffset<ipc::Field<'fbb>> {
        let children: Vec<_> = self
            .children
            .iter()
            .map(|child| child.to_ipc(fbb))
            .collect();
        // Some readers want the vector even where it is empty.
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

    /// Reads a field's table and those under it. What is wrong comes back as a text.
    pub fn from_ipc(field: &ipc::Field<'_>, depth: usize) -> Result<Self, String> {
        let name = field.name().unwrap_or_default();
        if depth > MAX_DEPTH {
            return Err(format!(
                "field `{name}`: fields nest deeper than {MAX_DEPTH} levels"
            ));
        }
        let ty = Type::from_ipc(field).map_err(|text| format!("field `{name}`: {text}"))?;
        let dictionary = match field.dictionary() {
            None => None,
            Some(dictionary) => Some(DictionaryEncoding {
                id: dictionary.id(),
                // The format's default, where the table has no index type.
                index: match dictionary.indexType() {
                    None => Type::Int {
                        bits: 32,
                        signed: true,
                    },
                    Some(index) => Type::int_from_ipc(&index)
                        .ok_or_else(|| format!("field `{name}`: its index type is not valid"))?,
                },
                ordered: dictionary.isOrdered(),
            }),
        };
        let mut children = Vec::new();
        for child in field.children().into_iter().flatten() {
            children.push(Self::from_ipc(&child, depth + 1)?);
        }
        let field = Self {
            name: name.to_owned(),
            ty,
            nullable: field.nullable(),
            children,
            dictionary,
            metadata: metadata_from_ipc(field.custom_metadata()),
        };
        field
            .check_children()
            .map_err(|text| format!("field `{name}`: {text}"))?;
        Ok(field)
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

    /// Reads a schema's table. What is wrong comes back as a text.
    pub fn from_ipc(schema: &ipc::Schema<'_>) -> Result<Self, String> {
        if schema.endianness() != ipc::Endianness::Little {
            // Rule A6.
            return Err("the data is big-endian, which libdipc does not read".to_owned());
        }
        let mut fields = Vec::new();
        for field in schema.fields().into_iter().flatten() {
            fields.push(Field::from_ipc(&field, 1)?);
        }
        Ok(Self {
            fields,
            metadata: metadata_from_ipc(schema.custom_metadata()),
        })
    }
}

/// Writes key-value metadata; nothing where there is none.
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
