//! Messages of filters from columns, literals and calls of functions.

use std::sync::Arc;

use arrow::array::{Array, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Date32Type, Decimal128Type, Field, FieldRef, Fields,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, SchemaRef, TimeUnit,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use prost::Message;
use prost::bytes::Bytes;

use super::message::expression::Kind;
use super::message::{
    Argument, Cast, DayTime, DecimalLiteral, Declaration, Expression as Encoded,
    ExpressionReference, ExtendedExpression, Extension, ExtensionFile, FieldReference,
    FunctionOption, IfClause, IfThen, Literal, NamedStruct, OrList, Precise, ScalarFunction,
    Segment, StructField, StructType, Type, UserDefinedType, extension, kind, literal,
};
use super::types::{decimal, digits, substrait_type};
use super::value::plain;
use crate::arrow::select::listed;
use crate::error::{Error, Result};

/// The number by which messages refer to the type "null". Its only value is null, which may stand
/// beside values of every type.
const NULL: u32 = 0;
/// Where Substrait keeps the files that declare its functions.
const FILES: &str = "https://github.com/substrait-io/substrait/blob/main/extensions/";

/// An expression of the message that a [`FilterBuilder`] makes.
#[derive(Debug, Clone)]
pub struct FilterExpression(Bytes);

/// Makes the message of one filter, for tables of a schema: an extended expression of
/// [Substrait](https://substrait.io). [`GetOptions::filter`](crate::GetOptions::filter) takes it.
///
/// ```
/// use std::sync::Arc;
/// use arrow::array::Int64Array;
/// use arrow::datatypes::{DataType, Field, Schema};
/// use dipc::{FilterBuilder, FilterExpression, GetOptions};
///
/// let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
/// let mut builder = FilterBuilder::new(&schema);
/// let (n, _) = builder.column(&["n"])?;
/// let ten = FilterExpression::literal(&Int64Array::from(vec![10]))?;
/// let condition = builder.call("lt", [n, ten]);
/// let options = GetOptions::new().filter(builder.finish(condition))?;
/// # Ok::<(), dipc::Error>(())
/// ```
#[derive(Debug)]
pub struct FilterBuilder {
    schema: SchemaRef,
    /// Positions of the columns that were named so far. The message's own schema has only these
    /// columns.
    columns: Vec<usize>,
    /// Functions that were called so far; the message refers to them by position.
    functions: Vec<String>,
}

impl FilterBuilder {
    /// A builder without expressions.
    pub fn new(schema: &SchemaRef) -> Self {
        Self {
            schema: Arc::clone(schema),
            columns: Vec::new(),
            functions: Vec::new(),
        }
    }

    /// The column at `path`: the column's name, then names of fields of structs. Also returns the
    /// type in which the server compares the column: for dictionaries and runs, the type of the
    /// values.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: no column has the name, or several columns have it; the text lists the
    /// columns.
    pub fn column(&mut self, path: &[impl AsRef<str>]) -> Result<(FilterExpression, DataType)> {
        let (places, field) = find(path, self.schema.fields())?;
        let top = places.first().copied().unwrap_or_default();
        let known = self.columns.iter().position(|&column| column == top);
        let known = known.unwrap_or_else(|| {
            self.columns.push(top);
            self.columns.len() - 1
        });
        let mut direct = None;
        for &place in std::iter::once(&known).chain(places.iter().skip(1)).rev() {
            let field = i32::try_from(place).unwrap_or(i32::MAX);
            let child = direct.map(Box::new);
            direct = Some(Segment {
                field: Some(Box::new(StructField { field, child })),
                ..Segment::default()
            });
        }
        let reference = FieldReference {
            direct,
            ..FieldReference::default()
        };
        let column = encoded(Kind::Selection(reference.encode_to_vec().into()));
        Ok((column, plain(field.data_type())))
    }

    /// A call of a function of Substrait, by its name without a signature. The page on filters
    /// lists the functions that servers know.
    pub fn call(
        &mut self,
        name: &str,
        arguments: impl IntoIterator<Item = FilterExpression>,
    ) -> FilterExpression {
        self.call_with(name, arguments, [])
    }

    /// [`call`](Self::call) with options, each a name and its value: `("overflow", "SILENT")`.
    pub fn call_with(
        &mut self,
        name: &str,
        arguments: impl IntoIterator<Item = FilterExpression>,
        options: impl IntoIterator<Item = (&'static str, &'static str)>,
    ) -> FilterExpression {
        let known = self.functions.iter().position(|known| *known == name);
        let known = known.unwrap_or_else(|| {
            self.functions.push(name.to_owned());
            self.functions.len() - 1
        });
        let arguments = arguments
            .into_iter()
            .map(|it| Argument { value: Some(it.0) });
        let options = options.into_iter().map(|(name, value)| FunctionOption {
            name: name.to_owned(),
            preference: vec![value.to_owned()],
        });
        let call = ScalarFunction {
            reference: u32::try_from(known).unwrap_or(u32::MAX),
            arguments: arguments.collect(),
            options: options.collect(),
        };
        encoded(Kind::ScalarFunction(call.encode_to_vec().into()))
    }

    /// The message of the filter whose condition is `root`.
    pub fn finish(&self, root: FilterExpression) -> Vec<u8> {
        let mut names = Vec::new();
        let columns = self
            .columns
            .iter()
            .filter_map(|&place| self.schema.fields().get(place));
        let types = columns.map(|field| named(field, &mut names)).collect();
        let mut files: Vec<&str> = self.functions.iter().map(|name| file_of(name)).collect();
        files.sort_unstable();
        files.dedup();
        let anchor = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let declared = self.functions.iter().enumerate().map(|(place, name)| {
            let file = files.iter().position(|file| *file == file_of(name));
            Extension {
                kind: Some(extension::Kind::Function(Declaration {
                    uri: file.map_or(0, |file| anchor(file + 1)),
                    anchor: anchor(place),
                    name: name.clone(),
                    urn: 0,
                })),
            }
        });
        let null = Extension {
            kind: Some(extension::Kind::Type(Declaration {
                anchor: NULL,
                name: "null".to_owned(),
                ..Declaration::default()
            })),
        };
        let message = ExtendedExpression {
            extensions: declared.chain([null]).collect(),
            referred_expr: vec![ExpressionReference {
                expression: Some(root.0),
                measure: None,
            }],
            base_schema: Some(NamedStruct {
                names,
                fields: Some(StructType { types }),
            }),
            extension_uris: (files.iter().enumerate())
                .map(|(place, file)| ExtensionFile {
                    anchor: anchor(place + 1),
                    name: format!("{FILES}functions_{file}.yaml"),
                })
                .collect(),
            ..ExtendedExpression::default()
        };
        message.encode_to_vec()
    }
}

impl FilterExpression {
    /// The one row of `value`, null or not.
    ///
    /// # Errors
    ///
    /// `Unsupported`: a message has no such literals. `InvalidArgument`: not one row, or a decimal
    /// of more than 38 digits.
    pub fn literal(value: &dyn Array) -> Result<Self> {
        if value.len() != 1 {
            return Err(Error::invalid_argument("a literal has one row"));
        }
        let (kind, variation) = match value.is_null(0) {
            true => (literal::Kind::Null(null_type()), 0),
            false => kind_of(value)?,
        };
        let literal = Literal {
            kind: Some(kind),
            variation,
        };
        Ok(encoded(Kind::Literal(literal.encode_to_vec().into())))
    }

    /// Whether `value` is one of `options`.
    #[must_use]
    pub fn any_of(value: Self, options: impl IntoIterator<Item = Self>) -> Self {
        let list = OrList {
            value: Some(value.0),
            options: options.into_iter().map(|option| option.0).collect(),
        };
        encoded(Kind::SingularOrList(list.encode_to_vec().into()))
    }

    /// Each clause is a condition and its result. The value is the result of the first clause whose
    /// condition is true. If no condition is true, the value is `otherwise`, or null for `None`.
    #[must_use]
    pub fn if_then(
        clauses: impl IntoIterator<Item = (Self, Self)>,
        otherwise: Option<Self>,
    ) -> Self {
        let clause = |(condition, then): (Self, Self)| IfClause {
            condition: Some(condition.0),
            then: Some(then.0),
        };
        let choice = IfThen {
            ifs: clauses.into_iter().map(clause).collect(),
            otherwise: otherwise.map(|it| it.0),
        };
        encoded(Kind::IfThen(choice.encode_to_vec().into()))
    }

    /// The value, converted to another type. A value that the type cannot hold is an error of the
    /// filter.
    ///
    /// # Errors
    ///
    /// `Unsupported`: a message has no such type.
    pub fn cast(self, to: &DataType) -> Result<Self> {
        let cast = Cast {
            to: Some(known_type(to)?),
            input: Some(self.0),
            failure: 0,
        };
        Ok(encoded(Kind::Cast(cast.encode_to_vec().into())))
    }
}

fn null_type() -> Type {
    Type {
        kind: Some(kind::Kind::UserDefined(UserDefinedType { reference: NULL })),
    }
}

fn encoded(kind: Kind) -> FilterExpression {
    FilterExpression(Encoded { kind: Some(kind) }.encode_to_vec().into())
}

/// Substrait's file with this function.
fn file_of(name: &str) -> &'static str {
    match name {
        "and" | "or" | "xor" | "not" => "boolean",
        "add" | "subtract" | "multiply" | "divide" | "modulus" | "negate" => "arithmetic",
        "like" | "ilike" | "starts_with" | "ends_with" | "contains" | "lower" | "upper" => "string",
        _ => "comparison",
    }
}

/// The positions of the field at `path`, and the field.
fn find<'a>(path: &[impl AsRef<str>], columns: &'a Fields) -> Result<(Vec<usize>, &'a FieldRef)> {
    let mut fields = Some(columns);
    let mut found = None;
    let mut places = Vec::with_capacity(path.len());
    for name in path.iter().map(AsRef::as_ref) {
        let siblings = fields.ok_or_else(|| {
            Error::invalid_argument(format!("{name:?} is asked for of a column without fields"))
        })?;
        let mut same = siblings
            .iter()
            .enumerate()
            .filter(|(_, it)| it.name() == name);
        let (place, field) = same.next().ok_or_else(|| absent(name, siblings))?;
        if same.next().is_some() {
            let text = format!("several columns have the name {name:?}");
            return Err(Error::invalid_argument(text));
        }
        fields = match field.data_type() {
            DataType::Struct(fields) => Some(fields),
            _ => None,
        };
        found = Some(field);
        places.push(place);
    }
    let field = found.ok_or_else(|| Error::invalid_argument("a column without a name"))?;
    Ok((places, field))
}

/// The error for a column that is not there.
fn absent(name: &str, fields: &Fields) -> Error {
    let there = listed(fields.iter().map(|field| field.name()));
    Error::invalid_argument(format!(
        "no column has the name {name:?}; there are {there}"
    ))
}

/// The type that messages have for `of`.
///
/// # Errors
///
/// `Unsupported`: messages have no such type. `InvalidArgument`: a decimal of more than 38 digits.
fn known_type(of: &DataType) -> Result<Type> {
    let known = substrait_type(of);
    match &known.kind {
        Some(kind::Kind::Decimal(of)) => decimal(of.precision, of.scale).map(|_| known),
        Some(_) => Ok(known),
        None => Err(unsupported(of)),
    }
}

fn unsupported(of: &DataType) -> Error {
    Error::unsupported(format!("filters have no literals of type {of}"))
}

/// The type of a field. Appends the name of the field, and the names of the fields inside it, to
/// `names`.
fn named(field: &Field, names: &mut Vec<String>) -> Type {
    names.push(field.name().clone());
    inner_names(field.data_type(), names);
    substrait_type(field.data_type())
}

fn inner_names(of: &DataType, names: &mut Vec<String>) {
    match of {
        DataType::Struct(fields) => {
            for field in fields {
                names.push(field.name().clone());
                inner_names(field.data_type(), names);
            }
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            inner_names(item.data_type(), names);
        }
        DataType::Map(entries, _) => {
            if let DataType::Struct(fields) = entries.data_type() {
                for field in fields {
                    inner_names(field.data_type(), names);
                }
            }
        }
        _ => {}
    }
}

/// The literal of a row that is not null, and the variation of its type.
fn kind_of(value: &dyn Array) -> Result<(literal::Kind, u32)> {
    use literal::Kind;
    let of = value.data_type();
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let converted = |to: &DataType| {
        cast_with_options(value, to, &strict)
            .map_err(|error| Error::invalid_argument(format!("a literal: {error}")))
    };
    // Messages have fields for signed numbers only. An unsigned number is stored there by its bits,
    // as DataFusion does it.
    let integer = || {
        Ok::<_, Error>(
            converted(&DataType::Int64)?
                .as_primitive::<Int64Type>()
                .value(0),
        )
    };
    let text = || {
        Ok::<_, Error>(
            converted(&DataType::Utf8)?
                .as_string::<i32>()
                .value(0)
                .to_owned(),
        )
    };
    let precise = |unit: TimeUnit| -> Result<Precise> {
        Ok(Precise {
            precision: i32::from(digits(unit)),
            value: integer()?,
        })
    };
    Ok(match of {
        DataType::Boolean => (Kind::Boolean(value.as_boolean().value(0)), 0),
        DataType::Int8 => (
            Kind::I8(value.as_primitive::<Int8Type>().value(0).into()),
            0,
        ),
        DataType::Int16 => (
            Kind::I16(value.as_primitive::<Int16Type>().value(0).into()),
            0,
        ),
        DataType::Int32 => (Kind::I32(value.as_primitive::<Int32Type>().value(0)), 0),
        DataType::Int64 => (Kind::I64(value.as_primitive::<Int64Type>().value(0)), 0),
        DataType::UInt8 => (
            Kind::I8(value.as_primitive::<UInt8Type>().value(0).into()),
            1,
        ),
        DataType::UInt16 => (
            Kind::I16(value.as_primitive::<UInt16Type>().value(0).into()),
            1,
        ),
        DataType::UInt32 => {
            let bits = value.as_primitive::<UInt32Type>().value(0);
            (Kind::I32(bits.cast_signed()), 1)
        }
        DataType::UInt64 => {
            let bits = value.as_primitive::<UInt64Type>().value(0);
            (Kind::I64(bits.cast_signed()), 1)
        }
        DataType::Float16 | DataType::Float32 => {
            let wide = converted(&DataType::Float32)?;
            (Kind::Fp32(wide.as_primitive::<Float32Type>().value(0)), 0)
        }
        DataType::Float64 => (Kind::Fp64(value.as_primitive::<Float64Type>().value(0)), 0),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => (Kind::String(text()?), 0),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let bytes = converted(&DataType::Binary)?;
            let bytes = Bytes::copy_from_slice(bytes.as_binary::<i32>().value(0));
            (Kind::Binary(bytes), 0)
        }
        DataType::Date32 => (Kind::Date(value.as_primitive::<Date32Type>().value(0)), 0),
        DataType::Date64 => (Kind::PrecisionTimestamp(precise(TimeUnit::Millisecond)?), 0),
        DataType::Time32(unit) | DataType::Time64(unit) => {
            (Kind::PrecisionTime(precise(*unit)?), 0)
        }
        DataType::Timestamp(unit, None) => (Kind::PrecisionTimestamp(precise(*unit)?), 0),
        DataType::Timestamp(unit, Some(_)) => (Kind::PrecisionTimestampTz(precise(*unit)?), 0),
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => {
            let precision = precision.min(&DECIMAL128_MAX_PRECISION);
            decimal(i32::from(*precision), i32::from(*scale))?;
            let wide = converted(&DataType::Decimal128(*precision, *scale))?;
            let value = wide.as_primitive::<Decimal128Type>().value(0);
            let literal = DecimalLiteral {
                value: Bytes::copy_from_slice(&value.to_le_bytes()),
                precision: i32::from(*precision),
                scale: i32::from(*scale),
            };
            (Kind::Decimal(literal), 0)
        }
        DataType::Duration(unit) => (Kind::IntervalDayToSecond(day_time(*unit, integer()?)?), 0),
        other => return Err(unsupported(other)),
    })
}

/// The length of time of `value` units.
fn day_time(unit: TimeUnit, value: i64) -> Result<DayTime> {
    const DAY: i64 = 86_400;
    let per_second = 10_i64.pow(digits(unit).unsigned_abs().into());
    let seconds = value.div_euclid(per_second);
    let too_long = |_| Error::unsupported("filters have no literals of so long a duration");
    Ok(DayTime {
        days: i32::try_from(seconds.div_euclid(DAY)).map_err(too_long)?,
        seconds: i32::try_from(seconds.rem_euclid(DAY)).map_err(too_long)?,
        microseconds: None,
        precision: i32::from(digits(unit)),
        subseconds: value.rem_euclid(per_second),
    })
}
