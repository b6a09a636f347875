//! Messages of filters from columns, literals and calls of functions: what [`Filter::parse`] reads.
//!
//! [`Filter::parse`]: super::Filter::parse

use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Fields, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, Schema, TimeUnit,
};
use prost::Message;
use prost::bytes::Bytes;

use super::message::expression::Kind;
use super::message::{
    Argument, DecimalLiteral, Declaration, Expression as Encoded, ExpressionReference,
    ExtendedExpression, Extension, ExtensionFile, FieldReference, Literal, NamedStruct, OrList,
    Precise, ScalarFunction, Segment, StructField, StructType, extension, literal,
};
use super::types::{digits, substrait_type};
use super::value::plain;
use crate::error::{Error, Result};

/// Where Substrait keeps the files that declare its functions.
const FILES: &str = "https://github.com/substrait-io/substrait/blob/main/extensions/";

/// An expression of the message that a [`Builder`] makes.
#[derive(Debug, Clone)]
pub struct Expression(Bytes);

/// Makes the message of one filter, for tables of a schema.
#[derive(Debug)]
pub struct Builder<'a> {
    schema: &'a Schema,
    /// Positions of the columns that were named so far. The message's own schema has these alone.
    columns: Vec<usize>,
    /// Functions that were called so far; the message refers to them by position.
    functions: Vec<&'static str>,
}

impl<'a> Builder<'a> {
    /// A builder without expressions.
    pub fn new(schema: &'a Schema) -> Self {
        Self {
            schema,
            columns: Vec::new(),
            functions: Vec::new(),
        }
    }

    /// The column at `path`: its name, and below it names of fields of structs. With the type in
    /// which the server compares it: that of the values for dictionaries and runs.
    ///
    /// # Errors
    ///
    /// `InvalidArgument`: there is no such column, with those that there are, or there are several.
    pub fn column(&mut self, path: &[String]) -> Result<(Expression, DataType)> {
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

    /// A call of a function of Substrait, by its name without a signature.
    pub fn call(&mut self, name: &'static str, arguments: Vec<Expression>) -> Expression {
        let known = self.functions.iter().position(|known| *known == name);
        let known = known.unwrap_or_else(|| {
            self.functions.push(name);
            self.functions.len() - 1
        });
        let arguments = arguments
            .into_iter()
            .map(|it| Argument { value: Some(it.0) });
        let call = ScalarFunction {
            reference: u32::try_from(known).unwrap_or(u32::MAX),
            arguments: arguments.collect(),
            options: Vec::new(),
        };
        encoded(Kind::ScalarFunction(call.encode_to_vec().into()))
    }

    /// The message of a filter by `root`.
    pub fn finish(self, root: Expression) -> Vec<u8> {
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
                    name: (*name).to_owned(),
                    urn: 0,
                })),
            }
        });
        let message = ExtendedExpression {
            extensions: declared.collect(),
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

/// The one row of `value`, null or not.
///
/// # Errors
///
/// `Unsupported`: a message has no such literals. `InvalidArgument`: not one row, or a decimal of
/// more than 38 digits.
pub fn literal(value: &dyn Array) -> Result<Expression> {
    if value.len() != 1 {
        return Err(Error::invalid_argument("a literal has one row"));
    }
    let (kind, variation) = match value.is_null(0) {
        true => (literal::Kind::Null(substrait_type(value.data_type())), 0),
        false => kind_of(value)?,
    };
    let literal = Literal {
        kind: Some(kind),
        variation,
    };
    Ok(encoded(Kind::Literal(literal.encode_to_vec().into())))
}

/// Whether `value` is one of `options`.
pub fn any_of(value: Expression, options: Vec<Expression>) -> Expression {
    let list = OrList {
        value: Some(value.0),
        options: options.into_iter().map(|option| option.0).collect(),
    };
    encoded(Kind::SingularOrList(list.encode_to_vec().into()))
}

fn encoded(kind: Kind) -> Expression {
    Expression(Encoded { kind: Some(kind) }.encode_to_vec().into())
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
fn find<'a>(path: &[String], columns: &'a Fields) -> Result<(Vec<usize>, &'a FieldRef)> {
    let mut fields = Some(columns);
    let mut found = None;
    let mut places = Vec::with_capacity(path.len());
    for name in path {
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
    const MOST_NAMED: usize = 20;
    let names = fields.iter().take(MOST_NAMED);
    let names: Vec<_> = names.map(|field| format!("{:?}", field.name())).collect();
    let rest = match fields.len() - names.len() {
        0 => String::new(),
        left => format!(" and {left} others"),
    };
    Error::invalid_argument(format!(
        "no column has the name {name:?}; there are {}{rest}",
        names.join(", ")
    ))
}

/// The type of a field, whose name, and the names of whose fields, go to `names`.
fn named(field: &Field, names: &mut Vec<String>) -> super::message::Type {
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
    let converted = |to: &DataType| {
        cast(value, to).map_err(|error| Error::invalid_argument(format!("a literal: {error}")))
    };
    // The bits of unsigned numbers lie in the fields of signed ones, as DataFusion has them.
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
        // Each of these is a number of the next wider type.
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 => (Kind::I64(integer()?), 0),
        DataType::UInt64 => {
            let bits = value
                .as_primitive::<arrow::datatypes::UInt64Type>()
                .value(0);
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
        | DataType::Decimal128(precision, scale) => {
            let wide = converted(&DataType::Decimal128(*precision, *scale))?;
            let value = wide.as_primitive::<Decimal128Type>().value(0);
            let literal = DecimalLiteral {
                value: Bytes::copy_from_slice(&value.to_le_bytes()),
                precision: i32::from(*precision),
                scale: i32::from(*scale),
            };
            (Kind::Decimal(literal), 0)
        }
        other => {
            let text = format!("filters have no literals of type {other}");
            return Err(Error::unsupported(text));
        }
    })
}
